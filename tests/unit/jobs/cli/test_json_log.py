"""Standard error as JSON objects, one a line."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.json_log import JsonLogHandler, JsonLogStream, print_stderr_as_json
from commitlake.schemas.errors import ExitCode


def entries(text: str) -> list[dict[str, Any]]:
    """Return the printed JSON objects."""
    return [json.loads(line) for line in text.splitlines()]


def test_each_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    with print_stderr_as_json("archive"):
        print("run 1: 5 messages", file=sys.stderr)
        print("commitlake archive: warning: a gap", file=sys.stderr)
        print("commitlake archive: error: no lake\n\n  a hint", file=sys.stderr, end="")
    found = entries(capsys.readouterr().err)
    assert [(entry["level"], entry["message"]) for entry in found] == [
        ("INFO", "run 1: 5 messages"),
        ("WARNING", "commitlake archive: warning: a gap"),
        ("ERROR", "commitlake archive: error: no lake"),
        ("INFO", "  a hint"),
    ]
    assert {(entry["command"], entry["logger"], entry["time"][-1]) for entry in found} == {
        ("archive", "commitlake", "Z")
    }


def test_log_messages_keep_level_logger_and_stack_trace(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("test.json_log")
    handler = JsonLogHandler()
    logger.addHandler(handler)
    try:
        with print_stderr_as_json("query"):
            try:
                int("wrong")
            except ValueError:
                logger.exception("cannot read %s", "x")
    finally:
        logger.removeHandler(handler)
    (entry,) = entries(capsys.readouterr().err)
    assert (entry["level"], entry["logger"], entry["message"]) == ("ERROR", "test.json_log", "cannot read x")
    assert "ValueError: invalid literal" in entry["exception"]


@pytest.mark.parametrize("text", ["\x1b[31mred", "\u202eturned", '"quoted" \\ back', "\ud800"])
def test_hostile_text_stays_one_printable_line(text: str) -> None:
    out = io.StringIO()
    stream = JsonLogStream(out, "dump")
    stream.write(text + "\n")
    (line,) = out.getvalue().splitlines()
    assert line.isprintable()
    json.loads(line)


def test_a_line_without_end_is_printed_in_parts() -> None:
    out = io.StringIO()
    stream = JsonLogStream(out, "dump")
    for _ in range(5):
        stream.write("x" * 50_000)
    stream.print_last_line()
    assert sum(len(entry["message"]) for entry in entries(out.getvalue())) == 250_000
    assert len(entries(out.getvalue())) == 4


def test_an_error_of_a_job_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    def job(_: object) -> ExitCode:
        raise JobError("no such lake", "name another")

    assert run_job(job_parser("fill", "Fill.", []), job, ["--log-format", "json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [entry["message"] for entry in entries(err)] == ["commitlake fill: error: no such lake", "  name another"]
