"""What is asked about rates, and the SQL that counts messages by group and window."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from commitlake.connectors.lake.sql import Engine, text_literal, timestamp_literal
from commitlake.pipelines.query.sql import Conditions, predicates

MINUTE = datetime.timedelta(minutes=1)
SECOND = datetime.timedelta(seconds=1)
_EPOCH = "TIMESTAMP '1970-01-01T00:00:00Z'"


@dataclass(frozen=True, slots=True)
class CountedTable:
    """A table from which messages are counted.

    Attributes:
        name: the table's.
        time: its column of time.
        unit: the shortest window that it can tell.
        groups: SQL by the name of what messages can be grouped by.
        sums: SQL of each sum, by its name.
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
        "retries": "sum(CASE WHEN kind = 'retry' THEN messages ELSE 0 END)",
        "dead_letters": "sum(CASE WHEN kind = 'dlq' THEN messages ELSE 0 END)",
        "prepared": "sum(CASE WHEN kind = 'half' THEN messages - rechecked ELSE 0 END)",
        "committed": "sum(committed)",
        "clock_skew": "sum(clock_skew_messages)",
        "other_tags": "sum(CASE WHEN other_tags THEN messages ELSE 0 END)",
    },
)
"""Whole minutes; small."""
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
        "retries": "sum(CASE WHEN kind = 'retry' THEN 1 ELSE 0 END)",
        "dead_letters": "sum(CASE WHEN kind = 'dlq' THEN 1 ELSE 0 END)",
        "prepared": "sum(CASE WHEN kind = 'half' THEN 1 ELSE 0 END)",
        "committed": "sum(CASE WHEN prepared_transaction_offset > 0 AND kind <> 'half' THEN 1 ELSE 0 END)",
        "clock_skew": "sum(CASE WHEN store_timestamp < born_timestamp THEN 1 ELSE 0 END)",
        "other_tags": "sum(0)",
    },
)
"""Seconds, and what only a message itself tells. Of `prepared`, `RatesQuestion.rechecked` is to be taken away."""
_IS_RECHECKED = "kind = 'half' AND properties['TRANSACTION_CHECK_TIMES'] IS NOT NULL"
INSTEAD = {"producer-group": "properties['PGROUP']", "origin-topic": "topic"}
"""SQL of the groups whose column is null in messages that an earlier version archived."""
GROUPS = tuple(MESSAGES.groups)
"""What messages can be grouped by."""
SUMS = tuple(MINUTES.sums)
"""What is counted of each group."""


