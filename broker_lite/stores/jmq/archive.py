"""What the archive's agent sees of a store: every message that was produced, and every consumption.

Both are runs of bytes with places in them: the journal, and the consume log. The agent asks for what lies behind a
place and gets the place to ask from next; it keeps the two places with what it has archived, and so misses nothing and
can write twice what it was not sure of. Keys of (broker, journal offset) for messages, and of (broker, offset in the
consume log) for consumptions, make a second write harmless. Only what is on the disk is shown: what a failing machine
may take back, the archive must not have.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.stores.jmq.store import JournalStore
from commitlake.schemas.layouts.jmq.consumption import Consumption
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.jmq.message_id import MessagePlace, serialize_message_id


class Produced(NamedTuple):
    """A message, and whose."""

    broker: str
    message: JournalMessage

    @property
    def message_id(self) -> str:
        """The message's id."""
        message = self.message
        return serialize_message_id(MessagePlace(message.topic, message.queue_id, message.queue_offset, self.broker))


class ArchiveView:
    """Reads a store for an archive; several threads may use it."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def produced(self, journal_offset: int, max_messages: int) -> tuple[list[Produced], int]:
        """Messages of all topics, in the order of the journal.

        Args:
            journal_offset: 0, or what the last call gave.
            max_messages: how many at most.

        Returns:
            The messages, and where to go on. What is damaged is left out: `journal_scan` finds and names it.
        """
        messages, following = self._store.read_journal(journal_offset, max_messages)
        return [Produced(self._store.options.broker_name, message) for message in messages], following

    def consumed(self, offset: int, max_records: int) -> tuple[list[Consumption], int]:
        """Consumptions by all applications, in the order in which they were told.

        Args:
            offset: 0, or what the last call gave.
            max_records: how many at most.

        Returns:
            The consumptions, and where to go on.
        """
        return self._store.read_consumptions(offset, max_records)
