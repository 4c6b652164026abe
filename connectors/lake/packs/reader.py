"""Reading of bodies by reference: one body with one ranged read, or many of one pack as an Arrow array.

A reference comes from a table and a pack from a folder, and neither is trusted. The order of the checks is

    1. numbers       no negative ones, no body that ends after `max_frame_bytes`
    2. stored size   at most what zstd could make of the allowed content; nothing is read before
    3. the read      fewer bytes than requested: the pack ends too early
    4. the claim     the content size in the frame's header; nothing is allocated before
    5. the content   has the claimed size
    6. the CRC       of each body, if it is known

An empty body is not read.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.packs import compiled_copying
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import (
    FRAME_BYTES,
    MAX_FRAME_BYTES,
    BodyRef,
    FrameError,
    PackRefs,
    decompress_frame,
    max_stored_bytes,
)
from commitlake.connectors.lake.packs.merged_packs import read_pack_range
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.commitlog import body_crc

READ_BYTES = 8 << 20  # object stores deliver ranges of this size at full speed; larger ones only need more memory
_MAX_GAP_BYTES = max_stored_bytes(FRAME_BYTES)  # reading an unneeded frame is faster than another request
_MAX_ARRAY_BYTES = (1 << 31) - 1  # offsets in an Arrow binary array are int32
_BAD_REFERENCE = "The table's body_ref was not written by 'archive', or is damaged"
_BAD_PACK = "The pack is damaged, or the table's body_ref is: restore the pack from a backup of the lake"


class FrameCache:
    """Cache of the most recently used decompressed frames of one pack store, for rows that arrive in batches.

    Args:
        frames: number of frames to keep. Sorted rows need one; a few more help if rows are nearly sorted.
    """

    def __init__(self, frames: int = 4) -> None:
        self._size = frames
        self._contents: OrderedDict[tuple[str, int, int], pa.Buffer] = OrderedDict()

    def get(self, pack: str, frame_offset: int, frame_length: int) -> pa.Buffer | None:
        """Return a frame's content if it is in the cache."""
        content = self._contents.get((pack, frame_offset, frame_length))
        if content is not None:
            self._contents.move_to_end((pack, frame_offset, frame_length))
        return content

    def put(self, pack: str, frame_offset: int, frame_length: int, content: pa.Buffer) -> None:
        """Store a frame's content; if the cache is full, remove the least recently used frame."""
        if content.size > FRAME_BYTES:
            return  # frames larger than the cache contain a single body, which has been read
        self._contents[pack, frame_offset, frame_length] = content
        self._contents.move_to_end((pack, frame_offset, frame_length))
        while len(self._contents) > self._size:
            self._contents.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _PackFrame:
    """A frame to read: its position, the end of the last needed body in it, and the rows of the bodies in it."""

    offset: int
    length: int
    needed: int
    rows: Array


