"""Frames of a pack, at every boundary, and the references to them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from numba.core.dispatcher import Dispatcher

from commitlake.connectors.lake.packs import compiled_copying
from commitlake.connectors.lake.packs.frames import FRAME_BYTES, content_size, max_stored_bytes
from commitlake.connectors.lake.packs.writer import PackWriter, open_pack_writer
from tests.support.packs import NAME, append, decompressed, folder_store, packed

LIMIT = 100  # bytes of content in the frames of these tests


def frames_of(lengths: list[int]) -> list[list[tuple[int, int]]]:
    """Return the bodies of each frame, as (offset, length), of a pack of bodies with these lengths."""
    bodies = [bytes([number % 251]) * length for number, length in enumerate(lengths)]
    pack, refs = packed(bodies, LIMIT)
    frames: dict[tuple[int, int], list[tuple[int, int]]] = {}
    places = zip(refs.frame_offsets, refs.frame_lengths, refs.offsets, refs.lengths, strict=True)
    for frame_offset, frame_length, offset, length in places:
        frames.setdefault((int(frame_offset), int(frame_length)), []).append((int(offset), int(length)))
    # The file has only the frames, and they match the references.
    assert [start for start, _ in frames] == [0, *np.cumsum([size for _, size in frames])][: len(frames)]
    assert sum(size for _, size in frames) == len(pack)
    assert decompressed(pack) == b"".join(bodies)
    content = {place: decompressed(pack[place[0] : sum(place)]) for place in frames}
    found = [content[place][offset : offset + length] for place, spans in frames.items() for offset, length in spans]
    assert found == bodies
    return list(frames.values())


@pytest.mark.parametrize(
    ("lengths", "frames"),
    [
        ([], []),
        ([1], [[(0, 1)]]),
        ([40, 60], [[(0, 40), (40, 60)]]),  # just full
        ([40, 61], [[(0, 40)], [(0, 61)]]),  # one byte too many
        ([100], [[(0, 100)]]),
        ([101], [[(0, 101)]]),  # larger than a frame: one of its own
        ([1, 250, 1], [[(0, 1)], [(0, 250)], [(0, 1)]]),
        ([250, 250], [[(0, 250)], [(0, 250)]]),
        ([0], [[(0, 0)]]),  # a frame without content
        ([0, 0], [[(0, 0), (0, 0)]]),
        ([0, 250], [[(0, 0), (0, 250)]]),  # a frame with no bytes yet is open to any body
        ([100, 0, 1], [[(0, 100), (100, 0)], [(0, 1)]]),  # an empty body still fits into a full frame
        ([250, 0, 1], [[(0, 250)], [(0, 0), (0, 1)]]),  # and not into one that is too large
        ([250, 0], [[(0, 250)], [(0, 0)]]),
    ],
)
def test_a_frame_ends_before_a_body_that_would_exceed_its_size(
    lengths: list[int], frames: list[list[tuple[int, int]]]
) -> None:
    assert frames_of(lengths) == frames


@pytest.mark.parametrize("length", [FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 5 * FRAME_BYTES])
def test_frames_hold_256_kib(length: int) -> None:
    body = np.random.default_rng(length).bytes(length)
    pack, refs = packed([body, b"x"])
    assert refs.frame_offsets[1] == (0 if length < FRAME_BYTES else refs.frame_lengths[0])
    assert decompressed(pack) == body + b"x"


def test_references_have_the_types_of_the_table() -> None:
    for bodies in ([], [b"a", b""]):
        _, refs = packed(bodies)
        assert [refs.frame_offsets.dtype, refs.frame_lengths.dtype] == [np.int64, np.int32]
        assert [refs.offsets.dtype, refs.lengths.dtype] == [np.int32, np.int32]
        assert len(refs) == len(bodies)


def test_places_can_be_taken_by_row() -> None:
    _, refs = packed([b"a", b"bc", b"def"])
    assert refs.select_rows(slice(1, 3)).lengths.tolist() == [2, 3]
    assert refs.select_rows(np.array([2, 0])).offsets.tolist() == [3, 0]


def test_a_frame_is_never_longer_than_readers_allow() -> None:
    for size in (0, 1, 1000, 128 << 10, FRAME_BYTES, 3 * FRAME_BYTES + 1):
        noise = np.random.default_rng(size).bytes(size)  # zstd can only store it
        pack, refs = packed([noise])
        assert refs.frame_lengths[0] == len(pack) <= max_stored_bytes(size)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, FRAME_BYTES, FRAME_BYTES + 1])
def test_every_frame_states_its_size(size: int) -> None:
    assert content_size(packed([bytes(size)])[0]) == size


def test_a_level_changes_the_bytes_and_not_the_bodies() -> None:
    bodies = [b"order %d of customer %d" % (number, number % 7) for number in range(2000)]
    fast, small = packed(bodies)[0], packed(bodies, level=19)[0]
    assert len(small) < len(fast)
    assert decompressed(small) == decompressed(fast)


def test_a_window_may_be_used_again_after_an_append() -> None:
    output = io.BytesIO()
    writer = PackWriter(output)
    window = np.zeros(5, np.uint8)
    for letter in b"ab":
        window[:] = letter
        writer.append_bodies(window, np.array([1]), np.array([3]))
    writer.finish()
    assert decompressed(output.getvalue()) == b"aaabbb"


def test_any_window_is_read_by_the_same_compiled_kernel() -> None:
    output = io.BytesIO()
    writer = PackWriter(output)
    for window in (np.frombuffer(b"read", np.uint8), np.frombuffer(bytearray(b"both"), np.uint8)):
        writer.append_bodies(window, np.array([0]), np.array([4]))
    writer.finish()
    assert decompressed(output.getvalue()) == b"readboth"
    assert len(cast("Dispatcher", compiled_copying.fill_frame).signatures) == 1


def test_a_writer_can_finish_twice_but_not_append_afterwards() -> None:
    writer = PackWriter(io.BytesIO())
    append(writer, [b"a"])
    assert writer.finish() is writer.finish()
    with pytest.raises(ValueError, match="finished"):
        append(writer, [b"b"])


@pytest.mark.parametrize(
    ("position", "length"),
    [(-1, 1), (0, -1), (0, 11), (10, 1), (11, 0), (1 << 62, 1 << 62), (5, (1 << 63) - 1), (-(1 << 63), 0)],
)
def test_a_body_outside_its_window_is_refused_and_not_added(position: int, length: int) -> None:
    output = io.BytesIO()
    writer = PackWriter(output)
    with pytest.raises(ValueError, match="within the window of 10 bytes"):
        writer.append_bodies(np.zeros(10, np.uint8), np.array([0, position]), np.array([2, length]))
    assert len(writer.finish()) == 0
    assert output.getvalue() == b""


def test_arguments_that_do_not_fit_are_refused() -> None:
    writer = PackWriter(io.BytesIO())
    with pytest.raises(ValueError, match="2 positions and 1 lengths"):
        writer.append_bodies(np.zeros(10, np.uint8), np.array([0, 1]), np.array([1]))
    with pytest.raises(ValueError, match=r"expected an array of one dimension of uint8, found .* of int64"):
        writer.append_bodies(np.zeros(10, np.int64), np.array([0]), np.array([1]))
    for size in (0, FRAME_BYTES + 1):
        with pytest.raises(ValueError, match="expected 1 to"):
            PackWriter(io.BytesIO(), size)


def test_a_pack_has_its_name_once_its_writer_succeeds(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    with open_pack_writer(store, NAME, frame_bytes=4) as writer:
        append(writer, [b"one", b"two"])
    refs = writer.finish()
    assert store.size(NAME) == refs.frame_lengths.sum()
    with pa.input_stream(str(tmp_path / NAME), compression="zstd") as stream:
        assert stream.read() == b"onetwo"


def test_a_pack_whose_writer_failed_does_not_exist(tmp_path: Path) -> None:
    def fail() -> None:
        with open_pack_writer(folder_store(tmp_path), NAME) as writer:
            append(writer, [bytes(FRAME_BYTES), b"x"])  # one frame is out by now
            writer.append_bodies(np.zeros(1, np.uint8), np.array([0]), np.array([2]))

    with pytest.raises(ValueError, match="within the window"):
        fail()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
