"""Messages counted by minute, compared with a plain loop over rows."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketches import kll_doubles_sketch

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.quality.profile_columns import ProfileError
from commitlake.pipelines.topic_minutes.minute_counts import (
    SCHEMA,
    count_minutes,
    merge_sketches,
    sketch_groups,
)
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType
from commitlake.schemas.tables.topic_minutes import MAX_TAGS, SKETCH_K
from tests.support.profiles import NOON, Row, message, messages, table_of

KEY = ("broker", "topic", "queue_id", "tag", "other_tags", "kind", "minute")
SECOND = datetime.timedelta(seconds=1)


def counted(rows: Sequence[Row]) -> list[dict[str, Any]]:
    table = count_minutes(table_of(rows), "run")
    table.validate(full=True)
    assert table.schema == SCHEMA
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def counted_plainly(rows: Sequence[Row]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the counts by a loop over rows that have all values and at most `MAX_TAGS` tags."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        minute = row["store_timestamp"].replace(second=0, microsecond=0)
        groups[(row["broker"], row["topic"], row["queue_id"], row["tags"], False, row["kind"], minute)].append(row)
    found = {}
    for key, mine in groups.items():
        times = Counter(row["store_timestamp"].replace(microsecond=0) for row in mine)
        busiest = min(second for second, count in times.items() if count == max(times.values()))
        found[key] = {
            "messages": len(mine),
            "bytes": sum(row["size"] for row in mine),
            "body_bytes": sum(row["body_size"] for row in mine),
            "first_physical_offset": min(row["physical_offset"] for row in mine),
            "last_physical_offset": max(row["physical_offset"] for row in mine),
            "max_size": max(row["size"] for row in mine),
            "busiest_second": busiest,
            "busiest_second_messages": times[busiest],
            "reconsumed": sum(row["reconsume_times"] > 0 for row in mine),
        }
    return found


def test_counts_equal_those_of_a_plain_loop_in_any_order_of_rows() -> None:
    random = np.random.default_rng(3)
    rows = [
        message(
            number,
            broker=f"broker-{random.integers(2)}",
            topic=f"topic-{random.integers(3)}",
            queue_id=int(random.integers(3)),
            tags=[None, "a", "b"][random.integers(3)],
            size=int(random.integers(100, 1000)),
            store_timestamp=NOON + datetime.timedelta(milliseconds=int(random.integers(300_000))),
            born_timestamp=NOON - SECOND,
            reconsume_times=int(random.integers(2)),
        )
        for number in range(3000)
    ]
    expected = counted_plainly(rows)
    found = counted(rows)
    assert len(found) == len(expected)
    for row in found:
        values = expected[tuple(row[name] for name in KEY)]
        assert {name: row[name] for name in values} == values
        assert kll_doubles_sketch.deserialize(row["size_sketch"]).n == row["messages"]
        assert row["latency_messages"] + row["wait_messages"] == row["messages"]
        assert row["wait_messages"] == row["reconsumed"]


def test_a_minute_that_recurs_in_a_queue_is_one_row() -> None:
    rows = [message(number, store_timestamp=NOON + number % 2 * 60 * SECOND) for number in range(10)]
    assert [(row["minute"], row["messages"]) for row in counted(rows)] == [(NOON, 5), (NOON + 60 * SECOND, 5)]


def test_no_rows_give_no_minute() -> None:
    assert counted([]) == []


def test_a_message_without_a_time_has_no_minute_and_no_latency() -> None:
    (row,) = counted([message(store_timestamp=None)])
    assert (row["minute"], row["busiest_second"], row["messages"]) == (None, None, 1)
    assert (row["latency_messages"], row["latency_sketch"], row["max_latency_ms"]) == (0, None, None)


def test_latency_is_from_born_to_stored() -> None:
    (row,) = counted(messages(range(3), born_timestamp=NOON - SECOND))
    assert (row["latency_messages"], row["latency_ms"], row["max_latency_ms"]) == (3, 6000, 3000)
    assert kll_doubles_sketch.deserialize(row["latency_sketch"]).get_quantiles([0.5]) == [2000.0]
    assert (row["wait_messages"], row["wait_sketch"], row["max_wait_ms"]) == (0, None, None)


def test_a_message_stored_before_it_was_born_is_clock_skew() -> None:
    (row,) = counted([message(born_timestamp=NOON + 5 * SECOND), message(1)])
    assert (row["clock_skew_messages"], row["max_clock_skew_ms"], row["latency_messages"]) == (1, 5000, 1)


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, False),
        ({"kind": "retry"}, True),
        ({"kind": "dlq"}, True),
        ({"reconsume_times": 1}, True),
        ({"sys_flag": int(TransactionType.COMMIT)}, True),
        ({"sys_flag": int(TransactionType.COMMIT), "format": "jmq"}, False),  # the bits mean something else there
        ({"properties": [("DELAY", "3"), ("REAL_TOPIC", "orders")]}, True),  # a delayed message, delivered
        ({"properties": [("TIMER_OUT_MS", "1")]}, True),
        ({"kind": "delay", "properties": [("DELAY", "3"), ("REAL_TOPIC", "orders")]}, False),  # it only waits now
        ({"kind": "delay", "reconsume_times": 1}, True),  # born long before it failed
        ({"kind": "timer", "properties": [("TIMER_OUT_MS", "1")]}, False),
        ({"kind": "timer", "properties": [("TIMER_ROLL_TIMES", "1")]}, True),
        ({"kind": "half", "properties": [("REAL_TOPIC", "orders")]}, False),
        ({"kind": "half", "properties": [("TRANSACTION_CHECK_TIMES", "1")]}, True),
    ],
)
def test_copies_that_are_delayed_on_purpose_have_no_latency(changes: dict[str, Any], waits: bool) -> None:
    (row,) = counted([message(1, **changes)])
    assert (row["wait_messages"], row["latency_messages"]) == ((1, 0) if waits else (0, 1))


def test_outcomes_of_transactions_are_counted() -> None:
    halves = [message(kind="half"), message(1, kind="half", properties=[("TRANSACTION_CHECK_TIMES", "1")])]
    commits = [message(2, sys_flag=int(TransactionType.COMMIT))]
    found = {row["kind"]: (row["messages"], row["rechecked"], row["committed"]) for row in counted(halves + commits)}
    assert found == {"half": (2, 1, 0), "normal": (1, 0, 1)}


def test_the_most_frequent_tags_are_named_and_the_others_counted_together() -> None:
    rows = [message(number, tags=f"tag-{number % (MAX_TAGS + 10):03d}") for number in range(3 * MAX_TAGS)]
    rows += [
        message(1000, tags=None),
        message(1001, tags=f"tag-{MAX_TAGS + 5:03d}"),
        message(1002, topic="few", tags="z"),
    ]
    rows += [message(1003, tags=f"tag-{MAX_TAGS + 5:03d}")]
    found = counted(rows)
    assert sum(row["messages"] for row in found) == len(rows)
    named = {row["tag"] for row in found if row["topic"] == "orders" and row["tag"] is not None}
    assert len(named) == MAX_TAGS
    assert f"tag-{MAX_TAGS + 5:03d}" in named  # one of the most frequent
    assert sum(row["messages"] for row in found if row["other_tags"]) == sum(
        row["tags"] is not None and row["tags"] not in {*named, "z"} for row in rows
    )
    assert sum(row["messages"] for row in found if row["tag"] is None and not row["other_tags"]) == 1
    assert [row["tag"] for row in found if row["topic"] == "few"] == ["z"]


def test_plain_strings_are_counted_like_dictionaries() -> None:
    rows = [message(number, properties=[("DELAY", "1")] if number % 2 else []) for number in range(6)]
    table = table_of(rows)
    plain = pa.table([table.column(name).cast(pa.string()) if pa.types.is_dictionary(table.schema.field(name).type)
                      else table.column(name) for name in table.column_names], table.column_names)  # fmt: skip
    assert count_minutes(plain, "run") == count_minutes(table, "run")


def test_a_table_that_lacks_a_column_is_refused() -> None:
    with pytest.raises(ProfileError, match="without tags"):
        count_minutes(table_of(messages(range(2))).drop_columns(["tags"]), "run")


def grouped(*counts: int) -> tuple[Array, Array]:
    """Return values of some groups, and where each group begins."""
    values = np.random.default_rng(7).integers(0, 10_000, sum(counts)).astype(float)
    return values, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@pytest.mark.parametrize("count", [1, 2, 3, SKETCH_K - 1, SKETCH_K])
def test_a_small_sketch_equals_the_librarys(count: int) -> None:
    values, starts = grouped(5, count, 2)
    expected = kll_doubles_sketch(SKETCH_K)
    expected.update(values[starts[1] : starts[2]])
    assert sketch_groups(values, starts)[1].as_py() == expected.serialize()


def test_groups_of_all_sizes_are_sketched_together() -> None:
    counts = (0, 1, SKETCH_K + 1, 2, 3 * SKETCH_K, 0, 1, SKETCH_K, 4 * SKETCH_K + 3)
    values, starts = grouped(*counts)
    sketches = sketch_groups(values, starts)
    sketches.validate(full=True)
    for group, data in enumerate(sketches.to_pylist()):
        if not counts[group]:
            assert data is None
            continue
        sketch = kll_doubles_sketch.deserialize(data)
        mine = values[starts[group] : starts[group + 1]]
        assert (sketch.n, sketch.get_min_value(), sketch.get_max_value()) == (len(mine), mine.min(), mine.max())


def test_no_group_gives_no_sketch() -> None:
    values, starts = grouped()
    assert len(sketch_groups(values, starts)) == 0


def test_merged_sketches_have_the_quantiles_of_all_values() -> None:
    values, starts = grouped(10, 5000, 1, 300, 20_000)
    sketches = sketch_groups(values, starts).to_pylist()
    merged = merge_sketches(sketches)
    assert merged.n == len(values)
    for rank, found in zip((0.5, 0.99), merged.get_quantiles((0.5, 0.99), True), strict=True):
        assert abs((values <= found).mean() - rank) < 0.02


def test_the_quantiles_of_up_to_k_values_are_exact() -> None:
    values = np.arange(100, 0, -1).astype(float)
    sketches = sketch_groups(values, np.array([0, 40, 100])).to_pylist()
    assert merge_sketches(sketches).get_quantiles((0.01, 0.5, 1.0), True) == [1.0, 50.0, 100.0]


def test_a_sketch_without_values_is_empty() -> None:
    assert merge_sketches([None]).is_empty()
