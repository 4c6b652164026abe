"""Filters that a reader can apply itself: topic, queue, key, store time, physical offset.

They come from two sides, the source's options and Spark's predicates, and are narrowed to their intersection. A Spark
predicate that does not say one of these things is left alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
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

from connectors.commitlog.options import Options
from connectors.commitlog.splits import Split

_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SETS = {"topic": "topics", "queue_id": "queue_ids"}
_RANGES = {
    "physical_offset": ("min_offset", "end_offset"),
    "store_timestamp": ("min_store_timestamp", "end_store_timestamp"),
}


@dataclass(frozen=True)
class Filters:
    """Which records are wanted; None is no limit. Ends are exclusive. A key is a business key or the unique key."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    keys: frozenset[str] | None = None
    min_store_timestamp: int | None = None
    end_store_timestamp: int | None = None
    min_offset: int | None = None
    end_offset: int | None = None

    @property
    def topics_by_text(self) -> bool:
        """Whether topics are compared as they are shown: U+FFFD stands for any bytes there that are not UTF-8."""
        return any("\ufffd" in str(topic) for topic in self.topics or ())

    @property
    def by_content(self) -> bool:
        """Whether a filter asks for something that a bad range does not have."""
        return not (
            self.topics is None
            and self.queue_ids is None
            and self.keys is None
            and self.min_store_timestamp is None
            and self.end_store_timestamp is None
        )


@dataclass(frozen=True)
class Narrowing:
    """The filters of a read, and the brokers that it wants."""

    filters: Filters
    brokers: frozenset[str] | None = None

    def may_hold(self, split: Split) -> bool:
        """Whether a split can hold a wanted record."""
        low, high = self.filters.min_offset, self.filters.end_offset
        return (
            (self.brokers is None or split.broker in self.brokers)
            and (low is None or split.end > low)
            and (high is None or split.start < high)
        )

    def push(self, predicates: Iterable[Filter]) -> Narrowing:
        """This, narrowed by what predicates say."""
        narrowed = self
        for predicate in predicates:
            narrowed = narrowed._take(predicate)
        return narrowed

    def _take(self, predicate: Filter) -> Narrowing:
        if not isinstance(predicate, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return self
        if len(predicate.attribute) != 1:
            return self
        name = predicate.attribute[0]
        if isinstance(predicate, EqualTo | In):
            values = predicate.value if isinstance(predicate, In) else (predicate.value,)
            return self._take_values(name, frozenset(values))
        if name in _RANGES:
            return self._take_bound(name, predicate)
        return self

    def _take_values(self, name: str, values: frozenset[object]) -> Narrowing:
        if name == "broker":
            brokers = frozenset(str(value) for value in values if value is not None)
            return replace(self, brokers=brokers if self.brokers is None else self.brokers & brokers)
        if name in _SETS:
            known = getattr(self.filters, _SETS[name])
            values -= {None}  # SQL's null equals nothing
            return self._with_filters({_SETS[name]: values if known is None else known & values})
        if name in _RANGES and len(values) == 1:
            low, high = _interval(next(iter(values)))
            return self._with_bounds(name, low, high)
        return self

    def _take_bound(
        self, name: str, predicate: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    ) -> Narrowing:
        low, high = _interval(predicate.value)
        if low is None:
            return self
        if isinstance(predicate, GreaterThan | GreaterThanOrEqual):
            return self._with_bounds(name, low, None)  # for "greater" one too many: Spark looks again
        return self._with_bounds(name, None, high)

    def _with_bounds(self, name: str, low: int | None, high: int | None) -> Narrowing:
        low_name, high_name = _RANGES[name]
        known_low, known_high = getattr(self.filters, low_name), getattr(self.filters, high_name)
        bounds = {
            low_name: low if known_low is None else known_low if low is None else max(low, known_low),
            high_name: high if known_high is None else known_high if high is None else min(high, known_high),
        }
        return self._with_filters(bounds)

    def _with_filters(self, changes: dict[str, Any]) -> Narrowing:
        return replace(self, filters=replace(self.filters, **changes))


def _interval(value: object) -> tuple[int | None, int | None]:
    """The whole numbers that a value may stand for, first inclusive and last exclusive; a time's are ms."""
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC) if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        milliseconds = (moment - _EPOCH) // _MILLISECOND
        return milliseconds, milliseconds + 1
    if isinstance(value, int):
        return value, value + 1
    return None, None


def narrow(options: Options) -> Narrowing:
    """What the options ask for."""
    return Narrowing(
        Filters(
            topics=options.topics,
            queue_ids=options.queue_ids,
            keys=options.keys,
            min_store_timestamp=options.starting_timestamp,
            end_store_timestamp=options.ending_timestamp,
            min_offset=options.starting_offset,
            end_offset=options.ending_offset,
        )
    )


def narrow_stream(options: Options) -> Narrowing:
    """What a stream asks for of every record: where it began is no filter of what comes."""
    return narrow(replace(options, starting_timestamp=None, starting_offset=None))
