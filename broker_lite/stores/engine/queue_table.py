"""All queues of a store: one folder `<topic>/<queueId>/` each, with files of one size."""

from __future__ import annotations

import errno
import logging
import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from commitlake.broker_lite.stores.engine.entry_queue import EntryQueue
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.schemas.layouts.segment_names import parse_queue_folder
from commitlake.schemas.safe_store_files import folders_in, open_parent

_logger = logging.getLogger(__name__)


Q = TypeVar("Q", bound=EntryQueue)


def _is_utf8_name(name: str) -> bool:
    """Return whether a file's name is valid UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class QueueTable(Generic[Q]):
    """All queues of one type in a store, by topic and queue id."""

    def __init__(self, folder: Path, file_size: int, size_option: str, mappings: MappedFiles) -> None:
        """Open the existing queues.

        Args:
            folder: folder of the topics' folders; need not exist.
            size_option: option that sets it, for error messages.

        Raises:
            StoreFilesError: if their files do not have the given size, or one is missing.
            UnsafeFileError: if a folder or file is a symbolic link.
        """
        self._folder = folder
        self._file_size = file_size
        self._size_option = size_option
        self._mappings = mappings
        self._queues: dict[tuple[str, int], Q] = {}
        for topic in folders_in(folder, trusted_root=mappings.root):
            if not _is_utf8_name(topic):
                _logger.warning("%s: ignored a folder whose name is not UTF-8, and so not a topic: %r", folder, topic)
                continue
            for queue in folders_in(folder / topic, trusted_root=mappings.root):
                if (number := parse_queue_folder(queue)) is not None:
                    self._open_queue(topic, number)

    def __iter__(self) -> Iterator[Q]:
        """Iterate over the queues in the order in which they were opened; other threads may add queues meanwhile."""
        return iter(list(self._queues.values()))

    def find(self, topic: str, queue_id: int) -> Q | None:
        """Return the queue with a topic and queue id, or None."""
        return self._queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> Q:
        """Return the queue with a topic and queue id; if it is new, its folder is created with its first entry."""
        return self._queues.get((topic, queue_id)) or self._open_queue(topic, queue_id)

    def _open_queue(self, topic: str, queue_id: int) -> Q:
        folder = self._folder / topic / str(queue_id)
        files = FileQueue(folder, self._file_size, self._size_option, self._mappings)
        queue = self._queues[topic, queue_id] = self._make_queue(topic, queue_id, files)
        return queue

    @abstractmethod
    def _make_queue(self, topic: str, queue_id: int, files: FileQueue) -> Q:
        """Create the object of a queue from its open files."""

    @property
    def topics(self) -> set[str]:
        """Set of the topics that have a queue."""
        return {topic for topic, _ in self._queues}

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic."""
        for key in [key for key in self._queues if key[0] == topic]:
            self._delete_queue(key)

    def delete_empty_queues(self, topic: str) -> None:
        """Delete the queues of a topic that have no file."""
        for key in [key for key, queue in self._queues.items() if key[0] == topic and queue.files.is_empty]:
            self._delete_queue(key)

    def delete_all(self) -> None:
        """Delete all queues, so that they can be rebuilt."""
        for key in list(self._queues):
            self._delete_queue(key)

    def _delete_queue(self, queue_key: tuple[str, int]) -> None:
        """Delete a queue with its folder, because RocketMQ takes an empty folder for a queue at its start."""
        files = self._queues.pop(queue_key).files
        files.delete()
        for folder in (files.folder, files.folder.parent):
            with suppress(FileNotFoundError), open_parent(folder, self._folder) as parent:
                try:
                    os.rmdir(folder.name, dir_fd=parent)
                except OSError as error:
                    # The topic's folder may have other queues.
                    if error.errno != errno.ENOTEMPTY:
                        raise

    def delete_expired(self, log_offset: int) -> None:
        """Delete, in every queue, the files whose entries all point before an offset of the log."""
        for queue in self:
            queue.delete_expired(log_offset)

    def sync(self) -> None:
        """Flush the entries of all queues to disk."""
        for queue in self:
            queue.files.sync(queue.files.end)
