"""The broker's own indexes of a store, entry by entry: ConsumeQueue and IndexFile, in plain Python."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.commitlog.errors import StoreError
from schemas.layouts import consumequeue, indexfile
from schemas.layouts.errors import LayoutError
from schemas.layouts.segments import parse_queue_folder, parse_segment_name

_CHUNK_ENTRIES = 3000


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """An entry of a queue, with its place."""

    topic: str
    queue_id: int
    queue_offset: int
    entry: consumequeue.Entry


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of an index file, with its place."""

    file: str
    number: int
    slot: int
    store_timestamp: int
    entry: indexfile.Entry


def walk_consume_queues(
    store_root: Path, topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueEntry]:
    """Every written entry of a store's queues, in order of topic, queue and offset.

    An entry that the broker would not take ends its queue; fillers that stand for no message are passed over.

    Raises:
        StoreError: where the store has no ConsumeQueue that can be read.
    """
    root = _folder(store_root, "consumequeue")
    for topic_folder in sorted(root.iterdir()):
        if not topic_folder.is_dir() or topic not in (None, topic_folder.name):
            continue
        for number, queue_folder in sorted(_numbered(topic_folder)):
            if queue_id in (None, number):
                yield from _walk_queue(queue_folder, topic_folder.name, number)


def _folder(store_root: Path, name: str) -> Path:
    root = store_root.parent if store_root.name == "commitlog" else store_root
    folder = root / name
    if not folder.is_dir():
        raise StoreError(f"{root} has no folder '{name}'; a broker makes it anew from the CommitLog when it starts")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise StoreError(f"{folder} may not be read")
    return folder


def _numbered(folder: Path) -> Iterator[tuple[int, Path]]:
    for entry in folder.iterdir():
        if (number := parse_queue_folder(entry.name)) is not None and entry.is_dir():
            yield number, entry


def _walk_queue(folder: Path, topic: str, queue_id: int) -> Iterator[QueueEntry]:
    files = [(base, path) for path in folder.iterdir() if (base := parse_segment_name(path.name)) is not None]
    size = consumequeue.ENTRY.size
    for base, path in sorted(files):
        with path.open("rb") as file:
            queue_offset = base // size
            while data := file.read(_CHUNK_ENTRIES * size):
                for position in range(0, len(data) - size + 1, size):
                    entry = consumequeue.parse_entry(data, position)
                    if not entry.is_valid:
                        return
                    if entry != consumequeue.PRE_BLANK:
                        yield QueueEntry(topic, queue_id, queue_offset, entry)
                    queue_offset += 1


def walk_index_files(store_root: Path, geometry: indexfile.Geometry | None = None) -> Iterator[IndexEntry]:
    """Every entry of a store's index files, oldest file first.

    The counts in a header can be behind the entries after a crash: entries are read on until one is all zeros.

    Args:
        store_root: the store.
        geometry: slots and entries, where the broker's settings are not in the default ratio of 1:4.

    Raises:
        StoreError: where there is no index, or a file that is none.
    """
    for path in sorted(_folder(store_root, "index").iterdir()):
        if path.is_file() and path.name.isdecimal():
            yield from _walk_index_file(path, geometry)


def _walk_index_file(path: Path, geometry: indexfile.Geometry | None) -> Iterator[IndexEntry]:
    size = path.stat().st_size
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
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = indexfile.parse_header(data)
        for number in range(1, shape.entries):
            entry = indexfile.parse_entry(data, shape.entry_position(number))
            if number >= header.index_count and not any(entry):
                return
            timestamp = header.begin_timestamp + 1000 * entry.time_diff
            yield IndexEntry(path.name, number, entry.key_hash % shape.slots, timestamp, entry)
