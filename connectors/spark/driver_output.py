"""Output of a driver on another machine, passed to the user through a folder that both machines can access.

    000000001-1   bytes of standard output
    000000002-2   bytes of standard error
    …
    end-3         no more follows; the job's exit code

The driver writes a file at most once a second, when there is output. A file appears under its name when it is complete,
and the reader deletes it. So the folder stays small, and what is printed does not depend on YARN's own logs, which
a cluster may not collect.
"""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
_PART = re.compile(r"[0-9]{9,}-(?P<stream>[12])")
_END = re.compile(r"end-(?P<code>[0-9]{1,3})")
_FLUSH_SECONDS = 1.0
_MAX_PART_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_WAITS_SECONDS = (1.0, 5.0)
"""Waits between the attempts to write a file."""


class OutputFolder(Protocol):
    """Interface of a folder for output that both the driver and the launcher can access."""

    def file_names(self) -> list[str]:
        """Return the names of the files; an empty list if there is no folder."""

    def read(self, name: str) -> bytes:
        """Return a file's content."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which appears under its name when it is complete."""

    def delete(self, name: str) -> None:
        """Delete a file."""


def copy_output(folder: OutputFolder, write_output: Callable[[int, bytes], None]) -> int | None:
    """Pass on what a driver on a cluster has printed since the last call, and delete it from the folder.

    Args:
        folder: the folder of the output.
        write_output: gets the number of a stream and bytes for it.

    Returns:
        The job's exit code, or None if the job has not ended.
    """
    names = sorted(folder.file_names())
    for name in names:
        part = _PART.fullmatch(name)
        if part is not None:
            write_output(int(part["stream"]), folder.read(name))
            # Deleted last: a crash before that repeats a part, and does not lose it.
            folder.delete(name)
    ends = [int(end["code"]) for name in names if (end := _END.fullmatch(name))]
    return ends[0] if ends else None


class OutputSender:
    """Sender of the output of this process and its children to a folder, and also to its original destination.

    If the folder cannot be written, the output only goes to its original destination, and the job does not fail.
    """

    def __init__(self, folder: OutputFolder) -> None:
        """Redirect standard output and standard error to the folder."""
        self._folder = folder
        self._originals = {stream: os.dup(stream) for stream in (STANDARD_OUTPUT, STANDARD_ERROR)}
        self._read_ends: dict[int, int] = {}
        for stream in self._originals:
            read_end, write_end = os.pipe()
            os.dup2(write_end, stream)
            os.close(write_end)
            self._read_ends[read_end] = stream
        self._pending: list[tuple[int, bytearray]] = []
        self._number = 0
        self._flushed = time.monotonic()
        self._is_broken = self._is_told = False
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._forward_output, name="output", daemon=True)
        self._thread.start()

    def close(self, exit_code: int) -> None:
        """Send the remaining output and the exit code, and restore standard output and standard error."""
        for stream, original in self._originals.items():
            os.dup2(original, stream)
        self._is_closing.set()
        self._thread.join()
        self._is_broken = False  # without it, a job that has ended well would be run again
        self._send_file(f"end-{exit_code}", b"")

    def _forward_output(self) -> None:
        while True:
            is_closing = self._is_closing.is_set()
            ready = select.select(list(self._read_ends), [], [], 0 if is_closing else _FLUSH_SECONDS / 2)[0]
            for read_end in ready:
                self._read_output(read_end)
            size = sum(len(content) for _, content in self._pending)
            is_due = time.monotonic() - self._flushed >= _FLUSH_SECONDS
            if is_closing and not ready:
                self._send_pending_output()
                return
            if size >= _MAX_PART_BYTES or (size and is_due):
                self._send_pending_output()

    def _read_output(self, read_end: int) -> None:
        stream, content = self._read_ends[read_end], os.read(read_end, _READ_BYTES)
        if not content:  # every writer has closed it
            del self._read_ends[read_end]
        with suppress(OSError):
            os.write(self._originals[stream], content)
        if self._pending and self._pending[-1][0] == stream:
            self._pending[-1][1].extend(content)
        elif content:
            self._pending.append((stream, bytearray(content)))

    def _send_pending_output(self) -> None:
        self._flushed = time.monotonic()
        for stream, content in self._pending:
            self._number += 1
            self._send_file(f"{self._number:09d}-{stream}", bytes(content))
        self._pending.clear()

    def _send_file(self, name: str, content: bytes) -> None:
        if self._is_broken:
            return
        for wait in (*_WAITS_SECONDS, None):
            try:
                self._folder.write(name, content)
            except Exception as error:  # noqa: BLE001 (a file system of Hadoop can raise anything)
                if wait is not None:
                    time.sleep(wait)
                    continue
                self._is_broken = True
                if self._is_told:
                    return
                self._is_told = True
                with suppress(OSError):
                    message = f"commitlake: the output cannot be sent to the user: {error}\n"
                    os.write(self._originals[STANDARD_ERROR], message.encode(errors="backslashreplace"))
            return
