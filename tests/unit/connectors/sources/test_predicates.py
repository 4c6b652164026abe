"""Spark's predicates as filters of the reader: never narrower than the predicates."""

from __future__ import annotations

import datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.sources.predicates import push_predicates

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
NOON_MS = 1_795_176_000_000


def pushed(*predicates: Filter, **options: str) -> Filters:
    """Return the filters after these predicates were pushed down."""
    return push_predicates(
        Filters.of_batch(ReadOptions.parse({"path": "/store", **options}, formats=COMMITLOGS)), predicates
    )


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (EqualTo(("topic",), "orders"), Filters(topics=frozenset({"orders"}))),
        (In(("topic",), ("a", "b")), Filters(topics=frozenset({"a", "b"}))),
        (In(("topic",), ("a", None)), Filters(topics=frozenset({"a"}))),
        (In(("queue_id",), (1, 2)), Filters(queue_ids=frozenset({1, 2}))),
        (EqualTo(("physical_offset",), 5), Filters(min_offset=5, end_offset=6)),
        (GreaterThanOrEqual(("physical_offset",), 5), Filters(min_offset=5)),
        (GreaterThan(("physical_offset",), 5), Filters(min_offset=5)),
        (LessThan(("physical_offset",), 5), Filters(end_offset=6)),
        (LessThanOrEqual(("physical_offset",), 5), Filters(end_offset=6)),
        (GreaterThanOrEqual(("store_timestamp",), NOON), Filters(min_store_timestamp=NOON_MS)),
        (LessThan(("store_timestamp",), NOON), Filters(end_store_timestamp=NOON_MS + 1)),
        (EqualTo(("tags",), "paid"), Filters()),
        (IsNotNull(("topic",)), Filters()),
        (GreaterThan(("topic",), "a"), Filters()),
    ],
)
def test_predicate_becomes_a_filter_or_is_left_to_spark(predicate: Filter, expected: Filters) -> None:
    assert pushed(predicate) == expected


def test_filters_are_the_intersection_of_predicates_and_options() -> None:
    found = pushed(
        In(("topic",), ("a", "b")),
        GreaterThan(("physical_offset",), 10),
        LessThan(("physical_offset",), 99),
        topics="b,c",
        startingOffset="20",
        endingOffset="200",
    )
    assert found == Filters(topics=frozenset({"b"}), min_offset=20, end_offset=100)


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0, 10, False), (0, 101, True), (150, 160, True), (200, 300, False)]
)
def test_split_is_read_if_it_may_hold_a_wanted_record(low: int, high: int, expected: bool) -> None:
    split = Split("b", "/store/x", 0, 100, 200, 1000, 1000, ROCKETMQ)
    filters = Filters.of_batch(
        ReadOptions.parse({"path": "/store", "startingOffset": str(low), "endingOffset": str(high)}, formats=COMMITLOGS)
    )
    assert filters.may_match(split) is expected


def test_other_brokers_are_not_read() -> None:
    filters = pushed(EqualTo(("broker",), "a"))
    assert filters.may_match(Split("a", "", 0, 0, 1, 1, 1, ROCKETMQ))
    assert not filters.may_match(Split("b", "", 0, 0, 1, 1, 1, ROCKETMQ))


def test_keys_are_a_filter_by_content() -> None:
    filters = pushed(topics="orders", keys="order-1,order-2")
    assert filters == Filters(topics=frozenset({"orders"}), keys=frozenset({"order-1", "order-2"}))
    assert Filters(keys=frozenset({"a"})).needs_content
    assert not Filters(min_offset=1).needs_content
