"""The law of hostile bytes: intact records are all found, bad ranges are named, and both readers agree.

The plain scanner (`schemas.layouts.rocketmq.scan`) and the compiled walk share no code beyond the declared layouts.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.record_rules import to_message_row
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.schemas.layouts.boltmq.dialect import DIALECTS, ROCKETMQ, Dialect
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import parse_message
from tests.support.hostile import HostileLog
from tests.support.hypothesis_profiles import load
from tests.support.logs import closed_segment, damage, messages, open_segment, write_store
from tests.support.plain_rows import check_reads, read_all

load()

SIZE = 4096


@example(seed=232, faults=3, window=16, partition=64, dialects=(ROCKETMQ, ROCKETMQ))  # both files are cut short
@given(
    seed=st.integers(0, 2**32),
    faults=st.integers(0, 4),
    window=st.integers(16, 4000),
    partition=st.integers(64, 8000),
    dialects=st.tuples(st.sampled_from(DIALECTS), st.sampled_from(DIALECTS)),
)
def test_compiled_reader_agrees_with_the_plain_one(
    seed: int,
    faults: int,
    window: int,
    partition: int,
    dialects: tuple[Dialect, Dialect],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    chance = random.Random(seed)
    segments = [
        (0, closed_segment(messages(12, seed), SIZE, dialect=dialects[0])),
        (SIZE, open_segment(messages(9, seed + 1), SIZE, SIZE, dialect=dialects[1])),
    ]
    for _ in range(faults):
        victim = chance.randrange(2)
        base, data = segments[victim]
        segments[victim] = (base, damage(data, chance)[:SIZE])
    root = write_store(tmp_path_factory.mktemp("store"), segments)
    check_store(root, window, partition)


@given(
    seed=st.integers(0, 2**32),
    faults=st.integers(0, 4),
    window=st.integers(16, 4000),
    partition=st.integers(64, 8000),
    dialects=st.lists(st.sampled_from(DIALECTS), min_size=1, max_size=3),
)
def test_compiled_reader_agrees_with_the_plain_one_on_hostile_bodies(
    seed: int,
    faults: int,
    window: int,
    partition: int,
    dialects: list[Dialect],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    chance = random.Random(seed)
    log = HostileLog(chance, SIZE, 600, dialects=dialects)
    data, newest = log.closed(), open_segment(messages(5, seed), SIZE, SIZE)
    for _ in range(faults):
        data = damage(data, chance)[:SIZE]
    root = write_store(tmp_path_factory.mktemp("store"), [(0, data), (SIZE, newest)])
    check_store(root, window, partition)
    if not faults:
        (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
        rows = read_all(plan_splits(store, take_snapshot([store]).ranges["b"], partition), Mode.FAILFAST)
        assert [row["physical_offset"] for row in rows][: len(log.starts)] == log.starts


@given(seed=st.integers(0, 2**32), faults=st.integers(0, 3))
def test_a_hostile_newest_segment_is_read_to_the_same_end(
    seed: int, faults: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    data = chance.choice([HostileLog.open, HostileLog.closed])(HostileLog(chance, SIZE, 600))
    for _ in range(faults):
        data = damage(data, chance)[:SIZE]
    root = write_store(tmp_path_factory.mktemp("store"), [(0, data)])
    check_store(root, 1000, 1000)


def check_store(root: Path, window: int, partition: int) -> None:
    """Compare the two readers on one store."""
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    store_range = take_snapshot([store]).ranges["b"]
    plain = list(walk_store(store, SIZE))
    read = [found for found in plain if found.message is not None]
    expected = [found for found in read if found.span.start < store_range.end]
    for found in read[len(expected) :]:  # the last ones, whose texts may not be written yet
        assert found.message is not None
        assert "\0" in found.message.topic or 0 in found.message.raw_properties
    check_reads(plan_splits(store, store_range, partition), plain, store_range.end, to_message_row, window)


@given(st.binary(max_size=400), st.integers(0, 10))
def test_any_bytes_give_a_message_or_a_documented_error(data: bytes, offset: int) -> None:
    try:
        parsed = parse_message(data, min(offset, len(data)))
    except LayoutError as error:
        assert error.expected
        assert error.found
    else:
        assert parsed is None or parsed[1] <= len(data)
