"""Profiles of rows: counts and marks; merged parts equal the whole."""

from __future__ import annotations

import datetime
import random
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from commitlake.pipelines.quality import compiled_profiling
from commitlake.pipelines.quality.profile import profile_rows
from commitlake.pipelines.quality.profile_columns import (
    SCHEMA,
    ProfileError,
    parse_profile,
    serialize_profile,
    to_profiles,
)
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.tables.profile import COUNT_COLUMNS, KEY_COLUMNS, MAX_RUNS, PROFILE, PROFILES
from tests.support.hypothesis_profiles import load
from tests.support.profiles import NOON, Row, merged, message, messages, only, profile_of, table_of

load()
_MASK = (1 << 64) - 1


# --- one window ---


def test_a_window_is_counted() -> None:
    found = only(messages(range(10)))
    assert [found[name] for name in KEY_COLUMNS] == ["a", "orders", 0, NOON]
    assert (found["messages"], found["bytes"], found["body_bytes"], found["queue_offsets"]) == (10, 2000, 500, 10)
    assert (found["first_queue_offset"], found["last_queue_offset"]) == (0, 9)
    assert (found["first_physical_offset"], found["last_physical_offset"]) == (0, 9000)
    assert (found["min_store_timestamp"], found["max_store_timestamp"]) == (NOON, NOON + datetime.timedelta(seconds=9))
    assert (found["min_size"], found["max_size"]) == (200, 200)
    assert found["queue_runs"] == [
        {
            "first_physical_offset": 0,
            "last_physical_offset": 9000,
            "first_queue_offset": 0,
            "last_queue_offset": 9,
        }
    ]
    clean = (*COUNT_COLUMNS, "duplicate_rows", "duplicate_offsets", "missing_offsets", "restarts", "inner_batches")
    assert {found[name] for name in clean} == {0}


def test_a_window_is_ten_minutes_of_the_brokers_clock() -> None:
    found = profile_of(messages(range(1, 1300))).to_pylist()
    assert [row["window_start"] for row in found] == [NOON + datetime.timedelta(minutes=10 * n) for n in range(3)]
    assert [row["messages"] for row in found] == [599, 600, 100]


def test_each_broker_topic_and_queue_has_its_own_windows_in_order() -> None:
    rows = [
        message(n, broker=b, topic=t, queue_id=q) for n in range(3) for b in "ba" for t in ("y", "x") for q in (1, 0)
    ]
    keys = [tuple(row[name] for name in KEY_COLUMNS[:3]) for row in profile_of(rows).to_pylist()]
    assert keys == [(b, t, q) for b in "ab" for t in "xy" for q in (0, 1)]


def test_rows_in_any_order_need_no_other_compiled_kernel() -> None:
    profile_of(messages(range(10)))
    profile_of([message(n, broker=broker) for n in range(3) for broker in "ba"])
    for function in (compiled_profiling.find_part_starts, compiled_profiling.profile_parts):
        assert len(cast("Dispatcher", function).signatures) == 1


def test_no_rows_have_no_profile() -> None:
    assert profile_rows(table_of([message()]).slice(0, 0)).equals(SCHEMA.empty_table())
    assert merge_profiles([]).equals(SCHEMA.empty_table())


def test_messages_without_a_time_have_a_window_without_one() -> None:
    first, second = profile_of([message(0), message(1, store_timestamp=None)]).to_pylist()
    assert (first["window_start"], second["window_start"]) == (NOON, None)
    assert (second["messages"], second["min_store_timestamp"], second["last_queue_offset"]) == (1, None, 1)


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"msg_id": None}, "null_msg_id"),
        ({"unique_key": None}, "null_unique_key"),
        ({"keys": None}, "null_keys"),
        ({"tags": None}, "null_tags"),
        ({"born_host": None}, "null_hosts"),
        ({"store_host": None, "born_host": None}, "null_hosts"),
        ({"properties": None}, "null_properties"),
        ({"born_timestamp": None}, "null_born_timestamp"),
        ({"body_ref": None}, "null_body_ref"),
        ({"reconsume_times": -1}, "negative_values"),
        ({"queue_id": -1}, "negative_values"),
        ({"size": 71}, "size_violations"),
        ({"size": 1 << 30}, "size_violations"),
        ({"body_codec": "unknown"}, "unknown_codecs"),
        ({"body_codec": None}, "unknown_codecs"),
        ({"kind": "odd"}, "unknown_kinds"),
        ({"born_timestamp": NOON + datetime.timedelta(minutes=11)}, "born_after_store"),
    ],
)
def test_a_row_that_breaks_a_rule_is_counted(changes: Row, column: str) -> None:
    queue = {"queue_id": changes["queue_id"]} if "queue_id" in changes else {}
    found = only([message(0, **queue), message(1, **changes), message(2, **queue)])
    assert found[column] >= 1
    assert {name for name in COUNT_COLUMNS if found[name]} == {column}


