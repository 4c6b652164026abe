"""Compares rates with those of an earlier time, group by group."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.pipelines.tps.coverage import NONE
from commitlake.pipelines.tps.rates import Key, Rates, Row, check_row_count, group_key_of_row, window_starts
from commitlake.pipelines.tps.rates_query import RatesQuestion

COLUMNS = ("messages_before", "change_percent")
"""Columns that a comparison adds to the rows."""


@dataclass(frozen=True)
class Comparison:
    """Compares message rates with those of an earlier time range of the same length.

    Attributes:
        rates: answers both questions.
        question: the question.
        by: distance to the earlier time; a multiple of the distance of two windows.
    """

    rates: Rates
    question: RatesQuestion
    by: datetime.timedelta

    def comparison_rows(self, *, has_quantiles: bool = False) -> list[Row]:
        """Return a row for each group that has messages in either time range, with the change between them.

        Args:
            has_quantiles: True to add `QUANTILES`.

        Returns:
            Rows as returned by `Rates.read_rates`, with `COLUMNS`. Groups without messages now have rows with zeros.
            `messages_before` is None if nothing of the earlier time is archived. If a part of it is not archived,
            `messages_before` counts the archived part, and `change_percent` is None.

        Raises:
            LakeError: if there are more rows than `MAX_CELLS`, or `MAX_SKETCHED` with quantiles.
        """
        question = self.question
        rows = self.rates.read_rates(question, has_quantiles=has_quantiles)
        before = {
            (group_key_of_row(question, row), row.get("window_start")): row["messages"]
            for row in self.rates.read_rates(question.shift_earlier(self.by))
        }
        groups = dict.fromkeys(group_key_of_row(question, row) for row in rows)
        silent = [key for key in dict.fromkeys(key for key, _ in before) if key not in groups]
        check_row_count((len(groups) + len(silent)) * self._window_count())
        rows += self.rates.rows_without_messages(question, silent)
        for row in rows:
            self._add_comparison(row, before)
        return sorted(rows, key=lambda row: _rate_sort_key(question, row))

    def _window_count(self) -> int:
        return 1 if self.question.window is None else len(window_starts(self.question))

    def _add_comparison(
        self, row: Row, earlier_rows: Mapping[tuple[Key, datetime.datetime | None], int | None]
    ) -> None:
        question, window_start = self.question, row.get("window_start")
        start, end, place = question.start, question.end, None
        if window_start is not None:
            assert question.window is not None
            start, end, place = window_start, window_start + question.window, window_start - self.by
        count: int | None = earlier_rows.get((group_key_of_row(question, row), place)) or 0
        if not count and self.rates.coverage.share_of_window(start - self.by, end - self.by) == NONE:
            count = None
        now = row["messages"]
        row["messages_before"] = count
        row["change_percent"] = None
        if count and now is not None and not self.rates.coverage.lacks_part_of_range(start - self.by, end - self.by):
            row["change_percent"] = round(100 * (now - count) / count, 1)


def find_silent_groups(question: RatesQuestion, rows: Sequence[Mapping[str, Any]]) -> list[Key]:
    """Return the groups with messages in the earlier time range and none in the present one, largest first.

    Args:
        rows: rows of `Comparison.comparison_rows`.
    """
    now: dict[Key, int] = {}
    before: dict[Key, int] = {}
    for row in rows:
        if row["messages"] is not None:
            key = group_key_of_row(question, row)
            now[key] = now.get(key, 0) + row["messages"]
            before[key] = before.get(key, 0) + (row["messages_before"] or 0)
    found = [key for key, messages in now.items() if not messages and before[key]]
    return sorted(found, key=lambda key: (-before[key], repr(key)))


def _rate_sort_key(question: RatesQuestion, row: Row) -> tuple[Any, ...]:
    group = repr(group_key_of_row(question, row))
    if question.window is not None:
        return row["window_start"], group
    return -(row["messages"] or 0), -(row["messages_before"] or 0), group
