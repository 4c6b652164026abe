"""Bodies removed from a pack: all others stay in their places, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from commitlake.connectors.lake.packs import body_erasure
from commitlake.connectors.lake.packs.body_erasure import WipeResult, wipe_bodies
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import PackRefs, decompress_frame
from commitlake.connectors.lake.packs.names import pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.reader import read_bodies
from commitlake.connectors.lake.packs.writer import open_pack_writer
from commitlake.schemas.layouts.rocketmq.commitlog import body_crc
from tests.support.packs import folder_store

NAME = pack_name(None, "broker-a", 0, 1000, "0123456789abcdef")
FRAME = 4096


def write(folder: Path, bodies: Sequence[bytes]) -> tuple[PackStore, PackRefs]:
    """Write a pack of these bodies."""
    store = folder_store(folder)
    window = np.frombuffer(b"".join(bodies) or b"\0", np.uint8)
    lengths = np.array([len(body) for body in bodies], np.int64)
    positions = np.cumsum(lengths) - lengths
    with open_pack_writer(store, NAME, frame_bytes=FRAME) as pack:
        pack.append_bodies(window, positions, lengths)
    return store, pack.finish()


def crcs(bodies: Sequence[bytes]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([body_crc(body) for body in bodies], np.int64)


def drawn(kind: int, chance: random.Random) -> list[bytes]:
    """Draw bodies that compress well, badly, or not at all; some are the same, some are empty."""
    count = chance.choice([1, 2, 3, 20, 200])
    length = chance.choice([1, 3, 16, 100, 3000])
    return [_body(kind, number, length, chance) for number in range(count)]


def _body(kind: int, number: int, length: int, chance: random.Random) -> bytes:
    match kind:
        case 0:
            return chance.randbytes(length)
        case 1:
            return b"OK" * length
        case 2:
            return b'{"order":"order-%d","mail":"x%d@example.org"}' % (number, 7 * number)
        case 3:
            return chance.choice([b"OK", b"NO", b"abc", b""])
        case 4:
            return b"x" * (number % 7) + chance.randbytes(number % 3)
        case _:
            return chance.randbytes(FRAME + length)  # a frame of its own


@pytest.mark.parametrize("kind", range(6))
def test_wiped_bodies_are_removed_and_others_are_unchanged(tmp_path: Path, kind: int) -> None:
    chance = random.Random(kind)
    for attempt in range(25):
        bodies = drawn(kind, chance)
        store, refs = write(tmp_path / str(attempt), bodies)
        size = store.size(NAME)
        gone = sorted(chance.sample(range(len(bodies)), chance.randint(1, len(bodies))))
        stays = [number for number in range(len(bodies)) if number not in gone]
        wiped = wipe_bodies(store, NAME, refs.select_rows(np.array(gone)))
        filled = sum(bool(bodies[number]) for number in gone)
        assert wiped.bodies <= filled if kind in {1, 3, 4} else wiped.bodies == filled  # some bodies are all the same
        assert wipe_bodies(store, NAME, refs.select_rows(np.array(gone))) == WipeResult()
        assert store.size(NAME) == size
        found = read_bodies(store, NAME, refs.select_rows(np.array(stays, np.int64)), crcs(bodies)[stays])
        assert found.to_pylist() == [bodies[number] for number in stays]
        data = store.read_range(NAME, 0, size)
        content = pa.Codec("zstd").decompress(data, sum(map(len, _kept_frames(refs, bodies, gone))), asbytes=True)
        for number in gone:
            others = b"".join(bodies[other] for other in stays)
            if len(bodies[number]) >= 16 and bodies[number] not in others:
                assert bodies[number] not in content
                assert bodies[number] not in data


def _kept_frames(refs: PackRefs, bodies: Sequence[bytes], gone: Sequence[int]) -> list[bytes]:
    """Return the contents of the remaining frames, each of which keeps a body that is not empty."""
    frames: dict[int, list[int]] = {}
    for number, offset in enumerate(refs.frame_offsets.tolist()):
        frames.setdefault(offset, []).append(number)
    return [
        b"".join(bodies[number] for number in numbers)
        for numbers in frames.values()
        if any(bodies[number] and number not in gone for number in numbers)
    ]


@pytest.mark.parametrize("bodies", [[b"hello"] * 4, [b"heartbeat"] * 2000, [b"\0" * 9, b"other"], [b"ab", b"ab", b"b"]])
def test_a_body_that_equals_its_neighbours_is_wiped_once(tmp_path: Path, bodies: Sequence[bytes]) -> None:
    store, refs = write(tmp_path, bodies)
    for gone in ([0], [0, 1], [len(bodies) - 1], [*range(len(bodies))]):  # as further erasures would
        wipe_bodies(store, NAME, refs.select_rows(np.array(gone)))
        data = store.read_range(NAME, 0, store.size(NAME))
        assert wipe_bodies(store, NAME, refs.select_rows(np.array(gone))) == WipeResult()
        assert store.read_range(NAME, 0, store.size(NAME)) == data
    assert data[:4] == b"\x50\x2a\x4d\x18"


def test_wiping_again_changes_nothing(tmp_path: Path) -> None:
    bodies = [b"one body", b"another body", b"a third"]
    store, refs = write(tmp_path, bodies)
    chosen = np.array([1])
    assert wipe_bodies(store, NAME, refs.select_rows(chosen)).bodies == 1
    before = store.read_range(NAME, 0, store.size(NAME))
    assert wipe_bodies(store, NAME, refs.select_rows(chosen)) == WipeResult()
    assert store.read_range(NAME, 0, store.size(NAME)) == before


def test_a_frame_wiped_completely_in_two_steps_is_a_skippable_frame(tmp_path: Path) -> None:
    bodies = [b"one body", b"another body"]
    store, refs = write(tmp_path, bodies)
    wipe_bodies(store, NAME, refs.select_rows(np.array([0])))
    wipe_bodies(store, NAME, refs)
    data = store.read_range(NAME, 0, store.size(NAME))
    assert data[:4] == b"\x50\x2a\x4d\x18"
    assert set(data[8:]) == {0}
    assert wipe_bodies(store, NAME, refs) == WipeResult()


@pytest.mark.parametrize("missing", range(12))
def test_a_frame_is_padded_to_the_exact_size(missing: int) -> None:
    for content in (b"", b"a", b"abc" * 100, random.Random(1).randbytes(300), b"ab" * 40_000):
        frame = pa.Codec("zstd").compress(content, asbytes=True)
        padded = body_erasure._pad_frame(frame, len(frame) + missing)
        assert len(padded) == len(frame) + missing
        assert decompress_frame(pa.py_buffer(padded), len(content)).to_pybytes() == content


def test_wiping_an_expired_pack_reports_that_it_is_gone(tmp_path: Path) -> None:
    bodies = [b"one body"]
    store, refs = write(tmp_path, bodies)
    store.delete([NAME])
    assert wipe_bodies(store, NAME, refs) == WipeResult(is_gone=True)


@pytest.mark.parametrize("changed", [{"frame_offsets": 3}, {"frame_lengths": -2}, {"frame_lengths": 1 << 20}])
def test_a_wrong_reference_is_refused_and_changes_nothing(tmp_path: Path, changed: dict[str, int]) -> None:
    bodies = [b"one body" * 9, b"another body"]
    store, refs = write(tmp_path, bodies)
    before = store.read_range(NAME, 0, store.size(NAME))
    fields = {name: getattr(refs, name) for name in ("frame_offsets", "frame_lengths", "offsets", "lengths")}
    (name, value) = next(iter(changed.items()))
    wrong = PackRefs(**{**fields, name: fields[name] + value})
    with pytest.raises(PackError, match="nothing of this pack was changed"):
        wipe_bodies(store, NAME, wrong)
    assert store.read_range(NAME, 0, store.size(NAME)) == before


def test_bodies_that_are_parts_of_others_are_removed_in_any_order(tmp_path: Path) -> None:
    body = random.Random(34).randbytes(50)
    bodies = [body, b"abc", body, body[:25], body[25:], body]
    for chosen in range(1, 1 << len(bodies)):
        gone = [number for number in range(len(bodies)) if chosen >> number & 1]
        stays = [number for number in range(len(bodies)) if number not in gone]
        store, refs = write(tmp_path / str(chosen), bodies)
        wipe_bodies(store, NAME, refs.select_rows(np.array(gone)))
        assert wipe_bodies(store, NAME, refs.select_rows(np.array(gone))) == WipeResult()
        found = read_bodies(store, NAME, refs.select_rows(np.array(stays, np.int64)), crcs(bodies)[stays])
        assert found.to_pylist() == [bodies[number] for number in stays]