def test_bodies_that_do_not_fit_are_counted() -> None:
    place = message()["body_ref"]
    rows = [
        message(0, body_size=200),
        message(1, body_ref={**place, "length": 49}),
        message(2, body_ref={**place, "offset": -1}),
        message(3, body_ref=None, body_size=0),
    ]
    found = only(rows)
    assert (found["body_size_violations"], found["body_ref_violations"], found["null_body_ref"]) == (1, 3, 0)


def test_a_producer_may_be_ten_minutes_ahead() -> None:
    assert only([message(0, born_timestamp=NOON + datetime.timedelta(minutes=10))])["born_after_store"] == 0


def test_a_table_without_the_columns_is_refused() -> None:
    with pytest.raises(ProfileError, match="without topic, body_ref"):
        profile_rows(table_of([message()]).drop_columns(["topic", "body_ref"]))
    with pytest.raises(ProfileError, match="expected the columns of the table profiles, found a table without broker"):
        merge_profiles([pa.table({"x": [1]})])


# --- a queue's offsets ---


def shape(rows: list[Row]) -> tuple[int, int, int, int]:
    """Return the numbers of duplicate rows, duplicate offsets, missing offsets and restarts of a window."""
    found = only(rows)
    return (found["duplicate_rows"], found["duplicate_offsets"], found["missing_offsets"], found["restarts"])


def test_offsets_that_are_left_out_are_missing() -> None:
    assert shape(messages([3, 4, 7, 8, 20])) == (0, 0, 13, 0)


def test_a_repeated_row_is_a_duplicate_row() -> None:
    assert shape(messages([0, 1, 1, 2])) == (1, 0, 0, 0)
    assert shape(messages([0, 1, 2, 0, 1, 2, 0])) == (4, 0, 0, 0)


def test_an_offset_of_two_records_is_a_duplicate_offset() -> None:
    assert shape([*messages([0, 1]), message(2, queue_offset=1), message(3, queue_offset=2)]) == (0, 1, 0, 1)


def test_a_recreated_topic_restarts_without_missing_offsets() -> None:
    again = [message(100 + n, queue_offset=n, store_timestamp=NOON) for n in range(5)]
    assert shape([*messages(range(50, 60)), *again]) == (0, 0, 0, 1)
    assert shape(list(reversed([*messages(range(50, 60)), *again]))) == (0, 0, 0, 1)


def test_an_inner_batch_has_an_offset_for_each_of_its_messages() -> None:
    batch = {"sys_flag": INNER_BATCH, "properties": [("INNER_NUM", "5")]}
    found = only([message(0), message(1, **batch), message(2, queue_offset=6), message(3, queue_offset=7)])
    assert (found["inner_batches"], found["queue_offsets"], found["missing_offsets"]) == (1, 8, 0)
    assert found["last_queue_offset"] == 7


@pytest.mark.parametrize("told", ["", "-3", "x", "0", "\u00b2", "\u0663", "1_0", "9" * 5000, "2147483648"])
def test_an_inner_batch_with_an_invalid_number_has_one_offset(told: str) -> None:
    found = only([message(0, sys_flag=INNER_BATCH, properties=[("INNER_NUM", told)]), message(1)])
    assert (found["queue_offsets"], found["missing_offsets"]) == (2, 0)


def test_the_bit_of_inner_batches_is_ignored_in_a_jmq_record() -> None:
    strange = {"sys_flag": INNER_BATCH, "properties": [("INNER_NUM", "5")], "msg_id": "orders/0/1@a", "format": "jmq"}
    found = only([message(0), message(1, **strange), message(2)])
    assert (found["inner_batches"], found["queue_offsets"], found["missing_offsets"]) == (0, 3, 0)


# --- parts put together ---


def test_a_window_that_two_tasks_share_is_whole_again() -> None:
    rows = messages(range(100))
    assert merged(rows[40:], rows[:40]) == profile_of(rows).to_pylist()


def test_a_part_between_two_others_fills_their_gap() -> None:
    rows = messages(range(90))
    ends = merge_profiles([profile_of(rows[:30]), profile_of(rows[60:])])
    assert ends.column("missing_offsets").to_pylist() == [30]
    assert merge_profiles([ends, profile_of(rows[30:60])]).equals(profile_of(rows))


