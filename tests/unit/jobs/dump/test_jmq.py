"""Tests of dump on a JMQ store's queue files: damage is reported, and does not hide later entries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.jobs.dump import command as dump
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.jmq.queue_file import ENTRY
from tests.support.jmq_stores import QUEUE_FILE_ENTRIES, write_jmq_store

TOPIC, QUEUE = "topic-1", "0"
FILE_BYTES = QUEUE_FILE_ENTRIES * ENTRY.size


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for reading only."""
    return write_jmq_store(tmp_path_factory.mktemp("jmq") / "broker-j" / "store")


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy of the store to change."""
    return Path(shutil.copytree(whole, tmp_path / "broker-j" / "store"))


def numbers(store: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[int], str]:
    """Return the exit code, the numbers of a queue's entries, and standard error."""
    code = dump.main([str(store), "--consumequeue", "--topic", TOPIC, "--queue", QUEUE])
    captured = capsys.readouterr()
    return code, [json.loads(line)["queue_offset"] for line in captured.out.splitlines()], captured.err


def change(path: Path, at: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    before = path.read_bytes()
    path.write_bytes(before[:at] + data + before[at + len(data) :])


def bad_crc(queue: Path) -> str:
    """Change the offset of entry 3, so that its CRC is wrong."""
    change(queue / f"{0:020}", 3 * ENTRY.size + 2, b"\7")
    return f"{queue}/{0:020}, entry 3, byte 66: entry_crc: expected "


def zeros(queue: Path) -> str:
    """Overwrite entries 3 and 4 with zeros."""
    change(queue / f"{0:020}", 3 * ENTRY.size, bytes(2 * ENTRY.size))
    return f"{queue}: no entries 3 to 4, but some after them"


def missing_file(queue: Path) -> str:
    """Delete the second file."""
    (queue / f"{FILE_BYTES:020}").unlink()
    return f"{queue}: no entries 16 to 31, but some after them"


def cut_file(queue: Path) -> str:
    """Truncate the first file in its fifth entry."""
    path = queue / f"{0:020}"
    path.write_bytes(path.read_bytes()[: 4 * ENTRY.size + 12])
    return f"{path}, entry 4, byte 88: expected 22 bytes, found 12 to the end of the file"


@pytest.mark.parametrize(
    ("damage", "lost"),
    [(bad_crc, range(3, 4)), (zeros, range(3, 5)), (missing_file, range(16, 32)), (cut_file, range(4, 16))],
)
def test_damage_in_a_queue_is_reported_and_later_entries_are_printed(
    store: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], str], lost: range
) -> None:
    _, before, _ = numbers(store, capsys)
    sentence = damage(store / "queue" / TOPIC / QUEUE)
    code, found, err = numbers(store, capsys)
    assert code == ExitCode.DAMAGE
    assert found == [number for number in before if number not in lost]
    assert f"damage: {sentence}" in err


def test_an_intact_queue_has_no_damage(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = numbers(whole, capsys)
    assert (code, err) == (ExitCode.OK, f"{len(found)} entries\n")
    assert found == list(range(len(found)))
    assert len(found) > 2 * QUEUE_FILE_ENTRIES


@pytest.mark.parametrize("what", ["--consumequeue", "--index"])
def test_a_path_of_several_stores_is_refused(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    for name in ("a", "b"):
        shutil.copytree(whole, tmp_path / name / "store")
    assert dump.main([str(tmp_path / "{broker}" / "store"), what]) == ExitCode.USAGE
    assert "matches 2 stores: expected one" in capsys.readouterr().err
