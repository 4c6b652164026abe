"""Data on a store that is fixed before its log is read: the log's end, what is dispatched, its index files.

A broker may be writing meanwhile. So the small files are read first, then the log's end is fixed, then the log is read
up to there, and then the indexes, which by then have at least the entries of these records. Records after the last
entry of all queues count as not dispatched yet, and entries after the fixed end of the log are ignored as newer.

In a copy that `commitlake ship` made in an object store or HDFS, every file stays readable as its manifest names it, so
only the order in which the manifests are read matters. An agent publishes the log first, then queues and indexes, then
small files. Here they are read in reverse: small files, then the manifest of queues and indexes, then the list of
segments and the log's end. So group offsets are not ahead of the queues, and no entry points beyond the log's end,
except entries of a single record: an agent ships the newest record only once it has seen it unchanged.

The queues may be up to a minute older than the log, and the copy shows it in two ways: it has `abort` while a broker is
running; and in the minute after a broker has started, the log's manifest is newer than that of the queues, and no queue
has an entry of the newest record. In both cases, records after the last entry of all queues count as not dispatched
yet. Tasks in other processes read a later manifest, which has at least the same entries. They look up the entries of
records, so they need not ignore any.

No copy has the newest IndexFile; only `commitlake rebuild` in a folder creates it.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlake.connectors.log_format.files import Segment, StoreFiles
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.log_format.queues import QueueLayout, TopicKinds
from commitlake.connectors.reading.files.concurrent_reads import map_concurrently
from commitlake.connectors.reading.files.index_files import MAX_FILE_BYTES
from commitlake.connectors.reading.files.store_files import choose_thread_count
from commitlake.connectors.reading.snapshots import LogTailKind
from commitlake.pipelines.verify.index_files import IndexPart
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.topics import needs_topic_config
from commitlake.schemas.layouts.segment_names import is_segment_name, parse_queue_folder
from commitlake.schemas.safe_store_files import open_file

ABORT, LOCK = "abort", "lock"
_NEWEST_ENTRIES = 16
"""Number of entries at the end of a queue among which the newest one of a record in the log is expected."""
_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


@dataclass(frozen=True)
class StoreView:
    """Facts about a store that verification tasks need, determined before its log is read.

    Attributes:
        broker: the store's name.
        files: its queues and indexes.
        root: the store's folder, as a path or URI.
        segments: the log's files, in order of their offsets.
        start: physical offset of the log's first byte.
        end: physical offset after the last valid record.
        tail: what follows that record.
        tail_bytes: how many bytes of the tail are torn.
        is_live: a process holds the store's lock.
        was_aborted: `abort` is there.
        is_copy: `commitlake ship` made it, in a folder or an object store.
        has_other_logs: segments of the log are in other folders, which are not read.
        is_behind: it is a copy whose queues may be older than its log.
        queue_file_size: bytes of a queue's file.
        batch_file_size: size of a BatchConsumeQueue's files.
        dispatched_end: physical offset up to which every record must have its entries.
        index: the IndexFiles that can be read, in the order of the log.
        kinds: which topics have BatchConsumeQueues, according to topics.json and the folders.
        lacks_queues: what there is instead of queues that can be read: RocksDB, or a copy that has none; empty if there
            are queues.
        delay_levels_ms: the broker's messageDelayLevel.
        limit: findings of a class that are kept.
        format: the log's format.
        topics: the topics in the store's configuration; None if it does not list them.
        dialect: dialect of the store's CommitLog.
        may_have_light_queues: True if records may have entries in light queues.
    """

    broker: str
    files: StoreFiles
    root: str
    segments: tuple[Segment, ...]
    start: int
    end: int
    tail: LogTailKind
    tail_bytes: int
    is_live: bool
    was_aborted: bool
    is_copy: bool
    has_other_logs: bool
    is_behind: bool
    queue_file_size: int
    batch_file_size: int
    dispatched_end: int
    index: tuple[IndexPart, ...]
    kinds: TopicKinds
    lacks_queues: str
    delay_levels_ms: tuple[int, ...]
    limit: int
    format: Format
    topics: frozenset[str] | None = None
    dialect: Dialect = ROCKETMQ
    may_have_light_queues: bool = True

    @property
    def log_folder_name(self) -> str:
        """Name of the folder with the log."""
        return self.format.folder

    @property
    def queue_layout(self) -> QueueLayout:
        """File layout of the store's ConsumeQueues."""
        return self.format.queues.layout

    @property
    def has_key_index(self) -> bool:
        """True if the store has IndexFiles that answer look-ups by key."""
        return self.format.indexes.has_files and self.dialect.has_key_index

    @property
    def may_indexes_lag(self) -> bool:
        """True if queues and indexes may end before the log does, as after a crash or while the broker runs."""
        return self.is_live or self.was_aborted or self.is_behind

    @property
    def lacks_newest_index(self) -> bool:
        """True if the store is a shipped copy that lacks the broker's newest IndexFile."""
        return self.is_copy and not (self.index and self.index[-1].is_newest)

    def is_topic_deleted(self, topic: str) -> bool:
        """Return whether a topic in the log was deleted, so that topics.json no longer has it."""
        return self.topics is not None and topic not in self.topics and needs_topic_config(topic)

    def finding_code_after_log_end(self, code: str) -> str:
        """Return the finding code for data after the log's end: `code`, unless the log goes on in another folder."""
        return "newer_elsewhere" if self.has_other_logs else code

    def is_end_of_copied_log(self, offset: int) -> bool:
        """Return whether an offset is the end of a shipped copy's log, where its queues may have one record more."""
        return self.is_copy and offset == self.end

    def open_queue_files(self, topic: str, queue_id: int) -> QueueFiles:
        """Return the present ConsumeQueue files of a queue."""
        return QueueFiles(self.files, topic, queue_id, self.queue_file_size, self.queue_layout)

    def open_batch_queue_files(self, topic: str, queue_id: int) -> QueueFiles:
        """Return the present BatchConsumeQueue files of a queue."""
        layout = self.format.queues.batch_layout
        assert layout is not None  # no topic of the store has batches otherwise
        return QueueFiles(self.files, topic, queue_id, self.batch_file_size, layout)


