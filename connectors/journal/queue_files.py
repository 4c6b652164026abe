"""The queue files of a JMQ store, entry by entry, in plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.commitlog.errors import StoreError
from schemas.layouts.errors import LayoutError
from schemas.layouts.jmq_queue import ENTRY, FOLDER, Entry, parse_entry
from schemas.layouts.segments import parse_queue_folder, parse_segment_name

_CHUNK_ENTRIES = 3000


@dataclass(frozen=True, slots=True)
class QueueFileEntry:
    """An entry of a queue, with its place."""

    topic: str
    queue_id: int
    queue_offset: int
    entry: Entry


def walk_queue_files(
    journal_folder: Path, damage: Callable[[str], None], topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueFileEntry]:
    """Every sound entry of a store's queues, in order of topic, queue and offset.

    A broker ends a queue at the first entry that is not sound. Here those behind it follow: each has its own CRC.

    Args:
        journal_folder: of the store.
        damage: is told, in a sentence, of everything between the first entry of a queue and its last that is no entry.
        topic: only this one.
        queue_id: only these queues.

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
        queues = [
            (number, path)
            for path in topic_folder.iterdir()
            if (number := parse_queue_folder(path.name)) is not None and path.is_dir()
        ]
        for number, queue_folder in sorted(queues):
            if queue_id in (None, number):
                yield from _walk_queue(queue_folder, topic_folder.name, number, damage)


def _walk_queue(folder: Path, topic: str, queue_id: int, damage: Callable[[str], None]) -> Iterator[QueueFileEntry]:
    files = [(base, path) for path in folder.iterdir() if (base := parse_segment_name(path.name)) is not None]
    following = None
    for base, path in sorted(files):
        for number, entry in _walk_file(path, base // ENTRY.size, damage):
            if following not in (None, number):
                damage(f"{folder}: no entries {following} to {number - 1}, and some behind them")
            following = number + 1
            if entry is not None:
                yield QueueFileEntry(topic, queue_id, number, entry)


def _walk_file(path: Path, first: int, damage: Callable[[str], None]) -> Iterator[tuple[int, Entry | None]]:
    """What is written in a file, each with its number; None for what is not sound."""
    number = first
    with path.open("rb") as file:
        while data := file.read(_CHUNK_ENTRIES * ENTRY.size):
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
            number += _CHUNK_ENTRIES


def _place(path: Path, first: int, number: int) -> str:
    return f"{path}, entry {number}, byte {(number - first) * ENTRY.size}"
