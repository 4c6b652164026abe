"""Indexes of a broker's store, entry by entry: ConsumeQueues and IndexFiles, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from commitlake.connectors.formats.queue_walking import (
    CHUNK_ENTRIES,
    QueueEntry,
    QueueFolder,
    check_index_folder,
    convert_link_errors,
    queue_files,
    read_file_chunks,
    walk_queue_folders,
)
from commitlake.connectors.log_format.files import IndexedFile, StoreFiles
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import read_range
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import consumequeue, indexfile

_QUEUES, _INDEX = "consumequeue", "index"
_MADE_FROM = "the CommitLog when it starts"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Entry of an index file, with its position."""

    file: str
    number: int
    slot: int
    store_timestamp: int
    entry: indexfile.IndexFileEntry


def walk_consume_queues(
    files: StoreFiles, topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueEntry[consumequeue.ConsumeQueueEntry]]:
    """Yield every written entry of a store's queues, in order of topic, queue and offset.

    An entry that the broker would not accept ends its queue; fillers, which stand for no message, are skipped.

    Raises:
        StoreError: if the store has no ConsumeQueue that can be read, or a link among its folders and files, or if it
            is a copy that was changed.
    """
    check_index_folder(files, _QUEUES, source_files=_MADE_FROM)
    with convert_link_errors():
        for queue in walk_queue_folders(files, _QUEUES, topic, queue_id):
            yield from _walk_queue(files, queue)


def _walk_queue(files: StoreFiles, queue: QueueFolder) -> Iterator[QueueEntry[consumequeue.ConsumeQueueEntry]]:
    size = consumequeue.ENTRY.size
    for base, path in queue_files(files, queue).items():
        with closing(files.open(path)) as file:
            queue_offset = base // size
            for data in read_file_chunks(file, CHUNK_ENTRIES * size):
                for position in range(0, len(data) - size + 1, size):
                    entry = consumequeue.parse_entry(data, position)
                    if not entry.is_valid:
                        return
                    if entry != consumequeue.PRE_BLANK:
                        yield QueueEntry(queue.topic, queue.queue_id, queue_offset, entry)
                    queue_offset += 1


def walk_index_files(files: StoreFiles, geometry: indexfile.Geometry | None = None) -> Iterator[IndexEntry]:
    """Yield every entry of a store's index files, oldest file first.

    The counts in a header can be too low after a crash, so entries are read until one is all zeros.

    Args:
        files: the store's files; a copy has all index files but the newest one.
        geometry: slots and entries, if the broker's settings do not have the default ratio of 1:4.

    Raises:
        StoreError: if there is no index, or a file that is not an IndexFile, or if it is a copy that was changed.
    """
    check_index_folder(files, _INDEX, source_files=_MADE_FROM)
    with convert_link_errors():
        for name in files.files_in(_INDEX, str.isdecimal):
            with closing(files.open(f"{_INDEX}/{name}")) as file:
                yield from _walk_index_file(files.location_of(f"{_INDEX}/{name}"), name, file, geometry)


def _walk_index_file(
    location: str, name: str, file: IndexedFile, geometry: indexfile.Geometry | None
) -> Iterator[IndexEntry]:
    size = file.size()
    try:
        shape = geometry or indexfile.geometry_of(size)
    except LayoutError as error:
        raise StoreError(
            f"{location}: {error}. Give the numbers of slots and entries, maxHashSlotNum and maxIndexNum of the "
            "broker, with --index-slots and --index-entries"
        ) from None
    if size < shape.file_size:
        raise StoreError(
            f"{location}: expected an IndexFile of {shape.file_size} bytes, which {shape.slots} slots and "
            f"{shape.entries} entries need, found {size} bytes"
        )
    header = indexfile.parse_header(_read_exactly(location, file, indexfile.HEADER.size, 0))
    unit = indexfile.ENTRY.size
    for first in range(1, shape.entries, CHUNK_ENTRIES):
        count = min(CHUNK_ENTRIES, shape.entries - first)
        data = _read_exactly(location, file, count * unit, shape.entry_position(first))
        for number in range(first, first + count):
            entry = indexfile.parse_entry(data, (number - first) * unit)
            if number >= header.index_count and not any(entry):
                return
            timestamp = header.begin_timestamp + 1000 * entry.time_diff
            yield IndexEntry(name, number, entry.key_hash % shape.slots, timestamp, entry)


def _read_exactly(location: str, file: IndexedFile, size: int, position: int) -> bytes:
    """Read a piece of a file, without a memory map, because truncation of a mapped file would kill the process."""
    data = read_range(file, position, position + size).tobytes()
    if len(data) < size:
        raise StoreError(
            f"{location}: expected {size} bytes at position {position}, found {len(data)}: the file was truncated "
            "while it was read"
        )
    return data
