"""Windows of a segment: mapped if the file is local and large, otherwise read; ahead, if it is not local.

Mapping saves a copy, which costs as much as all other work on a record. Windows are in order. Each has `PADDING`
readable bytes after the bytes that count, because the kernel reads 64 bytes at a time.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.files import LocalFile, RemoteSegment, SegmentFile, Window
from commitlake.connectors.formats.engine.kernel.memory import PADDING
from commitlake.connectors.formats.engine.mapping import Mapping
from commitlake.connectors.formats.engine.read_ahead import ReadAhead

MAP_BYTES = 32 << 20
"""Number of bytes of a file that are mapped at a time."""
_MIN_MAP_BYTES = 1 << 20
_HOLE_BYTES = 64 << 10
_MIN_READ_BYTES = 8  # size and magic, with which records and fillers of every format begin


class OpenWindow:
    """Window, as a context manager.

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
    def was_cut(self) -> bool:
        """True if the file was truncated under the mapping, so that some of the bytes are zeros now."""
        return self._mapping is not None and self._mapping.was_cut

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mapping is not None:
            self._mapping.close()


class Windows:
    """Factory that opens one window after the other."""

    def __init__(self, file: SegmentFile, base_offset: int, read_bytes: int, expected: int) -> None:
        """Create a buffer for reading.

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

    def open(self, origin: int, reach: int, limit: int | None = None) -> OpenWindow:
        """Open a window from one physical offset towards another, of the maximum size.

        Args:
            origin: physical offset of its first byte.
            reach: physical offset at which it ends at the latest.
            limit: physical offset up to which the caller will read on; by default `reach`.
        """
        wanted = max(0, reach - origin)
        if min(wanted, self._map_bytes) >= _MIN_MAP_BYTES and isinstance(self._file, LocalFile):
            size = min(wanted, self._map_bytes, max(_MIN_MAP_BYTES, self._bytes_to_hole(origin)))
            mapping = Mapping.of(self._file.descriptor, origin - self._base_offset, size + PADDING)
            if mapping is not None:
                self._last = length = max(0, min(size, len(mapping.window) - PADDING))
                return OpenWindow(mapping.window, length, is_end_of_file=False, mapping=mapping)
        size = min(self._size, wanted)
        if len(self._buffer) < size + PADDING:
            self._buffer = np.empty(size + PADDING, np.uint8)
        self._last = length = self._read(self._buffer[:size], origin, reach if limit is None else limit)
        return OpenWindow(self._buffer, length, is_end_of_file=length < size)

    def _read(self, window: Window, origin: int, limit: int) -> int:
        if self._ahead is None:
            return self._file.read_into(window, origin - self._base_offset)
        return self._ahead.read_into(window, origin - self._base_offset, limit - self._base_offset)

    def _bytes_to_hole(self, origin: int) -> int:
        """Return the distance to the next hole of a local file, and a little more, so that its zeros are seen.

        Reading the rest of a hole would fill the memory with zeros; `walk` skips it.
        """
        assert isinstance(self._file, LocalFile)
        position = origin - self._base_offset
        return self._file.next_hole(position) - position + _HOLE_BYTES

    @property
    def sizes(self) -> tuple[int, int]:
        """Maximum size of the next window, as read or mapped."""
        return self._size, self._map_bytes

    def only_read(self) -> None:
        """Stop mapping, and only read."""
        self._map_bytes = 0

    def grow(self) -> None:
        """Enlarge the windows, because the next record does not fit."""
        self._size = max(self._size, 2 * self._last)
        self._map_bytes = 0  # a mapping ends with the file and must include PADDING bytes, so it may never grow


def numbers_at(window: Window, positions: Array, code: str) -> Array:
    """Return fields of a window at the given positions as numbers; `code` is their numpy type, such as ">i8"."""
    size = np.dtype(code).itemsize
    found: Array = window[positions[:, None] + np.arange(size)].view(code).reshape(-1).astype(np.int64)
    return found
