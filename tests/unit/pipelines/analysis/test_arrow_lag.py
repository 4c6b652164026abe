"""Lag of groups as Arrow tables has the figures of `commitlake lag`."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.paths import LakeError
from commitlake.jobs.lag.command import main as lag
from commitlake.pipelines.analysis.arrow_lag import lag_table
from commitlake.pipelines.analysis.lag_arguments import make_lag_history_question
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.lag import GROUP_LAG, QUEUE_LAG
from commitlake.schemas.times import format_iso_time, from_ms
from tests.support.analysed_lakes import analysed_lake, rows_of
from tests.support.lagging_lakes import EVERY_MS, TOPICS, lagging_lake
from tests.support.lakes import MIDNIGHT_MS

TIMES = [None, *(from_ms(MIDNIGHT_MS + ms) for ms in (EVERY_MS, 3 * EVERY_MS + 7_000, 20 * EVERY_MS))]
CHOSEN: list[dict[str, list[str]]] = [{}, {"broker": ["broker-a"], "group": ["billing", "audit"], "topic": [TOPICS[0]]}]


def command_rows(capsys: pytest.CaptureFixture[str], root: str, at: Any, chosen: dict[str, list[str]]) -> list[Any]:
    """Return the rows of groups that the command prints for programs, with the columns of `QUEUE_LAG`."""
    options = [part for name, values in chosen.items() for value in values for part in (f"--{name}", value)]
    if at is not None:
        options += ["--at", at.isoformat()]
    capsys.readouterr()
    assert lag(["--lake", root, "--all", "--output", "jsonl", "--quiet", *options]) in {0, 3}
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [{name: row[name] for name in QUEUE_LAG.names} for row in printed if row["kind"] in {"group", "retry"}]
    return sorted(rows, key=repr)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times as the command prints them."""
    return {
        name: format_iso_time(value, "milliseconds") if isinstance(value, datetime.datetime) else value
        for name, value in row.items()
    }


@pytest.mark.some_cases(3)
@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("at", TIMES)
def test_figures_are_those_of_the_command(
    capsys: pytest.CaptureFixture[str], at: datetime.datetime | None, chosen: dict[str, list[str]]
) -> None:
    for seed in (0, 1):
        root = lagging_lake(seed)
        table = commitlake.open(root).lag(at=at, **chosen)  # type: ignore[arg-type]
        assert table.schema.equals(arrow_schema(QUEUE_LAG))
        found = sorted(map(shown, table.to_pylist()), key=repr)
        assert found == command_rows(capsys, root, at, chosen)
        assert found or chosen


def test_groups_are_sums_of_their_queues() -> None:
    lake = commitlake.open(lagging_lake(1))
    at = from_ms(MIDNIGHT_MS + 4 * EVERY_MS)
    queues, groups = rows_of(lake.lag(at=at)), lake.lag(at=at, by="group")
    assert groups.schema.equals(arrow_schema(GROUP_LAG))
    assert {row["group"] for row in groups.to_pylist()} == {row["group"] for row in queues} >= {"billing", "shipping"}
    for group in groups.to_pylist():
        mine = [row for row in queues if row["group"] == group["group"]]
        assert group["queues"] == len(mine)
        assert group["as_of"] == at
        assert group["queues_behind"] == sum(row["messages_max"] != 0 for row in mine)
        for name in ("messages", "bytes"):
            assert group[f"{name}_min"] == sum(row[f"{name}_min"] for row in mine)
            bounds = [row[f"{name}_max"] for row in mine]
            assert group[f"{name}_max"] == (None if None in bounds else sum(bounds))
        longest = [row["time_lag_s_max"] for row in mine]
        assert group["time_lag_s_max"] == (None if None in longest else max(longest))
        assert group["time_lag_s_min"] == max(row["time_lag_s_min"] for row in mine)


def test_a_history_has_the_lag_at_the_end_of_each_window() -> None:
    root = lagging_lake(0)
    lake = commitlake.open(root)
    since, until = (from_ms(MIDNIGHT_MS + ms) for ms in (30_000, 165_000))
    ends = [from_ms(MIDNIGHT_MS + 60_000 * minute) for minute in (1, 2)]
    expected = sorted((row for end in ends for row in rows_of(lake.lag(at=end, topic="orders"))), key=repr)
    found = lake.lag_history(window="1 minute", since=since, until=until, topic="orders")
    assert found.schema.equals(arrow_schema(QUEUE_LAG))
    assert rows_of(found) == expected != []
    question = make_lag_history_question("queue", "1 minute", since, until, None, None, "orders")
    assert rows_of(lag_table(Lake(root), question)) == expected
    by_group = lake.lag_history(window="30s", since=since, until=until, by="group")
    assert sorted(set(by_group.column("as_of").to_pylist())) == [
        from_ms(MIDNIGHT_MS + EVERY_MS * number) for number in range(2, 6)
    ]


def test_a_history_is_that_of_the_day_before_the_last_snapshot() -> None:
    lake = commitlake.open(lagging_lake(0))
    last = max(lake.lag().column("as_of").to_pylist())
    found = sorted(set(lake.lag_history(window="30s").column("as_of").to_pylist()))
    assert found[-1] == last
    assert lake.lag_history(broker="none").num_rows == 0
    assert lake.lag_history(until="2020-01-01").num_rows == 0


def test_a_lake_without_snapshots_has_no_lag(tmp_path: Path) -> None:
    lake = commitlake.open(analysed_lake(tmp_path).lake.root)
    with pytest.raises(NoTableError, match="no table 'consumer_offsets' yet"):
        lake.lag()
    with pytest.raises(LakeError, match=r"is not a lake|does not exist"):
        commitlake.open(str(tmp_path / "none")).lag()


def test_wrong_arguments_are_named() -> None:
    lake = commitlake.open(lagging_lake(0))
    with pytest.raises(UsageError, match="by: expected one of queue, group, found 'topic'"):
        lake.lag(by="topic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at: expected a time in ISO 8601"):
        lake.lag(at="yesterday")
    with pytest.raises(UsageError, match="group: expected at least one value, found none"):
        lake.lag(group=[])
    with pytest.raises(UsageError, match="window: expected whole seconds"):
        lake.lag_history(window="1")
