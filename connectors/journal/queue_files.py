"""The queue files of a JMQ store, entry by entry, in plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.commitlog.errors import StoreError
from schemas.layouts.errors import LayoutError
from schemas.layouts.jmq_queue import ENTRY, FOLDER, Entry, parse_entry
from schemas.layouts.segments import parse_segment_name

_CHUNK_ENTRIES = 3000


@dataclass(frozen=True, slots=True)
class QueueFileEntry:
    """An entry of a queue, with its place."""

    topic: str
    queue_id: int
    queue_offset: int
    entry: Entry


def walk_queue_files(
    journal_folder: Path, topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueFileEntry]:
    """Every entry of a store's queues, in order of topic, queue and offset; one that is not sound ends its queue.

    Raises:
        StoreError: where the store has no queues that can be read.
    """
    folder = journal_folder.parent / FOLDER
    if not folder.is_dir():
        raise StoreError(f"{folder.parent} has no folder '{FOLDER}'; a broker makes it anew from the journal")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise StoreError(f"{folder} may not be read")
    for topic_folder in sorted(folder.iterdir()):
        if not topic_folder.is_dir() or topic not in (None, topic_folder.name):
            continue
        queues = [(int(path.name), path) for path in topic_folder.iterdir() if path.is_dir() and path.name.isdecimal()]
        for number, queue_folder in sorted(queues):
            if queue_id in (None, number):
                yield from _walk_queue(queue_folder, topic_folder.name, number)


def _walk_queue(folder: Path, topic: str, queue_id: int) -> Iterator[QueueFileEntry]:
    files = [(base, path) for path in folder.iterdir() if (base := parse_segment_name(path.name)) is not None]
    for base, path in sorted(files):
        with path.open("rb") as file:
            queue_offset = base // ENTRY.size
            while data := file.read(_CHUNK_ENTRIES * ENTRY.size):
                for position in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
                    try:
                        entry = parse_entry(data, position)
                    except LayoutError:
                        return
                    if entry is None:
                        return
                    yield QueueFileEntry(topic, queue_id, queue_offset, entry)
                    queue_offset += 1
