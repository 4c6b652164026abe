"""A question on rates, and the SQL that counts messages by group and window."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.sql import (
    Engine,
    in_condition,
    selection_conditions,
    timestamp_literal,
    value_literal,
    window_start_expression,
)
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType
from commitlake.schemas.selection import ALL_MESSAGES, Selection
from commitlake.schemas.times import EPOCH, LAST_TIME

MINUTE = datetime.timedelta(minutes=1)
SECOND = datetime.timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CountedTable:
    """Table from which rates can be computed, with the SQL of its group columns and sums.

    Attributes:
        name: name of the table.
        time: name of its time column.
        unit: the shortest possible window.
        groups: SQL of each group column, by name.
        sums: SQL of each sum, by name.
    """

    name: str
    time: str
    unit: datetime.timedelta
    groups: Mapping[str, str]
    sums: Mapping[str, str]


MINUTES = CountedTable(
    "topic_minutes",
    "minute",
    MINUTE,
    {"broker": "broker", "topic": "topic", "queue": "queue_id", "tag": "tag", "kind": "kind"},
    {
        "messages": "sum(messages)",
        "bytes": "sum(bytes)",
        "sent": "sum(CASE WHEN kind = 'normal' THEN messages ELSE 0 END)",
        "retries": "sum(CASE WHEN kind = 'retry' THEN messages ELSE 0 END)",
        "dead_letters": "sum(CASE WHEN kind = 'dlq' THEN messages ELSE 0 END)",
        "prepared": "sum(CASE WHEN kind = 'half' THEN messages - rechecked ELSE 0 END)",
        "committed": "sum(CASE WHEN kind = 'normal' THEN committed ELSE 0 END)",
        "clock_skew": "sum(clock_skew_messages)",
        "other_tags": "sum(CASE WHEN other_tags THEN messages ELSE 0 END)",
    },
)
"""The table of minutes; small."""
_FLAGLESS = ", ".join(f"'{each.name}'" for each in all_formats() if not each.brokers.has_transaction_flags)
_HAS_FLAGS = f" AND coalesce(format, '') NOT IN ({_FLAGLESS})"
_IS_COMMITTED = f"kind = 'normal' AND (sys_flag & {int(TRANSACTION_MASK)}) = {int(TransactionType.COMMIT)}{_HAS_FLAGS}"
"""Condition for a message of a committed transaction.

`prepared_transaction_offset` does not show it: it may be 0, and is 0 in all other messages. A retry, or a dead letter,
keeps the flag of the message that it is a copy of.
"""
MESSAGES = CountedTable(
    "messages",
    "store_timestamp",
    SECOND,
    {
        **MINUTES.groups,
        "tag": "tags",
        "producer-host": "regexp_replace(born_host, ':[0-9]+$', '')",
        "producer-group": "producer_group",
        "origin-topic": "origin_topic",
    },
    {
        "messages": "count(*)",
        "bytes": "sum(size)",
        "sent": "sum(CASE WHEN kind = 'normal' THEN 1 ELSE 0 END)",
        "retries": "sum(CASE WHEN kind = 'retry' THEN 1 ELSE 0 END)",
        "dead_letters": "sum(CASE WHEN kind = 'dlq' THEN 1 ELSE 0 END)",
        "prepared": "sum(CASE WHEN kind = 'half' THEN 1 ELSE 0 END)",
        "committed": f"sum(CASE WHEN {_IS_COMMITTED} THEN 1 ELSE 0 END)",
        "clock_skew": "sum(CASE WHEN store_timestamp < born_timestamp THEN 1 ELSE 0 END)",
        "other_tags": "sum(0)",
    },
)
"""The table of messages: windows of seconds, and groups that only a message has.

`RatesQuestion.recheck_counts_sql` must be subtracted from `prepared`.
"""
_IS_RECHECKED = "kind = 'half' AND properties['TRANSACTION_CHECK_TIMES'] IS NOT NULL"
INSTEAD = {"producer-group": "properties['PGROUP']", "origin-topic": "topic"}
"""SQL of groups whose column is null in messages that an earlier version archived."""
GROUPS = tuple(MESSAGES.groups)
"""Names of possible groups."""
SUMS = tuple(MINUTES.sums)
"""Names of the sums of each group.

