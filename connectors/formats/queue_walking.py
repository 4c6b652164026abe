"""Folders of a store's queues, for iteration over entries in plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from commitlake.connectors.log_format.files import IndexedFile, StoreFiles
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import read_range
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.layouts.segment_names import is_segment_name, parse_queue_folder
from commitlake.schemas.safe_store_files import UnsafeFileError
from commitlake.schemas.segment_files import names_by_start

E = TypeVar("E")
CHUNK_ENTRIES = 3000
"""Number of entries that are read at a time."""
_INDEX_FILES, _QUEUES = "index", ("consumequeue", "batchconsumequeue")


@dataclass(frozen=True, slots=True)
class QueueEntry(Generic[E]):
    """Entry of a queue, with the queue's name and the entry's queue offset."""

    topic: str
    queue_id: int
    queue_offset: int
    entry: E


class QueueFolder(NamedTuple):
    """Folder of one queue; the path is relative to the store's folder."""

    topic: str
    queue_id: int
    path: str


def check_index_folder(files: StoreFiles, name: str, *, source_files: str) -> None:
    """Check that a store has a folder of indexes.

    A copy in an object store or HDFS has no folder of IndexFiles while the broker has only one: the newest one is not
    copied. Its index has no entries then.

    Args:
        name: the name of the folder.
        source_files: the files from which a broker rebuilds it if it is missing.

    Raises:
        StoreError: if it does not exist or cannot be read.
    """
    folder = files.location_of(name)
    if not files.has_folder(name):
        if is_uri(folder) and name == _INDEX_FILES and any(map(files.has_folder, _QUEUES)):
            return
        root = folder.rpartition("/")[0]
        raise StoreError(f"{root} has no folder '{name}': a broker rebuilds it from {source_files} when it starts")
    if not is_uri(folder) and not os.access(folder, os.R_OK | os.X_OK):
        raise StoreError(f"{folder} cannot be read by this user: run as the broker's user, or give read permission")


@contextmanager
def convert_link_errors() -> Iterator[None]:
    """Convert errors about symbolic links among a store's files to a `StoreError`."""
    try:
        yield
    except UnsafeFileError as error:
        raise StoreError(str(error)) from None


def walk_queue_folders(
    files: StoreFiles, folder: str, topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueFolder]:
    """Yield the folders of queues, in order of topic and queue id.

    Args:
        folder: the store's folder that contains the topics' folders; none below it may be a link.
        topic: return only this topic.
        queue_id: return only queues with this id.

    Raises:
        UnsafeFileError: for a link.
    """
    for name in files.folders_in(folder):
        if topic not in (None, name):
            continue
        numbers = map(parse_queue_folder, files.folders_in(f"{folder}/{name}"))
        for number in sorted(number for number in numbers if number is not None):
            if queue_id in (None, number):
                yield QueueFolder(name, number, f"{folder}/{name}/{number}")


def queue_files(files: StoreFiles, queue: QueueFolder) -> dict[int, str]:
    """Return the paths of a queue's files by the offset of their first byte, in ascending order.

    Raises:
        UnsafeFileError: if a file is a symbolic link or not regular, or two names have the same offset.
    """
    names = names_by_start(files.files_in(queue.path, is_segment_name), files.location_of(queue.path))
    return {start: f"{queue.path}/{name}" for start, name in names.items()}


def read_file_chunks(file: IndexedFile, chunk_size: int) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks of the given size."""
    position = 0
    while data := read_range(file, position, position + chunk_size).tobytes():
        yield data
        position += len(data)
