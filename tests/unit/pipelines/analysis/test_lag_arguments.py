"""Windows of a history of lag, and wrong arguments."""

from __future__ import annotations

import datetime

import pytest

from commitlake.pipelines.analysis.lag_arguments import make_lag_history_question, make_lag_question
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.lag import GROUP_LAG, QUEUE_LAG
from commitlake.schemas.times import EPOCH, parse_iso

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


def ends(window: str, since: str | None, until: str | None, last: datetime.datetime | None) -> list[datetime.datetime]:
    """Return the ends of the windows of a question."""
    return list(make_lag_history_question("queue", window, since, until, None, None, None).window_ends(last).times())


def test_windows_end_after_since_and_up_to_until() -> None:
    assert ends("1 minute", "2026-11-20T11:58", "2026-11-20T12:00", None) == [NOON - MINUTE, NOON]
    assert ends("1 minute", "2026-11-20T11:58:00.001", "2026-11-20T12:00:59", None) == [NOON - MINUTE, NOON]
    assert ends("7m", "2026-11-20T11:58", "2026-11-20T11:58:30", None) == []
    assert ends("1 minute", "2026-11-20T12:00", "2026-11-20T11:00", None) == []
    assert ends("1 minute", "1969-12-31T23:58:30", "1970-01-01", None) == [EPOCH - MINUTE, EPOCH]


def test_a_history_covers_the_day_before_the_last_snapshot() -> None:
    found = ends("1 hour", None, None, NOON + MINUTE)
    assert (found[0], found[-1], len(found)) == (parse_iso("2026-11-19T13:00"), NOON, 24)
    assert ends("1 day", None, "1970-01-01T12:00", NOON) == []
    assert ends("1 hour", None, None, None) == []


def test_columns_are_those_of_the_rows() -> None:
    assert make_lag_question("queue", None, None, None, None).columns == QUEUE_LAG
    assert make_lag_question("group", None, None, None, None).columns == GROUP_LAG
    with pytest.raises(UsageError, match="by: expected one of queue, group, found 'broker'"):
        make_lag_question("broker", None, None, None, None)
