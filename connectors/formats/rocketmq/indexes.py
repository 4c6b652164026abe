"""The broker's own indexes of a store, entry by entry: ConsumeQueue and IndexFile, in plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import consumequeue, indexfile
from commitlake.schemas.layouts.segments import is_segment_name, parse_queue_folder
from commitlake.schemas.store_files import UnsafeFileError, files_in, folders_in, open_file

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
        StoreError: where the store has no ConsumeQueue that can be read, or a link among its folders and files.
    """
    root = _folder(store_root, "consumequeue")
    with _refused_links():
        for name in folders_in(root):
            if topic not in (None, name):
                continue
            for number, folder in sorted(queue_folders(root / name, below=root)):
                if queue_id in (None, number):
                    yield from _walk_queue(folder, root, name, number)


def _folder(store_root: Path, name: str) -> Path:
    root = store_root.parent if store_root.name == "commitlog" else store_root
    folder = root / name
    if not folder.is_dir():
        raise StoreError(f"{root} has no folder '{name}'; a broker makes it anew from the CommitLog when it starts")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise StoreError(f"{folder} may not be read")
    return folder


@contextmanager
def _refused_links() -> Iterator[None]:
    try:
        yield
    except UnsafeFileError as error:
        raise StoreError(str(error)) from None


def queue_folders(folder: Path, *, below: Path) -> Iterator[tuple[int, Path]]:
    """List the queues' folders in a topic's folder.

    Args:
        folder: where they are.
        below: from here on no part of its path may be a link.

    Raises:
        UnsafeFileError: for a link.
    """
    for name in folders_in(folder, below=below):
        if (number := parse_queue_folder(name)) is not None:
            yield number, folder / name


def _walk_queue(folder: Path, root: Path, topic: str, queue_id: int) -> Iterator[QueueEntry]:
    size = consumequeue.ENTRY.size
    for name in sorted(files_in(folder, is_segment_name, below=root), key=int):
        base = int(name)
        with os.fdopen(open_file(folder / name, below=root), "rb") as file:
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
    folder = _folder(store_root, "index")
    with _refused_links():
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
    for first in range(1, shape.entries, _CHUNK_ENTRIES):
        count = min(_CHUNK_ENTRIES, shape.entries - first)
        data = _read_all(path, descriptor, count * unit, shape.entry_position(first))
        for number in range(first, first + count):
            entry = indexfile.parse_entry(data, (number - first) * unit)
            if number >= header.index_count and not any(entry):
                return
            timestamp = header.begin_timestamp + 1000 * entry.time_diff
            yield IndexEntry(path.name, number, entry.key_hash % shape.slots, timestamp, entry)


def _read_all(path: Path, descriptor: int, size: int, position: int) -> bytes:
    """Read a piece of a file; it is not mapped, as a file that is cut meanwhile would end the process."""
    data = os.pread(descriptor, size, position)
    if len(data) < size:
        raise StoreError(f"{path}: expected {size} bytes at {position}, found {len(data)}: the file was cut just now")
    return data
