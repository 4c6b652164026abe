"""Queue files of a JMQ store, entry by entry, in plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from commitlake.connectors.formats.queue_walking import (
    CHUNK_ENTRIES,
    QueueEntry,
    QueueFolder,
    index_folder,
    refused_links,
    walk_queue_folders,
)
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.queue import ENTRY, FOLDER, JmqQueueEntry, parse_entry
from commitlake.schemas.segment_files import files_by_start
from commitlake.schemas.store_files import open_file


def walk_queue_files(
    journal_folder: Path, damage: Callable[[str], None], topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueEntry[JmqQueueEntry]]:
    """Yield every valid entry of a store's queues, in order of topic, queue and offset.

    A broker ends a queue at the first entry that is not sound. This function continues after it, because each entry has
    its own CRC.

    Args:
        journal_folder: the store's journal folder.
        damage: receives a sentence about each range without entries between the first and the last entry of a queue.
        topic: return only this topic.
        queue_id: return only queues with this id.

    Raises:
        StoreError: if the store has no queues that can be read, or a link among its folders and files.
    """
    folder = index_folder(journal_folder.parent, FOLDER, made_from="the journal")
    with refused_links():
        for queue in walk_queue_folders(folder, topic, queue_id):
            yield from _walk_queue(queue, damage)


def _walk_queue(queue: QueueFolder, damage: Callable[[str], None]) -> Iterator[QueueEntry[JmqQueueEntry]]:
    folder, following = queue.path, None
    for base, name in files_by_start(folder, below=folder.parent.parent).items():
        for number, entry in _walk_file(folder / name, base // ENTRY.size, damage):
            if following not in (None, number):
                damage(f"{folder}: no entries {following} to {number - 1}, but some after them")
            following = number + 1
            if entry is not None:
                yield QueueEntry(queue.topic, queue.queue_id, number, entry)


def _walk_file(path: Path, first: int, damage: Callable[[str], None]) -> Iterator[tuple[int, JmqQueueEntry | None]]:
    """Yield the written entries of a file, each with its number; None for an invalid one."""
    number = first
    with os.fdopen(open_file(path, below=path.parents[2]), "rb") as file:
        while data := file.read(CHUNK_ENTRIES * ENTRY.size):
            end = len(data.rstrip(b"\0"))
            for position in range(0, end, ENTRY.size):
                at = number + position // ENTRY.size
                if position + ENTRY.size > len(data):
                    found = f"{len(data) - position} to the end of the file"
                    damage(f"{_place(path, first, at)}: expected {ENTRY.size} bytes, found {found}")
                    break
                try:
                    entry = parse_entry(data, position)
                except LayoutError as error:
                    damage(f"{_place(path, first, at)}: {error.field}: expected {error.expected}, found {error.found}")
                    yield at, None
                else:
                    if entry is not None:
                        yield at, entry
            number += CHUNK_ENTRIES


def _place(path: Path, first: int, number: int) -> str:
    return f"{path}, entry {number}, byte {(number - first) * ENTRY.size}"