def is_locked(root: Path) -> bool:
    """Return whether a process has the store open, and so holds a lock on its file `lock`."""
    path = root / LOCK
    try:
        inode = path.lstat().st_ino
    except OSError:
        return False
    with suppress(OSError):
        # If this process holds the lock, opening and closing the file would release it: look in /proc/locks first.
        # For other processes ask the file itself, as files of different disks can have the same inode.
        for line in Path("/proc/locks").read_text().splitlines():
            if f" {os.getpid()} " in line and f":{inode} " in line:
                return True
    with suppress(OSError), os.fdopen(open_file(path), "rb") as file:
        request = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, request)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    return False


def list_queues(files: StoreFiles, layout: QueueLayout) -> list[tuple[str, int]]:
    """List the topics and queue ids of queue folders, skipping folders whose name is not a number, as brokers do.

    Raises:
        UnsafeFileError: for a link among the folders.
    """
    found = []
    for topic in files.folders_in(layout.folder):
        numbers = map(parse_queue_folder, files.folders_in(f"{layout.folder}/{topic}"))
        found += [(topic, number) for number in numbers if number is not None]
    return found


def queue_file_size(files: StoreFiles, queues: list[tuple[str, int]], layout: QueueLayout) -> int:
    """Return the most frequent size of queue files, since a broker uses one size for all."""
    sizes: Counter[int] = Counter()
    for topic, queue_id in queues[:1000]:
        folder = f"{layout.folder}/{topic}/{queue_id}"
        with suppress(FileNotFoundError):
            sizes.update(files.size_of(f"{folder}/{name}") for name in files.files_in(folder, is_segment_name))
    return likely_file_size(sizes, layout) or layout.default_file_size


def likely_file_size(size_counts: Counter[int], layout: QueueLayout) -> int | None:
    """Return the most frequent valid size of queue files; None if no size is valid.

    Among equally frequent sizes, the default wins, then the largest, because damage makes files shorter.

    Args:
        size_counts: The number of files by size.
    """
    possible = {
        size: count
        for size, count in size_counts.items()
        if 0 < size <= MAX_FILE_BYTES and size % layout.entry_size == 0
    }
    return max(
        possible, key=lambda size: (possible[size], size == layout.default_file_size, size), default=None
    )  # fmt: skip


def find_dispatched_end(
    files: StoreFiles, queues: list[tuple[str, int]], file_size: int, log_end: int, layout: QueueLayout
) -> int:
    """Return the physical offset after the newest record that has a queue entry; entries beyond the log are ignored."""

    def end_of_newest_record(queue: tuple[str, int]) -> int:
        found = QueueFiles(files, *queue, file_size, layout)
        written_end = found.find_written_end()
        if written_end == found.first_number:
            return 0
        # A copy has one entry beyond its log. A log that lost its end in a crash may leave many, which a search skips.
        return _end_of_record_before(found, written_end, log_end) or _end_of_record_before(
            found, found.first_number_at_or_after(log_end), log_end
        )

    return max(map_concurrently(end_of_newest_record, queues, choose_thread_count(files)), default=0)


def _end_of_record_before(files: QueueFiles, number: int, log_end: int) -> int:
    """Return the end of the record to which the newest entry before entry `number` points; 0 for none.

    Args:
        number: the number; only some entries before it are read.
        log_end: end of the log; entries beyond it do not count.
    """
    layout, newest = files.layout, 0
    for first, stop, _ in files.split_by_file(max(files.first_number, number - _NEWEST_ENTRIES), number):
        entries = files.read_entries(first, stop)
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
        counts = layout.is_written(entries) & ~layout.is_filler(entries) & (offsets <= log_end - sizes)
        if counts.any():
            newest = int((offsets + sizes)[counts][-1])
    return newest
