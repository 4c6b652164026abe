"""Tests that tables fit their terminal, and say what they leave out."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from commitlake.jobs.cli.command import job_parser, run_job
from commitlake.jobs.cli.options import add_options
from commitlake.jobs.dlq.report import CAUSE_COLUMNS
from commitlake.jobs.lag.report import GROUP_COLUMNS, QUEUE_COLUMNS
from commitlake.jobs.lineage.story_json import STEP_COLUMNS
from commitlake.jobs.query.command import SHORT_COLUMNS
from commitlake.jobs.report.output_formats import DisplayArguments
from commitlake.jobs.report.rows_output import write_table, write_table_block
from commitlake.jobs.report.text_table import TextTable, shorten_text, wrap_lines
from commitlake.jobs.tps.notes import rate_columns
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report import Cell, Name, Sparkline, Table
from commitlake.schemas.report_columns import Column

TIME = "2026-11-21T07:45:49.140Z"
SENTENCE = "queue 3 of orders has an entry that points 4,096 bytes beyond the end of the log"
CELLS: dict[str, Any] = {
    "store_timestamp": TIME, "first": TIME, "last": TIME, "time": TIME, "window_start": TIME, "peak_at": TIME,
    "group": "shipping-service", "topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC", "topics": "orders and 3 more",
    "queue_offset": 1_203_512, "messages": 1_203, "messages_per_s": 12.625, "bytes_per_s": 10240.5, "letters": 40,
    "msg_id": "C0A8000100002A9F0000000000001000", "keys": "order-4711 customer-12", "verdict": "stalled",
    "class": "queue.entry_beyond_log", "place": "consumequeue/orders/3/00000000000000000000 at 1,203",
    "found": SENTENCE, "expected": SENTENCE, "reason": SENTENCE, "title": "waits in level 3 for the first retry",
    "text": SENTENCE, "time_lag": "10 min to 2.5 h", "notes": [SENTENCE, "no committed offset"],
}  # fmt: skip
TABLES = {
    "lag": GROUP_COLUMNS,
    "lag --by queue": QUEUE_COLUMNS,
    "query": SHORT_COLUMNS,
    "tps": rate_columns(["window_start", "topic", "messages", "messages_per_s", "bytes_per_s", "peak_at", "archived"]),
    "dlq": CAUSE_COLUMNS,
    "lineage": STEP_COLUMNS,
}


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def printed(rows: Sequence[dict[str, Any]], columns: Sequence[str], out: io.StringIO | None = None) -> list[str]:
    out = out or Terminal()
    assert write_table(rows, columns, out) == len(rows)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_commands_fit_every_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = TABLES[name]
    row: dict[str, Any] = {column.key: CELLS.get(column.key, "x") for column in columns}
    for width in range(40, 201):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = printed([row, row | {"group": "audit"}], columns)
        assert max(map(cell_len, lines)) <= width, (width, lines)
        assert all(text in (TIME, None) for line in lines for text in re.findall(r"2026\S*", line)), (width, lines)
        if "─" in lines[1] + lines[2]:  # not in blocks
            cells = [(column.text or str)(row[column.key]) for column in columns if not column.is_notes]
            texts = [str(cell) for cell in cells if not isinstance(cell, list)]
            rows = lines[lines.index(next(line for line in lines if "─" in line)) + 1 :][:2]
            for word in " ".join(rows).split():  # each is a word of a cell, or is marked as shortened
                assert "…" in word or word == "audit" or word in "1, 2" or any(word in text.split() for text in texts)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # another process may take the time
@given(
    st.lists(st.lists(st.text(max_size=60), min_size=3, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.integers(40, 200),
)
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], spare: list[int], width: int) -> None:
    cells = [[re.sub(r"[^ -~\u4e00-\u9fff]", "", cell) for cell in row] for row in rows]
    table = TextTable([Column(f"column_{number}", order) for number, order in enumerate(spare)], cells, width)
    lines = list(table.body_lines())
    assert all(cell_len(line) <= width for line in table.titles + lines)
    assert not table.titles or len(lines) == len(rows)
    for number, column in enumerate(table.columns):
        for row, line in zip(cells, lines, strict=False):
            if table.titles and column not in table.left_out and not table.shortened:
                assert row[number].strip() in line


def test_a_row_is_a_line_and_what_is_left_out_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = [Column("topic"), Column("bytes", 1), Column("tag", 2), Column("messages")]
    rows = [
        {"topic": "a-long-topic-of-orders", "bytes": 10**9, "tag": "x" * 30, "messages": number} for number in (7, 12)
    ]
    assert printed(rows, columns) == [
        "topic                   messages",
        "────────────────────────────────",
        "a-long-topic-of-orders         7",
        "a-long-topic-of-orders        12",
    ]
    assert capsys.readouterr().err == "not shown: bytes, tag\n"


def test_full_shows_all_columns_and_texts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    parser = job_parser("show", "Show.", [])
    add_options(parser, DisplayArguments)
    rows = [{"topic": "orders", "reason": SENTENCE, "id": "C0A8" * 20}]

    def job(_: object) -> ExitCode:
        write_table(rows, [Column("topic"), Column("reason", 1), Column("id", 2)], sys.stdout)
        return ExitCode.OK

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run_job(parser, job, ["--full"]) == ExitCode.OK
    lines = terminal.getvalue().splitlines()
    assert lines[:2] == ["topic   orders", "reason  queue 3 of orders has an entry that points"]
    assert max(map(len, lines)) <= 50
    assert "".join(line[8:] for line in lines[1:]).replace(" ", "") == (SENTENCE + "C0A8" * 20).replace(" ", "")
    assert capsys.readouterr().err == ""


def test_a_note_stands_below_the_table_once() -> None:
    rows = [{"group": name, "notes": notes} for name, notes in (("a", ["late"]), ("b", ["late", "lost"]), ("c", []))]
    assert printed(rows, [Column("group"), Column("notes", is_notes=True)], io.StringIO()) == [
        "group  notes", "────────────", "a      1", "b      1, 2", "c", "", "1  late", "2  lost",
    ]  # fmt: skip
    assert printed(rows[2:], [Column("group"), Column("notes", is_notes=True)], io.StringIO())[0] == "group"


def test_a_table_of_a_report_folds_long_titles_and_has_no_empty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = [
        Column("group"), Column("messages behind", key="messages", is_number=True), Column("lost", is_number=True),
        Column("over time"), Column("notes", is_notes=True),
    ]  # fmt: skip
    rows = [
        {"group": Name(name), "messages": 1203, "lost": None, "over time": Cell(Sparkline("", [1])), "notes": ["late"]}
        for name in ("billing-of-orders", "a")
    ]
    out = Terminal()
    write_table_block(Table.of("Groups", columns, []), out)
    assert out.getvalue() == ""
    write_table_block(Table.of("Groups", columns, rows), out)
    assert re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines() == [
        "                   messages",
        "group                behind  notes",
        "──────────────────────────────────",
        "billing-of-orders     1,203  1",
        "a                     1,203  1",
        "",
        "1  late",
    ]


def test_numbers_are_aligned_right() -> None:
    rows = [{"topic": "orders", "n": 5, "lag": "3 min"}, {"topic": "a", "n": 1203, "lag": None}]
    assert printed(rows, ["topic", "n", Column("lag", is_number=True)], io.StringIO())[2:] == [
        "orders     5  3 min",
        "a       1203",
    ]


def test_a_table_in_a_pipe_has_a_fixed_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert max(map(len, printed([{"body": "word " * 1000}], ["body"], io.StringIO()))) == 120
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, printed([{"body": "word " * 1000}], ["body"], io.StringIO()))) == 300


def test_a_value_of_many_lines_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert len(printed([{"body": "{\n" * 10_000}, {"body": "x" * 1_000_000}], ["body"])) == 4


def test_names_lose_their_middle_and_sentences_their_end() -> None:
    assert shorten_text("RMQ_SYS_TRANS_OP_HALF_TOPIC", 15) == "RMQ_SYS…F_TOPIC"
    assert shorten_text("no committed offset: counted", 20) == "no committed offset…"
    assert cell_len(shorten_text("订单订单订单订单订单", 9)) <= 9


def test_sentences_break_between_words_and_never_within_a_quoted_command() -> None:
    text = "commitlake lag: warning: 'commitlake snapshot --lake lake' records one, because a store has no history"
    assert wrap_lines(text, 44).split("\n") == [
        "commitlake lag: warning:",
        "  'commitlake snapshot --lake lake' records",
        "  one, because a store has no history",
    ]
    assert wrap_lines("as short as it is", 44) == "as short as it is"


def test_a_table_that_fits_a_terminal_has_bold_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    assert write_table([{"topic": "orders", "messages": 12}], ["topic", "messages"], out) == 1
    assert out.getvalue().splitlines()[0] == "\x1b[1mtopic   messages\x1b[0m"


def test_a_table_without_rows_prints_nothing() -> None:
    out = io.StringIO()
    assert write_table([], ["topic"], out) == 0
    assert out.getvalue() == ""


def test_names_of_columns_are_shown_without_control_characters() -> None:
    out = io.StringIO()
    write_table([{"a\x1b[31m\u202e": 1}], ["a\x1b[31m\u202e"], out)
    assert out.getvalue().splitlines()[0] == "a\\x1b[31m\\u202e"
