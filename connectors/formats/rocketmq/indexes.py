"""Indexes of a broker's store, entry by entry: ConsumeQueues and IndexFiles, in plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.formats.queue_walking import (
    CHUNK_ENTRIES,
    QueueEntry,
    QueueFolder,
    index_folder,
    refused_links,
    walk_queue_folders,
)
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import consumequeue, indexfile
from commitlake.schemas.segment_files import files_by_start
from commitlake.schemas.store_files import files_in, open_file


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Entry of an index file, with its position."""

    file: str
    number: int
    slot: int
    store_timestamp: int
    entry: indexfile.IndexFileEntry


def walk_consume_queues(
    store_root: Path, topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueEntry[consumequeue.ConsumeQueueEntry]]:
    """Yield every written entry of a store's queues, in order of topic, queue and offset.

    An entry that the broker would not accept ends its queue; fillers, which stand for no message, are skipped.

    Raises:
        StoreError: if the store has no ConsumeQueue that can be read, or a link among its folders and files.
    """
    root = _folder(store_root, "consumequeue")
    with refused_links():
        for queue in walk_queue_folders(root, topic, queue_id):
            yield from _walk_queue(queue, root)


def _folder(store_root: Path, name: str) -> Path:
    root = store_root.parent if store_root.name == "commitlog" else store_root
    return index_folder(root, name, made_from="the CommitLog when it starts")


def _walk_queue(queue: QueueFolder, root: Path) -> Iterator[QueueEntry[consumequeue.ConsumeQueueEntry]]:
    size = consumequeue.ENTRY.size
    for base, name in files_by_start(queue.path, below=root).items():
        with os.fdopen(open_file(queue.path / name, below=root), "rb") as file:
            queue_offset = base // size
            while data := file.read(CHUNK_ENTRIES * size):
                for position in range(0, len(data) - size + 1, size):
                    entry = consumequeue.parse_entry(data, position)
                    if not entry.is_valid:
                        return
                    if entry != consumequeue.PRE_BLANK:
                        yield QueueEntry(queue.topic, queue.queue_id, queue_offset, entry)
                    queue_offset += 1


def walk_index_files(store_root: Path, geometry: indexfile.Geometry | None = None) -> Iterator[IndexEntry]:
    """Yield every entry of a store's index files, oldest file first.

    The counts in a header can be too low after a crash, so entries are read until one is all zeros.

    Args:
        store_root: the store.
        geometry: slots and entries, if the broker's settings do not have the default ratio of 1:4.

    Raises:
        StoreError: if there is no index, or a file that is not an IndexFile.
    """
    folder = _folder(store_root, "index")
    with refused_links():
        for name in files_in(folder, str.isdecimal):
            with os.fdopen(open_file(folder / name), "rb") as file:
                yield from _walk_index_file(folder / name, file.fileno(), geometry)


def _walk_index_file(path: Path, descriptor: int, geometry: indexfile.Geometry | None) -> Iterator[IndexEntry]:
    size = os.fstat(descriptor).st_size
    try:
        shape = geometry or indexfile.geometry_of(size)
    except LayoutError as error:
        raise StoreError(
            f"{path}: {error}. Give the broker's maxHashSlotNum and maxIndexNum (--index-slots, --index-entries)"
        ) from None
    if size < shape.file_size:
        raise StoreError(
            f"{path}: expected {shape.file_size} bytes for {shape.slots} slots and {shape.entries} entries, "
            f"found {size}"
        )
    header = indexfile.parse_header(_read_all(path, descriptor, indexfile.HEADER.size, 0))
    unit = indexfile.ENTRY.size
    for first in range(1, shape.entries, CHUNK_ENTRIES):
        count = min(CHUNK_ENTRIES, shape.entries - first)
        data = _read_all(path, descriptor, count * unit, shape.entry_position(first))
        for number in range(first, first + count):
            entry = indexfile.parse_entry(data, (number - first) * unit)
            if number >= header.index_count and not any(entry):
                return
            timestamp = header.begin_timestamp + 1000 * entry.time_diff
            yield IndexEntry(path.name, number, entry.key_hash % shape.slots, timestamp, entry)


def _read_all(path: Path, descriptor: int, size: int, position: int) -> bytes:
    """Read a piece of a file, without a memory map, because truncation of a mapped file would kill the process."""
    data = os.pread(descriptor, size, position)
    if len(data) < size:
        raise StoreError(
            f"{path}: expected {size} bytes at {position}, found {len(data)}: the file was truncated just now"
        )
    return data
