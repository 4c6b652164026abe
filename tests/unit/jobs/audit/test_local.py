"""Tests of `audit --local`: this process alone gives the results of Spark's audit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.audit import command as audit
from commitlake.jobs.verify import command as verify
from commitlake.schemas.errors import ExitCode
from tests.support.audited_lakes import (
    ROWS,
    audit_json,
    change_each_column,
    change_messages,
    delete_pack,
    flip_in_pack,
    lose_keys,
    write_jmq_lake,
    write_lake,
)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose second run has no profile."""
    return write_lake(tmp_path_factory.mktemp("audited"), counted=(True, False, True))


@pytest.fixture
def root(archived: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(archived, tmp_path / "copy"))


def verdicts_of(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code, and the verdict on each pair of sides or the finding on each table."""
    code, found = audit_json(root, capsys, "--local", *more)
    return code, {each.get("table") or f"{each['expected']}-{each['found']}": each for each in found}


def test_an_intact_archive_has_no_differences(archived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdicts = verdicts_of(archived, capsys)
    assert code == 0
    assert {name: verdict["messages"] for name, verdict in verdicts.items()} == {
        "runs-messages": 2 * ROWS - 1,
        "messages-packs": 3 * ROWS - 1,
        "store-messages": 3 * ROWS - 1,
    }
    assert {verdict["differing"] for verdict in verdicts.values()} == {0}
    assert verdicts["runs-messages"]["notes"] == [
        "120 messages are left out: 1 run has no profile of their messages (--no-quality, or expired)"
    ]


def test_a_change_in_any_column_is_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_messages(root, change_each_column)
    code, verdicts = verdicts_of(root, capsys, "--no-bodies")
    assert code == 3
    assert verdicts["runs-messages"]["differing"] > 50
    assert verdicts["store-messages"]["differing"] > 45  # it knows neither body_ref nor store_date


def test_lost_messages_are_named_by_their_window(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_messages(root, lambda rows: rows[1:])
    code, verdicts = verdicts_of(root, capsys, "--no-bodies")
    (difference,) = verdicts["store-messages"]["differences"]
    assert code == 3
    assert difference["difference"] == "missing"
    assert (difference["topic"], difference["expected_messages"], difference["found_messages"]) == ("topic-00", 1, None)
    assert difference["window_start"] == "2023-11-15 00:00:00"
    assert {"messages", "checksum"} <= set(difference["different_columns"])


def test_missing_and_damaged_bodies_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_in_pack(root)
    delete_pack(root)
    code, verdicts = verdicts_of(root, capsys)
    assert code == 3
    assert verdicts["runs-messages"]["differing"] == verdicts["store-messages"]["differing"] == 0
    assert verdicts["messages-packs"]["differing"] > 1
    assert len(verdicts["messages-packs"]["notes"]) == 5
    assert all(note.startswith("broker-a ") for note in verdicts["messages-packs"]["notes"])


def test_missing_and_unexpected_keys_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lose_keys(root)
    code, verdicts = verdicts_of(root, capsys, "--no-bodies")
    assert (code, verdicts["message_keys"]["count"]) == (3, 10)
    assert {note.split(":")[0] for note in verdicts["message_keys"]["notes"]} <= {"missing", "unexpected"}


def test_a_span_is_widened_to_whole_windows(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_messages(root, lambda rows: rows[1:])  # the lost message is before the span
    _, verdicts = verdicts_of(root, capsys, "--from", "2023-11-15T12:03", "--to", "2023-11-16T06:01", "--no-bodies")
    compared = [verdicts["runs-messages"], verdicts["store-messages"]]
    assert [verdict["differing"] for verdict in compared] == [0, 0]
    assert all(0 < verdict["messages"] < ROWS for verdict in compared)
    assert "compared in whole windows" in compared[0]["notes"][0]


def test_a_changed_data_file_is_an_error_without_a_verdict(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = max((root / "lake" / "messages").rglob("*.parquet"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    assert audit.main(["--lake", str(root / "lake"), "--local", "--quiet"]) == 3
    printed = capsys.readouterr().err
    assert file.name in printed
    assert "--repair" in printed


def test_runs_without_profiles_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdicts = verdicts_of(write_lake(tmp_path, counted=(False,)), capsys)
    assert (code, verdicts["runs-messages"]["compared"]) == (0, False)


def test_a_jmq_lake_is_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdicts = verdicts_of(write_jmq_lake(tmp_path), capsys)
    assert code == 0
    assert {verdict["messages"] for verdict in verdicts.values()} == {200}


def test_verify_compares_the_lake_without_spark(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_messages(root, lambda rows: [*rows[2:], {**rows[1], "topic": "elsewhere"}])
    store, lake = str(root / "broker-a"), str(root / "lake")
    assert verify.main([store, "--lake", lake, "--local", "--processes", "1", "--quiet", "--output", "json"]) == 3
    (report,) = json.loads(capsys.readouterr().out)["rows"]
    found = {code: count for code, count in report["counts"].items() if code.startswith("lake_")}
    assert found == {"lake_missing": 2, "lake_extra": 1}


def test_a_time_without_messages_is_not_reported_as_the_same(
    archived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "audit.html"
    code = audit.main(
        ["--lake", str(archived / "lake"), "--local", "--from", "2030-01-01", "--to", "2030-01-02", "--html", str(page)]
    )
    printed = capsys.readouterr()
    assert code == ExitCode.USAGE
    assert "the same" not in printed.out
    assert "no message was stored in this time, from 2030-01-01 00:00 to 2030-01-02 00:00" in printed.err
    assert "the audit found nothing to compare" in page.read_text()
