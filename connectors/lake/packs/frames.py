"""The format of a pack: a sequence of independent zstd frames (RFC 8878), each of consecutive bodies.

    pack  = frame*                      nothing before, between or after: `zstd -d` returns all bodies, joined
    frame = zstd(body*), at most 256 KiB of bodies; a larger body has a frame of its own

Small packs may be joined to a merged one, which has an index at its end; see `merged_packs`.

A body has no header. Its reference contains the pack's name, the start of the frame (`frame_offset`) and its stored
size (`frame_length`), and the place of the body in the frame's content (`offset`, `length`).

A frame is closed if it has content and the next body, even an empty one, would make it larger than the limit. So the
bytes of a pack depend only on the sequence of its bodies, not on how they were passed to the writer, and a repeated run
with the same version of zstd writes the same pack. An empty body has the length 0 and the place of its frame, like any
other body. A last frame that has only empty bodies is also written, as a frame without content. A pack without bodies
is an empty file.

Every frame states the size of its content in its header. A reader refuses a frame that does not, or that claims more
than the references to it allow, before it allocates memory: see `decompress_frame`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.errors import CommitLakeError

FRAME_BYTES = 256 << 10  # a ranged read of this size costs no more than one of 1 KiB on an object store
# Brokers refuse messages above a few MiB by default. If their limit is raised, raise this one.
MAX_FRAME_BYTES = 64 << 20
MAX_BODY_BYTES = (1 << 31) - 1  # lengths are int32

_MAGIC = b"\x28\xb5\x2f\xfd"
SINGLE_SEGMENT = 0x20
"""Flag of a zstd frame without a window: the content has the size that the header states."""
_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZE_SIZES = (0, 2, 4, 8)
_TWO_BYTE_BIAS = 256  # the format subtracts 256 from sizes stored in two bytes
_CODEC = pa.Codec("zstd")


@dataclass(frozen=True, slots=True)
class BodyRef:
    """The position and length of a body in a pack, and of the frame that contains it, as in the column `body_ref`."""

    pack: str
    frame_offset: int
    frame_length: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PackRefs:
    """Positions and lengths of bodies in one pack, one per row: the result of `PackWriter`, the input of `read_bodies`.

    Attributes:
        frame_offsets: int64, start of the frame in the pack.
        frame_lengths: int32, stored size of the frame.
        offsets: int32, start of the body in the frame's content.
        lengths: int32, size of the body.
    """

    frame_offsets: Array
    frame_lengths: Array
    offsets: Array
    lengths: Array

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def end_position(self) -> int:
        """Return the position after the last frame, if the rows are in the order of the pack."""
        return int((self.frame_offsets[-1:] + self.frame_lengths[-1:]).sum())

    def select_rows(self, rows: Array | slice) -> PackRefs:
        """Return the rows that an index array, a boolean mask or a slice selects."""
        return PackRefs(self.frame_offsets[rows], self.frame_lengths[rows], self.offsets[rows], self.lengths[rows])


def join_pack_refs(refs_lists: Sequence[PackRefs]) -> PackRefs:
    """Join the positions of bodies in one pack from several objects to one object."""
    return PackRefs(*(np.concatenate([getattr(part, field.name) for part in refs_lists]) for field in fields(PackRefs)))


class FrameError(CommitLakeError, ValueError):
    """The bytes at the position of a frame are not the expected frame.

    Attributes:
        expected: description of the expected bytes.
        found: description of the actual bytes.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)  # both attributes, so that the error can be pickled
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


def max_stored_bytes(content_bytes: int) -> int:
    """Return the largest stored size of a frame with this much content."""
    # More than ZSTD_compressBound in any version: size, a 256th of it, and a little for small sizes.
    return content_bytes + (content_bytes >> 7) + 512


def content_size(frame: bytes) -> int:
    """Return the uncompressed size that a frame's header states.

    Args:
        frame: the frame, or its first 18 bytes, which is the maximum size of a header.

    Raises:
        FrameError: if this is not a zstd frame, or its header does not state the size.
    """
    if frame[:4] != _MAGIC or len(frame) < 6:
        raise FrameError("a zstd frame", f"the bytes {frame[:8].hex(' ') or '(none)'}")
    descriptor = frame[4]
    single_segment = bool(descriptor & SINGLE_SEGMENT)
    size = _CONTENT_SIZE_SIZES[descriptor >> 6]
    if size == 0:
        if not single_segment:
            raise FrameError("a zstd frame that states the size of its content", "one that does not")
        size = 1
    start = 5 + (not single_segment) + _DICTIONARY_ID_SIZES[descriptor & 3]
    if len(frame) < start + size:
        raise FrameError("a whole zstd frame", f"{len(frame)} bytes, less than its header")
    claimed = int.from_bytes(frame[start : start + size], "little")
    return claimed + _TWO_BYTE_BIAS if size == 2 else claimed


def decompress_frame(frame: pa.Buffer, content_end: int) -> pa.Buffer:
    """Decompress a zstd frame, without trusting the size that its header claims.

    The claimed size is accepted only if it is at most 256 KiB, or equal to what the largest reference needs, because a
    larger frame has a single body. Exactly that much is allocated; zstd fails if the content has another size.

    Args:
        frame: exactly the stored bytes of the frame.
        content_end: the end of the last requested body; the caller has compared it with its own limit.

    Raises:
        FrameError: if the bytes are not a frame, or its content has another size.
    """
    claimed = content_size(frame.slice(0, min(18, frame.size)).to_pybytes())
    limit = max(FRAME_BYTES, content_end)
    if not content_end <= claimed <= limit:
        raise FrameError(f"a frame of {content_end} to {limit} bytes of bodies", f"one that claims {claimed}")
    try:
        return _CODEC.decompress(frame, decompressed_size=claimed)
    except (OSError, pa.ArrowInvalid) as error:
        raise FrameError(f"a whole frame of {claimed} bytes of bodies", f"damage: {error}") from None
