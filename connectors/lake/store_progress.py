"""The progress of one store: its last record and the offsets of pulled queues, as commits and tasks report them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Offsets = Mapping[str, Mapping[str, int]]
"""Next offset by topic and queue id, which is text as in JSON."""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """Last archived record of a store; the next run looks for it to check that the log was not replaced.

    Attributes:
        physical_offset: offset of its first byte.
        size: size in bytes.
        digest: hexadecimal hash of its bytes.
    """

    physical_offset: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class PulledProgress:
    """Archive progress in a store whose messages are pulled from its broker: the next offset of each queue.

    Attributes:
        offsets: the next offset to read, for each queue that a run has examined.
        topics: the topics that the last run was configured to archive; None for all.
        files_end: physical offset up to which the lake has archived the store's files; 0 for none.
    """

    offsets: Offsets = field(default_factory=dict)
    topics: tuple[str, ...] | None = None
    files_end: int = 0

    def next_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the next offset of a queue; None for a queue that no run has read."""
        return self.offsets.get(topic, {}).get(str(queue_id))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> PulledProgress:
        """Parse the progress from a commit's JSON."""
        topics = value["topics"]
        return cls(value["offsets"], None if topics is None else tuple(topics), value["files_end"])


@dataclass(frozen=True, slots=True)
class QueueReport:
    """Report of a task that has pulled a range of a queue's offsets from the broker.

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
        """Return the report as JSON text, for the manifest of a task."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> QueueReport:
        """Parse a report from the text of `to_json`."""
        value = json.loads(text)
        last = value.pop("last_record")
        return cls(**value, last_record=LastRecord(**last) if last else None)
