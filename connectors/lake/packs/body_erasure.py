"""Erasure of bodies in a pack, after which references to all other bodies of the pack stay valid.

A reference contains the position and the stored length of a frame, so a replacement frame has exactly the same length.
If all bodies of a frame are removed, it becomes a skippable frame (RFC 8878, 3.1.2) of zeros. Otherwise, the bytes of
the removed bodies are overwritten, the content is compressed again, and the result is extended to the old length:

    by 8 or more     a skippable frame of zeros after it
    by 1, 2 or 4     a dictionary id of that many bytes, which says 0: no dictionary
    by 3, 5, 6, 7    blocks without content, of 3 bytes each, with or without such an id

`zstd -d` still returns all bodies, joined. Removed bytes are zeros or, if zstd would need more space for zeros than
there is, a repetition of neighbouring bytes in the frame, or what they are if the same bytes stay in the frame. They
depend on nothing but what stays in the frame, and on how much space there is. So a frame shows by itself whether it is
done: if its content is what would be written. Where all bodies are equal, as heartbeats are, the repetition can equal
the removed body; then nothing tells it was there.

The pack is written to a temporary file and renamed as a whole, so a reader sees either the old pack or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import (
    MAX_FRAME_BYTES,
    SINGLE_SEGMENT,
    FrameError,
    PackRefs,
    content_size,
    decompress_frame,
    max_stored_bytes,
)
from commitlake.connectors.lake.packs.merged_packs import SKIPPABLE, SKIPPABLE_MAGIC
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.reader import READ_BYTES

_MAGIC_BYTES = 4
_DICTIONARY_ID_FLAG = {1: 1, 2: 2, 4: 3}  # flag by size of the id
_EMPTY_BLOCK = bytes(3)  # a raw block without content that is not the last one
_PADDING = {0: (0, 0), 1: (1, 0), 2: (2, 0), 3: (0, 1), 4: (4, 0), 5: (2, 1), 6: (0, 2), 7: (4, 1)}
"""For each number of missing bytes: bytes of a dictionary id, and number of empty blocks."""
_LEVELS = (1, 3, 9, 19, 22)
_MAX_FILLS = 64
_DAMAGED = "Restore the pack from a backup of the lake, and erase again: nothing of this pack was changed"
Spans = Sequence[tuple[int, int]]
"""Start and length of bodies in a frame's content."""


@dataclass(frozen=True, slots=True)
class WipeResult:
    """Number and size of the bodies that were erased in a pack, and size of the rewritten pack.

    Attributes:
        bodies: number of bodies that were overwritten.
        bytes: size of these bodies.
        rewritten_bytes: size of the rewritten pack; 0 if it was not rewritten.
        is_gone: whether the pack no longer exists.
    """

    bodies: int = 0
    bytes: int = 0
    rewritten_bytes: int = 0
    is_gone: bool = False


def wipe_bodies(store: PackStore, pack: str, body_refs: PackRefs) -> WipeResult:
    """Erase bodies in a pack; bodies that were erased before stay erased.

    Args:
        pack: name of the pack.
        body_refs: references to the bodies.

    Raises:
        PackError: if the pack cannot be read or written, or a reference does not match the pack.
    """
    try:
        size = store.size(pack)
    except PackError as error:
        if error.found == "none":
            return WipeResult(is_gone=True)
        raise
    replaced: dict[int, bytes] = {}
    count = total = 0
    for offset, length, spans in _group_spans_by_frame(body_refs):
        content = _read_frame(store, pack, offset, length, max(start + size for start, size in spans))
        if content is None:  # everything was already removed
            continue
        changed = _rebuild_frame(pack, offset, content, spans, length)
        if changed is None:
            continue
        replaced[offset], overwritten = changed
        count += len(overwritten)
        total += sum(size for _, size in overwritten)
    if not replaced:
        return WipeResult()
    # Only now, when all frames are made: an error before leaves the pack as it is.
    with store.open_write(pack) as output:
        for piece in _read_pack_with_frames(store, pack, size, replaced):
            output.write(memoryview(piece))
    return WipeResult(count, total, size)


def _group_spans_by_frame(body_refs: PackRefs) -> Iterator[tuple[int, int, Spans]]:
    """Yield the frames with bodies to erase: position, stored length, and ranges of the bodies in its content."""
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for row in np.flatnonzero(np.asarray(body_refs.lengths) > 0).tolist():
        frame = (int(body_refs.frame_offsets[row]), int(body_refs.frame_lengths[row]))
        found.setdefault(frame, set()).add((int(body_refs.offsets[row]), int(body_refs.lengths[row])))
    for (offset, length), spans in sorted(found.items()):
        yield offset, length, sorted(spans)


def _read_frame(store: PackStore, pack: str, offset: int, length: int, content_end: int) -> bytes | None:
    """Return a frame's decompressed content; None if the frame was replaced by a skippable one."""
    if offset < 0 or content_end > MAX_FRAME_BYTES or not 0 < length <= max_stored_bytes(MAX_FRAME_BYTES):
        expected = f"a frame of at most {MAX_FRAME_BYTES} bytes"
        raise PackError(pack, offset, expected, f"a body_ref with {length} and {content_end} bytes", _DAMAGED)
    data = store.read_range(pack, offset, length)
    if len(data) < length:
        raise PackError(pack, offset, f"a frame of {length} bytes", f"the end of the pack after {len(data)}", _DAMAGED)
    if length >= SKIPPABLE.size and SKIPPABLE.unpack_from(data) == (SKIPPABLE_MAGIC, length - SKIPPABLE.size):
        return None
    try:
        # The header of a frame has at most 18 bytes.
        return bytes(decompress_frame(pa.py_buffer(data), max(content_end, content_size(data[:18]))).to_pybytes())
    except FrameError as error:
        raise PackError(pack, offset, error.expected, error.found, _DAMAGED) from None


