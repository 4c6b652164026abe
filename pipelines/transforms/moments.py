"""Moments at which the state of a lake is wanted, and what was last known at each of them.

Within transforms, times are microseconds since 1970: numbers have no time zone, and can be compared and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

AT = "at"
"""Name of a column of moments, microseconds since 1970."""
_LONG_AGO_US = -(1 << 62)


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """Times at which a state is computed: at regular intervals, or one time for each broker.

    Attributes:
        first_us: the first moment; by broker, where each has one moment of its own.
        every_us: distance of two moments.
        count: number of moments.
        is_last: True if the moment is that of the last snapshot. What is not a message or an offset then counts as
            known although it was recorded later.
    """

    first_us: int | Mapping[str, int]
    every_us: int = 1
    count: int = 1
    is_last: bool = False

    def first_moment_from(self, time: Column) -> Column:
        """Return the first moment at or after a time, for the broker of the row; null if there is none."""
        first, every = self._first_moment_us, F.lit(self.every_us)
        elapsed = F.greatest(time - first, F.lit(0)) + every - F.lit(1)
        steps = elapsed - elapsed % every
        return F.when(steps < F.lit(self.count * self.every_us), first + steps)

    def moments_between(self, start: Column, end: Column) -> Column:
        """Return an array of the moments from a start to before an end (null for no end)."""
        every = F.lit(self.every_us)
        last = self._first_moment_us + F.lit((self.count - 1) * self.every_us)
        return F.sequence(start, F.coalesce(end - every, last), every)

    @property
    def last_us(self) -> int | None:
        """The last moment of any broker, microseconds since 1970; None if there is none."""
        firsts = self.first_us.values() if isinstance(self.first_us, Mapping) else [self.first_us]
        return max(firsts, default=0) + (self.count - 1) * self.every_us if firsts and self.count else None

    @property
    def _first_moment_us(self) -> Column:
        if not isinstance(self.first_us, Mapping):
            return F.lit(self.first_us)
        pairs = [F.lit(each) for pair in self.first_us.items() for each in pair]
        return F.create_map(*pairs)[F.col("broker")] if pairs else F.lit(None).cast("long")


def latest_values_at(
    rows: DataFrame, keys: Sequence[str], time: Column, moments: SampleTimes, values: Mapping[str, Column]
) -> DataFrame:
    """Return, for each moment and key, values of the key's last row up to the moment, where there is such a row.

    With the moments 60 and 120, and `max_by(offset, second)` as the offset:

        +-----+------+------+        +-----+---+------+
        |group|second|offset|        |group| at|offset|
        +-----+------+------+        +-----+---+------+
        |  mail|    7|     1|        | mail| 60|     2|
        |  mail|   59|     2|   ->   | mail|120|     2|
        |  shop|   61|     5|        | shop|120|     5|
        +-----+------+------+        +-----+---+------+

    Args:
        rows: rows with the keys and what `values` need.
        keys: columns of keys; `broker` is one of them.
        time: time from which a row holds, microseconds since 1970.
        moments: the moments.
        values: by name, aggregates that take the latest of some rows, or null if there are none among them. A null
            value means that nothing new was said: the one of the moment before still holds.

    Returns:
        One row for each key and moment: the keys, `at`, and the values.
    """
    holds_from = F.lit(_LONG_AGO_US) if moments.is_last else time
    found = rows.withColumn(AT, moments.first_moment_from(holds_from)).where(F.col(AT).isNotNull())
    found = found.groupBy(*keys, AT).agg(*(value.alias(name) for name, value in values.items()))
    return (
        found
        if moments.count == 1
        else repeat_until_next(found, keys, moments, {name: _last_known_value(name, keys) for name in values})
    )


def repeat_until_next(
    known_rows: DataFrame, keys: Sequence[str], moments: SampleTimes, values: Mapping[str, Column]
) -> DataFrame:
    """Repeat each row of a key at all moments from its own to before that of the key's next row.

    Args:
        known_rows: one row for each key, and each moment at which something is new.
        keys: columns of keys.
        moments: the moments.
        values: the values by name, computed over the rows of a key up to this one.

    Returns:
        The keys, `at`, and the values.
    """
    following = F.lead(AT).over(Window.partitionBy(*keys).orderBy(AT))
    known = known_rows.select(
        *keys, AT, following.alias("next_at"), *(value.alias(name) for name, value in values.items())
    )
    every = F.explode(moments.moments_between(F.col(AT), F.col("next_at")))
    return known.select(*keys, every.alias(AT), *values)


def window_up_to_row(keys: Sequence[str]) -> WindowSpec:
    """Return the Spark window, ordered by moment, of all rows of a key up to the current row."""
    return Window.partitionBy(*keys).orderBy(AT).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _last_known_value(name: str, keys: Sequence[str]) -> Column:
    return F.last(name, ignorenulls=True).over(window_up_to_row(keys))
