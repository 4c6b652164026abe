"""Memory maps of parts of a segment, protected against truncation of the file.

A broker or an operator may truncate a file that is mapped. Without `kernel.guard` this would end the process. With it
the missing pages read as zeros and a mark is set. If `was_cut` returns True, the caller must not trust what it has read
from the mapping. A cut within the last remaining page raises no signal, so the file's size is compared, too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.int64]]
Window = np.ndarray[Any, np.dtype[np.uint8]]

IS_SUPPORTED = sys.platform == "linux" and sys.maxsize > 1 << 32

_WITH_INFO, _ON_ITS_STACK = 0x4, 0x08000000  # SA_SIGINFO, SA_ONSTACK


class _SignalAction(ctypes.Structure):
    """struct sigaction of the C library, on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Guard:
    """Signal handler of this process, with the table of protected regions."""

    def __init__(self) -> None:
        from commitlake.connectors.formats.engine.kernel import guard  # noqa: PLC0415 (it is compiled when first needed)

        self._lock = threading.Lock()
        self._guard = guard
        handler = guard.on_bus_error
        address = int(handler.ctypes(guard.TELL_TABLE, 0, 0))
        memory = (ctypes.c_int64 * (guard.ROWS * guard.ROW_SIZE)).from_address(address)
        self._table: Rows = np.ctypeslib.as_array(memory).reshape(guard.ROWS, guard.ROW_SIZE)
        action = _SignalAction(handler.address, (ctypes.c_byte * 128)(), _WITH_INFO | _ON_ITS_STACK, None)
        library = ctypes.CDLL(None, use_errno=True)
        if library.sigaction(int(signal.SIGBUS), ctypes.byref(action), None) != 0:
            raise OSError(ctypes.get_errno(), "sigaction(SIGBUS)")

    def enter(self, address: int, size: int) -> Rows | None:
        """Protect a region; return its row of the table, or None if the table is full."""
        with self._lock:
            free = np.flatnonzero(self._table[:, self._guard.END] == 0)
            if not len(free):
                return None
            row: Rows = self._table[free[0]]
            row[self._guard.BEGIN], row[self._guard.PAGE_SIZE], row[self._guard.HITS] = address, mmap.PAGESIZE, 0
            row[self._guard.END] = address + size
            return row

    def leave(self, row: Rows) -> None:
        """End the protection of a region."""
        with self._lock:
            row[self._guard.END] = 0

    def hits(self, row: Rows) -> int:
        """Return how many pages of the region were missing."""
        return int(row[self._guard.HITS])


_guards: dict[int, _Guard] = {}  # by process id: a forked child inherits the handler, and must detect that


def _guard_of_process() -> _Guard:
    if os.getpid() not in _guards:
        _guards[os.getpid()] = _Guard()
    return _guards[os.getpid()]


class Mapping:
    """Part of an open file, mapped for reading.

    Attributes:
        window: the bytes of the part; zeros where the file was truncated meanwhile.
    """

    def __init__(self, descriptor: int, position: int, length: int, guard: _Guard) -> None:
        self._descriptor = descriptor
        self._start, self._end = position, position + length
        start = position - position % mmap.ALLOCATIONGRANULARITY
        # Writable, because numba would compile all functions again for read-only arrays.
        access = mmap.PROT_READ | mmap.PROT_WRITE
        size = position + length - start
        self._memory = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=access, offset=start)
        whole = np.frombuffer(self._memory, np.uint8)
        self._guard = guard
        self._row = guard.enter(whole.ctypes.data, len(whole))
        self.window: Window = whole[position - start :]

    @classmethod
    def of(cls, descriptor: int, position: int, length: int) -> Mapping | None:
        """Map a part of a file, which is shorter at its end; return None if this machine cannot do that safely."""
        if not IS_SUPPORTED:
            return None
        length = min(length, os.fstat(descriptor).st_size - position)
        if length <= 0:
            return None
        try:
            mapping = cls(descriptor, position, length, _guard_of_process())
        except (ValueError, OSError):  # truncated just now, or a file system without memory maps
            return None
        return None if mapping._row is None else mapping

    @property
    def was_cut(self) -> bool:
        """True if a part of the window was, or may have been, accessed that the file no longer contains."""
        if self._row is None:
            return False
        # Reading the zeros after the end of the file within its last page raises no signal.
        size = os.fstat(self._descriptor).st_size
        return self._guard.hits(self._row) > 0 or max(size, self._start) < min(size + -size % mmap.PAGESIZE, self._end)

    def close(self) -> None:
        """Unmap the memory when nothing uses it any longer."""
        if self._row is not None:
            self._guard.leave(self._row)
            self._row = None
        self.window = np.empty(0, np.uint8)
        del self._memory