def _slice_span(content: bytes, span: tuple[int, int]) -> bytes:
    return content[span[0] : span[0] + span[1]]


def _rebuild_frame(pack: str, offset: int, content: bytes, spans: Spans, length: int) -> tuple[bytes, Spans] | None:
    """Return a frame of the same stored length without the given bodies, and the ranges of the bodies just erased.

    None if the content is already that of this frame.
    """
    if sum(size for _, size in spans) == len(content):
        return _make_skippable_frame(length), spans
    for changed in _overwrite_bodies(content, spans):
        # Done by an earlier, interrupted erasure. Rewriting it would change nothing.
        if changed == content:
            return None
        # The fastest level first; the higher ones are needed only where the old frame was compressed better.
        for level in _LEVELS:
            frame = pa.Codec("zstd", compression_level=level).compress(changed, asbytes=True)
            if len(frame) <= length:
                return _pad_frame(frame, length), [
                    span for span in spans if _slice_span(changed, span) != _slice_span(content, span)
                ]
    raise PackError(
        pack,
        offset,
        f"room of {length} bytes for the remaining content of a frame",
        "more bytes, however they are compressed",
        "Report it, with the version of CommitLake: nothing of this pack was changed",
    )


def _overwrite_bodies(content: bytes, spans: Spans) -> Iterator[bytes]:
    """Yield possible new contents of a frame without the given bodies; the caller takes the first one that fits.

    The last ones overwrite only bodies whose bytes are not in the frame a second time. A copy of what stays needs the
    least space, and nothing tells whether it was there before.
    """
    ends = [0, *(start + size for start, size in spans)]
    pieces = [content[end:start] for end, (start, _) in zip(ends, [*spans, (len(content), 0)], strict=True)]
    yield from _yield_fillings(content, spans, b"".join(pieces))
    single = [span for span in spans if not any(_slice_span(content, span) in piece for piece in pieces)]
    if len(single) < len(spans):
        yield from _yield_fillings(content, single, b"".join(pieces))


def _yield_fillings(content: bytes, spans: Spans, kept_content: bytes) -> Iterator[bytes]:
    yield _replace_spans(content, spans, lambda _, size: bytes(size))
    yield _replace_spans(
        content, spans, lambda start, size: _repeat_pattern(_content_kept_before(content, spans, start)[-size:], size)
    )
    step = max(1, len(kept_content) // _MAX_FILLS)
    for first in range(0, len(kept_content), step):
        for period in (1, 2, 3, len(kept_content)):
            yield _replace_spans(
                content, spans, _make_pattern_filler((kept_content[first:] + kept_content[:first])[:period])
            )


def _make_pattern_filler(pattern: bytes) -> Callable[[int, int], bytes]:
    return lambda _, size: _repeat_pattern(pattern, size)


def _content_kept_before(content: bytes, spans: Spans, end: int) -> bytes:
    """Return a frame's content up to a position, without the given ranges."""
    pieces, position = [], 0
    for start, size in spans:
        if start >= end:
            break
        pieces.append(content[position:start])
        position = start + size
    return b"".join([*pieces, content[position:end]])


def _replace_spans(content: bytes, spans: Spans, fill: Callable[[int, int], bytes]) -> bytes:
    changed = bytearray(content)
    for start, size in spans:
        changed[start : start + size] = fill(start, size)
    return bytes(changed)


def _repeat_pattern(pattern: bytes, size: int) -> bytes:
    return (pattern * (size // len(pattern) + 1))[:size] if pattern else bytes(size)


def _make_skippable_frame(length: int) -> bytes:
    return SKIPPABLE.pack(SKIPPABLE_MAGIC, length - SKIPPABLE.size) + bytes(length - SKIPPABLE.size)


def _pad_frame(frame: bytes, length: int) -> bytes:
    """Return a frame padded to a length, if necessary by a skippable frame."""
    missing = length - len(frame)
    if missing >= SKIPPABLE.size:
        return frame + _make_skippable_frame(missing)
    id_bytes, blocks = _PADDING[missing]
    if not missing:
        return frame
    descriptor = frame[_MAGIC_BYTES]
    # The descriptor of the window is left out in a frame of a single segment.
    before_id = _MAGIC_BYTES + 1 + (not descriptor & SINGLE_SEGMENT)
    content_size_bytes = (1 if descriptor & SINGLE_SEGMENT else 0, 2, 4, 8)[descriptor >> 6]
    header_end = before_id + content_size_bytes  # zstd writes no dictionary id by itself
    flag = _DICTIONARY_ID_FLAG[id_bytes] if id_bytes else 0
    return b"".join([
        frame[:_MAGIC_BYTES], bytes((descriptor | flag,)), frame[_MAGIC_BYTES + 1 : before_id], bytes(id_bytes),
        frame[before_id:header_end], _EMPTY_BLOCK * blocks, frame[header_end:],
    ])  # fmt: skip


def _read_pack_with_frames(
    store: PackStore, pack: str, size: int, replaced_frames: Mapping[int, bytes]
) -> Iterator[bytes]:
    """Yield a pack's bytes piece by piece, with the given frames replaced."""
    position = 0
    for offset, frame in [*sorted(replaced_frames.items()), (size, b"")]:
        while position < offset:
            data = store.read_range(pack, position, min(READ_BYTES, offset - position))
            if not data:
                raise PackError(pack, position, f"a pack of {size} bytes", "its end", _DAMAGED)
            yield data
            position += len(data)
        if frame:
            yield frame
        position = offset + len(frame)
