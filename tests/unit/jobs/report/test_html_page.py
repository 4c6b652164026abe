"""Tests of the frame of pages: self-contained, escaped, and readable without its script."""

from __future__ import annotations

import datetime
from pathlib import Path

from commitlake.connectors.printable import escape_line
from commitlake.jobs.report.html_blocks import command_html, table_html
from commitlake.jobs.report.html_elements import tag
from commitlake.jobs.report.html_page import render_page, render_pictures, write_page
from commitlake.schemas.report import (
    Block,
    Cell,
    Code,
    CollapsedContent,
    HeatMap,
    KeyFigures,
    Kind,
    MutedText,
    Name,
    Notice,
    Paragraph,
    Report,
    Section,
    Series,
    Strong,
    Table,
    TimeText,
    Verdict,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import EPOCH, TimeWindows
from tests.support.html_pages import assert_self_contained, parse_page, table_of

HOSTILE = "</script><script>alert('x')</script>\"&\u202e\x00\n${title}"
WINDOWS = TimeWindows(EPOCH, datetime.timedelta(minutes=1), 1)


def page_of(*content: Block, text: str = "orders") -> str:
    sections = [Section("first", text, content), Section("second", "Second", [Paragraph("x")])]
    verdict = Verdict(Kind.CRITICAL, f"{text} is behind", word="stalled")
    return render_page(Report("Lag", verdict, [("Lake", text)], sections, text))


def test_a_page_is_self_contained() -> None:
    assert_self_contained(page_of(command_html(["commitlake", "lag"])))


def test_hostile_text_is_escaped_everywhere() -> None:
    def parts(text: str) -> tuple[Block, ...]:
        rows = [[Cell(Name(text)), Cell(text, 1)]]
        inline = Paragraph(
            Strong(text), MutedText(text), Code(text), TimeText(f"x {text.split(maxsplit=1)[0]}"), Name(text)
        )
        return (
            KeyFigures({text: text}),
            Notice(Kind.WARNING, text, inline, CollapsedContent(text, Paragraph(text))),
            Table(text, [Column(text), Column(text, is_number=True)], rows, rest=text),
            command_html([text]),
        )

    plain, hostile = (parse_page(page_of(*parts(text), text=text)) for text in ("x\n", HOSTILE))
    names = [[one.name for one in root.inner] for root in (plain, hostile)]
    assert names[0] == names[1]
    shown = escape_line(HOSTILE)
    assert hostile.all("h1")[0].text == f"{shown} is behind"
    assert [row[0] for row in table_of(hostile)] == [shown, shown]
    assert "\x00" not in hostile.text
    assert "\u202e" not in hostile.text


def test_pictures_for_a_notebook_are_a_self_contained_page() -> None:
    assert_self_contained(render_pictures("Dead letters", [HeatMap("Dead letters", WINDOWS, [Series("orders", [3])])]))


def test_the_verdict_is_text_and_comes_first() -> None:
    root = parse_page(page_of())
    (verdict,) = root.of_class("verdict")
    assert verdict.text == "✕stalledorders is behind"
    assert root.all("h1")[0].text == "orders is behind"
    assert [link.attributes["href"] for link in root.all("nav")[0].all("a")] == ["#first", "#second"]
    assert root.by_id("first").attributes["aria-labelledby"] == "first-heading"


def test_a_command_is_quoted_for_a_shell() -> None:
    assert parse_page(command_html(["commitlake", "--group", "a b'c", "$(x)"])).all("code")[0].text == (
        "commitlake --group 'a b'\"'\"'c' '$(x)'"
    )


def test_options_of_a_command_are_not_broken_across_lines() -> None:
    root = parse_page(command_html(["commitlake", "lag", "--lake", "a lake", "--group", "mail-service"]))
    assert root.all("code")[0].text == "commitlake lag --lake 'a lake' --group mail-service"
    assert [one.text for one in root.of_class("option")] == ["--lake", "--group"]


def test_a_command_with_control_characters_is_left_out() -> None:
    assert "control characters" in parse_page(command_html(["commitlake", "--group", "a\u202eb"])).text


def test_a_table_has_labels_for_cards_and_figures_to_sort_by() -> None:
    columns = [Column("topic"), Column("messages", is_number=True), Column("trend", can_sort=False)]
    rows = [[Cell("orders"), Cell("1,200", 1200), Cell("up")]]
    root = parse_page(table_html(Table("Topics", columns, rows, "and 3 others")))
    assert [head.attributes.get("data-sort") for head in root.all("th")[:3]] == ["text", "number", None]
    assert [cell.attributes["data-label"] for cell in root.all("td")] == ["messages", "trend"]
    assert root.all("td")[0].attributes["data-order"] == "1200"
    assert "and 3 others" in root.text


def test_columns_without_any_content_are_left_out() -> None:
    columns = [Column("group"), Column("filter"), Column("notes")]
    rows = [[Cell(""), Cell(""), Cell("")], [Cell(""), Cell(""), Cell("slow")]]
    root = parse_page(table_html(Table("Groups", columns, rows)))
    assert [cell.attributes["data-label"] for cell in root.all("td")] == ["notes", "notes"]
    empty = parse_page(table_html(Table("Groups", columns, [])))
    assert [head.text for head in empty.all("th")] == ["group", "filter", "notes"]


def test_none_and_false_leave_an_attribute_out_and_true_gives_no_value() -> None:
    assert tag("a", class_=None, hidden=True, open=False, data_x=0.5) == '<a hidden data-x="0.5"></a>'


def test_a_page_is_written_without_leftover_files(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, Report("Lag", Verdict(Kind.GOOD, "all is well \ud800"), [], []))
    assert path.read_bytes().startswith(b"<!DOCTYPE html>")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
