"""Conversion of Spark's predicates to filters of a reader; other predicates are ignored."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from commitlake.connectors.reading.request import Narrowing
from commitlake.schemas.times import epoch_ms, with_zone

_SETS = {"topic": "topics", "queue_id": "queue_ids"}
_RANGES = {
    "physical_offset": ("min_offset", "end_offset"),
    "store_timestamp": ("min_store_timestamp", "end_store_timestamp"),
}


def push(narrowing: Narrowing, predicates: Iterable[Filter]) -> Narrowing:
    """Narrow a read by predicates."""
    for predicate in predicates:
        narrowing = _take(narrowing, predicate)
    return narrowing


def _take(narrowing: Narrowing, predicate: Filter) -> Narrowing:
    if not isinstance(predicate, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return narrowing
    if len(predicate.attribute) != 1:
        return narrowing
    name = predicate.attribute[0]
    if isinstance(predicate, EqualTo | In):
        values = predicate.value if isinstance(predicate, In) else (predicate.value,)
        return _take_values(narrowing, name, frozenset(values))
    if name in _RANGES:
        return _take_bound(narrowing, name, predicate)
    return narrowing


def _take_values(narrowing: Narrowing, name: str, values: frozenset[object]) -> Narrowing:
    if name == "broker":
        brokers = frozenset(str(value) for value in values if value is not None)
        return replace(narrowing, brokers=brokers if narrowing.brokers is None else narrowing.brokers & brokers)
    if name in _SETS:
        known = getattr(narrowing.filters, _SETS[name])
        values -= {None}  # in SQL null equals nothing
        return _with_filters(narrowing, {_SETS[name]: values if known is None else known & values})
    if name in _RANGES and len(values) == 1:
        low, high = _interval(next(iter(values)))
        return _with_bounds(narrowing, name, low, high)
    return narrowing


def _take_bound(
    narrowing: Narrowing, name: str, predicate: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
) -> Narrowing:
    low, high = _interval(predicate.value)
    if low is None:
        return narrowing
    if isinstance(predicate, GreaterThan | GreaterThanOrEqual):
        return _with_bounds(narrowing, name, low, None)  # one too many for "greater", which Spark filters again
    return _with_bounds(narrowing, name, None, high)


def _with_bounds(narrowing: Narrowing, name: str, low: int | None, high: int | None) -> Narrowing:
    low_name, high_name = _RANGES[name]
    known_low, known_high = getattr(narrowing.filters, low_name), getattr(narrowing.filters, high_name)
    bounds = {
        low_name: low if known_low is None else known_low if low is None else max(low, known_low),
        high_name: high if known_high is None else known_high if high is None else min(high, known_high),
    }
    return _with_filters(narrowing, bounds)


def _with_filters(narrowing: Narrowing, changes: dict[str, Any]) -> Narrowing:
    return replace(narrowing, filters=replace(narrowing.filters, **changes))


def _interval(value: object) -> tuple[int | None, int | None]:
    """Return the range of integers that a value stands for, the end exclusive; times are in ms."""
    if isinstance(value, datetime.datetime):
        milliseconds = epoch_ms(with_zone(value))
        return milliseconds, milliseconds + 1
    if isinstance(value, int):
        return value, value + 1
    return None, None
