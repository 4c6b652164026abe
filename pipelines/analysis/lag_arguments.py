"""The question on lag that `AnalysisLake.lag` and `AnalysisLake.lag_history` ask, from their arguments."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from commitlake.pipelines.analysis.rates_arguments import make_window
from commitlake.pipelines.analysis.selection_arguments import Texts, Time, parse_text_arguments, parse_time_argument
from commitlake.schemas.errors import UsageError
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.lag import GROUP_LAG, QUEUE_LAG
from commitlake.schemas.times import EPOCH

BY = {"queue": QUEUE_LAG, "group": GROUP_LAG}
"""The columns of an answer, by what its rows are."""
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class LagQuestion:
    """Checked arguments of a query for the lag of consumer groups at one time.

    Attributes:
        by: `queue` for a row for each group and queue, `group` for a row for each group.
        selection: stores, groups and topics.
        at: the time; None for the last snapshot of each store. Not for a history.
    """

    by: str
    selection: Selection
    at: datetime.datetime | None = None

    @property
    def columns(self) -> Columns:
        """Columns of the resulting table."""
        return BY[self.by]


@dataclass(frozen=True, slots=True)
class LagHistoryQuestion(LagQuestion):
    """Checked arguments of a query for the lag at the end of each window of a time range.

    Attributes:
        window: length of a window. Windows end at multiples of it since 1970.
        since: start of the time range; None for a day before its end.
        until: end of the time range; None for the last snapshot of all stores.
    """

    window: datetime.timedelta = _DAY
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None

    def window_ends(self, last_snapshot: datetime.datetime | None) -> WindowEnds:
        """Return the ends of the windows that end after `since`, up to `until`.

        Args:
            last_snapshot: time of the last snapshot; None if there is none.
        """
        until = self.until or last_snapshot
        if until is None:
            return WindowEnds(EPOCH, self.window, 0)
        since = self.since or max(until - _DAY, EPOCH)
        first, end = (since - EPOCH) // self.window + 1, (until - EPOCH) // self.window
        return WindowEnds(EPOCH + first * self.window, self.window, max(0, end + 1 - first))


class WindowEnds(NamedTuple):
    """End times of consecutive windows of equal length.

    Attributes:
        first: the first of them.
        window: length of a window.
        windows: number of windows.
    """

    first: datetime.datetime
    window: datetime.timedelta
    windows: int

    def times(self) -> Iterator[datetime.datetime]:
        """Yield the end time of each window, in order."""
        return (self.first + number * self.window for number in range(self.windows))


def make_lag_question(
    by: str, at: Time | None, broker: Texts | None, group: Texts | None, topic: Texts | None
) -> LagQuestion:
    """Check the arguments of `AnalysisLake.lag`, and return them as one object.

    Raises:
        UsageError: if an argument is not valid.
    """
    return LagQuestion(_check_grouping(by), _make_group_selection(broker, group, topic), parse_time_argument("at", at))


def make_lag_history_question(
    by: str,
    window: datetime.timedelta | str,
    since: Time | None,
    until: Time | None,
    broker: Texts | None,
    group: Texts | None,
    topic: Texts | None,
) -> LagHistoryQuestion:
    """Check the arguments of `AnalysisLake.lag_history`, and return them as one object.

    Raises:
        UsageError: if an argument is not valid.
    """
    return LagHistoryQuestion(
        _check_grouping(by),
        _make_group_selection(broker, group, topic),
        window=make_window(window),
        since=parse_time_argument("since", since),
        until=parse_time_argument("until", until),
    )


def _check_grouping(by: str) -> str:
    if by not in BY:
        raise UsageError(f"by: expected one of {', '.join(BY)}, found {by!r:.50}")
    return by


def _make_group_selection(broker: Texts | None, group: Texts | None, topic: Texts | None) -> Selection:
    return Selection(
        brokers=parse_text_arguments("broker", broker),
        groups=parse_text_arguments("group", group),
        topics=parse_text_arguments("topic", topic),
    )
