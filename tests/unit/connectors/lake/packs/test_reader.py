"""Bodies by reference: sound references give their bodies; wrong ones are a PackError before memory is allocated."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from commitlake.connectors.lake.packs.compiled_copying import UNKNOWN_CRC
from commitlake.connectors.lake.packs.errors import PackError, PackNameError
from commitlake.connectors.lake.packs.frames import FRAME_BYTES, MAX_FRAME_BYTES, BodyRef, PackRefs, content_size
from commitlake.connectors.lake.packs.reader import READ_BYTES, FrameCache, read_bodies, read_body
from commitlake.schemas.layouts.rocketmq.commitlog import body_crc
from tests.support.packs import NAME, MemoryStore, folder_store, packed, ref_of, stored

BODIES = [b"first", b"", b"second", b"a third that is long", b"4"]
SMALL = 12  # bytes of content in a frame: the bodies above are in four frames
ORDERS = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 2, 0, 4, 2], [1], []]


def crcs_of(bodies: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the values of `body_crc` in the table."""
    return np.array([zlib.crc32(body) & 0x7FFFFFFF for body in bodies], np.int64)


def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes that zstd cannot make smaller."""
    return np.random.default_rng(seed).bytes(size)


@pytest.mark.parametrize("row", range(len(BODIES)))
def test_one_body_is_one_read(row: int) -> None:
    store, refs = stored(BODIES, SMALL)
    assert read_body(store, ref_of(refs, row), body_crc(BODIES[row])) == BODIES[row]
    frame = (NAME, refs.frame_offsets[row], refs.frame_lengths[row])
    assert store.reads == ([frame] if BODIES[row] else [])  # an empty one needs none


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("frame_bytes", [1, SMALL, FRAME_BYTES])
def test_many_bodies_are_returned_in_the_requested_order(order: list[int], frame_bytes: int) -> None:
    store, refs = stored(BODIES, frame_bytes)
    wanted = [BODIES[row] for row in order]
    found = read_bodies(store, NAME, refs.select_rows(np.array(order, np.int64)), crcs_of(wanted))
    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == wanted


def test_neighbouring_frames_are_read_together_up_to_a_limit() -> None:
    bodies = [noise(FRAME_BYTES, seed) for seed in range(34)]
    store, refs = stored(bodies)
    assert read_bodies(store, NAME, refs).to_pylist() == bodies
    assert len(store.reads) == 2
    assert max(length for _, _, length in store.reads) <= READ_BYTES
    store.reads.clear()
    apart = np.array([0, 2, 33])  # one frame between two is read over, thirty are not
    assert read_bodies(store, NAME, refs.select_rows(apart)).to_pylist() == [bodies[row] for row in apart]
    assert [length // FRAME_BYTES for _, _, length in store.reads] == [3, 1]


def test_a_frame_is_decompressed_once_for_all_batches() -> None:
    store, refs = stored([b"%d" % number for number in range(1000)], 1000)
    cache = FrameCache()
    found = [
        body
        for start in range(0, 1000, 7)
        for body in read_bodies(store, NAME, refs.select_rows(slice(start, start + 7)), cache=cache).to_pylist()
    ]
    assert found == [b"%d" % number for number in range(1000)]
    assert sum(length for _, _, length in store.reads) == len(store.packs[NAME])


def test_a_cache_keeps_the_most_recently_used_frames_except_large_ones() -> None:
    cache = FrameCache(2)
    frames = {offset: pa.py_buffer(b"content") for offset in range(3)}
    cache.put(NAME, 0, 9, frames[0])
    cache.put(NAME, 1, 9, frames[1])
    assert cache.get(NAME, 0, 9) is frames[0]
    cache.put(NAME, 2, 9, frames[2])
    assert cache.get(NAME, 1, 9) is None
    assert cache.get(NAME, 0, 9) is frames[0]
    cache.put(NAME, 3, 9, pa.py_buffer(bytes(FRAME_BYTES + 1)))
    assert cache.get(NAME, 3, 9) is None


def test_local_packs_are_read_back(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    pack, refs = packed(BODIES, SMALL)
    with store.open_write(NAME) as output:
        output.write(memoryview(pack))
    assert read_bodies(store, NAME, refs, crcs_of(BODIES)).to_pylist() == BODIES


# CRC


def test_a_body_with_another_crc_is_named() -> None:
    store, refs = stored(BODIES, SMALL)
    crcs = crcs_of(BODIES)
    crcs[3] ^= 1
    place = int(refs.frame_offsets[3])
    with pytest.raises(PackError, match=f"offset {place}: expected a body with the CRC {crcs[3]} at 0") as raised:
        read_bodies(store, NAME, refs, crcs)
    assert raised.value.found == f"the CRC {body_crc(BODIES[3])} of these 20 bytes"
    with pytest.raises(PackError, match="CRC"):
        read_body(store, ref_of(refs, 3), int(crcs[3]))


def test_an_unknown_crc_is_accepted_and_a_negative_one_refused() -> None:
    store, refs = stored(BODIES, SMALL)
    crcs = np.full(5, UNKNOWN_CRC)
    assert read_bodies(store, NAME, refs, crcs).to_pylist() == BODIES
    crcs[0] = -1
    with pytest.raises(PackError, match="CRC -1"):
        read_bodies(store, NAME, refs, crcs)


def test_the_crc_of_an_empty_body_is_checked() -> None:
    store, refs = stored([b""])
    assert read_body(store, ref_of(refs, 0), 0) == b""
    with pytest.raises(PackError, match="CRC 1 "):
        read_body(store, ref_of(refs, 0), 1)


# False references


@pytest.mark.parametrize("field", ["frame_offset", "frame_length", "offset", "length"])
def test_negative_numbers_are_refused_before_any_read(field: str) -> None:
    store, refs = stored(BODIES, SMALL)
    with pytest.raises(PackError, match=f"whose {field} is not negative, found -1"):
        read_body(store, ref_of(refs, 3, **{field: -1}))
    assert store.reads == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": 1}, "expected a frame of 21 to 262144 bytes of bodies, found one that claims 20"),
        ({"length": 21}, "expected a frame of 21 to"),
        ({"length": MAX_FRAME_BYTES + 1}, "expected a body that ends within the first 67108864 bytes"),
        ({"offset": (1 << 31) - 1, "length": (1 << 31) - 1}, "found one that ends at 4294967294"),
        ({"frame_length": 0}, "expected a body_ref with a frame_length of 1 to"),
        ({"frame_length": (1 << 31) - 1}, "expected a body_ref with a frame_length of 1 to"),
        ({"frame_length": 5}, "expected a zstd frame, found the bytes 28 b5 2f fd"),
        ({"frame_length": 20}, "expected a whole frame of 20 bytes of bodies, found damage"),
        ({"frame_length": 31}, "expected a whole frame of 20 bytes of bodies, found damage"),
        ({"frame_length": 200_000}, "expected a frame of 200000 bytes, found the end of the pack"),
        ({"frame_offset": 1}, "expected a zstd frame, found the bytes"),
        ({"frame_offset": 10_000}, "found the end of the pack after 0"),
        ({"frame_offset": (1 << 63) - 1}, "found the end of the pack after 0"),
        ({"frame_offset": 1 << 63}, "expected a body_ref of a long and three ints"),
        ({"length": 1 << 31}, "expected a body_ref of a long and three ints"),
    ],
)
def test_wrong_numbers_are_errors(changes: dict[str, int], message: str) -> None:
    store, refs = stored(BODIES, SMALL)
    with pytest.raises(PackError, match=message):
        read_body(store, ref_of(refs, 3, **changes))


def test_one_place_with_two_frame_lengths_is_an_error() -> None:
    store, refs = stored([b"a", b"b"])
    lengths = refs.frame_lengths - np.array([0, 1], np.int32)
    with pytest.raises(PackError, match="damage"):
        read_bodies(store, NAME, PackRefs(refs.frame_offsets, lengths, refs.offsets, refs.lengths))


def test_a_name_outside_the_folder_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(packed([b"secret"])[0])
    with pytest.raises(PackNameError):
        read_body(folder_store(tmp_path / "bodies"), BodyRef("../secret", 0, 15, 0, 6))


def test_the_error_for_a_missing_pack_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(PackError, match=f"expected a file in {tmp_path}, found none. Has it expired"):
        read_body(folder_store(tmp_path), BodyRef(NAME, 0, 15, 0, 6))


def test_more_bytes_than_an_array_can_hold_are_refused() -> None:
    count = 33
    refs = PackRefs(*(np.full(count, value, np.int64) for value in (0, 100, 0, 64 << 20)))
    with pytest.raises(ValueError, match="expected at most 2147483647"):
        read_bodies(MemoryStore(), NAME, refs)


def test_arrays_of_several_lengths_are_refused() -> None:
    store, refs = stored(BODIES, SMALL)
    with pytest.raises(ValueError, match=r"found arrays of \[4, 5\] rows"):
        read_bodies(store, NAME, refs, crcs_of(BODIES[:4]))


# Forged packs


def test_a_pack_cut_anywhere_is_an_error() -> None:
    pack, refs = packed([b"a body of some length", b"b"])
    for size in range(len(pack)):
        with pytest.raises(PackError, match=f"found the end of the pack after {size}"):
            read_bodies(MemoryStore(**{NAME: pack[:size]}), NAME, refs)


def test_a_flipped_bit_is_an_error_or_fails_its_crc() -> None:
    bodies = [b"a body of some length, and then some", b"b"]
    pack, refs = packed(bodies)
    for bit in range(8 * len(pack)):
        damaged = bytearray(pack)
        damaged[bit // 8] ^= 1 << bit % 8
        store = MemoryStore(**{NAME: bytes(damaged)})
        try:
            found = read_bodies(store, NAME, refs, crcs_of(bodies)).to_pylist()
        except PackError:
            continue
        assert found == bodies  # a bit that zstd does not use


def test_a_frame_that_claims_too_large_a_size_is_refused() -> None:
    size = 10 << 30
    bomb = b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + size.to_bytes(8, "little") + bytes(20)
    store = MemoryStore(**{NAME: bomb})
    tracemalloc.start()
    allocated = pa.default_memory_pool().max_memory()
    with pytest.raises(PackError, match=f"bytes of bodies, found one that claims {size}"):
        read_body(store, BodyRef(NAME, 0, len(bomb), 0, 100))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert pa.default_memory_pool().max_memory() == allocated


def test_a_zstd_bomb_is_not_decompressed() -> None:
    bomb = pa.Codec("zstd").compress(bytes(100 << 20), asbytes=True)
    assert len(bomb) < 20_000
    # The same with a claim that would pass, its content still 100 MiB: zstd has room for no more than claimed.
    lying = bomb[:6] + (1000).to_bytes(4, "little") + bomb[10:]
    assert (content_size(bomb), content_size(lying)) == (100 << 20, 1000)
    for pack in (bomb, lying):
        with pytest.raises(PackError, match=r"claims 104857600|damage"):
            read_body(MemoryStore(**{NAME: pack}), BodyRef(NAME, 0, len(pack), 0, 1000))


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (b"", "found the end of the pack"),
        (bytes(20), "found the bytes 00 00 00 00 00 00 00 00"),
        (b"\x50\x2a\x4d\x18" + (12).to_bytes(4, "little") + bytes(12), "found the bytes 50 2a 4d 18"),  # skippable
        (b"\x28\xb5\x2f\xfd\x00\x58" + bytes(14), "found one that does not"),  # no size of content
        (b"\x28\xb5\x2f\xfd\xe3" + bytes(15), "found one that claims 0"),  # a dictionary, and no content
    ],
)
def test_bytes_that_are_not_a_frame_of_a_pack_are_an_error(frame: bytes, found: str) -> None:
    with pytest.raises(PackError, match=found):
        read_body(MemoryStore(**{NAME: frame}), BodyRef(NAME, 0, 20, 0, 1))


def test_a_header_that_is_cut_is_an_error() -> None:
    frame = b"\x28\xb5\x2f\xfd\xe0" + bytes(8)
    for size in range(1, len(frame)):
        with pytest.raises(PackError, match=r"a zstd frame|less than its header"):
            read_body(MemoryStore(**{NAME: frame}), BodyRef(NAME, 0, size, 0, 1))


def test_bodies_larger_than_the_limit_need_an_option() -> None:
    body = bytes(FRAME_BYTES + 1)
    store, refs = stored([body])
    assert read_body(store, ref_of(refs, 0)) == body
    with pytest.raises(PackError, match="raise max_frame_bytes"):
        read_body(store, ref_of(refs, 0), max_frame_bytes=FRAME_BYTES)
