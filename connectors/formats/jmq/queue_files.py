"""Queue files of a JMQ store, entry by entry, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

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
from commitlake.connectors.log_format.files import StoreFiles
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.queue_file import ENTRY, FOLDER, JmqQueueEntry, parse_entry


def walk_queue_files(
    files: StoreFiles, report_damage: Callable[[str], None], topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueEntry[JmqQueueEntry]]:
    """Yield every valid entry of a store's queues, in order of topic, queue and offset.

    A broker ends a queue at the first entry that is not sound. This function continues after it, because each entry has
    its own CRC.

    Args:
        report_damage: receives a sentence about each range without entries between first and last entry of a queue.
        topic: return only this topic.
        queue_id: return only queues with this id.

    Raises:
        StoreError: if the store has no queues that can be read, or a link among its folders and files, or if it is a
            copy that was changed.
    """
    check_index_folder(files, FOLDER, source_files="the journal")
    with convert_link_errors():
        for queue in walk_queue_folders(files, FOLDER, topic, queue_id):
            yield from _walk_queue(files, queue, report_damage)


def _walk_queue(
    files: StoreFiles, queue: QueueFolder, report_damage: Callable[[str], None]
) -> Iterator[QueueEntry[JmqQueueEntry]]:
    following = None
    for base, path in queue_files(files, queue).items():
        for number, entry in _walk_file(files, path, base // ENTRY.size, report_damage):
            if following not in (None, number):
                report_damage(
                    f"{files.location_of(queue.path)}: no entries {following} to {number - 1}, but some after them"
                )
            following = number + 1
            if entry is not None:
                yield QueueEntry(queue.topic, queue.queue_id, number, entry)


def _walk_file(
    files: StoreFiles, path: str, first_entry_number: int, report_damage: Callable[[str], None]
) -> Iterator[tuple[int, JmqQueueEntry | None]]:
    """Yield the written entries of a file, each with its number; None in place of an invalid entry."""
    number, place = first_entry_number, files.location_of(path)
    with closing(files.open(path)) as file:
        for data in read_file_chunks(file, CHUNK_ENTRIES * ENTRY.size):
            end = len(data.rstrip(b"\0"))
            for position in range(0, end, ENTRY.size):
                at = number + position // ENTRY.size
                if position + ENTRY.size > len(data):
                    found = f"{len(data) - position} to the end of the file"
                    report_damage(
                        f"{_describe_entry_position(place, first_entry_number, at)}: expected {ENTRY.size} bytes, "
                        f"found {found}"
                    )
                    break
                try:
                    entry = parse_entry(data, position)
                except LayoutError as error:
                    report_damage(
                        f"{_describe_entry_position(place, first_entry_number, at)}: {error.field}: expected "
                        f"{error.expected}, "
                        "found "
                        f"{error.found}"
                    )
                    yield at, None
                else:
                    if entry is not None:
                        yield at, entry
            number += CHUNK_ENTRIES


def _describe_entry_position(location: str, first_entry_number: int, entry_number: int) -> str:
    return f"{location}, entry {entry_number}, byte {(entry_number - first_entry_number) * ENTRY.size}"
