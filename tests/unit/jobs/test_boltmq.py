"""Jobs without Spark on a store in BoltMQ's dialect: what works on it, and what refuses it with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import dump, explain, rebuild, verify
from jobs.command import ExitCode
from schemas.layouts.dialect import BOLTMQ, Magic
from tests.indexed_stores import OPTIONS, RARE, write_indexed_store

COUNT = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody changes."""
    root = tmp_path_factory.mktemp("boltmq") / "broker-b" / "store"
    return write_indexed_store(root, COUNT, options=replace(OPTIONS, dialect=BOLTMQ))


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """The JSON lines that were printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_dump_prints_every_record(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([str(store)]) == ExitCode.OK
    found = rows(capsys)
    assert [row["magic"] for row in found] == [int(Magic.BOLTMQ)] * COUNT
    assert [row["keys"] for row in found] == [[f"order-{number}", f"group-{number % 50}"] for number in range(COUNT)]
    assert all(0 <= row["body_crc"] < 1 << 31 for row in found)  # type: ignore[operator]


def test_dump_prints_the_queues_fnv_codes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([str(store), "--consumequeue", "--topic", RARE]) == ExitCode.OK
    assert {row["tags_code"] for row in rows(capsys)} == {BOLTMQ.tags_code("tag-0")}


def test_dump_of_the_index_says_that_it_leads_nowhere(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([str(store), "--index"]) == ExitCode.OK
    assert "no key can be looked up in this index: BoltMQ writes no chains" in capsys.readouterr().err


def test_explain_tells_why_no_index_is_used_for_a_key(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.main([str(store), "--topic", RARE, "--key", "order-40"]) == ExitCode.OK
    assert "BoltMQ writes no chains of keys" in capsys.readouterr().out


@pytest.mark.parametrize("job", ["verify", "rebuild"])
def test_what_knows_rocketmqs_hashes_alone_refuses_the_store(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    if job == "verify":
        code = verify.main([str(store), "--local"])
    else:
        code = rebuild.main([str(store), "--out", str(tmp_path / "rebuilt"), "--local"])
    assert code == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert f"is a log of BoltMQ's: expected one of RocketMQ's, whose queues and index {job} knows" in errors
    assert not (tmp_path / "rebuilt").exists()
