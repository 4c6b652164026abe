"""Outcomes of transactions: committed, rolled back, given up, open; by the time of the first half message."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.tps import command as tps
from commitlake.pipelines.edges.table_update import catch_up_edges
from commitlake.pipelines.tps import transaction_outcomes
from commitlake.pipelines.tps.rates_query import RatesQuestion
from commitlake.pipelines.tps.transaction_outcomes import TransactionOutcomes, read_outcomes
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.topics import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from commitlake.schemas.selection import Selection
from tests.support.html_pages import parse_page
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

MIDNIGHT = datetime.datetime(2023, 11, 15, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
ALL = TransactionOutcomes(committed=1, rolled_back=2, given_up=1, open=1)


def stored(minute: int, topic: str, key: str = "", **changes: Any) -> NewMessage:
    """Return a record of the transaction with a key, stored in a minute."""
    checks = (("TRANSACTION_CHECK_TIMES", str(changes.pop("checks"))),) if "checks" in changes else ()
    properties = ((("UNIQ_KEY", key),) if key else ()) + checks
    born_ms = MIDNIGHT_MS + minute * 60_000
    return new_message(0, topic=topic, queue_id=0, born_timestamp=born_ms, properties=properties, **changes)


def make_lake(folder: Path) -> GrowingLake:
    """Archive five transactions; E was stored again a minute later, and then rolled back."""
    growing = GrowingLake(folder)
    growing.write(
        [
            *(stored(0, HALF_TOPIC, key) for key in "ABCD"),
            stored(0, "orders", "A", sys_flag=8, prepared_transaction_offset=0),
            stored(0, OP_TOPIC, body=b"0,1"),
            stored(1, HALF_TOPIC, "E"),
            stored(2, HALF_TOPIC, "E", checks=1),
            stored(2, GIVEN_UP_TOPIC, "C", checks=15),
            stored(3, OP_TOPIC, body=b"5"),
        ]
    )
    growing.archive()
    return growing


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """The five transactions, with the table `edges`."""
    growing = make_lake(tmp_path_factory.mktemp("transactions"))
    catch_up_edges(growing.lake)
    return growing


def question(first: int = 0, last: int = 4, **filters: Any) -> RatesQuestion:
    return RatesQuestion([], MIDNIGHT + first * MINUTE, MIDNIGHT + last * MINUTE, selection=Selection(**filters))


def test_each_transaction_has_one_outcome(growing: GrowingLake) -> None:
    assert read_outcomes(growing.lake, question(), 5) == ALL


def test_a_transaction_belongs_to_the_time_of_its_first_half_message(growing: GrowingLake) -> None:
    assert read_outcomes(growing.lake, question(1, 2), 1) == TransactionOutcomes(rolled_back=1)
    assert read_outcomes(growing.lake, question(2, 4), 1) is None


def test_brokers_and_queues_are_selected(growing: GrowingLake) -> None:
    assert read_outcomes(growing.lake, question(brokers=["broker-a"], queue_ids=[0]), 5) == ALL
    assert read_outcomes(growing.lake, question(brokers=["other"]), 5) is None
    assert read_outcomes(growing.lake, question(queue_ids=[1]), 5) is None


@pytest.mark.parametrize("filters", [{"topics": ["orders"]}, {"tags": ["x"]}, {"kinds": ["normal"]}])
def test_outcomes_are_not_known_for_filters_that_edges_cannot_apply(
    growing: GrowingLake, filters: dict[str, Any]
) -> None:
    assert read_outcomes(growing.lake, question(**filters), 5) is None


def test_outcomes_are_not_known_for_too_many_transactions(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_outcomes, "MAX_TRANSACTIONS", 4)
    assert read_outcomes(growing.lake, question(), 5) is None


def test_no_transactions_have_no_outcomes(tmp_path: Path) -> None:
    assert read_outcomes(Lake(str(tmp_path)), question(), 0) == TransactionOutcomes()


def test_tps_prints_the_outcomes(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert tps.main(["--lake", growing.lake.root, "--by", "none", "--output", "jsonl"]) == ExitCode.OK
    captured = capsys.readouterr()
    row = json.loads(captured.out)
    names = ("prepared", "committed", "rolled_back", "given_up", "open")
    assert [row[name] for name in names] == [5, 1, 2, 1, 1]
    assert "5 transactions: 1 committed, 2 rolled back, 1 given up, 1 open" in captured.err


def test_outcomes_are_not_separated_without_edges_or_for_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = make_lake(tmp_path)
    for place in (("--lake", growing.lake.root), ("--store", str(growing.store))):
        assert tps.main([*place, "--by", "none", "--output", "jsonl"]) == ExitCode.OK
        captured = capsys.readouterr()
        row = json.loads(captured.out)
        assert [row[name] for name in ("prepared", "committed", "rolled_back", "open")] == [5, 1, None, None]
        assert "5 transactions: 1 message was committed, 4 were rolled back, given up or are open" in captured.err


@pytest.fixture(params=["data file", "log"])
def damaged(growing: GrowingLake, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The same lake, in which a part of `edges` is damaged."""
    lake = Path(shutil.copytree(growing.lake.root, tmp_path / "lake"))
    if request.param == "data file":
        next((lake / "edges").rglob("*.parquet")).unlink()
    else:
        max((lake / "edges" / "_delta_log").glob("*.json")).write_text("{")
    return lake


def test_damage_of_edges_costs_only_the_outcomes(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tps.main(["--lake", str(damaged), "--by", "none", "--output", "jsonl"]) == ExitCode.DAMAGE
    captured = capsys.readouterr()
    row = json.loads(captured.out)
    names = ("messages", "prepared", "committed", "rolled_back", "given_up", "open")
    assert [row[name] for name in names] == [10, 5, 1, None, None, None]
    assert "how many transactions were rolled back, were given up or are open is not known: " in captured.err
    assert f"{damaged / 'edges'}" in captured.err


def test_damage_of_edges_is_only_a_warning_if_the_rows_do_not_need_it(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tps.main(["--lake", str(damaged), "--by", "topic", "--output", "jsonl"]) == ExitCode.OK
    captured = capsys.readouterr()
    assert sum(json.loads(line)["messages"] for line in captured.out.splitlines()) == 10
    assert "is not known: " in captured.err
    assert tps.main(["--lake", str(damaged), "--by", "topic", "--quiet"]) == ExitCode.OK


def test_a_page_says_that_edges_is_damaged(damaged: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert tps.main(["--lake", str(damaged), "--html", str(path), "--quiet"]) == ExitCode.DAMAGE
    page = parse_page(path.read_text())
    assert "because the table edges is damaged" in page.by_id("do").text


def test_the_page_has_the_outcomes(growing: GrowingLake, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert tps.main(["--lake", growing.lake.root, "--html", str(path), "--quiet"]) == ExitCode.OK
    page = parse_page(path.read_text())
    assert " committed, 2 rolled back, 1 given up, 1 open" in page.by_id("do").text
    assert "transactions rolled back" in page.by_id("summary").text
