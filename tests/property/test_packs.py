"""The laws of packs: bytes depend on the bodies alone, all bodies round-trip, and damage is always an error."""

from __future__ import annotations

import io
import random
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.connectors.lake.packs.errors import PackError, PackNameError
from commitlake.connectors.lake.packs.frames import FRAME_BYTES, PackRefs
from commitlake.connectors.lake.packs.names import pack_name, parse_pack_name
from commitlake.connectors.lake.packs.reader import FrameCache, read_bodies
from commitlake.connectors.lake.packs.writer import PackWriter
from tests.support.hypothesis_profiles import load
from tests.support.packs import NAME, TOKEN, MemoryStore, append, decompressed, packed

load()

BODIES = st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 300).map(bytes)), max_size=40)
FRAME_SIZES = st.one_of(st.integers(1, 100), st.just(FRAME_BYTES))
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
NUMBERS = ("frame_offsets", "frame_lengths", "offsets", "lengths")


def crcs_of(bodies: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the values of `body_crc` in the table."""
    return np.array([zlib.crc32(body) & 0x7FFFFFFF for body in bodies], np.int64)


@given(bodies=BODIES, frame_bytes=FRAME_SIZES, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_a_pack_depends_only_on_its_bodies(bodies: list[bytes], frame_bytes: int, cuts: list[int]) -> None:
    output = io.BytesIO()
    writer = PackWriter(output, frame_bytes)
    for start, end in pairwise([0, *sorted(cuts), len(bodies)]):  # a cut after the last body adds nothing
        append(writer, bodies[start:end])
    whole, refs = packed(bodies, frame_bytes)
    found = writer.finish()
    assert output.getvalue() == whole
    for name in NUMBERS:
        assert getattr(found, name).tolist() == getattr(refs, name).tolist()


@given(bodies=BODIES, frame_bytes=FRAME_SIZES)
def test_a_pack_is_zstd_of_all_bodies(bodies: list[bytes], frame_bytes: int) -> None:
    pack, refs = packed(bodies, frame_bytes)
    assert decompressed(pack) == b"".join(bodies)
    assert refs.lengths.tolist() == [len(body) for body in bodies]
    ends = refs.offsets + refs.lengths
    assert all(end <= frame_bytes or offset == 0 for offset, end in zip(refs.offsets, ends, strict=True))


@given(bodies=BODIES, frame_bytes=FRAME_SIZES, seed=st.integers(0, 1 << 32), batch=st.integers(1, 20))
def test_bodies_can_be_read_in_any_order(bodies: list[bytes], frame_bytes: int, seed: int, batch: int) -> None:
    pack, refs = packed(bodies, frame_bytes)
    store, cache, chance = MemoryStore(**{NAME: pack}), FrameCache(), random.Random(seed)
    order = [chance.randrange(len(bodies)) for _ in range(2 * len(bodies))]
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        wanted = [bodies[row] for row in rows]
        found = read_bodies(store, NAME, refs.select_rows(np.array(rows)), crcs_of(wanted), cache=cache)
        found.validate(full=True)
        assert found.to_pylist() == wanted


@given(bodies=BODIES.filter(bool), frame_bytes=FRAME_SIZES, seed=st.integers(0, 1 << 32))
def test_damage_is_an_error_or_changes_nothing(bodies: list[bytes], frame_bytes: int, seed: int) -> None:
    pack, refs = packed(bodies, frame_bytes)
    chance, damaged = random.Random(seed), bytearray(pack)
    for _ in range(chance.randrange(1, 4)):
        damaged[chance.randrange(len(pack))] = chance.randrange(256)
    cut = chance.choice([len(pack), chance.randrange(len(pack))])
    try:
        found = read_bodies(MemoryStore(**{NAME: bytes(damaged[:cut])}), NAME, refs, crcs_of(bodies))
    except PackError:
        return
    assert found.to_pylist() == bodies


@given(
    field=st.sampled_from(NUMBERS),
    value=st.one_of(st.integers(-3, 300), st.sampled_from([-INT32 - 1, INT32, 1 << 20, FRAME_BYTES, INT64])),
    row=st.integers(0, 9),
)
def test_a_wrong_reference_is_an_error_or_another_body(field: str, value: int, row: int) -> None:
    bodies = [b"body %d" % number for number in range(10)]
    pack, refs = packed(bodies, 20)
    changed = {name: getattr(refs, name).astype(np.int64) for name in NUMBERS}
    changed[field][row] = value if field == "frame_offsets" else min(value, INT32)
    store = MemoryStore(**{NAME: pack})
    places = PackRefs(**changed)
    try:
        found = read_bodies(store, NAME, places)
    except PackError:
        return
    assert found.to_pylist()[:row] == bodies[:row]
    assert len(found[row].as_py()) == places.lengths[row]
    if found.to_pylist() != bodies:
        with pytest.raises(PackError, match="CRC"):
            read_bodies(store, NAME, places, crcs_of(bodies))


@given(brokers=st.lists(st.text(max_size=20), min_size=2, max_size=2, unique=True))
def test_pack_names_are_distinct_and_parsed(brokers: list[str]) -> None:
    names = [pack_name(None, broker, 0, 1, TOKEN) for broker in brokers]
    assert [parse_pack_name(name).broker for name in names] == brokers
    assert len(set(names)) == 2
    assert all(name.count("/") == 2 and ".." not in name and name.isprintable() for name in names)


@given(name=st.one_of(st.text(), st.from_regex(r"\A(store_date=.*/broker=.*/[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.zst)\Z")))
def test_any_other_name_is_refused(name: str) -> None:
    try:
        parsed = parse_pack_name(name)
    except PackNameError:
        return
    assert pack_name(parsed.store_date, parsed.broker, parsed.start, parsed.end, parsed.token) == name
