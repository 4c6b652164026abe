"""Tests of `commitlake query --grep`: messages with matching bodies, read bodies, and unreadable bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.jobs.query import command as query
from commitlake.pipelines.maintenance.expiry import record_expiry
from commitlake.schemas.errors import ExitCode
from tests.support.bodies_lake import write_lake_of_bodies
from tests.support.erased_lakes import write_lake

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with bodies of many forms."""
    return write_lake_of_bodies(tmp_path_factory.mktemp("lake"))


def grep(capsys: pytest.CaptureFixture[str], root: Path, *arguments: object) -> tuple[int, list[dict[str, Any]], str]:
    """Return exit code, rows of `--output jsonl`, and standard error."""
    capsys.readouterr()
    code = query.main(["--lake", str(root), "--output", "jsonl", "--grep", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def test_bodies_that_match_are_shown_with_an_excerpt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(write_lake(tmp_path).lake.root)
    code, rows, printed = grep(capsys, root, r'"name":"customer 3[0-4]"')
    assert code == ExitCode.OK
    assert [row["keys"] for row in rows] == [[f"order-{number}"] for number in range(30, 35)]
    assert [(row["match_offset"], row["excerpt"][:38]) for row in rows[:1]] == [
        (13, '{"number":30,"name":"customer 30","not')
    ]
    assert "5 messages match; read 100 bodies" in printed
    assert "in 2 packs" in printed


def test_other_conditions_select_the_bodies_that_are_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(write_lake(tmp_path).lake.root)
    _, rows, printed = grep(capsys, root, "customer", "--topic", "topic-1", "--where", "physical_offset < 3000")
    assert {row["topic"] for row in rows} == {"topic-1"}
    assert f"{len(rows)} messages match; read {len(rows)} bodies" in printed
    assert 0 < len(rows) < 50
    _, rows, printed = grep(capsys, root, "customer", "--key", "order-31")
    assert [row["keys"] for row in rows] == [["order-31"]]
    assert "read 1 body" in printed
    _, by_id, _ = grep(capsys, root, "customer", "--id", rows[0]["unique_key"])
    assert by_id == rows


def test_a_limit_that_cuts_the_result_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(write_lake(tmp_path).lake.root)
    code, rows, printed = grep(capsys, root, "number", "--limit", 7)
    assert (code, len(rows)) == (0, 7)
    assert "--limit 7 cut the result" in printed
    assert "of 100 bodies were read" in printed
    code, rows, printed = grep(capsys, root, "number", "--limit", 100)
    assert (code, len(rows), "cut" in printed) == (0, 100, False)


def test_a_limit_without_a_match_is_not_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(write_lake(tmp_path).lake.root)
    code, rows, printed = grep(capsys, root, "no such text", "--limit", 7)
    assert (code, rows, "cut" in printed) == (0, [], False)


def test_the_number_of_matches_can_be_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(write_lake(tmp_path).lake.root)
    assert query.main(["--lake", str(root), "--grep", '"number":.7,', "--count"]) == 0
    assert capsys.readouterr().out == "9\n"


@pytest.mark.some_cases(3)
@pytest.mark.parametrize(
    ("pattern", "keys", "excerpt"),
    [
        ("4711", ["text", "packed"], '{"order": "4711", "city": "北京"}'),
        ("city.*北京", ["text", "packed"], '{"order": "4711", "city": "北京"}'),
        (r"\x80\x81", ["binary"], None),
        (r"\x1b\[2J", ["escape"], "\x1b[2J"),
        ("^$", ["empty"], ""),
        ("^(first|second)$", ["twice", "twice"], "first"),
    ],
)
def test_compressed_binary_and_empty_bodies_are_searched(
    lake: Path, capsys: pytest.CaptureFixture[str], pattern: str, keys: list[str], excerpt: str | None
) -> None:
    code, rows, _ = grep(capsys, lake, pattern)
    assert code == ExitCode.DAMAGE  # some bodies of this lake cannot be read
    assert [row["keys"][0] for row in rows] == keys
    if excerpt is not None:
        assert rows[0]["excerpt"] == excerpt


def test_bodies_that_cannot_be_read_are_counted_and_named(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, printed = grep(capsys, lake, "no such text")
    assert (code, rows) == (ExitCode.DAMAGE, [])
    assert "4 bodies are unreadable" in printed  # not zlib, too large, with a wrong CRC, in a missing pack
    assert "1 message has no body in the lake" in printed
    assert "no such pack" in printed or "zlib" in printed
    assert query.main(["--lake", str(lake), "--grep", "x", "--quiet"]) == ExitCode.DAMAGE
    assert "are unreadable" in capsys.readouterr().err


def test_expired_bodies_are_not_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = write_lake(tmp_path)
    root = Path(growing.lake.root)
    packs = sorted((root / "bodies").rglob("*.zst"))
    packs[0].unlink()
    code, _, printed = grep(capsys, root, "number", "--limit", 0)
    assert (code, "50 bodies are unreadable" in printed) == (ExitCode.DAMAGE, True)
    newest = max(DeltaTable(growing.lake.uri("messages")).to_pyarrow_table().column("store_date").to_pylist())
    record_expiry(growing.lake, "bodies", newest.replace(year=newest.year + 1))
    code, rows, printed = grep(capsys, root, "number", "--limit", 0)
    assert (code, len(rows)) == (ExitCode.OK, 50)
    assert "50 bodies have expired" in printed


def test_a_damaged_frame_does_not_hide_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(write_lake(tmp_path).lake.root)
    pack = min((root / "bodies").rglob("*.zst"))
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.write_bytes(data)
    code, rows, printed = grep(capsys, root, "number", "--limit", 0)
    assert code == ExitCode.DAMAGE
    assert len(rows) >= 50
    assert f"{100 - len(rows)} bodies are unreadable" in printed


@pytest.mark.parametrize("pattern", ["(", "a**", r"\1", "(?=x)", "", "x{1001}", "a)(b", "x" * 9000])
def test_an_invalid_expression_is_refused(lake: Path, capsys: pytest.CaptureFixture[str], pattern: str) -> None:
    code, rows, printed = grep(capsys, lake, pattern)
    assert (code, rows) == (ExitCode.USAGE, [])
    assert "--grep: " in printed


def test_an_expression_with_nested_repetition_is_fast(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, _ = grep(capsys, lake, "(([^x]+)+)+y$")
    assert (code, rows) == (ExitCode.DAMAGE, [])


@pytest.mark.parametrize(
    "more",
    [
        ["--table", "gaps"], ["--via", "hbase"], ["--sql", "SELECT 1"], ["--body"], ["--order-by", "topic"],
        ["--body-out", "x"],
    ],
)  # fmt: skip
def test_options_that_do_not_go_with_grep_are_refused(
    lake: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    code, _, printed = grep(capsys, lake, "x", *more)
    assert code == ExitCode.USAGE
    assert "--grep" in printed
