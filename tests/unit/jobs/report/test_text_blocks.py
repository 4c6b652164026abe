"""Tests of a report as lines of text."""

from __future__ import annotations

import datetime

import pytest

from commitlake.jobs.report.text_blocks import block_lines, chart_to_table, print_notices
from commitlake.schemas.finding_advice import Advice
from commitlake.schemas.report import (
    NO_FIGURE,
    AdviceBlock,
    Block,
    CollapsedContent,
    ExampleList,
    KeyFigures,
    Kind,
    LineChart,
    Name,
    Notice,
    Paragraph,
    Report,
    Section,
    Series,
    Table,
    Verdict,
)
from commitlake.schemas.times import TimeWindows

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def test_blocks_are_lines_and_those_of_a_notice_are_indented() -> None:
    advice = Advice("{} makes it", ("rebuild {store}",)).fill_for_each_place([{"store": "/a"}, {"store": "/b"}])
    blocks: list[Block] = [
        KeyFigures({"groups": "2", "lost": "1"}),
        Notice(
            Kind.CRITICAL,
            (Name("billing"), " has stopped"),
            Paragraph("3 messages behind."),
            AdviceBlock(advice, before="What to do: "),
            CollapsedContent("Notes", Paragraph("its filter is not known")),
            word="stopped",
        ),
        ExampleList([{"place": "byte 7", "found": "", "expected": "a magic code"}]),
        Table.of_values("Groups", []),
        Table.of_values("Stores", [{"store": "broker-a"}], "1 more store is left out."),
    ]
    assert list(block_lines(blocks)) == [
        "groups: 2; lost: 1",
        "stopped: billing has stopped",
        "  3 messages behind.",
        "  What to do: 'commitlake rebuild /a' makes it.",
        "    commitlake rebuild /b",
        "  Notes",
        "    its filter is not known",
        "place: byte 7; expected: a magic code",
        "1 more store is left out.",
    ]


def test_the_numbers_of_a_chart_have_no_row_for_a_time_without_figures() -> None:
    windows = TimeWindows(NOON, datetime.timedelta(minutes=1), 3)
    chart = LineChart("Behind", windows, [Series("a", [None, None, 1200]), Series("b", [0, None, None])])
    assert [[str(cell) for cell in row] for row in chart_to_table(chart).rows] == [
        ["2026-11-20 12:00", NO_FIGURE, "0"],
        ["2026-11-20 12:02", "1,200", NO_FIGURE],
    ]


def test_notices_are_printed_without_the_sentence_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    def print_findings(*blocks: Block, only_critical: bool = False) -> list[str]:
        report = Report("Stores", Verdict(Kind.GOOD, ""), [], [Section("findings", "Findings", blocks)])
        print_notices(report, "findings", only_critical=only_critical)
        return capsys.readouterr().err.splitlines()

    lost, full = Notice(Kind.CRITICAL, "broker-a"), Notice(Kind.WARNING, "disk")
    rest = Paragraph("Not shown: 7 more groups.")
    assert print_findings(lost, full, rest) == ["Critical: broker-a", "Warning: disk", "Not shown: 7 more groups."]
    assert print_findings(lost, full, only_critical=True) == ["Critical: broker-a"]
    assert print_findings(Paragraph("Nothing was found.")) == []
