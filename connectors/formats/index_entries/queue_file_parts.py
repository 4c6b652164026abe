"""Division of queue files into partitions, on the driver, which opens few of the files.

In a copy in an object store, no file is opened, because the manifest has everything that is needed.

Folders of topics and queues that are not wanted are not opened. A requested name never becomes part of a path: the
existing folders are listed, and their names are compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from commitlake.connectors.formats.index_entries.entry_damage import BadEntries, Reason
from commitlake.connectors.formats.index_entries.entry_options import QueueOptions
from commitlake.connectors.formats.index_entries.partitions import (
    PlannedStore,
    divide_entry_range,
    plan_stores,
)
from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.log_format.queues import QueueLayout
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import MAX_FILE_BYTES, MissingObjectError
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.reading.unread_warnings import refuse_rocksdb_queues
from commitlake.schemas.layouts.segment_names import is_segment_name, parse_queue_folder, parse_segment_name


def queue_layouts(store: Store) -> tuple[QueueLayout, ...]:
    """Return the layouts that a store's queues may have, such as that of batch queues, the usual one first."""
    usual, batches = store.format.queues.layout, store.format.queues.batch_layout
    return (usual,) if batches is None else (usual, batches)


@dataclass(frozen=True, slots=True)
class QueueFolder:
    """Folder of one queue.

    Attributes:
        store: the store.
        layout: the layout of its entries.
        topic: the folder's topic.
        queue_id: the queue id.
    """

    store: PlannedStore
    layout: QueueLayout
    topic: str
    queue_id: int

    @property
    def path(self) -> str:
        """Path of the folder in the store."""
        return f"{self.layout.folder}/{self.topic}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Part of a read: a range of a queue file, or a bad range that follows from the file's name or size.

    Attributes:
        queue: the queue of the file.
        name: name of the file.
        start: position of the first byte.
        end: position after the last byte.
        file_end: position after the file's last entry.
        is_followed: whether a later file of the queue has entries, so that this one must be full.
        bad: the bad range, if the part stands for one.
    """

    queue: QueueFolder
    name: str
    start: int
    end: int
    file_end: int
    is_followed: bool = False
    bad: BadEntries | None = None

    @property
    def size(self) -> int:
        """Number of bytes that are read."""
        return 0 if self.bad else self.end - self.start

    @property
    def path(self) -> str:
        """Path of the file in the store."""
        return f"{self.queue.path}/{self.name}"

    @property
    def location(self) -> str:
        """Path or URI of the file, for messages."""
        return self.queue.store.location_of(self.path)

    @property
    def first_queue_offset(self) -> int:
        """Queue offset of the entry at the file's first byte."""
        return (parse_segment_name(self.name) or 0) // self.queue.layout.entry_size


def plan_queues(options: QueueOptions, filters: Filters) -> list[list[QueuePart]]:
    """Return the partitions of a read of queue files, each a list of parts.

    Args:
        filters: the filters from the options and from Spark.

    Raises:
        StoreError: if the path has no store with queues, or there is a link among their files.
    """
    return plan_stores(options, filters, lambda store, planned: _plan_store_parts(store, planned, filters))


def _plan_store_parts(store: Store, planned_store: PlannedStore, filters: Filters) -> Iterator[QueuePart]:
    root, files = planned_store.root, planned_store.open_files()
    layouts = queue_layouts(store)
    if not any(files.has_folder(layout.folder) for layout in layouts):
        raise StoreError(
            f"{root} has no folder '{layouts[0].folder}' with a broker's queues: the broker rebuilds them from its log "
            "when it starts"
        )
    if not planned_store.is_copy and store.format.queues.has_queues_in_rocksdb(Path(root)):  # which are not copied
        refuse_rocksdb_queues(root)
    for layout in layouts:
        for queue in _list_wanted_queues(planned_store, files, layout, filters):
            yield from _plan_queue_parts(queue, files)


