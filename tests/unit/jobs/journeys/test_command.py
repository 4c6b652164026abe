"""Tests of `commitlake journeys`: paths, hops, and keys that do not fit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.journeys.command import main
from tests.support.journeyed_lakes import JourneyedLake, Sent, time_of
from tests.support.lineage_lakes import make_lake, record

Ask = Callable[..., list[dict[str, Any]]]
PLAN = [
    Sent("o1", "orders", at=0), Sent("o1", "payments", at=60), Sent("o1", "shipments", at=100),
    Sent("o2", "orders", at=10), Sent("o2", "payments", "retried", at=40), Sent("o2", "shipments", "committed", at=120),
    Sent("o3", "orders", at=20), Sent("o3", "payments", "dead", at=50),
    Sent("o4", "orders", at=30), Sent("o4", "payments", "delayed", at=280),
    Sent("o5", "orders", "waiting", at=290),
]  # fmt: skip
TIME = ["--from", time_of(0).isoformat(), "--to", time_of(300).isoformat()]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with five keys."""
    return JourneyedLake(tmp_path_factory.mktemp("journeys"), PLAN).root


@pytest.fixture
def ask(root: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A function that runs the command, and returns its rows."""

    def run(*arguments: str) -> list[dict[str, Any]]:
        assert main(["--lake", root, *TIME, *arguments, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_paths_are_shown_with_their_keys(ask: Ask) -> None:
    assert [(row["path"], row["keys"], row["share_percent"], row["dead"], row["open"]) for row in ask()] == [
        (["orders", "payments"], 2, 40.0, 1, 0),
        (["orders", "payments", "shipments"], 2, 40.0, 0, 0),
        (["orders"], 1, 20.0, 0, 1),
    ]
    assert len(ask("--limit", "1")) == 1


def test_hops_are_shown_with_their_times(ask: Ask) -> None:
    assert ask("--show", "hops") == [
        {"source": "orders", "target": "payments", "hops": 4, "p50_ms": 30_000, "p95_ms": 250_000, "p99_ms": 250_000},
        {"source": "payments", "target": "shipments", "hops": 2, "p50_ms": 40_000, "p95_ms": 80_000, "p99_ms": 80_000},
    ]


def test_keys_that_were_paid_and_not_shipped(ask: Ask) -> None:
    rows = ask("--through", "payments", "--missing", "shipments")
    assert [(row["key"], row["reasons"], row["outcome"]) for row in rows] == [
        ("o3", ["missing shipments"], "dead"),
        ("o4", ["missing shipments"], "delivered"),
    ]
    assert "steps" not in rows[0]


def test_keys_that_stopped(ask: Ask) -> None:
    assert [row["key"] for row in ask("--stuck-after", "payments:2m")] == ["o3"]
    rows = ask("--stuck-after", "payments:1s", "--stuck-after", "orders:0s", "--missing", "payments")
    assert {row["key"]: row["reasons"] for row in rows} == {
        "o3": ["stuck after payments"],
        "o4": ["stuck after payments"],
        "o5": ["missing payments", "stuck after orders"],
    }


def test_unexpected_paths_are_those_of_few_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        record(1000 * number, number / 10, "orders", keys=[f"o{number}"], unique_key=f"U{number}")
        | {"origin_topic": "orders" if number else "odd"}
        for number in range(101)
    ]
    lake = make_lake(tmp_path, records).root
    assert main(["--lake", lake, "--unexpected", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert [(row["key"], row["reasons"]) for row in json.loads(out)["rows"]] == [("o0", ["unexpected path"])]
    assert "1 of 101 keys" in err


def test_a_table_shows_paths_and_hops(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", root, *TIME]) == 0
    out, err = capsys.readouterr()
    assert "orders > payments > shipments" in out
    assert "4.2 min" in out
    assert "5 keys began from 2023-11-14" in err
    assert main(["--lake", root, *TIME, "--missing", "shipments", "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    assert "o3" in out
    assert "3 of 5 keys; the first 1 are shown, --limit 0 shows all" in err
    assert main(["--lake", root, *TIME, "--missing", "shipments", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_time_after_the_newest_message_has_no_keys(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", root, "--from", time_of(100_000).isoformat()]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "0 keys began from" in err


def test_csv_has_a_column_for_each_value(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", root, *TIME, "--missing", "shipments", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert next((row["key"], json.loads(row["path"])) for row in rows) == ("o3", ["orders", "payments"])


def test_what_the_window_cuts_is_said(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    window = ["--from", time_of(45).isoformat(), "--to", time_of(300).isoformat()]
    assert main(["--lake", root, *window, "--show", "keys"]) == 0
    out, err = capsys.readouterr()
    assert "o5" in out
    assert "o1" not in out
    assert "1 key began from" in err
    assert "4 more keys began before, and are not shown" in err


def test_brokers_that_are_behind_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [record(0, 0, "orders"), record(1000, 3600, "orders", broker="broker-b", unique_key="U2")]
    assert main(["--lake", make_lake(tmp_path, records).root]) == 0
    assert "broker-a has no record after 2026-11-20T14:00:00Z in the lake" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stuck-after", "payments"], "'payments': expected TOPIC:TIME, as in payments:30m"),
        (["--stuck-after", "payments:soon"], "'soon' is not a duration"),
        (["--limit", "-1"], "expected"),
        (["--show", "hops", "--missing", "a"], "--missing"),
        (["--where", "nothing ="], "--where is not a valid condition"),
        (["--broker", "broker-x"], "the lake has no store"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "--from"),
    ],
)
def test_wrong_options_are_refused(
    root: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["--lake", root, *arguments]))
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_hops_are_limited(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", root, *TIME, "--show", "hops", "--limit", "1", "--json"]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["target"] for line in shown.out.splitlines()] == ["payments"]
    assert "the first 1 of 2 hops are shown, --limit 0 shows all" in shown.err


def test_a_damaged_file_is_not_called_a_wrong_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = JourneyedLake(tmp_path, PLAN).root
    for file in (Path(root) / "messages").rglob("*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))
    assert main(["--lake", root, *TIME, "--where", "queue_id = 0"]) == 3
    assert "--where" not in capsys.readouterr().err


def test_topics_and_tags_that_no_message_has_are_named(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--topic", "orders", "--through", "payment", "--missing", "shipment", "--stuck-after", "order:1s"]
    assert main(["--lake", root, *TIME, *given, "--tag", "nosuch"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert [line.split("'")[1] for line in warnings] == ["payment", "shipment", "order", "nosuch"]
    assert "payments" in warnings[0]


def test_a_lake_without_edges_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_lake(tmp_path, [record(0, 0, "orders")], None).root
    assert main(["--lake", root]) == 2
    assert "has no table 'edges', which journeys need" in capsys.readouterr().err


def test_a_page_shows_what_the_command_prints(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "journeys.html"
    assert main(["--lake", root, *TIME, "--missing", "shipments", "--limit", "1", "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    html = page.read_text(encoding="utf-8")
    assert "o3" in out
    assert "3 of 5 keys do not fit" in html
    assert err.splitlines()[-1].split(";")[0] in html
    assert 'href="#path-1"' in html
    assert main(["--lake", root, *TIME, "--html", str(page), "--quiet"]) == 0
    assert "do not fit" not in page.read_text(encoding="utf-8")


def test_a_failure_replaces_the_page(root: str, tmp_path: Path) -> None:
    page = tmp_path / "journeys.html"
    assert main(["--lake", root, *TIME, "--where", "nothing =", "--html", str(page)]) == 2
    assert "--where is not a valid condition" in page.read_text(encoding="utf-8")
