"""Tests of a remote file that several threads read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from commitlake.connectors.reading.files.remote_files import RemoteFile
from commitlake.connectors.storage.filesystem import StorageHandler
from commitlake.connectors.storage.storage import RangeFile
from tests.support.waiting import wait_until

WAIT_SECONDS = 60
DATA = bytes(range(200))


class MeetingFile(RangeFile):
    """A file whose reads wait until two of them run."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)

    def size(self) -> int:
        """See RangeFile."""
        return len(DATA)

    def read_at(self, size: int, start: int) -> bytes:
        """See RangeFile."""
        self._both.wait(WAIT_SECONDS)
        return DATA[start : start + size]


class Handler(StorageHandler):
    """A filesystem that has this one file everywhere."""

    def __init__(self, file: RangeFile) -> None:
        super().__init__("meeting")
        self._file = file

    def open_for_range_reads(self, path: str) -> RangeFile:
        """See StorageHandler."""
        assert path == "x"
        return self._file

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """See FileSystemHandler."""
        return [pafs.FileInfo(path, pafs.FileType.File) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """See FileSystemHandler."""
        raise NotImplementedError(selector.base_dir)


def taken(file: RemoteFile, position: int, size: int) -> bytes:
    """Return the bytes of one read."""
    window = np.zeros(size, np.uint8)
    return window[: file.read_into(window, position)].tobytes()


def test_two_threads_read_one_file_at_the_same_time() -> None:
    opened = MeetingFile()
    file = RemoteFile(pafs.PyFileSystem(Handler(opened)), "x")
    found: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda at=at: found.update({at: taken(file, at, 150)})) for at in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert found == {0: DATA[:150], 100: DATA[100:]}
    assert file.size() == len(DATA)


def test_a_file_that_is_closed_during_a_read_is_closed_after_it() -> None:
    opened = MeetingFile()
    file = RemoteFile(pafs.PyFileSystem(Handler(opened)), "x")
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(taken(file, 0, 10)))
    thread.start()
    wait_until(lambda: opened._both.n_waiting == 1)
    file.close()
    assert not opened.closed
    opened._both.wait(WAIT_SECONDS)
    thread.join(WAIT_SECONDS)
    assert found == [DATA[:10]]
    assert opened.closed


def test_a_file_of_arrow_is_read_and_closed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    file = RemoteFile(pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), "x")
    assert taken(file, 190, 50) == DATA[190:]
    file.close()
    with pytest.raises((ValueError, pa.ArrowInvalid)):
        taken(file, 0, 1)


def test_a_file_that_does_not_exist_is_not_opened(tmp_path: Path) -> None:
    filesystem: Any = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    with pytest.raises(FileNotFoundError):
        RemoteFile(filesystem, "x")
