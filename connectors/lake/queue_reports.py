"""Reports of tasks about queues that they pulled from a broker, as stored in a manifest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from commitlake.connectors.lake.store_progress import LastRecord


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The report of a task about a part of a queue.

    Attributes:
        broker: the store's name.
        topic: the queue's topic.
        queue_id: the queue's number.
        begin: the first offset of the part.
        planned: the planned end offset, exclusive.
        end: the next offset; less than `planned` if the run's end in the log comes earlier.
        rows: number of rows for `messages`.
        lost: number of messages that the broker has deleted or does not send.
        lost_where: description of the first of them.
        is_new_queue: whether the topic was recreated since the last run, so that the queue begins from its first
            message again.
        last_record: the newest record of the part.
    """

    broker: str
    topic: str
    queue_id: int
    begin: int
    planned: int
    end: int
    rows: int = 0
    lost: int = 0
    lost_where: str = ""
    is_new_queue: bool = False
    last_record: LastRecord | None = None

    def to_json(self) -> str:
        """Return the text for a manifest."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> QueueReport:
        """Parse a report."""
        value = json.loads(text)
        last = value.pop("last_record")
        return cls(**value, last_record=LastRecord(**last) if last else None)
