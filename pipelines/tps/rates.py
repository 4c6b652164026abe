"""Answers questions on rates: rows for each group, or for each group and window.

A window without messages is a row of zeros if it is archived, and a row without figures if it is not.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from datasketches import kll_doubles_sketch
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.sql import Engine
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.query.engines import run_select
from commitlake.pipelines.tps.coverage import NONE, Coverage
from commitlake.pipelines.tps.minute_counts import sum_whole_range, sum_windows
from commitlake.pipelines.tps.minute_sketches import merge_minute_sketches
from commitlake.pipelines.tps.rates_query import INSTEAD, MINUTES, SUMS, OriginalTopicShare, RatesQuestion
from commitlake.pipelines.tps.result_rows import to_row_dicts
from commitlake.schemas.formatted_counts import format_count

MAX_CELLS = 200_000
"""Largest number of windows of all groups together."""
MAX_SKETCHED = 10_000
"""Largest number of rows with quantiles; a sketch of each is held in memory."""
_PART_ROWS = 2_000_000
_PREPARED = SUMS.index("prepared")
RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_SKETCHES = {"size": "size_sketch", "latency_ms": "latency_sketch", "wait_ms": "wait_sketch"}
QUANTILES = tuple(f"{what}_{rank}" for what in _SKETCHES for rank in RANKS)
"""Names of the columns of quantiles."""
Key = tuple[Any, ...]
Row = dict[str, Any]
Sketches = dict[tuple[Key, datetime.datetime | None], Mapping[str, kll_doubles_sketch]]
"""By group and start of the window, the merged sketch of each column; columns without values are left out."""


@dataclass(frozen=True)
class Rates:
    """Computes message rates from the tables of a lake.

    Attributes:
        lake: the lake.
        coverage: time ranges that the lake covers.
        engine: engine that counts: this process, with deltalake's engine for `messages`, or Spark.
    """

    lake: Lake
    coverage: Coverage
    engine: Engine = Engine.DELTALAKE

    def read_rates(self, question: RatesQuestion, *, has_quantiles: bool = False) -> list[Row]:
        """Return the message counts and rates that a query asks for, one row for each group and time window.

        Args:
            has_quantiles: True to add `QUANTILES`.

        Returns:
            Rows with the groups, `window_start` if there are windows, `archived`, `SUMS`, `messages_per_s` and
            `bytes_per_s`; without windows also `peak_per_s` and `peak_at`. Figures are None in windows that are not
            archived.

        Raises:
            LakeError: if there are more rows than `MAX_CELLS`, or `MAX_SKETCHED` with quantiles.
        """
        question = replace(question, engine=self.engine)
        question = replace(question, origins=self._origins(question), has_formats=self._has_format_column(question))
        rows = self._rows_of_whole_range(question) if question.window is None else self._rows_by_window(question)
        if has_quantiles:
            if len(rows) > MAX_SKETCHED:
                raise _too_many_rows_error(len(rows), MAX_SKETCHED, "with percentiles")
            self._add_quantiles(question, rows)
        return rows

    def rows_without_messages(self, question: RatesQuestion, groups: Collection[Key]) -> list[Row]:
        """Return result rows, with zeros, for groups without messages in the time range of a query.

        Args:
            groups: the groups, each as values in the order of `question.by`.

        Returns:
            Rows as returned by `read_rates`, with 0 for every figure, or None if nothing is archived; quantiles are
            None.
        """
        length = question.window or question.end - question.start
        starts = [question.start] if question.window is None else window_starts(question)
        rows = []
        for start in starts:
            archived = self.coverage.share_of_window(start, start + length)
            sums = None if archived == NONE else dict.fromkeys(SUMS, 0)
            more: Row = {"window_start": start}
            if question.window is None:
                more = {"peak_per_s": None if sums is None else 0.0, "peak_at": None}
            more |= {**dict.fromkeys(QUANTILES), "archived": archived}
            rows += [_rates_row(question, key, sums, length.total_seconds()) | more for key in groups]
        return rows

    def _origins(self, question: RatesQuestion) -> OriginalTopicShare:
        """Return whether all, some or no messages of a query have values in the columns of the original topic."""
        if not set(question.by) & set(INSTEAD):
            return OriginalTopicShare.ALL
        if "origin_topic" not in self._column_names(question):
            return OriginalTopicShare.NONE
        asked = replace(question, only=None).where_sql()  # `only` depends on the result
        found = self._query_rows(question, f"SELECT 1 FROM messages WHERE {asked} AND origin_topic IS NULL LIMIT 1")
        return OriginalTopicShare.SOME if list(found) else OriginalTopicShare.ALL

    def _has_format_column(self, question: RatesQuestion) -> bool:
        return question.counted_table is MINUTES or "format" in self._column_names(question)

    def _column_names(self, question: RatesQuestion) -> set[str]:
        return {field.name for field in self._open_table(question).schema().fields}

    def _is_counted_by_minute(self, question: RatesQuestion) -> bool:
        return question.counted_table is MINUTES and self.engine is Engine.DELTALAKE

    def _open_table(self, question: RatesQuestion) -> DeltaTable:
        return self.lake.table(question.counted_table.name)

    def _query_batches(self, question: RatesQuestion, sql: str) -> Iterator[pa.RecordBatch]:
        yield from run_select(self.lake, question.counted_table.name, sql, self.engine)

    def _query_rows(self, question: RatesQuestion, sql: str) -> Iterator[Row]:
        yield from to_row_dicts(self._query_batches(question, sql))

    def _rows_of_whole_range(self, question: RatesQuestion) -> list[Row]:
        seconds = (question.end - question.start).total_seconds()
        unit = question.counted_table.unit.total_seconds()
        found = self._sums_with_peaks(question)
        archived = self.coverage.share_of_window(question.start, question.end)
        rows = []
        for key, sums in found.items():
            row = _rates_row(question, key, {name: int(sums[f"sum_{name}"]) for name in SUMS}, seconds)
            rows.append(row | {"peak_per_s": sums["peak"] / unit, "peak_at": sums["peak_at"], "archived": archived})
        return sorted(rows, key=lambda row: (-row["messages"], repr(group_key_of_row(question, row))))

    def _sums_with_peaks(self, question: RatesQuestion, unit: datetime.timedelta | None = None) -> dict[Key, Row]:
        """Return the sums of each group, and its busiest unit of time, such as a minute or second.

        Of minutes at the ends, only the part in range counts.
        """
        found: dict[Key, Row] = {}
        if len(parts := question.divide_by_minute()) > 1:
            for each in parts:
                counted = replace(each, has_formats=self._has_format_column(each))
                for key, row in self._sums_with_peaks(counted, question.counted_table.unit).items():
                    _add_sums(found, key, row)
                check_row_count(len(found))
            return found
        if self._is_counted_by_minute(question):
            sums, peaks = sum_whole_range(self.lake, question, check_row_count)
            for key, numbers in sums.items():
                found[key] = {f"sum_{name}": number for name, number in zip(SUMS, numbers.tolist(), strict=True)}
                found[key]["peak"], found[key]["peak_at"] = peaks[key]
            return found
        for part in self._divide_by_time(question):
            for row in self._query_rows(part, part.whole_range_sql(unit)):
                if row["sum_messages"] is not None:  # the single row without groups
                    _add_sums(found, _group_key(question, row), row)
            check_row_count(len(found))
        # Half messages that a broker stored again to check them are no new messages.
        for row in self._query_rechecked_counts(question, None):
            if row["rechecked"]:  # without groups there is a row in any case
                found[_group_key(question, row)]["sum_prepared"] -= row["rechecked"]
        return found

    def _query_rechecked_counts(
        self, question: RatesQuestion, window_length: datetime.timedelta | None
    ) -> Iterator[Row]:
        sql = question.recheck_counts_sql(window_length)
        return iter(()) if sql is None else self._query_rows(question, sql)

    def _divide_by_time(self, question: RatesQuestion) -> Iterator[RatesQuestion]:
        """Divide a query into shorter time ranges, each with about `_PART_ROWS` rows at most, to limit memory."""
        if self.engine is Engine.SPARK:
            yield question
            return
        table = question.counted_table
        (counted,) = self._query_rows(
            question, f"SELECT count(*) AS count FROM {table.name} WHERE {question.where_sql()}"
        )
        units = (question.end - question.start) // table.unit
        length = max(1, units // max(1, -(-counted["count"] // _PART_ROWS))) * table.unit
        start = question.start
        while start < question.end:
            end = min(start + length, question.end)
            yield replace(question, start=start, end=end)
            start = end

    def _rows_by_window(self, question: RatesQuestion) -> list[Row]:
        assert question.window is not None
        step = question.step or question.window
        span = int(question.window / step)
        starts = _step_starts(question, step)
        check_row_count(len(starts))
        if self._is_counted_by_minute(question):
            sums = sum_windows(self.lake, question, step, check_row_count)
        else:
            sums = self._sum_windows_by_sql(question, step, starts)
        keys = sorted(sums, key=repr)
        summed = [_rolling_sums(sums[key], span) for key in keys]
        seconds = question.window.total_seconds()
        rows = []
        for place, start in enumerate(window_starts(question)):
            # Once for all groups of a window: it depends on time only.
            archived = self.coverage.share_of_window(start, start + question.window)
            for key, numbers in zip(keys, summed, strict=True):
                counts = {name: int(number) for name, number in zip(SUMS, numbers[:, place], strict=True)}
                figures = None if archived == NONE and not counts["messages"] else counts
                rows.append(
                    {**_rates_row(question, key, figures, seconds), "window_start": start, "archived": archived}
                )
        return rows

    def _sum_windows_by_sql(
        self, question: RatesQuestion, step: datetime.timedelta, starts: Sequence[datetime.datetime]
    ) -> dict[Key, Array]:
        places = {start: place for place, start in enumerate(starts)}
        sums: dict[Key, Array] = {}
        for found in self._query_rows(question, question.window_sums_sql(step)):
            key = _group_key(question, found)
            if key not in sums:
                # Before the array is allocated.
                check_row_count((len(sums) + 1) * len(starts))
                sums[key] = np.zeros((len(SUMS), len(starts)), np.int64)
            sums[key][:, places[found["window_start"]]] = [found[f"sum_{name}"] for name in SUMS]
        for found in self._query_rechecked_counts(question, step):
            sums[_group_key(question, found)][_PREPARED, places[found["window_start"]]] -= found["rechecked"]
        return sums

    def _add_quantiles(self, question: RatesQuestion, rows: Sequence[Row]) -> None:
        """Add to rows the quantiles of sizes and latencies, from merged sketches."""
        if self._is_counted_by_minute(question):
            merged = self._merge_sketches(question)
        else:
            merged = self._sketches_by_spark(question)
        for row in rows:
            row.update(_sketch_quantiles(merged.get((group_key_of_row(question, row), row.get("window_start")), {})))

    def _merge_sketches(self, question: RatesQuestion) -> Sketches:
        length = question.window or question.end - question.start
        found = merge_minute_sketches(self.lake, question, length, list(_SKETCHES.values()))
        return {
            (key, None if question.window is None else question.start + number * length): sketches
            for (key, number), sketches in found.items()
        }

    def _sketches_by_spark(self, question: RatesQuestion) -> Sketches:
        table = question.counted_table
        columns = [f"{sql} AS g{number}" for number, sql in enumerate(question.group_columns_sql())]
        if question.window is not None:
            columns.append(f"{question.window_start_sql(question.window)} AS window_start")
        keys = ", ".join(str(number + 1) for number in range(len(columns)))
        columns += [f"kll_merge_agg_double({name}) AS {name}" for name in _SKETCHES.values()]
        grouped = f" GROUP BY {keys}" if keys else ""
        sql = f"SELECT {', '.join(columns)} FROM {table.name} WHERE {question.where_sql()}{grouped}"
        merged: Sketches = {}
        for found in self._query_rows(question, sql):
            sketches = {}
            for column in _SKETCHES.values():
                if found[column] is not None:
                    sketch = kll_doubles_sketch.deserialize(found[column])
                    if not sketch.is_empty():  # empty if there were only nulls
                        sketches[column] = sketch
            merged[_group_key(question, found), found.get("window_start")] = sketches
        return merged


def _add_sums(sums_by_group: dict[Key, Row], key: Key, row: Row) -> None:
    """Add the sums for one part of the time range to the totals of a group."""
    before = sums_by_group.get(key)
    if before is None:
        sums_by_group[key] = row
        return
    if row["peak"] > before["peak"]:
        before |= {"peak": row["peak"], "peak_at": row["peak_at"]}
    for name in SUMS:
        before[f"sum_{name}"] += row[f"sum_{name}"]


def _sketch_quantiles(sketches: Mapping[str, kll_doubles_sketch]) -> Row:
    found: Row = dict.fromkeys(QUANTILES)
    for what, column in _SKETCHES.items():
        if column not in sketches:
            continue
        values = sketches[column].get_quantiles(list(RANKS.values()), True)
        found |= {f"{what}_{rank}": int(value) for rank, value in zip(RANKS, values, strict=True)}
    return found


def _rates_row(question: RatesQuestion, key: Key, sums: Mapping[str, int] | None, seconds: float) -> Row:
    row: Row = dict(zip(question.by, key, strict=True))
    if sums is None:
        return row | dict.fromkeys((*SUMS, "messages_per_s", "bytes_per_s"))
    rates = {"messages_per_s": sums["messages"] / seconds, "bytes_per_s": sums["bytes"] / seconds}
    return row | dict(sums) | rates


def _group_key(question: RatesQuestion, row: Mapping[str, Any]) -> Key:
    return tuple(row[f"g{number}"] for number in range(len(question.by)))


def group_key_of_row(question: RatesQuestion, row: Mapping[str, Any]) -> Key:
    """Return the values of the group columns in a row of rates."""
    return tuple(row[name] for name in question.by)


def _window_start(time: datetime.datetime, window: datetime.timedelta) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + (time - epoch) // window * window


def window_starts(question: RatesQuestion) -> list[datetime.datetime]:
    """Return the start times of all windows of a query."""
    assert question.window is not None
    step = question.step or question.window
    starts = _step_starts(question, step)
    return starts[: len(starts) - int(question.window / step) + 1]


def _step_starts(question: RatesQuestion, step: datetime.timedelta) -> list[datetime.datetime]:
    first = _window_start(question.start, step)
    count = -((first - question.end) // step)
    check_row_count(count)
    return [first + number * step for number in range(count)]


def _rolling_sums(numbers: Array, window_size: int) -> Array:
    """Return the sum of every `window_size` consecutive numbers."""
    if window_size == 1:
        return numbers
    sums = np.cumsum(np.pad(numbers, ((0, 0), (1, 0))), axis=1)
    rolled: Array = sums[:, window_size:] - sums[:, :-window_size]
    return rolled


def check_row_count(count: int) -> None:
    """Raise an error if a result has more than `MAX_CELLS` rows."""
    if count > MAX_CELLS:
        raise _too_many_rows_error(count, MAX_CELLS, "")


def _too_many_rows_error(count: int, max_rows: int, suffix: str) -> LakeError:
    return LakeError(
        f"the answer has {format_count(count, 'row')} or more{' ' + suffix if suffix else ''}, expected at most "
        f"{max_rows:,}: "
        "use longer windows, a shorter time range, or fewer groups"
    )
