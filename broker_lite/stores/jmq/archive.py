"""View of a store for an archive: every message that was produced, and every consumption.

Both are byte sequences, the journal and the consume log. The archive requests the data after a position, and receives
the position of the next request. It stores both positions together with the archived data, so it misses nothing. After
a crash it may write some data twice, which the keys (broker, journal offset) of messages and (broker, offset in the
consume log) of consumptions make harmless. Only flushed data is returned, because a crash of the machine can undo the
rest.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.stores.jmq.store import JournalStore
from commitlake.schemas.layouts.jmq.consumption import Consumption
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.jmq.message_id import MessagePlace, serialize_message_id


class Produced(NamedTuple):
    """Message with the name of its broker."""

    broker: str
    message: JournalMessage

    @property
    def message_id(self) -> str:
        """Id of the message."""
        message = self.message
        return serialize_message_id(MessagePlace(message.topic, message.queue_id, message.queue_offset, self.broker))


class ArchiveView:
    """Reader of a store for an archive; several threads may use it."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def produced(self, journal_offset: int, max_messages: int) -> tuple[list[Produced], int]:
        """Return messages of all topics, in the order of the journal.

        Args:
            journal_offset: 0, or the offset that the last call returned.
            max_messages: maximum number of messages.

        Returns:
            The messages, and the offset to continue at. Damaged parts are skipped; `journal_scan` reports them.
        """
        messages, following = self._store.read_journal(journal_offset, max_messages)
        return [Produced(self._store.options.broker_name, message) for message in messages], following

    def consumed(self, offset: int, max_records: int) -> tuple[list[Consumption], int]:
        """Return consumptions by all applications, in the order in which they were reported.

        Args:
            offset: 0, or the offset that the last call returned.
            max_records: maximum number of records.

        Returns:
            The consumptions, and the offset to continue at.
        """
        return self._store.read_consumptions(offset, max_records)
