"""Tests of the page of audit: comparisons with numbers, differences by kind, bounded size, escaped names."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.archive_commits import ArchiveCommit, StoreProgress
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.audit import command as audit
from commitlake.jobs.audit.report import audit_report
from commitlake.jobs.report.html_page import render_page
from commitlake.jobs.report.text_blocks import print_sections
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import LakeState
from commitlake.pipelines.audit.table_checks import TableFinding
from commitlake.pipelines.audit.verdicts import AuditResult, AuditVerdict
from commitlake.schemas.report import Report
from tests.support.audited_lakes import audit_json, change_messages, write_lake
from tests.support.html_pages import Element, assert_self_contained, parse_page, table_of
from tests.support.lakes import rows_of

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
MOMENT = LakeState(7, 6, ArchiveCommit(5, "id", {"broker-a": StoreProgress(1)}), None)
COMPARE = (
    "compare with --store while the broker still has the messages; "
    "'commitlake maintain --lake /nowhere/lake --repair --dry-run' shows what can be recovered"
)
HOSTILE = "<script>alert('x')</script>\u202e"
SAME = AuditVerdict("runs", "messages", 12, 3400)


def difference(kind: str, number: int = 0, topic: str = "orders") -> dict[str, Any]:
    """Return a window that differs."""
    names = ["messages", "bytes", "checksum"]
    start = NOON + number * datetime.timedelta(minutes=10)
    row: dict[str, Any] = {"broker": "broker-a", "topic": topic, "queue_id": 3, "window_start": start,
           "difference": kind, "different_columns": names}  # fmt: skip
    sides = {"expected": (100, 1 << 20, -1), "found": (99, (1 << 20) - 200, 5)}
    for side, values in sides.items():
        row |= {f"{side}_{name}": value for name, value in zip(names, values, strict=True)}
    return row


def report_of(*verdicts: AuditVerdict, damages: tuple[TableFinding, ...] = (), notes: tuple[str, ...] = ()) -> Report:
    return audit_report(AuditResult(MOMENT, AuditSpan(), verdicts, damages, notes), Lake("/nowhere/lake"))


def text_of(*verdicts: AuditVerdict, damages: tuple[TableFinding, ...] = (), notes: tuple[str, ...] = ()) -> str:
    return render_page(report_of(*verdicts, damages=damages, notes=notes))


def page_of(*verdicts: AuditVerdict, damages: tuple[TableFinding, ...] = (), notes: tuple[str, ...] = ()) -> Element:
    return parse_page(text_of(*verdicts, damages=damages, notes=notes))


def test_a_page_without_differences_states_what_was_compared() -> None:
    root = page_of(
        SAME,
        AuditVerdict("messages", "packs", 12, 3400),
        AuditVerdict("messages", "hbase", compared=False, notes=["why"]),
    )
    assert root.all("h1")[0].text == "No differences: 3,400 messages in 2 comparisons"
    assert root.of_class("verdict")[0].attributes["class"] == "verdict good"
    assert table_of(root.by_id("compared"))[1:] == [
        ["the runs' counts and the table messages", "✓the same", "3,400", "12", "0"],
        ["the table messages and the packs", "✓the same", "3,400", "12", "0"],
        ["the table messages and HBase", "inot done", "", "", ""],
    ]
    assert "Every message is in every place, and the same." in root.text
    assert "the table messages and HBase: why" in root.by_id("notes").text
    assert "version 7 of messages, archived up to run 5" in root.of_class("facts")[0].text


def test_differences_are_grouped_by_kind() -> None:
    rows = [difference("different", number) for number in range(5)] + [difference("missing")]
    root = page_of(SAME, AuditVerdict("store", "messages", 500, 3400, 144, {"different": 143, "missing": 1}, rows))
    different, missing = root.by_id("findings").all("article")
    assert "Different the stores and the table messages · 143 windows" in different.text
    assert "140 more like this" in different.text
    example = different.all("li")[0]
    assert "broker-a, topic orders, queue 3, ten minutes from 2026-11-20 12:00 UTC" in example.text
    assert "messages: 99; bytes: 1023.8 KiB (1,048,376 bytes); checksum: 0000000000000005" in example.text
    assert "messages: 100; bytes: 1.0 MiB (1,048,576 bytes); checksum: ffffffffffffffff" in example.text
    assert "· 1 window" in missing.text
    assert root.all("h1")[0].text == (
        "Differences found: 1 of 2 comparisons differ, in 144 windows of ten minutes: the stores and the table messages"
    )


def test_damaged_tables_are_shown_first() -> None:
    damage = TableFinding("messages", 7, "data files", ["part-1: cut", "part-2: gone"])
    root = page_of(damages=(damage,), notes=("nothing else was compared",))
    (article,) = root.by_id("findings").all("article")
    assert "Damaged messages · 7 data files" in article.text
    assert "5 more like this" in article.text
    assert root.all("h1")[0].text == "Differences found: 1 table is damaged (messages)"
    assert "nothing else was compared" in root.by_id("notes").text


def test_hostile_names_are_escaped_and_many_differences_are_bounded() -> None:
    def shown(name: str) -> str:
        rows = [difference("different", number, name) for number in range(5)]
        verdict = AuditVerdict("runs", "messages", 5, 5, 10**6, {"different": 10**6}, rows, [name] * 500)
        damages = tuple(TableFinding(f"{name}{number}", 10**6, name, [name] * 5) for number in range(200))
        return text_of(verdict, damages=damages, notes=(name,))

    assert_self_contained(shown(HOSTILE))
    plain, hostile = (parse_page(shown(name)) for name in ("x", HOSTILE))
    assert [one.name for one in plain.inner] == [one.name for one in hostile.inner]
    assert len(shown(HOSTILE * 200).encode()) < 2_000_000
    assert "more notes are left out of this page" in plain.text


def test_the_text_has_the_comparisons_differences_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    found = AuditVerdict("store", "messages", 500, 3400, 144, {"missing": 144}, [difference("missing")], ["why"])
    print_sections(report_of(SAME, found), "compared", "findings", "notes")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == [
        "comparison", "─" * len(lines[1]), "the runs' counts and the table messages",
        "the stores and the table messages",
    ]  # fmt: skip
    assert lines[5:8] == [
        "Missing: the stores and the table messages · 144 windows",
        "  These windows are in the stores and not in the table messages.",
        f"  What to do: {COMPARE}.",
    ]
    assert lines[8].startswith(
        "  place: broker-a, topic orders, queue 3, ten minutes from 2026-11-20 12:00 UTC; found: "
    )
    assert lines[9:] == [
        "  143 more like this", "", "the stores and the table messages: why", "",
    ]  # fmt: skip


# --- the command ---


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two runs, and a store."""
    return write_lake(tmp_path_factory.mktemp("audited"))


