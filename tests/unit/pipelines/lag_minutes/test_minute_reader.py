"""The lag at given minutes, from the rows of `lag_minutes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.lag_minutes.minute_computation import SCHEMA, last_minute_at, minute_time
from commitlake.pipelines.lag_minutes.minute_reader import lag_at_minutes
from commitlake.schemas.selection import ALL_MESSAGES, Selection

HOUR = 28_333_440


def row(minute: int, group: str = "billing", **values: Any) -> dict[str, Any]:
    """Return a row of a group in a queue, at a minute of the first hour."""
    key = {"broker": "broker-a", "kind": "group", "group": group, "topic": "orders", "queue_id": 0, "broadcasts": False}
    figures = {"messages_min": 0, "messages_max": 0, "time_lag_s_min": 0.0, "time_lag_s_max": 0.0, "verdict": "ok"}
    of_minute = {"minute": minute_time(HOUR + minute), "within_hour": minute % 60 != 0}
    return {**key, **of_minute, **figures, **values}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two hours of two groups, of which one waits from minute 2 on, and is gone from minute 5 on."""
    waiting: dict[str, Any] = {
        "messages_min": 1,
        "messages_max": 3,
        "next_message_time": minute_time(HOUR),
        "consumed": 4,
    }
    gone: dict[str, Any] = dict.fromkeys(
        ("messages_min", "messages_max", "time_lag_s_min", "time_lag_s_max", "verdict")
    )
    rows = [
        row(0),
        row(0, "shipping", messages_max=None, time_lag_s_max=None),
        row(2, **waiting, time_lag_s_min=1.25, time_lag_s_max=120.5),
        row(5, **gone),
        row(60, "shipping", consumed=2),
    ]
    lake = Lake(str(tmp_path))
    append_rows(lake, "lag_minutes", pa.Table.from_pylist(rows, SCHEMA))
    return lake


def at(lake: Lake, *minutes: int, wanted: Selection = ALL_MESSAGES) -> dict[int, dict[str, tuple[Any, ...]]]:
    """Return by minute and group: messages, seconds, and what was consumed."""
    names = ("messages_min", "messages_max", "time_lag_s_min", "time_lag_s_max", "consumed")
    found: dict[int, dict[str, tuple[Any, ...]]] = {minute: {} for minute in minutes}
    for rows in lag_at_minutes(lake.table("lag_minutes"), [HOUR + minute for minute in minutes], wanted):
        assert rows.schema.equals(SCHEMA)
        for one in rows.to_pylist():
            found[last_minute_at(one["minute"]) - HOUR][one["group"]] = tuple(one[name] for name in names)
    return found


def test_a_row_holds_until_the_next_one(lake: Lake) -> None:
    nothing, unknown = (0, 0, 0.0, 0.0), (0, None, 0.0, None)
    assert at(lake, 0, 1, 2, 4, 5, 59) == {
        0: {"billing": (*nothing, None), "shipping": (*unknown, None)},
        1: {"billing": (*nothing, 0), "shipping": (*unknown, 0)},
        2: {"billing": (1, 3, 1.25, 120.5, 4), "shipping": (*unknown, 0)},
        4: {"billing": (1, 3, 121.25, 240.5, 0), "shipping": (*unknown, 0)},
        5: {"shipping": (*unknown, 0)},
        59: {"shipping": (*unknown, 0)},
    }


def test_whole_hours_have_their_own_rows_only(lake: Lake) -> None:
    expected = {60: {"shipping": (0, 0, 0.0, 0.0, 2)}}
    assert at(lake, 60) == expected
    assert at(lake, 0, 60)[60] == at(lake, 60, 61)[60] == expected[60]
    assert at(lake, 120) == {120: {}}


def test_stores_groups_and_topics_can_be_chosen(lake: Lake) -> None:
    assert set(at(lake, 1, wanted=Selection(groups=["billing"]))[1]) == {"billing"}
    assert at(lake, 1, wanted=Selection(topics=["none"]))[1] == {}
    assert at(lake, 1, wanted=Selection(brokers=["none"]))[1] == {}
    assert set(at(lake, 1, wanted=Selection(brokers=["broker-a"], topics=["orders"]))[1]) == {"billing", "shipping"}


def test_no_minutes_have_no_rows(lake: Lake) -> None:
    assert list(lag_at_minutes(lake.table("lag_minutes"), [], ALL_MESSAGES)) == []