class Origins(Enum):
    """Which of the messages asked for have the columns that `INSTEAD` stands in for."""

    ALL = auto()
    SOME = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class RatesQuestion:
    """What is asked.

    Attributes:
        by: what messages are grouped by, some of `GROUPS`.
        start: of the time asked for, at a multiple of the table's unit.
        end: of the time asked for, exclusive, likewise.
        window: length of the windows; None for one of all the time.
        step: from one window to the next; the window's length where they do not overlap.
        topics: only these; all where empty, as for what follows.
        queue_id: only this one.
        tags: only these.
        kinds: only these.
        brokers: only these.
        origins: which of the messages have a column for each group.
        only: only these groups, each with its values in the order of `by`.
        is_by_second: whether messages themselves are counted, so that `start` and `end` may be any second.
        engine: whose SQL is wanted.
    """

    by: Sequence[str]
    start: datetime.datetime
    end: datetime.datetime
    window: datetime.timedelta | None = None
    step: datetime.timedelta | None = None
    topics: Sequence[str] = ()
    queue_id: int | None = None
    tags: Sequence[str] = ()
    kinds: Sequence[str] = ()
    brokers: Sequence[str] = ()
    origins: Origins = Origins.ALL
    only: Sequence[tuple[str | int | None, ...]] | None = None
    is_by_second: bool = False
    engine: Engine = Engine.DELTALAKE

    @property
    def table(self) -> CountedTable:
        """The smallest table that can answer."""
        if self.is_by_second:
            return MESSAGES
        lengths = [length for length in (self.window, self.step) if length is not None]
        is_whole = all(length % MINUTE == datetime.timedelta() for length in lengths)
        return MINUTES if is_whole and set(self.by) <= set(MINUTES.groups) else MESSAGES

    def earlier(self, by: datetime.timedelta) -> RatesQuestion:
        """Return the same question about an earlier time."""
        return replace(self, start=self.start - by, end=self.end - by)

    def groups(self) -> list[str]:
        """SQL of what messages are grouped by."""
        return [self._group(name) for name in self.by]

    def _group(self, name: str) -> str:
        column = self.table.groups[name]
        if name not in INSTEAD or self.origins is Origins.ALL:
            return column
        if self.origins is Origins.NONE:
            return INSTEAD[name]
        return f"CASE WHEN origin_topic IS NULL THEN {INSTEAD[name]} ELSE {column} END"

    def where(self, table: CountedTable | None = None) -> str:
        """SQL for the rows that are asked for; those of a table, if another one is asked than `table`."""
        table = table or self.table
        found = predicates(
            Conditions(topics=self.topics, queue_id=self.queue_id, kinds=self.kinds, brokers=self.brokers),
            self.engine,
        )
        if self.tags:
            tags = ", ".join(text_literal(tag, self.engine) for tag in self.tags)
            found.append(f"{table.groups['tag']} IN ({tags})")
        if self.only is not None and self.by:
            found.append(f"({' OR '.join(map(self._is_group, self.only)) or 'false'})")
        start, end = (timestamp_literal(moment, self.engine) for moment in (self.start, self.end))
        found.append(f"{table.time} >= {start} AND {table.time} < {end}")
        if table is MESSAGES:  # the partition: files of other days are not opened
            last = self.end.astimezone(datetime.UTC).date()
            first = self.start.astimezone(datetime.UTC).date()
            found.append(f"store_date >= DATE '{first}' AND store_date <= DATE '{last}'")
        return " AND ".join(found)

    def _is_group(self, values: Sequence[str | int | None]) -> str:
        conditions = [f"{sql} {_equals(value, self.engine)}" for sql, value in zip(self.groups(), values, strict=True)]
        return f"({' AND '.join(conditions)})"

    def window_start(self, length: datetime.timedelta) -> str:
        """SQL for the start of the window of a length that a row is in."""
        time, seconds = self.table.time, int(length.total_seconds())
        if self.engine is Engine.SPARK:
            return f"timestamp_micros(unix_micros({time}) - pmod(unix_micros({time}), {seconds}000000))"
        return f"date_bin(INTERVAL '{seconds} seconds', {time}, {_EPOCH})"

    def by_window(self, length: datetime.timedelta) -> str:
        """SQL for the sums of each group and window: columns `g0`, `g1`, …, `window_start`, and `SUMS`."""
        table = self.table
        groups = [f"{sql} AS g{number}" for number, sql in enumerate(self.groups())]
        window = f"{self.window_start(length)} AS window_start"
        sums = [f"{sql} AS sum_{name}" for name, sql in table.sums.items()]
        keys = ", ".join(str(number + 1) for number in range(len(groups) + 1))
        return f"SELECT {', '.join([*groups, window, *sums])} FROM {table.name} WHERE {self.where()} GROUP BY {keys}"

    def rechecked(self, length: datetime.timedelta | None) -> str | None:
        """SQL for the half messages that the broker stored again: columns `g0`, …, `window_start`, `rechecked`.

        It is a question of its own as only half messages need properties: to read those of all messages takes twice as
        long as all the rest. None where the table counts such messages in a column.

        Args:
            length: of the windows; None for one of all the time, without `window_start`.
        """
        if self.table.name != MESSAGES.name:
            return None
        windows = [] if length is None else [f"{self.window_start(length)} AS window_start"]
        groups = [*(f"{sql} AS g{number}" for number, sql in enumerate(self.groups())), *windows]
        grouped = f" GROUP BY {', '.join(str(number + 1) for number in range(len(groups)))}" if groups else ""
        where = f"{self.where()} AND {_IS_RECHECKED}"
        return f"SELECT {', '.join([*groups, 'count(*) AS rechecked'])} FROM {MESSAGES.name} WHERE {where}{grouped}"

    def in_all(self) -> str:
        """SQL for the sums of each group, with the unit of time that had most messages: `peak` and `peak_at`."""
        groups = [f"g{number}" for number in range(len(self.by))]
        sums = [f"sum(sum_{name}) AS sum_{name}" for name in SUMS]
        first = "first_value(window_start ORDER BY sum_messages DESC, window_start)"
        if self.engine is Engine.SPARK:
            first = "max_by(window_start, struct(sum_messages, -unix_micros(window_start)))"
        peak = ["max(sum_messages) AS peak", f"{first} AS peak_at"]
        grouped = f" GROUP BY {', '.join(groups)}" if groups else ""
        return f"SELECT {', '.join([*groups, *sums, *peak])} FROM ({self.by_window(self.table.unit)}){grouped}"


def _equals(value: str | int | None, engine: Engine) -> str:
    if value is None:
        return "IS NULL"
    return f"= {text_literal(value, engine) if isinstance(value, str) else value}"
