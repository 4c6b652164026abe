"""Windows of a segment: mapped if the file is local and large, otherwise read, with read-ahead if remote.

Mapping saves a copy, which costs as much as all other work on a record. Windows are in order. Each has `PADDING`
readable bytes after the bytes that count, because the kernel reads 64 bytes at a time.

A broker or an operator may truncate a file that is mapped. Without `kernel.truncation_guard` this would end the
process. With it the missing pages read as zeros and a mark is set. If `was_truncated` returns True, the caller must not
trust what it has read from the mapping. A cut within the last remaining page raises no signal, so
the file's size is compared, too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.read_ahead import ReadAhead
from commitlake.connectors.reading.files.segment_files import LocalFile, RemoteSegment, Window
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.kernel.record_walk import START
from commitlake.schemas.layouts.base import Layout

Rows = np.ndarray[Any, np.dtype[np.int64]]

IS_SUPPORTED = sys.platform == "linux" and sys.maxsize > 1 << 32

_WITH_INFO, _ON_ITS_STACK = 0x4, 0x08000000  # SA_SIGINFO, SA_ONSTACK


class _SigactionStruct(ctypes.Structure):
    """struct sigaction of the C library, on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _MappingGuard:
    """Process-wide signal handler that turns reads past the end of a truncated mapped file into zeros, not a crash."""

    def __init__(self) -> None:
        from commitlake.connectors.reading.kernel import truncation_guard  # noqa: PLC0415 (it is compiled when first needed)

        self._lock = threading.Lock()
        self._guard = truncation_guard
        handler = truncation_guard.on_bus_error
        address = int(handler.ctypes(truncation_guard.TELL_TABLE, 0, 0))
        memory = (ctypes.c_int64 * (truncation_guard.ROWS * truncation_guard.ROW_SIZE)).from_address(address)
        self._table: Rows = np.ctypeslib.as_array(memory).reshape(truncation_guard.ROWS, truncation_guard.ROW_SIZE)
        action = _SigactionStruct(handler.address, (ctypes.c_byte * 128)(), _WITH_INFO | _ON_ITS_STACK, None)
        library = ctypes.CDLL(None, use_errno=True)
        # With the C library instead of Python's `signal`: a handler of Python's runs only after the instruction, which
        # would fail again and again.
        if library.sigaction(int(signal.SIGBUS), ctypes.byref(action), None) != 0:
            raise OSError(ctypes.get_errno(), "sigaction(SIGBUS)")

    def protect_region(self, address: int, size: int) -> Rows | None:
        """Guard a mapped region against truncation of its file; return its row of a table, or None if that is full."""
        # Only the threads that add and remove regions need the lock. The handler may interrupt them, so it reads
        # without one.
        with self._lock:
            free = np.flatnonzero(self._table[:, self._guard.END] == 0)
            if not len(free):
                return None
            row: Rows = self._table[free[0]]
            row[self._guard.BEGIN], row[self._guard.PAGE_SIZE], row[self._guard.HITS] = address, mmap.PAGESIZE, 0
            # The end last: until it is set, the row counts as free, and the handler never sees a half-written region.
            row[self._guard.END] = address + size
            return row

    def unprotect_region(self, table_row: Rows) -> None:
        """Stop guarding a mapped region against truncation of its file."""
        with self._lock:
            table_row[self._guard.END] = 0

    def count_missing_pages(self, table_row: Rows) -> int:
        """Return how many pages of the region were read although the file no longer contained them."""
        return int(table_row[self._guard.HITS])


_guards: dict[int, _MappingGuard] = {}  # by process id: a forked child inherits the handler, and must detect that


def _get_process_guard() -> _MappingGuard:
    if os.getpid() not in _guards:
        _guards[os.getpid()] = _MappingGuard()
    return _guards[os.getpid()]


class Mapping:
    """Part of an open file, mapped for reading.

    Attributes:
        window: the bytes of the part; zeros where the file was truncated meanwhile.
    """

    def __init__(self, descriptor: int, position: int, length: int, guard: _MappingGuard) -> None:
        self._descriptor = descriptor
        self._start, self._end = position, position + length
        start = position - position % mmap.ALLOCATIONGRANULARITY
        # Writable, because numba would compile all functions again for read-only arrays.
        access = mmap.PROT_READ | mmap.PROT_WRITE
        size = position + length - start
        self._memory = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=access, offset=start)
        whole = np.frombuffer(self._memory, np.uint8)
        self._guard = guard
        self._row = guard.protect_region(whole.ctypes.data, len(whole))
        self.window: Window = whole[position - start :]

    @classmethod
    def map_file(cls, descriptor: int, position: int, length: int) -> Mapping | None:
        """Map a part of a file, or less at the file's end; return None if it cannot be mapped safely."""
        if not IS_SUPPORTED:
            return None
        length = min(length, os.fstat(descriptor).st_size - position)
        if length <= 0:
            return None
        try:
            mapping = cls(descriptor, position, length, _get_process_guard())
        except (ValueError, OSError):  # truncated just now, or a file system without memory maps
            return None
        return None if mapping._row is None else mapping

    @property
    def was_truncated(self) -> bool:
        """True if bytes past the end of a truncated file were read from the window, or may have been."""
        if self._row is None:
            return False
        # Reading the zeros after the end of the file within its last page raises no signal.
        size = os.fstat(self._descriptor).st_size
        return self._guard.count_missing_pages(self._row) > 0 or max(size, self._start) < min(
            size + -size % mmap.PAGESIZE, self._end
        )

    def close(self) -> None:
        """Unmap the memory when nothing uses it any longer."""
        if self._row is not None:
            self._guard.unprotect_region(self._row)
            self._row = None
        self.window = np.empty(0, np.uint8)
        # The mapping lives on while arrays of its memory are in use; Python unmaps it with the last of them.
        del self._memory


