"""Tests of `commitlake query --body`: the body of one message as it was sent, or of each row as a column."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlake.jobs.query import command as query
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.messages import MESSAGES
from tests.support.bodies_lake import BODIES, TEXT, write_lake_of_bodies
from tests.support.query_lakes import ROOT, message

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a message for each body, one without a body, and one with a wrong CRC."""
    return write_lake_of_bodies(tmp_path_factory.mktemp("lake"))


def ask(capfdbinary: pytest.CaptureFixture[bytes], lake: Path, *arguments: object) -> tuple[int, bytes, str]:
    """Run `query`, and return exit code, standard output and standard error."""
    capfdbinary.readouterr()
    code = query.main(["--lake", str(lake), *map(str, arguments)])
    out, err = capfdbinary.readouterr()
    return code, out, err.decode()


@pytest.mark.parametrize(
    ("key", "options", "expected"),
    [
        ("text", [], TEXT.encode()),
        ("packed", [], TEXT.encode() * 500),
        ("packed", ["--stored-body"], BODIES[1][1]),
        ("binary", [], bytes(range(256))),
        ("empty", [], b""),
        ("twice", ["--limit", 1], b"first"),
        ("twice", ["--limit", 1, "--order-by", "store_timestamp desc"], b"second"),
    ],
)
def test_only_the_body_of_one_message_is_written(
    key: str, options: list[object], expected: bytes, lake: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert ask(capfdbinary, lake, "--key", key, "--body", *options) == (0, expected, "")


def test_a_text_only_output_takes_text_bodies_and_refuses_binary_ones(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, code, expected in (("packed", 0, TEXT * 500), ("binary", 2, "")):
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        assert query.main(["--lake", str(lake), "--key", key, "--body"]) == code
        assert out.getvalue() == expected
    assert "add --body-out FILE" in capsys.readouterr().err


def test_a_body_is_written_to_a_file(lake: Path, own_folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = ask(capfdbinary, lake, "--key", "binary", "--body-out", "body.bin")
    assert (code, out, err) == (0, b"", "256 bytes written to body.bin\n")
    assert (own_folder / "body.bin").read_bytes() == bytes(range(256))
    code, out, err = ask(capfdbinary, lake, "--key", "binary", "--body-out", "nowhere/body.bin")
    assert (code, out) == (2, b"")
    assert "--body-out nowhere/body.bin: No such file or directory" in err


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("none", "has no body in the lake: it was archived without bodies, so its body_ref is null"),
        ("broken", "expected a stream of zlib, found 8 bytes that are not one"),
        ("bomb", "decompress to more than the limit"),
        ("changed", "expected a body with the CRC 1 "),
        ("expired", "Has it expired by a lifecycle rule?"),
    ],
)
def test_an_unavailable_body_is_an_error_without_a_trace(
    key: str, words: str, lake: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = ask(capfdbinary, lake, "--key", key, "--body")
    assert (code, out) == (2, b"")
    assert words in err
    assert "Traceback" not in err


def test_no_message_is_a_warning_as_without_a_body(
    lake: Path, own_folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = ask(capfdbinary, lake, "--key", "nobody", "--body-out", "body.bin")
    assert (code, out) == (0, b"")
    assert "warning: no message matches, so there is no body" in err
    assert not (own_folder / "body.bin").exists()


def test_several_messages_are_refused_for_one_body(lake: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = ask(capfdbinary, lake, "--key", "twice", "--body")
    assert (code, out) == (2, b"")
    assert f"only one message, but several were found: {message(7)['msg_id']}, {message(8)['msg_id']}\n" in err
    assert "--limit 1 for the first" in err
    assert "and more" in ask(capfdbinary, lake, "--body")[2]


KEYS = [word for key in ("text", "packed", "binary", "empty", "none") for word in ("--key", key)]
ROWS_WITH_BODIES = [
    (TEXT, None),
    (TEXT * 500, None),
    (None, base64.b64encode(bytes(range(256))).decode()),
    ("", None),
    (None, None),
]


def test_json_lines_have_the_body_as_text_or_in_base64(lake: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = ask(capfdbinary, lake, *KEYS, "--body", "--output", "jsonl", "--columns", "keys")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0, err
    assert [(row["body"], row["body_base64"]) for row in rows] == ROWS_WITH_BODIES
    assert {tuple(row) for row in rows} == {("keys", "body", "body_base64")}
    code, out, err = ask(capfdbinary, lake, "--key", "text", "--body", "--output", "jsonl")
    assert list(json.loads(out)) == [name for name in MESSAGES.names if name != "store_date"] + ["body", "body_base64"]


def test_bodies_that_cannot_be_read_are_null_and_counted(lake: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    keys = [word for key in ("text", "broken", "bomb", "changed", "binary") for word in ("--key", key)]
    code, out, err = ask(capfdbinary, lake, *keys, "--body", "--output", "jsonl", "--columns", "keys")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == ExitCode.DAMAGE
    assert sorted(row["keys"][0] for row in rows) == ["binary", "bomb", "broken", "changed", "text"]
    assert {row["keys"][0] for row in rows if row["body"] or row["body_base64"]} == {"text", "binary"}
    assert "3 bodies are unreadable, and null in the result:" in err
    assert re.search("message [0-9A-F]{32}: body: expected a stream of zlib, found 8 bytes that are not one", err)
    sql = "SELECT msg_id, body() FROM messages WHERE body_ref IS NOT NULL"
    code, out, err = ask(capfdbinary, lake, "--sql", sql, "--output", "jsonl")
    assert code == ExitCode.DAMAGE
    assert len(out.splitlines()) > len(rows)
    assert "bodies are unreadable, and null in the result:" in err


def test_csv_has_two_more_columns(lake: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    out = ask(capfdbinary, lake, *KEYS, "--body", "--output", "csv", "--columns", "body_size")[1]
    found = list(csv.reader(io.StringIO(out.decode())))
    assert found[0] == ["body_size", "body", "body_base64"]
    assert [(row[1] or None, row[2] or None) for row in found[1:]] == [(b or None, e) for b, e in ROWS_WITH_BODIES]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--body", "--count"], "--body and --count"),
        (["--body", "--table", "archive_runs"], "--table and --body cannot be used together"),
        (["--body", "--columns", "topic"], "--columns has no effect with --body"),
        (["--body", "--output", "jsonl", "--limit", "0"], "expected --limit N with 1 to 1000, found 0"),
        (["--body", "--output", "jsonl", "--limit", "1001"], "with_bodies"),
        (["--body-out", "x", "--output", "jsonl"], "--body-out needs --format table"),
        (["--stored-body"], "--stored-body needs one of --body, --body-out and --sql"),
        (["--body", "--bodies", "http://x/y"], "a file: URI, or s3://bucket/prefix"),
        (["--body", "--bodies", "s3://AKIA:secret@bucket/x"], "holds credentials. Leave them out"),
        (["--body", "--bodies", "s3://"], "expected s3://bucket/prefix"),
    ],
)
def test_a_wrong_option_is_refused(
    arguments: Sequence[str], words: str, lake: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = ask(capfdbinary, lake, *arguments)
    assert (code, out) == (2, b"")
    assert words in err
    assert "secret" not in err


def test_bodies_may_be_in_another_folder(lake: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ["--key", "text", "--body", "--bodies"]
    code, _, err = ask(capfdbinary, lake, *arguments, tmp_path / "empty")
    assert code == 2
    assert f"--bodies {tmp_path / 'empty'}: expected the folder with the bodies of the lake, found none" in err
    assert ask(capfdbinary, lake, *arguments, (lake / "bodies").as_uri())[1] == TEXT.encode()


def at_a_terminal(lake: Path, key: str) -> tuple[int, str]:
    """Return exit code and output on a terminal."""
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "query", "--lake", str(lake), "--key", key, "--body"]
    done = subprocess.run(command, stdout=terminal, stderr=terminal, cwd=ROOT, check=False, timeout=120)
    os.close(terminal)
    shown = os.read(main, 10_000).decode()
    os.close(main)
    return done.returncode, shown


def test_a_terminal_is_shown_text_only(lake: Path) -> None:
    assert at_a_terminal(lake, "text") == (0, TEXT + "\r\n")
    for key in ("escape", "binary"):
        code, shown = at_a_terminal(lake, key)
        assert code == 2
        assert "the body contains other bytes than text" in shown
        assert "\x1b" not in shown