def test_a_row_that_two_tasks_read_is_found() -> None:
    (found,) = merged(messages(range(51)), messages(range(50, 100)))
    assert (found["duplicate_rows"], found["missing_offsets"], found["messages"]) == (1, 0, 101)


def test_a_window_with_too_many_gaps_keeps_its_counts() -> None:
    rows = [message(n, queue_offset=2 * n, store_timestamp=NOON) for n in range(MAX_RUNS + 1)]
    found = only(rows)
    assert found["queue_runs"] is None
    assert found["missing_offsets"] == MAX_RUNS
    more = [message(9000, store_timestamp=NOON, queue_offset=9000)]
    (both,) = merged(rows, more)
    assert (both["queue_runs"], both["missing_offsets"], both["messages"]) == (None, MAX_RUNS, MAX_RUNS + 2)


@given(st.integers(0, 2**32), st.lists(st.integers(0, 300), max_size=4))
def test_parts_in_any_order_and_depth_give_the_whole(seed: int, cuts: list[int]) -> None:
    chance = random.Random(seed)
    rows = [
        message(
            n,
            broker=chance.choice("ab"),
            queue_offset=chance.choice([n, n, n, n // 2, chance.randrange(300)]),
            store_timestamp=chance.choice([None, *[NOON + datetime.timedelta(seconds=20 * n)] * 5]),
        )
        for n in range(120)
        if chance.random() < 0.9
    ]
    places = [0, *sorted(cuts), len(rows)]
    parts = [profile_of(rows[begin:end]) for begin, end in pairwise(places)]
    chance.shuffle(parts)
    whole = profile_of(rows)
    assert merge_profiles(parts).equals(whole)
    nested = merge_profiles([merge_profiles(parts[:2]), merge_profiles(parts[2:])])
    assert nested.equals(whole)
    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert profile_of(shuffled).equals(whole)


# --- as bytes ---


def test_a_profile_round_trips_as_bytes() -> None:
    profile = profile_of([*messages(range(2000)), message(5, topic="x", store_timestamp=None)])
    assert parse_profile(serialize_profile(profile)).equals(profile)
    assert parse_profile(serialize_profile(SCHEMA.empty_table())).num_rows == 0


@pytest.mark.parametrize("data", [b"", b"nothing", serialize_profile(SCHEMA.empty_table())[:-20]])
def test_other_bytes_are_not_a_profile(data: bytes) -> None:
    with pytest.raises(ProfileError, match="expected a serialized profile"):
        parse_profile(data)


def test_a_run_has_rows_of_the_table() -> None:
    rows = to_profiles(profile_of(messages(range(2000))), "run-7")
    assert rows.schema.names == PROFILES.names
    assert rows.column("run_id").to_pylist() == ["run-7"] * 4
    assert merge_profiles([rows]).equals(profile_of(messages(range(2000))))
    assert to_profiles(SCHEMA.empty_table(), "run").num_rows == 0


# --- the checksum ---


def hash_long(value: int, seed: int) -> int:
    """Return XXH64 of one bigint, computed from its description."""

    def rotated(number: int, by: int) -> int:
        return (number << by | number >> (64 - by)) & _MASK

    primes = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
    found = (seed + primes[4] + 8) & _MASK
    found ^= rotated(value * primes[1] & _MASK, 31) * primes[0] & _MASK
    found = (rotated(found, 27) * primes[0] + primes[3]) & _MASK
    found = (found ^ found >> 33) * primes[1] & _MASK
    found = (found ^ found >> 29) * primes[2] & _MASK
    return found ^ found >> 32


_LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
_INTS = st.integers(-(1 << 31), (1 << 31) - 1)


@given(st.lists(st.tuples(_LONGS, _LONGS, _INTS, _INTS, st.integers(-(10**12), 10**12)), min_size=1, max_size=5))
def test_the_checksum_is_the_sum_of_sparks_hashes(values: list[tuple[int, int, int, int, int]]) -> None:
    total = 0
    rows = []
    for physical, queue, size, crc, micros in values:
        rows.append(
            message(
                0,
                physical_offset=physical,
                queue_offset=queue,
                size=size,
                body_crc=crc,
                store_timestamp=NOON + datetime.timedelta(microseconds=micros),
            )
        )
        hashed = 42
        stored_ms = (round(NOON.timestamp()) * 1_000_000 + micros) // 1000
        for value in (physical, queue, size, crc, stored_ms):
            hashed = hash_long(value & _MASK, hashed)
        total += hashed
    assert sum(row["checksum"] for row in profile_of(rows).to_pylist()) & _MASK == total & _MASK


def test_columns_equal_those_of_the_table() -> None:
    assert SCHEMA.names == PROFILE.names
