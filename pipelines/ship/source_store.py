"""Files of a broker's store, as an agent reads them: nothing here writes, and no link below the store is followed.

The broker may change its store at any time. It is not an error if a file disappears (reported as None) or is truncated
(fewer bytes are read). A link, a FIFO or a device with the name of a segment is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from commitlake.connectors.checksums import crc_of_range
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.log_folders import find_log_folders, find_segment_files
from commitlake.connectors.reading.newer_data import (
    LogEnd,
    LogToRead,
    RecordedLogEnd,
    describe_other_log,
    find_other_logs,
)
from commitlake.connectors.reading.unread_warnings import find_appended_logs, format_folder_names
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.segment_names import is_segment_name, segment_name
from commitlake.schemas.safe_store_files import UnsafeFileError, files_in, folders_in, open_file, read_file

_SMALL_FOLDERS = ("config", "offset")
_SMALL_FILES = ("checkpoint", "abort")
_UNFINISHED = (".tmp", ".swp", "~")
_QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "queue")
_INDEX_FOLDER, _CONSUME_FOLDER = "index", "consume"
_ZERO_BLOCK_BYTES = 1 << 16
_DISK_BLOCK_BYTES = 512
_MAX_DEPTH = 2
_FIRST_BYTES = 4096
_SMALL_FILE_READS = 4


class SourceFile:
    """An open file of the store, which can be read to its end even if the broker deletes it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def size(self) -> int:
        """Current size of the file."""
        return os.fstat(self._descriptor).st_size

    def read_range(self, offset: int, size: int) -> bytes:
        """Read a byte range; return fewer bytes if the file ends within it."""
        pieces = []
        while size > 0 and (piece := os.pread(self._descriptor, size, offset)):
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def compute_crc(self, offset: int, size: int) -> int | None:
        """Return the CRC-32 of a byte range; None if the file ends within it."""
        return crc_of_range(self._descriptor, offset, size)

    def has_data(self, offset: int) -> bool:
        """Return whether the file, which may be sparse, has data at or after a position."""
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA) >= 0
        except OSError:
            return False

    def find_data_end(self, start: int) -> int:
        """Return the position after the last nonzero byte; the search from `start` stops at the first block of zeros.

        Args:
            start: position up to which the file is known to have data.
        """
        end, position, size = start, start, self.size
        while position < size:
            data = self.read_range(position, _ZERO_BLOCK_BYTES)
            used = len(data.rstrip(b"\0"))
            if not used:
                break
            end = position + used
            position += len(data)
        return end


@dataclass(frozen=True, slots=True)
class LogFile:
    """A segment of the log: its file name, offset and size.

    Attributes:
        name: path in the store.
        base_offset: physical offset of its first byte.
        size: size of the file when it was listed.
        data_size: bytes of it that are not in holes, as far as the file system shows.
    """

    name: str
    base_offset: int
    size: int
    data_size: int


@dataclass(frozen=True, slots=True)
class GrowingFile:
    """File that grows at its end: of a queue, an index or a consume log.

    Attributes:
        name: path in the store.
        is_last: whether the broker may still write to it: as the newest file of its folder with data, or a newer one.
        is_of_queue: whether it is a file of a queue.
    """

    name: str
    is_last: bool
    is_of_queue: bool


@dataclass(frozen=True, slots=True)
class SmallFile:
    """Content of a small file such as `config/topics.json`, read as a whole.

    Attributes:
        name: path in the store.
        data: content; None if it could not be read as a whole.
        modified_ms: time at which the broker wrote it, ms.
    """

    name: str
    data: bytes | None
    modified_ms: int


