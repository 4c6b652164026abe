"""Index of topics and queues, from ConsumeQueues.

The queues of all topics together cover every byte of the log. So for a segment all queues are read, wanted or not,
20 bytes for each message, unless reading the wanted records alone takes as long as a scan. Bytes that no entry claims
are scanned. This one test covers all cases of incomplete queues: a queue or a queue file that is lost or not yet
written, a copy made while the broker was running, topics of batches, whose queues have another form, records that
brokers never enter (half messages of old brokers), damage, and the end of the log that dispatch has not reached. If two
entries claim the same bytes, the segment is scanned.

The queues `%LMQ%...` are left out, because their entries refer to records of other topics, which have an entry there.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.filters import Filters
from commitlake.connectors.formats.engine.index_answer import IndexAnswer, IndexUnusable, check_cheaper_than_scan
from commitlake.connectors.formats.engine.queue_format import AFTER_ALL, QueueFormat
from commitlake.connectors.formats.engine.splits import Split
from commitlake.schemas.layouts.segments import is_segment_name, parse_queue_folder
from commitlake.schemas.store_files import files_in, folders_in, open_file

_ENTRY = np.dtype([("offset", np.int64), ("size", np.int64)])


class QueueIndex:
    """Queues of one store, prepared for the topics and queues of a read.

    Attributes:
        name: the name of the index in a plan.
    """

    def __init__(self, store_folder: Path, filters: Filters, max_record_bytes: int, queues: QueueFormat) -> None:
        """List the queues, without reading entries.

        Args:
            store_folder: the folder that contains the log and the queues.
            filters: the filters for records.
            max_record_bytes: larger sizes are faults.

        Raises:
            IndexUnusable: if there are no queues, or they cannot be read.
        """
        self.name = queues.name
        self._format = queues
        self._filters = filters
        self._max_record_bytes = max_record_bytes
        # A topic that is not UTF-8 has U+FFFD in its name here, but its folder has another name.
        irregular = sorted(name for name in filters.topics or () if not queues.topics.fullmatch(str(name)))
        if irregular:
            raise IndexUnusable(f"no broker has a topic {irregular[0]!r}")
        try:
            self._queues = list(_queues(store_folder / queues.folder, queues))
        except OSError as error:
            raise IndexUnusable(f"{error.filename}: {error.strerror}") from None
        if not self._queues:
            raise IndexUnusable(f"{store_folder / queues.folder} holds no queue")
        self._wanted = np.array([self._is_wanted(queue) for queue in self._queues], bool)

    def _is_wanted(self, queue: _Queue) -> bool:
        topics, queue_ids = self._filters.topics, self._filters.queue_ids
        return (topics is None or queue.topic in topics) and (queue_ids is None or queue.queue_id in queue_ids)

    def _check_cheaper_than_scan(self, whole: Split, found: dict[int, tuple[Array, Array]]) -> None:
        """Check the cost before other queues are read, because most topics are small compared with those."""
        offsets, sizes = _columns([entries for _, entries in found.values()])
        low, high = self._filters.min_offset, self._filters.end_offset
        order = np.argsort(offsets)
        order = order[(offsets[order] >= (low or 0)) & (offsets[order] < (whole.end if high is None else high))]
        check_cheaper_than_scan(offsets[order], sizes[order], (), whole)

    def answer(self, whole: Split) -> IndexAnswer:
        """Return the wanted records of a segment's range, and the ranges that no entry covers.

        Raises:
            IndexUnusable: if entries contradict each other or cannot be read, or if a scan is as fast.
        """
        return self._answer(whole, must_pay=True)

    def list_entries(self, whole: Split) -> IndexAnswer:
        """List the wanted records of a range from the queues' entries alone, even if a scan is as fast.

        Raises:
            IndexUnusable: if entries contradict each other, or cannot be read.
        """
        return self._answer(whole, must_pay=False)

    def _answer(self, whole: Split, *, must_pay: bool) -> IndexAnswer:
        try:
            found: dict[int, tuple[Array, Array]] = {}
            self._add_entries(found, np.flatnonzero(self._wanted).tolist(), whole)
            if must_pay:
                self._check_cheaper_than_scan(whole, found)
            self._add_entries(found, np.flatnonzero(~self._wanted).tolist(), whole)
        except OSError as error:
            raise IndexUnusable(f"{error.filename}: {error.strerror}") from None
        offsets, sizes = _columns([entries for _, entries in found.values()])
        numbers = np.repeat(np.array(list(found), np.int32), [len(entries) for _, entries in found.values()])
        queue_offsets = np.concatenate([in_queue for in_queue, _ in found.values()])
        order = np.argsort(offsets, kind="stable")
        offsets, sizes, numbers = offsets[order], sizes[order], numbers[order]
        unknown = _unclaimed(offsets, sizes, whole, (self._format.min_record_size, self._max_record_bytes))
        wanted = self._wanted[numbers]
        places = np.cumsum(self._wanted, dtype=np.int32) - 1
        return IndexAnswer(
            offsets[wanted],
            sizes[wanted],
            unknown,
            tuple((queue.topic, queue.queue_id) for queue in self._queues if self._is_wanted(queue)),
            places[numbers[wanted]],
            queue_offsets[order][wanted],
        )

    def _add_entries(self, found: dict[int, tuple[Array, Array]], numbers: list[int], whole: Split) -> None:
        """Read the entries of some queues for a range of the log.

        Args:
            found: queue offsets and entries by the number of the queue; receives those of these queues.
            numbers: numbers of the queues.
            whole: the range.
        """
        most = whole.size // self._format.min_record_size
        room = most - sum(len(entries) for _, entries in found.values())
        for number in numbers:
            found[number] = self._queues[number].between(whole.start, whole.end, room)
            room -= len(found[number][1])


def _columns(entries: list[Array]) -> tuple[Array, Array]:
    """Return the physical offsets and sizes of entries."""
    together = np.concatenate([np.empty(0, _ENTRY), *entries])
    return together["offset"], together["size"]


def _unclaimed(offsets: Array, sizes: Array, whole: Split, sound: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the ranges that no entry covers."""
    least, most = sound
    if len(sizes) and (sizes.min() < least or sizes.max() > most):
        raise IndexUnusable(f"an entry has a size that is not {least} to {most} bytes")
    starts = np.append(offsets, whole.end)
    ends = np.insert(offsets + sizes, 0, whole.start)
    if (starts < ends).any():
        place = int(starts[np.flatnonzero(starts < ends)[0]])
        raise IndexUnusable(f"two entries claim the bytes before {place}, or one the end of the range")
    open_ranges = np.flatnonzero(starts > ends)
    return [(int(ends[place]), int(starts[place])) for place in open_ranges]