`sent` counts what producers sent, each message once, when consumers could see it. The other messages are copies that
brokers store (half and op messages, delayed messages and timers until they are due, retries, dead letters, POP's
records) and traces.
"""


class PartialCount(NamedTuple):
    """Parts of an SQL query that counts rows of one table by group and window, to be added up with others.

    Attributes:
        table: name of the table.
        where: SQL of the condition for the rows.
        selection: the rows to count, with their time range.
        more: SQL of a further condition for these rows, without texts of the user; part of `where_sql`.
        groups: SQL of each group column.
        window: SQL of the start of a row's window.
        sums: SQL of each sum, by name.
    """

    table: str
    where: str
    selection: Selection
    more: str
    groups: Sequence[str]
    window: str
    sums: Mapping[str, str]


def round_time(moment: datetime.datetime, unit: datetime.timedelta, *, rounds_up: bool = False) -> datetime.datetime:
    """Round a time down, or up, to a multiple of a unit since 1970."""
    since = moment - EPOCH
    count = min(-(-since // unit), (LAST_TIME - EPOCH) // unit) if rounds_up else since // unit
    return EPOCH + count * unit


class OriginalTopicShare(Enum):
    """Share of a query's messages (all, some or none) with the original topic, which older versions did not record."""

    ALL = auto()
    SOME = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class RatesQuestion:
    """Query for message counts and rates by group and time window.

    Attributes:
        by: names of groups, from `GROUPS`.
        start: start of the time range, in whole seconds; with windows, a multiple of their distance.
        end: end of the time range, exclusive, likewise.
        window: length of a window; None for one window over the whole time range.
        step: distance of two windows; by default they do not overlap.
        selection: messages to count, by broker, topic, queue, tag and kind.
        origins: share of the messages that have the columns of origins.
        has_formats: False if `messages` lacks the column `format`, as in lakes of earlier versions.
        only: groups to count, each as values in the order of `by`.
        is_by_second: True to count messages themselves, so that `start` and `end` may be any second.
        engine: engine for which SQL is generated.
    """

    by: Sequence[str]
    start: datetime.datetime
    end: datetime.datetime
    window: datetime.timedelta | None = None
    step: datetime.timedelta | None = None
    selection: Selection = ALL_MESSAGES
    origins: OriginalTopicShare = OriginalTopicShare.ALL
    has_formats: bool = True
    only: Sequence[tuple[str | int | None, ...]] | None = None
    is_by_second: bool = False
    engine: Engine = Engine.DELTALAKE

    @property
    def counted_table(self) -> CountedTable:
        """The smallest table that can answer the query, at least for its whole minutes."""
        has_no_minute = round_time(self.start, MINUTE, rounds_up=True) >= round_time(self.end, MINUTE)
        if self.is_by_second or (has_no_minute and self.start < self.end):
            return MESSAGES
        lengths = [length for length in (self.window, self.step) if length is not None]
        is_whole = all(length % MINUTE == datetime.timedelta() for length in lengths)
        return MINUTES if is_whole and set(self.by) <= set(MINUTES.groups) else MESSAGES

    def divide_by_minute(self) -> list[RatesQuestion]:
        """Divide a query into whole minutes, and parts of minutes at both ends that only `messages` can count."""
        first, last = round_time(self.start, MINUTE, rounds_up=True), round_time(self.end, MINUTE)
        if self.counted_table is MESSAGES or self.start >= self.end or (first, last) == (self.start, self.end):
            return [self]
        spans = ((self.start, first, True), (first, last, False), (last, self.end, True))
        return [
            replace(self, start=start, end=end, is_by_second=is_part) for start, end, is_part in spans if start < end
        ]

    def shift_earlier(self, distance: datetime.timedelta) -> RatesQuestion:
        """Return the same query for a time range that is earlier by `distance`."""
        return replace(self, start=self.start - distance, end=self.end - distance)

    def group_columns_sql(self) -> list[str]:
        """Return the SQL of the group columns."""
        return [self._group_sql(name) for name in self.by]

    def _group_sql(self, name: str) -> str:
        column = self.counted_table.groups[name]
        if name not in INSTEAD or self.origins is OriginalTopicShare.ALL:
            return column
        if self.origins is OriginalTopicShare.NONE:
            return INSTEAD[name]
        return f"CASE WHEN origin_topic IS NULL THEN {INSTEAD[name]} ELSE {column} END"

    def where_sql(self, table: CountedTable | None = None) -> str:
        """Return the SQL condition for the rows of a table, by default `counted_table`, that the query counts."""
        table = table or self.counted_table
        found = selection_conditions(replace(self.selection, tags=()), self.engine)
        if self.selection.tags:
            tags = (value_literal(tag, self.engine) for tag in self.selection.tags)
            found.append(in_condition(table.groups["tag"], tags))
        if self.only is not None and self.by:
            found.append(f"({' OR '.join(map(self._group_condition, self.only)) or 'false'})")
        start, end = (timestamp_literal(moment, self.engine) for moment in (self.start, self.end))
        found.append(f"{table.time} >= {start} AND {table.time} < {end}")
        if table is MESSAGES:  # a condition on the partition, so that files of other days are not opened
            last = self.end.astimezone(datetime.UTC).date()
            first = self.start.astimezone(datetime.UTC).date()
            found.append(f"store_date >= DATE '{first}' AND store_date <= DATE '{last}'")
        return " AND ".join(found)

    def _group_condition(self, values: Sequence[str | int | None]) -> str:
        conditions = [
            f"{sql} {_equals_sql(value, self.engine)}"
            for sql, value in zip(self.group_columns_sql(), values, strict=True)
        ]
        return f"({' AND '.join(conditions)})"

    def window_start_sql(self, window_length: datetime.timedelta) -> str:
        """Return SQL for the start of a row's window of a given length."""
        return window_start_expression(self.counted_table.time, int(window_length.total_seconds()), self.engine)

    def window_sums_sql(self, window_length: datetime.timedelta) -> str:
        """Return SQL for the sums of each group and window: columns `g0`, `g1`, …, `window_start`, and `SUMS`."""
        table = self.counted_table
        groups = [f"{sql} AS g{number}" for number, sql in enumerate(self.group_columns_sql())]
        window = f"{self.window_start_sql(window_length)} AS window_start"
        sums = [f"{self._sum_sql(sql)} AS sum_{name}" for name, sql in table.sums.items()]
        keys = ", ".join(str(number + 1) for number in range(len(groups) + 1))
        return (
            f"SELECT {', '.join([*groups, window, *sums])} FROM {table.name} WHERE {self.where_sql()} GROUP BY {keys}"
        )

    def partial_counts(self) -> list[PartialCount]:
        """Return the SQL queries, by table, whose counts for each group and window add up to the result."""
        assert self.window is not None
        found = []
        for part in self.divide_by_minute():
            sums = {name: self._sum_sql(sql) for name, sql in part.counted_table.sums.items()}
            selection = replace(part.selection, start=part.start, end=part.end)
            window = part.window_start_sql(self.window)
            rows = PartialCount(
                part.counted_table.name, part.where_sql(), selection, "true", part.group_columns_sql(), window, sums
            )
            found.append(rows)
            if part.counted_table is MESSAGES:  # see `recheck_counts_sql`
                sums = {**dict.fromkeys(SUMS, "sum(0)"), "prepared": "-count(*)"}
                found.append(rows._replace(where=f"{rows.where} AND {_IS_RECHECKED}", more=_IS_RECHECKED, sums=sums))
        return found

    def _sum_sql(self, sql: str) -> str:
        return sql if self.has_formats else sql.replace(_HAS_FLAGS, "")

    def recheck_counts_sql(self, window_length: datetime.timedelta | None) -> str | None:
        """Return SQL that counts, by group and window, the half messages stored again for a check.

        This is a separate query, because only half messages need their properties; reading those of all messages takes
        twice as long as everything else. None if the table counts such messages in a column.

        Args:
            window_length: length of a window; None for one window over the whole time range, without `window_start`.
        """
        if self.counted_table.name != MESSAGES.name:
            return None
        windows = [] if window_length is None else [f"{self.window_start_sql(window_length)} AS window_start"]
        groups = [*(f"{sql} AS g{number}" for number, sql in enumerate(self.group_columns_sql())), *windows]
        grouped = f" GROUP BY {', '.join(str(number + 1) for number in range(len(groups)))}" if groups else ""
        where = f"{self.where_sql()} AND {_IS_RECHECKED}"
        return f"SELECT {', '.join([*groups, 'count(*) AS rechecked'])} FROM {MESSAGES.name} WHERE {where}{grouped}"

    def whole_range_sql(self, unit: datetime.timedelta | None = None) -> str:
        """Return SQL for the sums of each group, with its busiest unit of time: `peak` and `peak_at`.

        Args:
            unit: length of a unit; by default the table's.
        """
        groups = [f"g{number}" for number in range(len(self.by))]
        sums = [f"sum(sum_{name}) AS sum_{name}" for name in SUMS]
        first = "first_value(window_start ORDER BY sum_messages DESC, window_start)"
        if self.engine is Engine.SPARK:
            first = "max_by(window_start, struct(sum_messages, -unix_micros(window_start)))"
        peak = ["max(sum_messages) AS peak", f"{first} AS peak_at"]
        grouped = f" GROUP BY {', '.join(groups)}" if groups else ""
        windows = self.window_sums_sql(unit or self.counted_table.unit)
        return f"SELECT {', '.join([*groups, *sums, *peak])} FROM ({windows}){grouped}"


def _equals_sql(value: str | int | None, engine: Engine) -> str:
    if value is None:
        return "IS NULL"
    return f"= {value_literal(value, engine)}"