def read_body(
    store: PackStore, ref: BodyRef, expected_crc: int | None = None, max_frame_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """Read one body from a pack, and check its CRC.

    Args:
        ref: reference to the body.
        expected_crc: the table's `body_crc`, or None to skip the comparison.
        max_frame_bytes: maximum end of a body in its frame.

    Raises:
        PackError: if the body is not available or does not match.
    """
    try:
        refs = PackRefs(
            np.array([ref.frame_offset], np.int64),
            np.array([ref.frame_length], np.int32),
            np.array([ref.offset], np.int32),
            np.array([ref.length], np.int32),
        )
    except OverflowError:
        raise PackError(ref.pack, None, "a body_ref of a long and three ints", f"{ref}", _BAD_REFERENCE) from None
    crcs = None if expected_crc is None else np.array([expected_crc], np.int64)
    body: bytes = read_bodies(store, ref.pack, refs, crcs, max_frame_bytes=max_frame_bytes)[0].as_py()
    return body


def read_bodies(
    store: PackStore,
    pack: str,
    body_refs: PackRefs,
    crcs: Array | None = None,
    *,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    cache: FrameCache | None = None,
) -> pa.Array:
    """Read many bodies of one pack; each frame is decompressed once, and neighbouring frames are read together.

    Args:
        pack: name of the pack.
        body_refs: references to the bodies, in any order, also repeatedly.
        crcs: int64, `body_crc` of each body, `UNKNOWN_CRC` if the table has none; None to skip the comparison.
        max_frame_bytes: maximum end of a body in its frame.
        cache: cache of frames from earlier calls, and for later ones.

    Returns:
        A binary array without nulls, in the order of `body_refs`.

    Raises:
        PackError: if one of the bodies is not available or does not match.
        ValueError: if the bodies exceed 2 GiB, the limit of an Arrow array, so fewer must be requested; or if the
            arrays differ in length.
    """
    cache = cache or FrameCache(1)
    # Copy the arrays, because numba compiles again for read-only arrays such as views of Arrow's buffers.
    body_refs = PackRefs(
        *(np.array(getattr(body_refs, field.name), np.int64) for field in dataclasses.fields(body_refs))
    )
    crcs = np.full(len(body_refs), compiled_copying.UNKNOWN_CRC) if crcs is None else np.array(crcs, np.int64)
    sizes = {
        len(body_refs.frame_offsets),
        len(body_refs.frame_lengths),
        len(body_refs.offsets),
        len(body_refs.lengths),
        len(crcs),
    }
    if len(sizes) > 1:
        raise ValueError(f"expected arrays with the same number of rows, found arrays of {sorted(sizes)} rows")
    _check_ref_ranges(pack, body_refs, max_frame_bytes)
    out_offsets = np.zeros(len(body_refs) + 1, np.int64)
    np.cumsum(body_refs.lengths, out=out_offsets[1:])
    if out_offsets[-1] > _MAX_ARRAY_BYTES:
        raise ValueError(f"expected at most {_MAX_ARRAY_BYTES} bytes of bodies in one call, found {out_offsets[-1]}")
    frames = _frames_of_bodies(body_refs)
    for frame in frames:
        _check_stored_size(pack, frame)
    # Allocate only now, after the lengths in the table are checked against their frames.
    out = np.empty(out_offsets[-1], np.uint8)
    for frame, content in _read_frames(store, pack, frames, cache):
        bodies = np.frombuffer(content, np.uint8)
        compiled_copying.copy_from_frame(bodies, frame.rows, body_refs.offsets, body_refs.lengths, out, out_offsets)
    _check_body_crcs(pack, body_refs, out, out_offsets, crcs)
    buffers = [None, pa.py_buffer(out_offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(body_refs), buffers)


def _check_ref_ranges(pack: str, body_refs: PackRefs, max_frame_bytes: int) -> None:
    for name in ("frame_offset", "frame_length", "offset", "length"):
        values = getattr(body_refs, f"{name}s")
        if len(values) and (least := int(values.min())) < 0:
            row = int(values.argmin())
            place = None if name == "frame_offset" else int(body_refs.frame_offsets[row])
            raise PackError(pack, place, f"a body_ref whose {name} is not negative", f"{least}", _BAD_REFERENCE)
    ends = body_refs.offsets + body_refs.lengths
    if len(ends) and (greatest := int(ends.max())) > max_frame_bytes:
        raise PackError(
            pack,
            int(body_refs.frame_offsets[ends.argmax()]),
            f"a body that ends within the first {max_frame_bytes} bytes of its frame",
            f"one that ends at {greatest}",
            f"{_BAD_REFERENCE}; if bodies may be so large, raise max_frame_bytes",
        )


def _frames_of_bodies(body_refs: PackRefs) -> list[_PackFrame]:
    """Return the frames of all non-empty bodies, ordered by their position in the pack."""
    rows = np.flatnonzero(body_refs.lengths)
    if not len(rows):
        return []
    # In the order of the pack, so that neighbouring frames are read with one request.
    rows = rows[np.lexsort((body_refs.frame_lengths[rows], body_refs.frame_offsets[rows]))]
    offsets, lengths = body_refs.frame_offsets[rows], body_refs.frame_lengths[rows]
    # A frame that is referenced with two lengths becomes two frames, one of which cannot be decompressed.
    firsts = np.flatnonzero(np.r_[True, (offsets[1:] != offsets[:-1]) | (lengths[1:] != lengths[:-1])])
    needed = np.maximum.reduceat(body_refs.offsets[rows] + body_refs.lengths[rows], firsts)
    groups = np.split(rows, firsts[1:])
    return [
        _PackFrame(int(offset), int(length), int(end), group)
        for offset, length, end, group in zip(offsets[firsts], lengths[firsts], needed, groups, strict=True)
    ]


def _check_stored_size(pack: str, frame: _PackFrame) -> None:
    limit = max_stored_bytes(max(FRAME_BYTES, frame.needed))
    if not 0 < frame.length <= limit:
        expected = f"a body_ref with a frame_length of 1 to {limit}"
        raise PackError(pack, frame.offset, expected, f"{frame.length}", _BAD_REFERENCE)


def _read_frames(
    store: PackStore, pack: str, frames: list[_PackFrame], cache: FrameCache
) -> Iterator[tuple[_PackFrame, pa.Buffer]]:
    """Yield each frame with its decompressed content, cached frames first."""
    missing = []
    for frame in frames:
        content = cache.get(pack, frame.offset, frame.length)
        if content is None or content.size < frame.needed:
            missing.append(frame)
        else:
            # The cached ones first, before reading other frames pushes them out.
            yield frame, content
    for run in _group_adjacent_frames(missing):
        start = run[0].offset
        wanted = max(frame.offset + frame.length for frame in run) - start
        data = pa.py_buffer(read_pack_range(store, pack, start, wanted))
        for frame in run:
            # The pack may end too early, which `_decompress_frame` reports for the frame concerned.
            content = _decompress_frame(pack, data.slice(min(frame.offset - start, data.size)), frame)
            cache.put(pack, frame.offset, frame.length, content)
            yield frame, content


def _group_adjacent_frames(frames: list[_PackFrame]) -> Iterator[list[_PackFrame]]:
    """Yield groups of neighbouring frames of up to `READ_BYTES`; a larger frame forms its own group."""
    run: list[_PackFrame] = []
    start = end = 0
    for frame in frames:
        frame_end = frame.offset + frame.length
        if run and (frame.offset - end > _MAX_GAP_BYTES or max(end, frame_end) - start > READ_BYTES):
            yield run
            run = []
        if not run:
            start, end = frame.offset, frame.offset
        run.append(frame)
        end = max(end, frame_end)
    if run:
        yield run


def _decompress_frame(pack: str, stored_bytes: pa.Buffer, frame: _PackFrame) -> pa.Buffer:
    if stored_bytes.size < frame.length:
        expected = f"a frame of {frame.length} bytes"
        raise PackError(pack, frame.offset, expected, f"the end of the pack after {stored_bytes.size}", _BAD_PACK)
    try:
        return decompress_frame(stored_bytes.slice(0, frame.length), frame.needed)
    except FrameError as error:
        raise PackError(pack, frame.offset, error.expected, error.found, _BAD_PACK) from None


def _check_body_crcs(pack: str, body_refs: PackRefs, data: Array, offsets: Array, crcs: Array) -> None:
    row = compiled_copying.find_wrong_crc(data, offsets, crcs)
    if row >= 0:
        body = data[offsets[row] : offsets[row + 1]].tobytes()
        raise PackError(
            pack,
            int(body_refs.frame_offsets[row]),
            f"a body with the CRC {crcs[row]} at {body_refs.offsets[row]} in the frame",
            f"the CRC {body_crc(body)} of these {len(body)} bytes",
            _BAD_PACK,
        )