MAP_BYTES = 32 << 20
"""Number of bytes of a file that are mapped at a time."""
_MIN_MAP_BYTES = 1 << 20
_HOLE_BYTES = 64 << 10
_MIN_READ_BYTES = 8  # size and magic, with which records and fillers of every format begin


class OpenWindow:
    """Part of a segment in memory, mapped or read, as a context manager.

    Attributes:
        window: the bytes, and at least PADDING more.
        length: number of bytes that count.
        is_end_of_file: whether the file ends with these bytes although more were expected.
    """

    def __init__(self, window: Window, length: int, *, is_end_of_file: bool, mapping: Mapping | None = None) -> None:
        self.window = window
        self.length = length
        self.is_end_of_file = is_end_of_file
        self._mapping = mapping

    @property
    def was_truncated(self) -> bool:
        """True if the file was truncated under the mapping, so that some of the bytes are zeros now."""
        return self._mapping is not None and self._mapping.was_truncated

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mapping is not None:
            self._mapping.close()


class Windows:
    """Opener of the windows of a segment, which are parts of it in memory, one at a time."""

    def __init__(self, file: SegmentFile, base_offset: int, read_bytes: int, expected: int) -> None:
        """Create the opener, with a buffer for the parts that are read instead of mapped.

        Args:
            file: the open segment.
            base_offset: physical offset of its first byte.
            read_bytes: bytes to read at a time.
            expected: bytes that will be read in total.
        """
        self._file = file
        self._base_offset = base_offset
        self._size = max(_MIN_READ_BYTES, min(read_bytes, expected))
        self._buffer = np.empty(0, np.uint8)
        self._map_bytes = MAP_BYTES if isinstance(file, LocalFile) else 0
        self._ahead = ReadAhead(file) if isinstance(file, RemoteSegment) else None
        self._last = 0

    def open(self, window_offset: int, max_end: int, read_end: int | None = None) -> OpenWindow:
        """Open the window that begins at a physical offset and ends at `max_end` or earlier.

        Args:
            window_offset: physical offset of its first byte.
            max_end: physical offset at which it ends at the latest.
            read_end: physical offset up to which the caller will read on; by default `max_end`.
        """
        wanted = max(0, max_end - window_offset)
        if min(wanted, self._map_bytes) >= _MIN_MAP_BYTES and isinstance(self._file, LocalFile):
            # No less than the minimum, because a sparse file may have many small holes.
            size = min(wanted, self._map_bytes, max(_MIN_MAP_BYTES, self._count_bytes_to_hole(window_offset)))
            # The kernel reads up to PADDING bytes past the window, so these are mapped, too.
            mapping = Mapping.map_file(self._file.descriptor, window_offset - self._base_offset, size + PADDING)
            if mapping is not None:
                # At the end of the file the padding takes bytes of the file itself; the rest is then read into the
                # buffer.
                self._last = length = max(0, min(size, len(mapping.window) - PADDING))
                return OpenWindow(mapping.window, length, is_end_of_file=False, mapping=mapping)
        size = min(self._size, wanted)
        if len(self._buffer) < size + PADDING:
            self._buffer = np.empty(size + PADDING, np.uint8)
        self._last = length = self._read_window(
            self._buffer[:size], window_offset, max_end if read_end is None else read_end
        )
        # Fewer bytes than asked for: only the end of the file does that.
        return OpenWindow(self._buffer, length, is_end_of_file=length < size)

    def _read_window(self, window: Window, window_offset: int, read_end: int) -> int:
        if self._ahead is None:
            return self._file.read_into(window, window_offset - self._base_offset)
        return self._ahead.read_into(window, window_offset - self._base_offset, read_end - self._base_offset)

    def _count_bytes_to_hole(self, window_offset: int) -> int:
        """Return the number of bytes to map up to the next hole of a local file, with a few of the hole's zeros.

        Reading the rest of a hole would fill the memory with zeros; `walk_records` skips it.
        """
        assert isinstance(self._file, LocalFile)
        position = window_offset - self._base_offset
        return self._file.next_hole(position) - position + _HOLE_BYTES

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Maximum size of the next window if it is read into memory, and if it is mapped."""
        return self._size, self._map_bytes

    def disable_mapping(self) -> None:
        """Read further windows of the segment into memory instead of mapping them."""
        self._map_bytes = 0

    def enlarge_windows(self) -> None:
        """Enlarge the windows, because the next record does not fit."""
        self._size = max(self._size, 2 * self._last)
        self._map_bytes = 0  # a mapping ends with the file and must include PADDING bytes, so it may never grow


def read_numbers_at(window: Window, positions: Array, type_code: str) -> Array:
    """Return the numbers at the given positions of a window, decoded by a numpy type code such as ">i8"."""
    size = np.dtype(type_code).itemsize
    found: Array = window[positions[:, None] + np.arange(size)].view(type_code).reshape(-1).astype(np.int64)
    return found


def make_head_reader(head_layout: Layout, field_name: str) -> Callable[[Window, Array], Array]:
    """Return a function that reads a numeric field from the fixed-length part of located records."""
    return partial(_read_head_numbers, head_layout.offset_of(field_name), dict(head_layout.numpy_fields)[field_name])


def _read_head_numbers(field_offset: int, type_code: str, window: Window, record_parts: Array) -> Array:
    return read_numbers_at(window, record_parts[START] + field_offset, type_code)
