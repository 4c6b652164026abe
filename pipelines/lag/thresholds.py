"""Counts wanted messages between given offsets of queues. Batches may come in any order.

A history of lag needs the number of messages between two offsets for many times. Memory is bounded by the number of
offsets, not of messages: each message is counted in the interval between the two nearest offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array
from commitlake.pipelines.lag.counting import COLUMNS, Queue, numbers, rows_by_queue
from commitlake.pipelines.lag.wanted import GroupFilter


class ThresholdCounter:
    """Counts messages between given offsets; a `Count`.

    Args:
        places: By queue and choice, the offsets that separate the counts, at least one each.
        floors: Physical offsets by queue; records before them do not count. Other queues have no such limit.
        log_end: Records that begin at or after this physical offset are not needed; None for no limit.

    Attributes:
        starts: The queues, each with its smallest offset.
        columns: The columns that batches must have.
        until_ms: None, like `since_ms` and `log_start`: only the offsets limit what counts.
    """

    def __init__(
        self,
        places: Mapping[tuple[Queue, GroupFilter], Iterable[int]],
        floors: Mapping[Queue, int] | None = None,
        log_end: int | None = None,
    ) -> None:
        self.log_end = log_end
        self._offsets = {key: np.unique(np.asarray(list(offsets), np.int64)) for key, offsets in places.items()}
        self._counts = {key: np.zeros(len(offsets) + 1, np.int64) for key, offsets in self._offsets.items()}
        self._floors = floors or {}
        self._of_queue: dict[Queue, list[GroupFilter]] = defaultdict(list)
        starts: dict[Queue, int] = {}
        for (queue, wanted), offsets in self._offsets.items():
            self._of_queue[queue].append(wanted)
            starts[queue] = min(int(offsets[0]), starts.get(queue, int(offsets[0])))
        self.starts: Mapping[Queue, int] = starts
        self.columns: Collection[str] = (
            *COLUMNS,
            *(["tags"] if any(wanted.tags is not None for _, wanted in places) else []),
            *(["properties"] if any(wanted.needs_properties for _, wanted in places) else []),
        )
        self.until_ms: int | None = None
        self.since_ms: int | None = None
        self.log_start: int | None = None

    def add(self, broker: str, batch: pa.RecordBatch) -> None:
        """Count a batch of a store's messages."""
        offsets, physical = numbers(batch, "queue_offset"), numbers(batch, "physical_offset")
        chosen: dict[GroupFilter, Array] = {}
        for queue, rows in rows_by_queue(broker, batch):
            for wanted in self._of_queue.get(queue, ()):
                if wanted not in chosen:
                    chosen[wanted] = wanted.select(batch)
                here = rows[chosen[wanted][rows] & (physical[rows] >= self._floors.get(queue, 0))]
                counts = self._counts[queue, wanted]
                places = np.searchsorted(self._offsets[queue, wanted], offsets[here], side="right")
                counts += np.bincount(places, minlength=len(counts))

    def between(self, queue: Queue, wanted: GroupFilter, start: int, end: int) -> int:
        """Return the number of wanted messages from `start` to before `end`; both must be among the given offsets."""
        offsets, counts = self._offsets[queue, wanted], self._counts[queue, wanted]
        first, last = np.searchsorted(offsets, [start, end])
        return int(counts[first + 1 : last + 1].sum())
