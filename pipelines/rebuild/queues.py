"""The second pass for queues: their files, from what all parts have of them; and how RocketMQ fills them.

A queue's folder is written beside its place and renamed when all of it is on the disk, so that a folder which is there
is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.layouts import StoreLayout
from commitlake.connectors.formats.rocketmq.consume_queues import ENTRY_DTYPE as ENTRY
from commitlake.connectors.whole_files import move_synced, write_synced
from commitlake.pipelines.rebuild import rules
from commitlake.pipelines.rebuild.entries import fillers, layout_of
from commitlake.pipelines.rebuild.journal_queues import JournalQueueWriter
from commitlake.pipelines.rebuild.parts import PartReader, Queue
from commitlake.pipelines.rebuild.queue_folder import QueueFolder
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.schemas.store_files import check_folder, read_json

_MOST_NUMBER = (1 << 63) // 40
"""A larger number, times 20, would not be an offset; only a damaged or forged record has it."""
_Note = tuple[str, int, bool, int, int, int]
"""A queue; entries that are skipped, shifted, lost."""


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
        log_start: physical offset of the log's first byte.
    """

    number: int
    queues: tuple[Queue, ...]
    parts: tuple[str, ...]
    work: str
    out: str
    settings: Settings
    log_start: int = 0


@dataclass(frozen=True, slots=True)
class QueuesBuilt:
    """What came of some queues.

    Attributes:
        files: how many were written.
        skipped: entries that brokers pass over, as the queue has their numbers, or cannot have them.
        shifted: entries that stand in front of their numbers, as the log lacks others.
        shifted_queues: the queues that have such entries, as `topic/queue id`.
        lost: entries that stand for messages which the log lacks.
    """

    files: int
    skipped: int
    shifted: int
    shifted_queues: tuple[str, ...]
    lost: int


def folder_of(out: Path, queue: Queue, settings: Settings) -> Path:
    """Where a queue's files belong."""
    return out / layout_of(settings, is_batch=queue.is_batch).folder / queue.topic / str(queue.queue_id)


def build_queues(task: QueueTask) -> QueuesBuilt:
    """Write the queues that are not there yet.

    Raises:
        RebuildError: if a part is damaged.
    """
    out, work = Path(task.out), Path(task.work)
    writers = {
        queue: _writer_of(task, queue, work / f"queue-{task.number}-{place}")
        for place, queue in enumerate(task.queues)
        if not check_folder(folder_of(out, queue, task.settings))
    }
    for path in task.parts if writers else ():
        reader = PartReader(Path(path))
        for queue in writers.keys() & reader.table.queues.keys():
            block = reader.table.queues[queue]
            writers[queue].add(
                *reader.queue(queue, layout_of(task.settings, is_batch=queue.is_batch).entry_size), block.first
            )
    notes = _note(work / f"queues-{task.number}.json", writers)
    for queue, writer in writers.items():
        writer.folder.finish()
        if writer.folder.files:  # else nothing of the log can be in it
            move_synced(writer.folder.path, folder_of(out, queue, task.settings), below=out)
    return QueuesBuilt(
        sum(writer.folder.files for writer in writers.values()),
        sum(skipped for _, _, _, skipped, _, _ in notes),
        sum(shifted for _, _, _, _, shifted, _ in notes),
        tuple(f"{topic}/{queue_id}" for topic, queue_id, _, _, shifted, _ in notes if shifted),
        sum(lost for _, _, _, _, _, lost in notes),
    )


def _note(path: Path, writers: Mapping[Queue, _Writer | JournalQueueWriter]) -> list[_Note]:
    """What of the queues is not as their numbers say, those included that an interrupted run has made.

    It is written down before the first queue has its place: who goes on does not make that again, and has to tell it.
    """
    before: list[_Note] = []
    with suppress(FileNotFoundError):
        before = [tuple(note) for note in read_json(path)]
    kept = [note for note in before if Queue(*note[:3]) not in writers]
    notes = kept + [
        (queue.topic, queue.queue_id, queue.is_batch, writer.skipped, writer.shifted, writer.lost)
        for queue, writer in writers.items()
        if writer.skipped or writer.shifted or writer.lost
    ]
    if notes != before:
        write_synced(path, json.dumps(notes).encode())
    return notes


def _writer_of(task: QueueTask, queue: Queue, path: Path) -> _Writer | JournalQueueWriter:
    settings = task.settings
    file_size = settings.batch_file_size if queue.is_batch else settings.queue_file_size
    folder = QueueFolder(path, file_size)
    if settings.layout is StoreLayout.JOURNAL:
        return JournalQueueWriter(folder, task.log_start)
    size = layout_of(settings, is_batch=queue.is_batch).entry_size
    return _Writer(folder, file_size, size, is_batch=queue.is_batch, closes_head=settings.close_heads)


class _Writer:
    """Appends to the files of one of RocketMQ's queues.

    Attributes:
        folder: its files.
        lost: 0, as no entry stands for a message that the log lacks.
    """

    lost = 0

    def __init__(
        self, folder: QueueFolder, file_size: int, entry_size: int, *, is_batch: bool, closes_head: bool
    ) -> None:
        self.folder = folder
        self._is_batch = is_batch
        self._closes_head = closes_head
        self._entry_size = entry_size
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
            following = np.arange(len(entries), dtype=np.int64)  # `arange` from a large number on gives floats
            entries = self._chosen(entries, first + following if numbers is None else numbers)
        self._append(entries)

    def _add_batches(self, entries: Array) -> None:
        """BatchConsumeQueues begin at byte 0, and take what comes: their entries say which messages they hold."""
        self._position = max(0, self._position)
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
        self.folder.write(self._position, data)
        self._position += len(data)


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