def _queues(folder: Path, queues: QueueFormat) -> Iterator[_Queue]:
    folder.stat()  # a missing folder is not an empty index
    for topic in folders_in(folder):
        if not (queues.no_queues and topic.startswith(queues.no_queues)):
            for queue in folders_in(folder / topic, below=folder):
                if (number := parse_queue_folder(queue)) is not None:
                    yield _Queue(topic, number, folder / topic / queue, queues)


class _Queue:
    """Entries of one queue, found by binary search, because they are in the order of the log.

    If they are not in order, too few are found, and the other ranges are scanned.
    """

    def __init__(self, topic: str, queue_id: int, folder: Path, queues: QueueFormat) -> None:
        self.topic = topic
        self.queue_id = queue_id
        top = folder.parent.parent
        names = sorted(files_in(folder, is_segment_name, below=top), key=int)
        self._files = [_QueueFile(folder / name, int(name), queues) for name in names]

    def between(self, start: int, end: int, most: int) -> tuple[Array, Array]:
        """Return queue offsets and entries of the records between two physical offsets, the end exclusive."""
        found: list[tuple[int, Array]] = []
        for file in self._files:
            found.append(file.between(start, end, most))
            most -= len(found[-1][1])
        numbers = [first + np.arange(len(entries), dtype=np.int64) for first, entries in found]
        return (
            np.concatenate([np.empty(0, np.int64), *numbers]),
            np.concatenate([np.empty(0, _ENTRY), *(entries for _, entries in found)]),
        )


class _QueueFile:
    """File of a queue."""

    def __init__(self, path: Path, base: int, queues: QueueFormat) -> None:
        self._path = path
        self._format = queues
        self._first_number = base // queues.entry.size
        self._edges: tuple[int, int] | None = None

    def between(self, start: int, end: int, most: int) -> tuple[int, Array]:
        """Return the first queue offset, and the entries, of the records in a range of the log."""
        nothing = (0, np.empty(0, _ENTRY))
        if self._edges is not None and (self._edges[0] >= end or self._edges[1] < start):
            return nothing
        descriptor = open_file(self._path, below=self._path.parents[2])
        try:
            unit = self._format.entry.size
            count = os.fstat(descriptor).st_size // unit

            def place(number: int) -> int:
                return self._format.place_of(os.pread(descriptor, unit, number * unit))

            if self._edges is None:
                written = bisect_left(range(count), AFTER_ALL, key=place)
                if not written:
                    return nothing
                self._edges = place(0), place(written - 1)
                if self._edges[0] >= end or self._edges[1] < start:
                    return nothing
            first = bisect_left(range(count), start, key=place)
            stop = bisect_left(range(count), end, key=place)
            if stop - first > most:
                raise IndexUnusable("the queues have more entries than the range has room for records")
            data = os.pread(descriptor, max(0, stop - first) * unit, first * unit)
        finally:
            os.close(descriptor)
        entries = self._parsed(data)
        kept = (entries["offset"] >= start) & (entries["offset"] < end) & (entries["size"] > 0)
        return (self._first_number + first, entries) if kept.all() else nothing

    def _parsed(self, data: bytes) -> Array:
        stored = np.frombuffer(data, np.dtype(self._format.entry.numpy_fields), len(data) // self._format.entry.size)
        entries = np.empty(len(stored), _ENTRY)
        entries["offset"], entries["size"] = stored[self._format.offset_field], stored["size"]
        return entries