def _list_wanted_queues(
    store: PlannedStore, files: StoreFiles, layout: QueueLayout, filters: Filters
) -> Iterator[QueueFolder]:
    topics, queue_ids = filters.topics, filters.queue_ids
    for topic in files.folders_in(layout.folder):
        if topics is not None and topic not in topics:
            continue
        for name in files.folders_in(f"{layout.folder}/{topic}"):
            queue_id = parse_queue_folder(name)
            if queue_id is not None and (queue_ids is None or queue_id in queue_ids):
                yield QueueFolder(store, layout, topic, queue_id)


def _plan_queue_parts(queue: QueueFolder, files: StoreFiles) -> Iterator[QueuePart]:
    """Divide the files of a queue into parts for tasks; an invalid name or size becomes a bad range."""
    names = files.files_in(queue.path, is_segment_name)
    starts = {name: parse_segment_name(name) or 0 for name in names}
    in_order = sorted(names, key=lambda name: starts[name])
    unit, written = queue.layout.entry_size, _last_written_file_index(queue, files, in_order)
    for place, (name, following) in enumerate(pairwise([*in_order, None])):
        assert name is not None
        is_followed = place < written
        try:
            size = files.size_of(f"{queue.path}/{name}")
            data_end = files.data_end(f"{queue.path}/{name}") if queue.store.is_copy else size
        except FileNotFoundError:
            continue  # deleted since it was listed: the broker has expired it
        # A file may not reach the name of the next one, at which other entries begin.
        room = MAX_FILE_BYTES if following is None else starts[following] - starts[name]
        bad = _find_name_fault(queue, starts[name], size)
        if bad is not None:
            yield QueuePart(queue, name, 0, size, size, is_followed, bad)
            continue
        end = min(size, room) // unit * unit
        # Zeros that a copy does not have are not read. In a file before others they are missing entries.
        read_end = end if is_followed else min(-(-data_end // unit) * unit, end)
        for first, stop in divide_entry_range(0, read_end, unit):
            yield QueuePart(queue, name, first, stop, read_end, is_followed)
        bad = _find_size_fault(size, room, end, has_next_file=is_followed, is_last_written=following is None)
        if bad is not None:
            yield QueuePart(queue, name, bad.start, bad.end, end, is_followed, bad)


def _find_name_fault(queue: QueueFolder, start: int, size: int) -> BadEntries | None:
    unit = queue.layout.entry_size
    if start % unit:
        return BadEntries(0, size, Reason.NAME, f"a multiple of {unit}, an entry's bytes", str(start))
    try:
        queue.topic.encode()
    except UnicodeEncodeError:
        return BadEntries(0, size, Reason.NAME, "a topic in UTF-8", repr(os.fsencode(queue.topic))[1:])
    return None


def _find_size_fault(
    size: int, max_size: int, entries_end: int, *, has_next_file: bool, is_last_written: bool
) -> BadEntries | None:
    """Return the bad range that follows from a file's wrong size; None if the size is right."""
    if size > max_size:
        reason = Reason.SIZE if is_last_written else Reason.OVERLAP
        return BadEntries(entries_end, size, reason, f"at most {max_size} bytes", f"{size}")
    if has_next_file and entries_end < max_size:
        return BadEntries(entries_end, max_size, Reason.MISSING, f"{max_size} bytes to the next file's name", f"{size}")
    if is_last_written and entries_end < size:
        return BadEntries(entries_end, size, Reason.CUT, "whole entries", f"{size - entries_end} bytes more")
    return None


def _last_written_file_index(queue: QueueFolder, files: StoreFiles, names: Sequence[str]) -> int:
    """Return the index of the last file with an entry; later files may have been created in advance."""
    # From the end: usually the last file has data, so one is opened.
    for place in range(len(names) - 1, 0, -1):
        try:
            if files.has_data(f"{queue.path}/{names[place]}"):
                return place
        except (FileNotFoundError, MissingObjectError):
            continue  # deleted since it was listed; of a copy, the part itself is reported
    return 0
