"""Folders of a store's queues, for iteration over entries in plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.schemas.layouts.segments import parse_queue_folder
from commitlake.schemas.store_files import UnsafeFileError, folders_in

E = TypeVar("E")
CHUNK_ENTRIES = 3000
"""Number of entries that are read at a time."""


@dataclass(frozen=True, slots=True)
class QueueEntry(Generic[E]):
    """Entry of a queue, with its position."""

    topic: str
    queue_id: int
    queue_offset: int
    entry: E


class QueueFolder(NamedTuple):
    """Folder of one queue."""

    topic: str
    queue_id: int
    path: Path


def index_folder(root: Path, name: str, *, made_from: str) -> Path:
    """Return the path of a store's folder of indexes.

    Args:
        root: the store's folder.
        name: the name of the folder.
        made_from: the files from which a broker rebuilds it if it is missing.

    Raises:
        StoreError: if it does not exist or cannot be read.
    """
    folder = root / name
    if not folder.is_dir():
        raise StoreError(f"{root} has no folder '{name}'; a broker rebuilds it from {made_from}")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise StoreError(f"{folder} cannot be read by this user")
    return folder


@contextmanager
def refused_links() -> Iterator[None]:
    """Convert an error for a link among folders and files to a `StoreError`."""
    try:
        yield
    except UnsafeFileError as error:
        raise StoreError(str(error)) from None


def walk_queue_folders(folder: Path, topic: str | None, queue_id: int | None) -> Iterator[QueueFolder]:
    """Yield the folders of queues, in order of topic and queue id.

    Args:
        folder: the folder that contains the topics' folders; none below it may be a link.
        topic: return only this topic.
        queue_id: return only queues with this id.

    Raises:
        UnsafeFileError: for a link.
    """
    for name in folders_in(folder):
        if topic not in (None, name):
            continue
        numbers = map(parse_queue_folder, folders_in(folder / name, below=folder))
        for number in sorted(number for number in numbers if number is not None):
            if queue_id in (None, number):
                yield QueueFolder(name, number, folder / name / str(number))