class SourceStore:
    """A broker's store in a local folder.

    Args:
        root: the folder that holds `commitlog` or `journal`.
        broker: the store's name, which a settings file may have in its path.

    Raises:
        UsageError: if it is not a store.
    """

    def __init__(self, root: str, broker: str = "") -> None:
        given = Path(root).absolute()
        # As in other jobs, the folder of the log may be named instead of the store.
        is_log = given.name in {log_format.folder for log_format in all_formats()} and given.is_dir()
        self.root = given.parent if is_log else given
        self.skipped: list[str] = []
        self._broker = broker
        self._segments_elsewhere: dict[str, Path] = {}
        found = [log_format for log_format in all_formats() if (self.root / log_format.folder).is_dir()]
        if not found:
            names = [entry.name for entry in os.scandir(self.root) if entry.is_dir()] if self.root.is_dir() else []
            appended = find_appended_logs(names, all_formats().known)
            found = [log_format for log_format in all_formats() if log_format.folder in appended]
        if len(found) != 1:
            expected = format_folder_names(all_formats().known)
            held = " and ".join(repr(each.folder) for each in found) or "neither"
            raise UsageError(f"{root}: expected a store's folder, which contains {expected}, found one with {held}")
        self.format: Format = found[0]

    def log_files(self) -> list[LogFile]:
        """Return the segments of the log, in order of their offsets.

        Raises:
            UnsafeFileError: for a link or a device with the name of a segment.
        """
        own = self.root / self.format.folder
        files = []
        for base_offset, path in find_segment_files(find_log_folders(self.root, self.format, self._broker).all).items():
            # A broker also accepts digits of other scripts, but only one file may have an offset.
            if path.name != segment_name(base_offset):
                continue
            with suppress(FileNotFoundError):
                found = path.lstat()
                data_size = min(found.st_size, found.st_blocks * _DISK_BLOCK_BYTES)
                name = f"{self.format.folder}/{path.name}"
                files.append(LogFile(name, base_offset, found.st_size, data_size))
                if path.parent != own:
                    self._segments_elsewhere[name] = path
        return files

    def newer_data_sentences(self) -> list[str]:
        """Return sentences about newer messages of the store that are in folders that are not read."""
        broker = self._broker
        known = RecordedLogEnd.read_known_end(LogToRead(broker, self.root, self.format, ()))._replace(claims=())
        files = self.log_files()
        log = LogToRead(broker, self.root, self.format, [(file.base_offset, file.size) for file in files])
        begun = (file for file in reversed(files) if self.is_written_to(file.name))
        end = next((file.base_offset + file.size for file in begun), 0)
        if others := find_other_logs(log, None, end):
            return [describe_other_log(log, other) for other in others]
        sentence = known.newer_data_warning(log, LogEnd(end, end))
        return [] if sentence is None else [sentence]

    @contextmanager
    def open(self, name: str) -> Iterator[SourceFile | None]:
        """Open a file; None if it does not exist any more."""
        path, top = self.root / name, self.root / name.split("/", 1)[0]
        if name in self._segments_elsewhere:
            path = self._segments_elsewhere[name]
            top = path.parent
        try:
            descriptor = open_file(path, trusted_root=top if top.is_dir() else self.root)
        except FileNotFoundError:
            yield None
            return
        try:
            yield SourceFile(descriptor)
        finally:
            os.close(descriptor)

    def is_written_to(self, name: str) -> bool:
        """Return whether the broker has written to a file; False if it does not exist any more."""
        with self.open(name) as source:
            return source is not None and any(source.read_range(0, _FIRST_BYTES))

    def small_files(self) -> Iterator[SmallFile]:
        """Yield the store's small files, such as those of its configuration, with their content."""
        names = [name for name in _SMALL_FILES if os.path.lexists(self.root / name)]
        for folder in _SMALL_FOLDERS:
            names += [
                f"{folder}/{name}" for name in self._list_names(folder, files_in) if not name.endswith(_UNFINISHED)
            ]
        for name in names:
            modified_ms = 0
            with suppress(OSError):
                modified_ms = max(0, (self.root / name).lstat().st_mtime_ns // 1_000_000)
            yield SmallFile(name, self._read_small_file(name), modified_ms)

    def growing_files(self) -> Iterator[GrowingFile]:
        """Yield the files of queues, indexes and consume logs."""
        for folder in _QUEUE_FOLDERS:
            yield from self._growing_files_below(folder, 0)
        yield from self._growing_files_in(_CONSUME_FOLDER, str.isdecimal)
        # The broker changes all parts of the newest IndexFile, not only its end.
        yield from (found for found in self._growing_files_in(_INDEX_FOLDER, str.isdecimal) if not found.is_last)

    def _growing_files_below(self, folder: str, depth: int) -> Iterator[GrowingFile]:
        yield from self._growing_files_in(folder, is_segment_name, is_of_queue=True)
        if depth < _MAX_DEPTH:
            for name in self._list_names(folder, folders_in):
                yield from self._growing_files_below(f"{folder}/{name}", depth + 1)

    def _growing_files_in(
        self, folder: str, accepts_name: Callable[[str], bool], *, is_of_queue: bool = False
    ) -> Iterator[GrowingFile]:
        names = self._list_names(folder, partial(files_in, is_wanted=accepts_name))
        last = self._index_of_newest_used_file(folder, names)
        for place, name in enumerate(names):
            yield GrowingFile(f"{folder}/{name}", place >= last, is_of_queue)

    def _index_of_newest_used_file(self, folder: str, file_names: Sequence[str]) -> int:
        """Return the index of the newest file with data; empty files that brokers create in advance follow it."""
        for place in range(len(file_names) - 1, 0, -1):
            with suppress(OSError):  # noted when the file itself is shipped
                if self.is_written_to(f"{folder}/{file_names[place]}"):
                    return place
        return 0

    def _list_names(self, folder: str, list_names: Callable[..., list[str]]) -> list[str]:
        """Return the names in a folder; none, with a note, for a folder with a link or device or without permission."""
        path, top = self.root / folder, self.root / folder.split("/", 1)[0]
        try:
            if not top.is_dir():
                return []
            names = list_names(path, trusted_root=top)
        except OSError as error:
            self.skipped.append(str(error) if isinstance(error, UnsafeFileError) else f"{path}: {error.strerror}")
            return []
        usable = []
        for name in names:
            try:
                name.encode()
                usable.append(name)
            except UnicodeEncodeError:
                self.skipped.append(f"{path}: expected names in UTF-8, found {name!r}")
        return usable

    def _read_small_file(self, name: str) -> bytes | None:
        """Read a small file until two results are equal, because the broker may be replacing it."""
        before = None
        for _ in range(_SMALL_FILE_READS):
            try:
                data = read_file(self.root / name, trusted_root=self.root)
            except FileNotFoundError:
                data = None
            except OSError as error:
                self.skipped.append(str(error) if isinstance(error, UnsafeFileError) else f"{name}: {error.strerror}")
                return None
            if data is not None and data == before:
                return data
            before = data
        return None
