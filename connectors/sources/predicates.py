"""Conversion of Spark's predicates to filters of a reader; predicates that cannot be converted are ignored."""

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

from commitlake.connectors.reading.read_request import Filters
from commitlake.schemas.times import epoch_ms, with_time_zone

_SETS = {"broker": "brokers", "topic": "topics", "queue_id": "queue_ids"}
_RANGES = {
    "physical_offset": ("min_offset", "end_offset"),
    "store_timestamp": ("min_store_timestamp", "end_store_timestamp"),
}


def push_predicates(filters: Filters, predicates: Iterable[Filter]) -> Filters:
    """Return the filters, narrowed by those predicates pushed down by Spark that can be converted to filters."""
    for predicate in predicates:
        filters = _apply_predicate(filters, predicate)
    return filters


def _apply_predicate(filters: Filters, predicate: Filter) -> Filters:
    if not isinstance(predicate, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return filters
    if len(predicate.attribute) != 1:
        return filters
    name = predicate.attribute[0]
    if isinstance(predicate, EqualTo | In):
        values = predicate.value if isinstance(predicate, In) else (predicate.value,)
        return _narrow_by_values(filters, name, frozenset(values))
    if name in _RANGES:
        return _narrow_by_bound(filters, name, predicate)
    return filters


def _narrow_by_values(filters: Filters, column_name: str, values: frozenset[object]) -> Filters:
    if column_name in _SETS:
        return _narrow_values(filters, _SETS[column_name], values - {None})  # in SQL null equals nothing
    if column_name in _RANGES and len(values) == 1:
        low, high = _to_integer_range(next(iter(values)))
        return _narrow_bounds(filters, column_name, low, high)
    return filters


def _narrow_by_bound(
    filters: Filters, column_name: str, predicate: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
) -> Filters:
    low, high = _to_integer_range(predicate.value)
    if low is None:
        return filters
    if isinstance(predicate, GreaterThan | GreaterThanOrEqual):
        return _narrow_bounds(filters, column_name, low, None)  # one too many for "greater", which Spark filters again
    return _narrow_bounds(filters, column_name, None, high)


def _narrow_bounds(filters: Filters, column_name: str, low: int | None, high: int | None) -> Filters:
    low_name, high_name = _RANGES[column_name]
    known_low, known_high = getattr(filters, low_name), getattr(filters, high_name)
    bounds: dict[str, Any] = {
        low_name: low if known_low is None else known_low if low is None else max(low, known_low),
        high_name: high if known_high is None else known_high if high is None else min(high, known_high),
    }
    return replace(filters, **bounds)


def _narrow_values(filters: Filters, filter_name: str, values: frozenset[Any]) -> Filters:
    known = getattr(filters, filter_name)
    changes: dict[str, Any] = {filter_name: values if known is None else known & values}
    return replace(filters, **changes)


def _to_integer_range(value: object) -> tuple[int | None, int | None]:
    """Return the integers that equal a predicate's value, as a range with an exclusive end; times are in ms."""
    if isinstance(value, datetime.datetime):
        milliseconds = epoch_ms(with_time_zone(value))
        return milliseconds, milliseconds + 1
    if isinstance(value, int):
        return value, value + 1
    return None, None
