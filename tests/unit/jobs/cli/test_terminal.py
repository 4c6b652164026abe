"""Tests that names of producers, folders and stores cannot command a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from commitlake.connectors.printable import escape_json, escape_line, escape_unprintable
from commitlake.jobs.cli import main as cli
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.terminal import guard_standard_streams, print_line, unguarded_stream
from commitlake.jobs.dump import command as dump
from commitlake.jobs.report.rows_output import write_csv, write_jsonl, write_table
from commitlake.schemas.errors import ExitCode
from tests.support.logs import new_message, open_segment, write_store

CLEAR, TURN, C1, HIDDEN, TAG = "\x1b[2J", "\u202e", "\x9b31m", "\u200b", "\U000e0041"
HOSTILE = f"a{CLEAR}{TURN}{C1}{HIDDEN}{TAG}\x7f\r\x00b"
SHOWN = r"a\x1b[2J\u202e\x9b31m\u200b\U000e0041\x7f\r\x00b"
MARKUP = "[red]bold[/red] [link=file:///etc]x[/link]"
DANGEROUS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace both output streams by one terminal. A fixture cannot: pytest replaces them again before a test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_control_characters_are_shown_as_escapes() -> None:
    assert escape_unprintable(HOSTILE) == SHOWN
    assert escape_unprintable("Zürich\t订单\n🙂 a\xa0b") == "Zürich\t订单\n🙂 a\xa0b"
    assert escape_line("a\tb\nc") == r"a\tb\nc"
    assert escape_unprintable("\ud800") == r"\ud800"


INVISIBLE = "\u034f\u115f\u17b4\u180b\u3164\ufe0f\uffa0\U0001d173\U000e0101"


def test_invisible_characters_are_shown_as_escapes() -> None:
    for character in INVISIBLE:
        assert escape_unprintable(f"orders{character}") == f"orders{character.encode('unicode_escape').decode()}"
        assert json.loads(escape_json(json.dumps(character, ensure_ascii=False))) == character
    assert escape_json(f'"{INVISIBLE}"').isascii()


def test_control_characters_in_json_are_json_escapes() -> None:
    document = json.dumps({HOSTILE: ["\u2028", "\ud83d", "ü"]}, ensure_ascii=False)
    shown = escape_json(document)
    assert not DANGEROUS.search(shown)
    assert json.loads(shown) == json.loads(document)
    assert "ü" in shown


def test_everything_printed_to_a_terminal_is_escaped_except_trusted_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with guard_standard_streams():
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        unguarded_stream(sys.stdout).write("\x1b[1m")
    assert terminal.getvalue() == f"{SHOWN}\n{SHOWN}\n\x1b[1m"
    assert sys.stdout is terminal


def test_raw_output_is_not_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with guard_standard_streams(is_raw=True):
        print(HOSTILE)
    assert terminal.getvalue() == f"{HOSTILE}\n"


def test_output_to_files_and_pipes_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setattr(sys, "stderr", file)
    with guard_standard_streams():
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        write_csv([{"topic": HOSTILE}], ["topic"], sys.stdout)
        write_table([{"topic": HOSTILE}], ["topic"], sys.stdout)
    assert not DANGEROUS.search(file.getvalue())
    assert file.getvalue().count(SHOWN) == 4


def test_rows_in_every_format_have_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    rows = [{"topic": HOSTILE, "keys": [HOSTILE, MARKUP], "properties": {HOSTILE: MARKUP}}]
    with guard_standard_streams():
        write_table(rows, list(rows[0]), sys.stdout)
        write_csv(rows, list(rows[0]), sys.stdout)
        write_jsonl(rows, sys.stdout)
    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())  # the table's own colours
    assert not DANGEROUS.search(text)
    assert "[red]" in text


def test_raw_csv_and_json_lines_have_the_exact_data() -> None:
    rows = [{"topic": HOSTILE.replace("\r", "")}]
    out = io.StringIO()
    write_csv(rows, ["topic"], out)
    assert list(csv.DictReader(io.StringIO(out.getvalue(), newline=""))) == rows
    out = io.StringIO()
    write_jsonl(rows, out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == rows


@pytest.mark.parametrize("raw", [[], ["--raw"]])
def test_errors_and_warnings_are_escaped_unless_raw(monkeypatch: pytest.MonkeyPatch, raw: list[str]) -> None:
    terminal = on_terminal(monkeypatch)

    def fail(_: object) -> ExitCode:
        print(f"warning: {HOSTILE}", file=sys.stderr)
        raise JobError(f"{HOSTILE} is no store", f"hint {HOSTILE}")

    assert run_job(job_parser("fill", "Fill.", []), fail, raw) == ExitCode.USAGE
    shown = HOSTILE if raw else SHOWN
    assert terminal.getvalue() == f"warning: {shown}\ncommitlake fill: error: {shown} is no store\n  hint {shown}\n"


def test_records_of_a_log_cannot_command_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    sent = new_message(0, topic="t" + HOSTILE, properties=(("k", HOSTILE), (TURN, "v")), body=HOSTILE.encode())
    root = write_store(tmp_path / "store", [(0, open_segment([sent], 4096))])
    assert dump.main([str(root), "--body-as", "text"]) == ExitCode.OK
    assert not DANGEROUS.search(terminal.getvalue())
    row = json.loads(terminal.getvalue().splitlines()[0])
    assert (row["topic"], row["body"], row["properties"]) == ("t" + HOSTILE, HOSTILE, {"k": HOSTILE, TURN: "v"})


def test_output_to_a_real_terminal_is_escaped(tmp_path: Path) -> None:
    """Run a separate process at a pseudo-terminal, so that the real output of a job is read."""
    parent, child = pty.openpty()
    try:
        command = [sys.executable, "-m", "commitlake.jobs.cli.main", "dump", str(tmp_path / f"no{CLEAR}{TURN}store")]
        done = subprocess.run(command, stdout=child, stderr=child, check=False, timeout=60)
        text = os.read(parent, 1 << 16).decode()
    finally:
        os.close(parent)
        os.close(child)
    assert done.returncode == ExitCode.USAGE
    assert r"no\x1b[2J\u202estore" in text
    assert not DANGEROUS.search(text.replace("\r\n", "\n"))


def test_a_newline_in_a_path_does_not_begin_a_new_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = str(tmp_path / "nowhere\nverdict: sound")
    monkeypatch.setenv("COMMITLAKE_\nsound", "1")
    for arguments in (["dump", nowhere], ["dump", "x", "y\nsound"], ["dump", "--config", nowhere, "x"]):
        with suppress(SystemExit):
            cli.main(arguments)
    store = write_store(tmp_path / "broker-a", [(0, open_segment([new_message()], 1 << 12))])
    assert cli.main(["rebuild", str(store), "--local", "--out", nowhere]) == ExitCode.OK
    printed = capsys.readouterr().err
    assert r"nowhere\nverdict: sound" in printed
    assert not re.search("^(verdict: )?sound", printed, re.MULTILINE)


def test_raw_prints_a_line_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    with guard_standard_streams(is_raw=True):
        print_line(HOSTILE)
    assert capsys.readouterr().err == f"{HOSTILE}\n"
