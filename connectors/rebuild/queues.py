"""The second pass for queues: their files, from what all parts have of them.

A queue's folder is written beside its place and renamed when all of it is on the disk, so that a folder which is there
is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from connectors.facts.consume_queues import ENTRY_DTYPE as ENTRY
from connectors.facts.kernel import Array
from connectors.rebuild import rules
from connectors.rebuild.durable import move_synced
from connectors.rebuild.entries import BATCH_ENTRY, entry_size, fillers
from connectors.rebuild.parts import PartReader, Queue
from connectors.rebuild.settings import BATCH_QUEUES, QUEUES, Settings
from connectors.whole_files import sync_folder
from schemas.layouts.segments import segment_name

_MOST_NUMBER = (1 << 63) // 40
"""A larger number, times 20, would not be an offset; only a damaged or forged record has it."""


@dataclass(frozen=True, slots=True)
class QueueTask:
    """Some queues.

    Attributes:
        number: of the task.
        queues: which.
        parts: paths of all parts, in the order of the log.
        work: folder for what is not whole.
        out: the folder that gets the queues' folders.
        settings: the broker's.
    """

    number: int
    queues: tuple[Queue, ...]
    parts: tuple[str, ...]
    work: str
    out: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class QueuesBuilt:
    """What came of some queues.

    Attributes:
        files: how many were written.
        skipped: entries that brokers pass over, as the queue has their numbers.
        shifted: entries that stand in front of their numbers, as the log lacks others.
        shifted_queues: the queues that have such entries, as `topic/queue id`.
    """

    files: int
    skipped: int
    shifted: int
    shifted_queues: tuple[str, ...]


def folder_of(out: Path, queue: Queue) -> Path:
    """Where a queue's files belong."""
    return out / (BATCH_QUEUES if queue.is_batch else QUEUES) / queue.topic / str(queue.queue_id)


def build_queues(task: QueueTask) -> QueuesBuilt:
    """Write the queues that are not there yet.

    Raises:
        RebuildError: if a part is damaged.
    """
    out, work = Path(task.out), Path(task.work)
    writers: dict[Queue, _Writer] = {}
    for place, queue in enumerate(task.queues):
        if not folder_of(out, queue).exists():
            folder = work / f"queue-{task.number}-{place}"
            size = task.settings.batch_file_size if queue.is_batch else task.settings.queue_file_size
            writers[queue] = _Writer(folder, queue, size, closes_head=task.settings.close_heads)
    for path in task.parts if writers else ():
        reader = PartReader(Path(path))
        for queue in writers.keys() & reader.table.queues.keys():
            block = reader.table.queues[queue]
            writers[queue].add(*reader.queue(queue, entry_size(is_batch=queue.is_batch)), block.first)
    for queue, writer in writers.items():
        writer.finish()
        move_synced(writer.folder, folder_of(out, queue))
    shifted = tuple(f"{queue.topic}/{queue.queue_id}" for queue, writer in writers.items() if writer.shifted)
    return QueuesBuilt(
        sum(writer.files for writer in writers.values()),
        sum(writer.skipped for writer in writers.values()),
        sum(writer.shifted for writer in writers.values()),
        shifted,
    )


class _Writer:
    """Appends to the files of one queue.

    Attributes:
        folder: where they are.
        files: how many there are.
    """

    def __init__(self, folder: Path, queue: Queue, file_size: int, *, closes_head: bool) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.files = 0
        self._is_batch = queue.is_batch
        self._closes_head = closes_head
        self._entry_size = entry_size(is_batch=queue.is_batch)
        self._file_size = file_size
        self._state = np.zeros(rules.STATE_SIZE, np.int64)
        self._state[rules.BEHIND] = -1
        self._position = -1  # of the next entry, in bytes; none before the first

    @property
    def skipped(self) -> int:
        """Entries that were passed over."""
        return int(self._state[rules.SKIPPED])

    @property
    def shifted(self) -> int:
        """Entries that stand in front of their numbers."""
        return int(self._state[rules.SHIFTED])

    def add(self, entries: Array, numbers: Array | None, first: int) -> None:
        """Append the entries of a part.

        Args:
            entries: uint8[entries, bytes].
            numbers: their queue offsets.
            first: of the first, where there are no numbers.
        """
        if self._is_batch:
            self._add_batches(entries)
            return
        if self._position < 0:
            self._begin(first if numbers is None else int(numbers[0]))
        if numbers is None and first == self._state[rules.END]:
            last = entries[-1].view(ENTRY)[0]
            self._state[rules.END] += len(entries)
            self._state[rules.BEHIND] = int(last["physical_offset"]) + int(last["size"])
        else:
            entries = self._chosen(entries, np.arange(first, first + len(entries)) if numbers is None else numbers)
        self._append(entries)

    def _add_batches(self, entries: Array) -> None:
        """BatchConsumeQueues begin at byte 0, and take what comes: their entries say which messages they hold."""
        self._position = max(0, self._position)
        fields = entries.reshape(-1).view(BATCH_ENTRY)
        self._state[rules.END] = int(fields[-1]["message_base_offset"]) + int(fields[-1]["batch_size"])
        self._append(entries)

    def _begin(self, number: int) -> None:
        """The first file is the one that the first entry belongs in; what is before it there is filled."""
        number = number if 0 <= number <= _MOST_NUMBER and not self._closes_head else 0
        self._state[rules.END] = number
        self._position = number * self._entry_size
        before = self._position % self._file_size // self._entry_size
        self._position -= before * self._entry_size
        if before:
            self._append(np.ascontiguousarray(fillers(before)).view(np.uint8).reshape(before, -1))

    def _chosen(self, entries: Array, numbers: Array) -> Array:
        fields = entries.reshape(-1).view(ENTRY)
        kept = np.empty(len(entries), np.bool_)
        offsets, sizes = fields["physical_offset"].astype(np.int64), fields["size"].astype(np.int64)
        rules.choose_entries(numbers.astype(np.int64), offsets, sizes, self._state, kept)
        chosen: Array = entries[kept]
        return chosen

    def _append(self, entries: Array) -> None:
        data = np.ascontiguousarray(entries).reshape(-1).data
        while data:
            at = self._position % self._file_size
            size = min(len(data), self._file_size - at)
            self._write(self._position - at, at, data[:size])
            self._position += size
            data = data[size:]

    def _write(self, start: int, at: int, data: memoryview) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.folder / segment_name(start), flags, 0o644)
        try:
            if os.fstat(descriptor).st_size != self._file_size:  # made now
                os.truncate(descriptor, self._file_size)
                self.files += 1
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], at + written)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Put the files on the disk."""
        for path in self.folder.iterdir():
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(self.folder)


def group_queues(counts: dict[Queue, int], tasks: int) -> list[tuple[Queue, ...]]:
    """Queues in groups of about as many entries each.

    Args:
        counts: entries of each.
        tasks: how many groups there should be at most.
    """
    groups: list[list[Queue]] = [[] for _ in range(max(1, min(tasks, len(counts))))]
    sizes = [0] * len(groups)
    for queue in sorted(counts, key=lambda each: (-counts[each], each)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(queue)
        sizes[smallest] += counts[queue]
    return [tuple(group) for group in groups if group]


def prefix_sums(counts: Sequence[int]) -> list[int]:
    """What comes before each, and at the end all."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums
