"""The progress of one store in a commit: its last record, and the offsets of pulled queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Offsets = Mapping[str, Mapping[str, int]]
"""Next offset by topic and queue id, which is text as in JSON."""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last archived record of a store, which must be unchanged when the next run begins.

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
    """The progress of a store that is pulled from its broker.

    Attributes:
        offsets: the next offset of each queue that a run has examined.
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