def test_the_page_has_the_numbers_of_the_audit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "audit.html"
    code, verdicts = audit_json(root, capsys, "--local", "--no-bodies", "--html", str(path))
    assert code == 0
    rows = table_of(parse_page(path.read_text()).by_id("compared"))[1:]
    assert [row[2:] for row in rows] == [
        [f"{each['messages']:,}", f"{each['windows']:,}", f"{each['differing']:,}"] for each in verdicts
    ]
    runs = table_of(parse_page(path.read_text()).by_id("runs"))[1:]
    assert [row[0] for row in runs] == ["2", "1"]
    counted = {f"{row['sequence']}": f"{row['messages']:,}" for row in rows_of(str(root / "lake" / "archive_runs"))}
    assert {row[0]: row[3] for row in runs} == counted

    change_messages(root, lambda rows: rows[1:])
    code, verdicts = audit_json(root, capsys, "--local", "--no-bodies", "--html", str(path))
    assert code == 3
    page = parse_page(path.read_text())
    assert [(each["expected"], each["kinds"]) for each in verdicts if each.get("kinds")] == [
        ("runs", {"missing": 1}), ("store", {"missing": 1})
    ]  # fmt: skip
    articles = page.by_id("findings").all("article")
    assert [article.all("h3")[0].text for article in articles] == [
        "✕Damaged message_keys · 1 key",
        "✕Missing the runs' counts and the table messages · 1 window",
        "✕Missing the stores and the table messages · 1 window",
    ]


def test_the_page_names_a_folder_that_is_not_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.html"
    assert audit.main(["--lake", str(tmp_path / "nowhere"), "--local", "--html", str(path)]) == 2
    assert "is not a lake" in parse_page(path.read_text()).all("h1")[0].text
    capsys.readouterr()
