"""Arguments of `tps`, and lakes that lack the tables that it counts."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from deltalake import write_deltalake

import commitlake
from commitlake.pipelines.analysis.rates_arguments import make_rates_question, make_window
from commitlake.pipelines.tps.rates_query import MESSAGES, MINUTES
from commitlake.schemas.errors import UsageError
from commitlake.schemas.selection import ALL_MESSAGES, Selection
from tests.support.analysed_lakes import analysed_lake, rows_of


@pytest.mark.parametrize(
    ("window", "seconds"),
    [("5 minutes", 300), ("1 Hour", 3600), ("1d", 86_400), ("90s", 90), (datetime.timedelta(minutes=1), 60)],
)
def test_windows_are_lengths(window: str | datetime.timedelta, seconds: int) -> None:
    assert make_window(window) == datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "window",
    ["", "5", "0s", "5 months", "-1m", "1000000d", 300, datetime.timedelta(milliseconds=1500), datetime.timedelta.max],
)
def test_other_windows_are_refused(window: str | datetime.timedelta) -> None:
    with pytest.raises(UsageError, match="window: expected whole seconds, up to 100 years: a timedelta"):
        make_window(window)


def test_the_smallest_table_is_counted_that_has_what_is_asked() -> None:
    def table(by: list[str], selection: Selection = ALL_MESSAGES, window: str = "1 minute") -> object:
        return make_rates_question(by, window, selection).counted_table

    assert table(["topic", "queue", "broker", "kind"], Selection(topics=["orders"], kinds=["dlq"])) is MINUTES
    assert table(["tag"]) is MESSAGES  # which has all tags
    assert table([], Selection(tags=["paid"])) is MESSAGES
    assert table([], Selection(where="size > 7")) is MESSAGES
    assert table(["producer_group"]) is MESSAGES
    assert table([], window="30s") is MESSAGES
    with pytest.raises(UsageError, match=r"by: expected some of broker, topic, queue, .*, found 'tags'"):
        table(["tags"])


def test_a_lake_without_minutes_has_the_same_rates(tmp_path: Path) -> None:
    growing = analysed_lake(tmp_path)
    lake = commitlake.open(growing.lake.root)
    expected = rows_of(lake.tps(since="2023-11-15T00:00:30"))
    write_deltalake(str(tmp_path / "older" / "messages"), lake.table("messages"))
    older = commitlake.open(str(tmp_path / "older"))
    assert rows_of(older.tps(since="2023-11-15T00:00:30")) == expected
    assert expected[0]["seconds"] == 270
    assert sum(row["messages"] for row in expected) == growing.count - 1
