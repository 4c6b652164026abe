"""Each command that a page offers runs, on the store and the lake that the page is about."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from commitlake.jobs.cli import main as cli
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.html_pages import parse_page
from tests.support.lakes import SEGMENT, GrowingLake

RAN = {ExitCode.OK, ExitCode.DAMAGE}


@pytest.fixture
def growing(shop: GrowingLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GrowingLake:
    """A copy of the shop's store, which is damaged, and of its lake, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return shop.copy_to(tmp_path / "shop of a")  # a path with spaces


def offered(page: Path, *arguments: str) -> list[list[str]]:
    """Run a job that writes a page, and return the commands that the page offers, without the program."""
    assert cli.main([*arguments, "--html", str(page), "--quiet"]) in RAN
    blocks = parse_page(page.read_text()).of_class("command")
    lines = [shlex.split(code.text) for block in blocks for code in block.all("code")]
    assert [line[0] for line in lines] == ["commitlake"] * len(lines)
    return [line[1:] for line in lines]


def failed(commands: Sequence[Sequence[str]]) -> Iterator[str]:
    """Run commands, and yield those that fail."""
    for words in commands:
        code = cli.main([*words, "--quiet"])
        if code not in RAN:
            yield f"{shlex.join(words)}: exit code {code}"


def jobs_of(commands: Sequence[Sequence[str]]) -> list[str]:
    return [words[0] for words in commands]


def damage_log(growing: GrowingLake) -> None:
    """Overwrite the beginning of a record in the middle of the log."""
    (segment,) = (growing.store / "commitlog").iterdir()
    damage(segment, bytes(growing.log).index(b"\xda\xa3\x20\xa7", len(growing.log) // 2))


def damage(file: Path, position: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(b"????")


@pytest.mark.parametrize("has_lake", [True, False])
def test_commands_of_verify(has_lake: bool, growing: GrowingLake, tmp_path: Path) -> None:
    damage_log(growing)
    lake = ["--lake", growing.lake.root] if has_lake else []
    commands = offered(tmp_path / "verify.html", "verify", str(growing.store), "--local", *lake)
    assert set(jobs_of(commands)) == {"rebuild", *(("archive", "audit") if has_lake else ())}
    assert any("--salvage" in words for words in commands)
    assert list(failed(commands)) == []


def test_commands_of_guard(growing: GrowingLake, tmp_path: Path) -> None:
    first = growing.store / "commitlog" / segment_name(0)
    shutil.copy(first, first.with_name(segment_name(SEGMENT)))  # a broker keeps its newest segment
    os.utime(first, (0, 0))
    places = ["--store", str(growing.store), "--lake", "new lake", "--within", "48h"]
    commands = offered(tmp_path / "guard.html", "guard", *places)
    assert jobs_of(commands) == ["archive"]
    assert list(failed(commands)) == []
    assert (tmp_path / "new lake" / "messages").is_dir()


def test_commands_of_archive(growing: GrowingLake, tmp_path: Path) -> None:
    damage_log(growing)
    store = ["--store", str(growing.store), "--lake", "new lake", "--local", "--no-quality"]
    commands = offered(tmp_path / "archive.html", "archive", *store)
    assert commands == [["query", "--lake", "new lake", "--table", "quarantine"]]
    assert list(failed(commands)) == []


def test_commands_of_audit(growing: GrowingLake, tmp_path: Path) -> None:
    damage(next(Path(growing.lake.uri("messages")).rglob("*.parquet")), 100)
    commands = offered(tmp_path / "audit.html", "audit", "--lake", growing.lake.root, "--local", "--deep")
    assert jobs_of(commands) == ["maintain"]
    assert list(failed(commands)) == []


def test_commands_of_lag(growing: GrowingLake, tmp_path: Path) -> None:
    commands = offered(tmp_path / "lag.html", "lag", "--lake", growing.lake.root)
    assert {"lag"} <= set(jobs_of(commands))
    assert list(failed(commands)) == []


@pytest.mark.parametrize("filters", [(), ("--topic", "orders", "--queue", "0")])
def test_commands_of_tps(filters: tuple[str, ...], growing: GrowingLake, tmp_path: Path) -> None:
    commands = offered(tmp_path / "tps.html", "tps", "--lake", growing.lake.root, *filters)
    assert {"tps", "query"} <= set(jobs_of(commands))
    if filters:
        assert all("--topic" in words for words in commands if words[0] == "tps")
    else:
        assert "dlq" in jobs_of(commands)
    assert list(failed(commands)) == []
    of_store = offered(tmp_path / "tps.html", "tps", "--store", str(growing.store), *filters)
    assert set(jobs_of(of_store)) == {"tps"}
    assert list(failed(of_store)) == []
