"""Tests of the model of a report."""

from __future__ import annotations

import datetime

from commitlake.schemas.report import Cell, Kind, Report, Section, Table, Verdict
from commitlake.schemas.report_columns import Column

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def test_values_become_cells_that_people_can_read_and_that_can_be_sorted() -> None:
    rows: list[dict[str, object]] = [
        {"group": "billing", "at": NOON, "messages": 1203, "per s": 0.5, "topics": ["a", "b"]},
        {"group": None, "at": None, "messages": None, "per s": 1 / 3, "topics": []},
    ]
    table = Table.of_values("Groups", rows)
    assert [[str(cell) for cell in row] for row in table.rows] == [
        ["billing", "2026-11-20 12:00:00", "1,203", "0.5", "a; b"],
        ["", "", "", "0.333", ""],
    ]
    assert [column.is_number for column in table.columns] == [False, False, True, True, False]
    assert [row[2].order for row in table.rows] == [1203, None]


def test_a_table_takes_the_cells_that_its_columns_name() -> None:
    row = {"messages": Cell("3", 3), "group": Cell("billing"), "topic": Cell("orders")}
    table = Table.of("Groups", [Column("group"), Column("messages behind", key="messages")], [row])
    assert table.rows == [[Cell("billing"), Cell("3", 3)]]


def test_a_column_says_how_its_values_are_shown() -> None:
    columns = [
        Column("share", is_number=True, text=lambda share: f"{100 * share:.0f} %"),
        Column("last", is_ranked=True),
        Column("first"),
    ]
    table = Table.of("Groups", columns, [{"share": 0.25, "last": NOON, "first": NOON}, dict.fromkeys(columns)])
    assert table.rows == [
        [Cell("25 %", 0.25), Cell("2026-11-20 12:00:00", NOON.timestamp()), Cell("2026-11-20 12:00:00")],
        [Cell(""), Cell(""), Cell("")],
    ]


def test_a_section_that_a_report_lacks_is_empty() -> None:
    report = Report("Lag", Verdict(Kind.GOOD, "All is well."), [], [Section("groups", "Groups", [])])
    assert report.find_section("groups") is report.sections[0]
    assert report.find_section("held").blocks == ()
