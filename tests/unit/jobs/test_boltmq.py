"""Tests of jobs without Spark on a store in BoltMQ's dialect: supported and unsupported features."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.jobs.dump import command as dump
from commitlake.jobs.explain import command as explain
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.verify import command as verify
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, Magic
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY
from tests.support.indexed_stores import OPTIONS, RARE, write_indexed_store

pytestmark = pytest.mark.usefixtures("own_folder")

COUNT = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for reading only."""
    root = tmp_path_factory.mktemp("boltmq") / "broker-b" / "store"
    return write_indexed_store(root, COUNT, options=replace(OPTIONS, dialect=BOLTMQ))


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return the printed JSON lines."""
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


def test_dump_warns_that_the_index_has_no_chains(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([str(store), "--index"]) == ExitCode.OK
    assert "keys cannot be looked up in this index: BoltMQ writes no chains" in capsys.readouterr().err


def test_explain_states_why_the_index_is_not_used_for_a_key(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.main([str(store), "--topic", RARE, "--key", "order-40"]) == ExitCode.OK
    assert "BoltMQ writes no chains of keys" in capsys.readouterr().out


def test_verify_finds_no_problem(store: Path) -> None:
    assert verify.main([str(store), "--local"]) == ExitCode.OK


def test_verify_names_an_entry_with_another_code(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(store, tmp_path / "damaged"))
    path = next((root / "consumequeue" / RARE).glob("*/*"))
    data = bytearray(path.read_bytes())
    data[ENTRY.size - 1] ^= 1
    path.write_bytes(data)
    assert verify.main([str(root), "--local", "--output", "json"]) == ExitCode.DAMAGE
    (report,) = json.loads(capsys.readouterr().out)["rows"]
    (finding,) = report["findings"]
    assert (finding["code"], finding["queue"]) == ("queue_wrong_tags", f"{RARE}/{path.parent.name}")


@pytest.mark.parametrize("topics", ["kept", "gone"])
def test_rebuild_writes_the_same_files_as_the_broker(store: Path, tmp_path: Path, topics: str) -> None:
    root, out = Path(shutil.copytree(store, tmp_path / "store")), tmp_path / "rebuilt"
    if topics == "gone":
        (root / "config" / "topics.json").unlink()
    assert rebuild.main([str(root), "--out", str(out), "--local"]) == ExitCode.OK
    assert files_of(out / "consumequeue") == files_of(store / "consumequeue")
    assert not (out / "index").exists()
    made = json.loads((out / "config" / "topics.json").read_text())
    written = json.loads((store / "config" / "topics.json").read_text())
    if topics == "kept":
        assert made["topicConfigTable"] == written["topicConfigTable"]
    # Without the file, topics follow from the log, with at least as many queues as are used.
    assert made["topicConfigTable"]["topicConfigs"].keys() == written["topicConfigTable"]["topicConfigs"].keys()


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of files by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_salvage_is_refused(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = rebuild.main([str(store), "--out", str(tmp_path / "rebuilt"), "--local", "--salvage"])
    assert code == ExitCode.USAGE
    assert "is a store of BoltMQ" in capsys.readouterr().err
    assert not (tmp_path / "rebuilt").exists()
