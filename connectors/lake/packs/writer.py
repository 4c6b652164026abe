"""Writing of bodies from a window of log bytes to packs, without a Python object per body.

    with write_pack(store, name) as pack:
        for window, positions, lengths in windows:
            pack.append(window, positions, lengths)
    refs = pack.finish()

The pack exists once the `with` block has ended without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.packs import compiled_copying
from commitlake.connectors.lake.packs.frames import FRAME_BYTES, MAX_BODY_BYTES, PackRefs
from commitlake.connectors.lake.packs.pack_stores import PackOutput, PackStore
from commitlake.connectors.numpy_arrays import Array, read_only_view

DEFAULT_LEVEL = 1


class PackWriter:
    """A writer of one pack, which has one frame, and the positions of the bodies, in memory.

    Args:
        output: receives the pack's bytes, one frame at a time.
        frame_bytes: content size at which a frame is closed; at most 256 KiB, because readers refuse larger frames.
        level: compression level of zstd.
    """

    def __init__(self, output: PackOutput, frame_bytes: int = FRAME_BYTES, level: int = DEFAULT_LEVEL) -> None:
        if not 1 <= frame_bytes <= FRAME_BYTES:
            raise ValueError(f"frame_bytes: expected 1 to {FRAME_BYTES}, found {frame_bytes}")
        self._output = output
        self._codec = pa.Codec("zstd", compression_level=level)
        self._frame = np.empty(frame_bytes, np.uint8)
        self._filled = 0
        self._position = 0
        self._bodies = 0
        self._offsets: list[Array] = []
        self._lengths: list[Array] = []
        # For each closed frame: its position, its stored size, and the number of its bodies.
        self._frame_offsets: list[int] = []
        self._frame_lengths: list[int] = []
        self._frame_bodies: list[int] = []
        self._closed = 0
        self._refs: PackRefs | None = None

    def append_bodies(self, window: Array, positions: Array, lengths: Array) -> None:
        """Add bodies in the given order.

        Args:
            window: uint8, bytes that contain the bodies; not needed after this returns.
            positions: int64, start of each body.
            lengths: int64, length of each body.

        Raises:
            ValueError: if a body is not within the window; then nothing has been added.
        """
        if self._refs is not None:
            raise ValueError("the pack is finished: further bodies need another pack")
        if len(positions) != len(lengths):
            raise ValueError(
                f"expected as many positions as lengths, found {len(positions)} positions and {len(lengths)} lengths"
            )
        window = read_only_view(np.ascontiguousarray(window))
        positions = np.ascontiguousarray(positions, np.int64)
        lengths = np.ascontiguousarray(lengths, np.int64)
        if window.dtype != np.uint8 or window.ndim != 1:
            raise ValueError(
                f"window: expected an array of one dimension of uint8, found {window.ndim} dimensions of {window.dtype}"
            )
        if not compiled_copying.spans_fit(len(window), positions, lengths, MAX_BODY_BYTES):
            raise ValueError(
                f"expected bodies that are within the window of {len(window)} bytes and of at most {MAX_BODY_BYTES} "
                "bytes, found another"
            )
        offsets = np.zeros(len(positions), np.int32)
        self._add_bodies(window, positions, lengths, offsets)
        self._offsets.append(offsets)
        self._lengths.append(lengths.astype(np.int32))
        self._bodies += len(positions)

    def finish(self) -> PackRefs:
        """Write the remaining bodies, and return the positions of all bodies in the order in which they were added."""
        if self._refs is None:
            if self._bodies > self._closed:
                self._close_frame(self._frame[: self._filled], self._bodies)
            self._refs = self._make_refs()
        return self._refs

    def _add_bodies(self, window: Array, positions: Array, lengths: Array, offsets: Array) -> None:
        row = 0
        while True:
            row, self._filled = compiled_copying.fill_frame(
                window, positions, lengths, row, self._frame, self._filled, offsets
            )
            if row == len(positions):
                return
            if self._filled > 0:
                self._close_frame(self._frame[: self._filled], self._bodies + row)
            else:  # larger than a frame: pass it from the window to zstd without copying
                start, length = positions[row], lengths[row]
                row += 1
                self._close_frame(window[start : start + length], self._bodies + row)

    def _close_frame(self, content: Array, end_row: int) -> None:
        frame = self._codec.compress(pa.py_buffer(content))
        # A slice, because memoryview shows the original size of a buffer that Arrow has shrunk.
        self._output.write(memoryview(frame.slice(0)))
        self._frame_offsets.append(self._position)
        self._frame_lengths.append(frame.size)
        self._frame_bodies.append(end_row - self._closed)
        self._closed = end_row
        self._position += frame.size
        self._filled = 0

    def _make_refs(self) -> PackRefs:
        bodies = np.array(self._frame_bodies, np.int64)
        return PackRefs(
            frame_offsets=np.repeat(np.array(self._frame_offsets, np.int64), bodies),
            frame_lengths=np.repeat(np.array(self._frame_lengths, np.int32), bodies),
            offsets=np.concatenate([np.empty(0, np.int32), *self._offsets]),
            lengths=np.concatenate([np.empty(0, np.int32), *self._lengths]),
        )


@contextmanager
def open_pack_writer(
    store: PackStore, name: str, *, frame_bytes: int = FRAME_BYTES, level: int = DEFAULT_LEVEL
) -> Iterator[PackWriter]:
    """Open a writer for a pack, which appears under its name once the block has ended without an error.

    Args:
        name: result of `pack_name`.
        frame_bytes: see PackWriter.
        level: see PackWriter.

    Yields:
        The writer; its `finish` returns the references, in the `with` block or after it.
    """
    with store.open_write(name) as output:
        writer = PackWriter(output, frame_bytes, level)
        yield writer
        writer.finish()
