"""Tests that tables on a terminal, laid out without rich, have the layout of rich."""

from __future__ import annotations

import io
import re

import pytest

from commitlake.jobs.cli.rows_output import _write_folded, write_table
from commitlake.jobs.cli.text_table import TextTable


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize(
    "rows",
    [
        [("orders", "12"), ("a", "")],
        [("", "")],
        [("北京", "Zürich", "x"), ("é", "👩", "y" * 40)],
        [("  spaces  ", "0"), ("e\u0301", "two words")],
        [("x" * 500,)],
    ],
)
def test_a_table_has_the_layout_of_rich(rows: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"column{number}" for number in range(len(rows[0]))]
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("TERM", "xterm")
    expected = io.StringIO()
    _write_folded([list(row) for row in rows], names, expected)
    assert [f"{line}\n" for line in TextTable(names, rows).lines()] == expected.getvalue().splitlines(keepends=True)


def test_a_table_that_fits_a_terminal_has_bold_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    assert write_table([{"topic": "orders", "messages": 12}], ["topic", "messages"], out) == 1
    assert out.getvalue().splitlines()[0] == "\x1b[1mtopic    messages\x1b[0m"


def test_a_table_that_is_wider_than_a_terminal_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    write_table([{"topic": "orders" * 8, "messages": 12}], ["topic", "messages"], out)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= 30
    assert "".join(line.split()[0] for line in lines[2:]).startswith("orders" * 8)


def test_a_table_without_rows_prints_nothing() -> None:
    out = io.StringIO()
    assert write_table([], ["topic"], out) == 0
    assert out.getvalue() == ""


def test_names_of_columns_are_shown_without_control_characters() -> None:
    out = io.StringIO()
    write_table([{"a\x1b[31m\u202e": 1}], ["a\x1b[31m\u202e"], out)
    assert out.getvalue().splitlines()[0] == "a\\x1b[31m\\u202e"
