"""The second pass for queues: writes their files from the blocks of all parts.

A queue's folder is written under another name and renamed when all of it is on disk, so that a folder with its final
name is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.atomic_files import move_synced, write_synced
from commitlake.connectors.log_format.queues import NewQueue, QueueWriter
from commitlake.connectors.runtime.runner import SharedValue
from commitlake.pipelines.rebuild.part_files import PartReader, Queue
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.safe_store_files import (
    FILE_MODE,
    check_folder,
    make_folders,
    read_json,
    remove_tree,
    sync_folder,
)

_Note = tuple[str, int, bool, int, int, int]
"""Topic, queue id, whether it is a BatchConsumeQueue; numbers of skipped, shifted and lost entries."""


class QueueFolder:
    """Folder of a queue's consecutive files, all of the same size.

    Attributes:
        path: path of the folder.
        files: number of files.
        start: byte position of the first file in the queue; each other file begins a multiple of the size later.
    """

    def __init__(self, path: Path, file_size: int) -> None:
        """Create an empty folder; a folder with the same path from an earlier run is deleted."""
        # An earlier run's folder may be incomplete, since only renamed folders are known to be whole.
        remove_tree(path)
        make_folders(path)
        self.path = path
        self.files = 0
        self.start = 0
        self._file_size = file_size

    def clear(self) -> None:
        """Delete the queue's files."""
        for path in self.path.iterdir():
            path.unlink()
        self.files = 0

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes at a byte position of the queue, which may be in several files."""
        for start, at, size in self._split_by_file(position, len(data)):
            self._write_to_file(start, at, data[:size])
            data = data[size:]

    def read(self, position: int, size: int) -> bytes:
        """Read bytes at a byte position of the queue that were written before."""
        return b"".join(self._read_from_file(*piece) for piece in self._split_by_file(position, size))

    def _split_by_file(self, position: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Divide a byte range of the queue at the borders of its files.

        Yield for each piece its file's start, its position there, and its size.
        """
        while size:
            at = (position - self.start) % self._file_size
            piece = min(size, self._file_size - at)
            yield position - at, at, piece
            position += piece
            size -= piece

    def _write_to_file(self, file_start: int, position: int, data: memoryview) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path / segment_name(file_start), flags, FILE_MODE)
        try:
            if os.fstat(descriptor).st_size != self._file_size:  # a new file
                os.truncate(descriptor, self._file_size)
                self.files += 1
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], position + written)
        finally:
            os.close(descriptor)

    def _read_from_file(self, file_start: int, position: int, size: int) -> bytes:
        descriptor = os.open(self.path / segment_name(file_start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, size, position)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Sync the queue's files and folder to disk."""
        for path in self.path.iterdir():
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(self.path)


@dataclass(frozen=True, slots=True)
class QueueTask:
    """Task that writes the files of some queues.

    Attributes:
        number: number of the task.
        queues: the queues.
        parts: paths of all parts, in log order.
        work: folder for unfinished files.
        out: the folder that receives the queues' folders.
        settings: the broker's settings.
        log_start: physical offset of the log's first byte.
    """

    number: int
    queues: tuple[Queue, ...]
    parts: SharedValue[tuple[str, ...]]
    work: str
    out: str
    settings: Settings
    log_start: int = 0


@dataclass(frozen=True, slots=True)
class BuiltQueueCounts:
    """Numbers of files and entries that a task wrote, and of skipped, shifted and filler entries.

    Attributes:
        files: number of files that were written.
        skipped: number of entries that brokers skip, as their queue offsets are taken or impossible.
        shifted: number of entries at a smaller queue offset than their own, as the log lacks messages before them.
        shifted_queues: the queues of these entries, as `topic/queue id`.
        lost: number of filler entries for messages that the log lacks.
    """

    files: int
    skipped: int
    shifted: int
    shifted_queues: tuple[str, ...]
    lost: int


def queue_folder_path(output_folder: Path, queue: Queue, settings: Settings) -> Path:
    """Return the folder of a queue's files."""
    return output_folder / settings.queues_of_kind(is_batch=queue.is_batch).folder / queue.topic / str(queue.queue_id)


def build_queues(task: QueueTask) -> BuiltQueueCounts:
    """Write the files of the task's queues, except queues that an earlier run has completed.

    Raises:
        UsageError: if a part is damaged.
    """
    out, work = Path(task.out), Path(task.work)
    folders = {
        queue: QueueFolder(work / f"queue-{task.number}-{place}", _queue_file_size(task.settings, queue))
        for place, queue in enumerate(task.queues)
        # A folder with its final name was completed by an earlier run.
        if not check_folder(queue_folder_path(out, queue, task.settings))
    }
    writers = {queue: _make_queue_writer(task, queue, folder) for queue, folder in folders.items()}
    # Part by part for all queues of the task, so that each part is opened once.
    for path in task.parts.value if writers else ():
        reader = PartReader(Path(path))
        for queue in writers.keys() & reader.table.queues.keys():
            block = reader.table.queues[queue]
            writers[queue].append_entries(
                *reader.read_queue_entries(queue, task.settings.queues_of_kind(is_batch=queue.is_batch).entry_size),
                block.first,
            )
    notes = _save_queue_notes(work / f"queues-{task.number}.json", writers)
    for queue, folder in folders.items():
        # Synced before it is renamed: the name says that the content is on disk.
        folder.finish()
        if folder.files:  # otherwise no entry could be written
            move_synced(folder.path, queue_folder_path(out, queue, task.settings), trusted_root=out)
    return BuiltQueueCounts(
        sum(folder.files for folder in folders.values()),
        sum(skipped for _, _, _, skipped, _, _ in notes),
        sum(shifted for _, _, _, _, shifted, _ in notes),
        tuple(f"{topic}/{queue_id}" for topic, queue_id, _, _, shifted, _ in notes if shifted),
        sum(lost for _, _, _, _, _, lost in notes),
    )


def _save_queue_notes(path: Path, writers: Mapping[Queue, QueueWriter]) -> list[_Note]:
    """Save and return the counts of skipped, shifted and lost entries by queue, including an interrupted run's.

    They are saved before the first folder is renamed, because a resumed run does not write that queue again, but has to
    report them.
    """
    before: list[_Note] = []
    with suppress(FileNotFoundError):
        before = [tuple(note) for note in read_json(path)]
    kept = [note for note in before if Queue(*note[:3]) not in writers]
    notes = kept + [
        (queue.topic, queue.queue_id, queue.is_batch, writer.skipped_count, writer.shifted_count, writer.lost_count)
        for queue, writer in writers.items()
        if writer.skipped_count or writer.shifted_count or writer.lost_count
    ]
    if notes != before:
        write_synced(path, json.dumps(notes).encode())
    return notes


def _make_queue_writer(task: QueueTask, queue: Queue, folder: QueueFolder) -> QueueWriter:
    settings = task.settings
    new = NewQueue(_queue_file_size(settings, queue), queue.is_batch, settings.close_heads, task.log_start)
    return settings.format.queues.make_queue_writer(folder, new)


def _queue_file_size(settings: Settings, queue: Queue) -> int:
    return settings.batch_file_size if queue.is_batch else settings.queue_file_size


def group_queues(entry_counts: dict[Queue, int], max_groups: int) -> list[tuple[Queue, ...]]:
    """Divide queues into at most `max_groups` groups, each with about the same number of entries.

    Args:
        entry_counts: number of entries by queue.
        max_groups: largest number of groups.
    """
    groups: list[list[Queue]] = [[] for _ in range(max(1, min(max_groups, len(entry_counts))))]
    sizes = [0] * len(groups)
    for queue in sorted(entry_counts, key=lambda each: (-entry_counts[each], each)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(queue)
        sizes[smallest] += entry_counts[queue]
    return [tuple(group) for group in groups if group]


def prefix_sums(counts: Sequence[int]) -> list[int]:
    """Return the running totals of the counts: 0 first, the sum of all last."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums
