"""Jobs over stores whose log continues in a folder that is not read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.sources.commitlog import CommitLogReader
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.audit.command import main as audit
from commitlake.jobs.dump.command import main as dump
from commitlake.jobs.explain.command import main as explain
from commitlake.jobs.guard.command import main as guard
from commitlake.jobs.rebuild.command import main as rebuild
from commitlake.jobs.ship.command import main as ship
from commitlake.jobs.tps.command import main as tps
from commitlake.jobs.verify.command import main as verify
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.tables.messages import SOURCE
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.indexed_stores import SEGMENT_BYTES, write_indexed_store

OTHER = "disk-2/commitlog"
LOCAL = ("--local", "--processes", "1")
Job = Callable[[Sequence[str]], int]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose newest segment is in a folder that only a file in the store names; its indexes know it."""
    root = write_indexed_store(tmp_path_factory.mktemp("unread") / "broker-a" / "store", 100)
    newest = root / "commitlog" / segment_name(SEGMENT_BYTES)
    other = root.parent / OTHER
    other.mkdir(parents=True)
    newest.rename(other / newest.name)
    (root / "broker.conf").write_text(f"storePathCommitLog={root}/commitlog,{other}\n")
    return root


def test_archive_takes_what_it_reads_and_says_that_there_is_more(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    arguments = [
        "--store",
        str(store),
        "--lake",
        str(tmp_path / "lake"),
        "--local",
        "--html",
        str(tmp_path / "run.html"),
    ]
    assert archive(arguments) == ExitCode.DAMAGE
    printed = capsys.readouterr().err
    assert "other messages of the stores are not read" in printed
    assert "without problems" not in printed
    assert OTHER in caplog.text
    assert OTHER in (tmp_path / "run.html").read_text()
    caplog.clear()
    assert archive(arguments) == ExitCode.DAMAGE
    assert "No new messages in 1 store" in capsys.readouterr().err
    assert OTHER in caplog.text
    assert guard(["--store", str(store), "--lake", str(tmp_path / "lake")]) == ExitCode.DAMAGE
    printed = capsys.readouterr().err
    assert "no segment is lost or at risk" not in printed
    assert "1 store has messages in folders that are not read" in printed
    assert "Not read: broker-a\n  " in printed
    caplog.clear()
    assert audit(["--store", str(store), "--lake", str(tmp_path / "lake"), "--local"]) == ExitCode.DAMAGE
    assert OTHER in caplog.text


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        (tps, ["--store", "STORE"]),
        (explain, ["--store", "STORE"]),
        (ship, ["--store", "STORE", "--to", "OUT", "--once"]),
        (rebuild, ["STORE", "--out", "OUT", "--local"]),
        (dump, ["STORE"]),
    ],
    ids=["tps", "explain", "ship", "rebuild", "dump"],
)
@pytest.mark.usefixtures("usual_priority")
def test_every_job_that_reads_the_store_exits_with_3(
    job: Job, arguments: Sequence[str], store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    places = {"STORE": str(store), "OUT": str(tmp_path / "out")}
    assert job([places.get(word, word) for word in arguments]) == ExitCode.DAMAGE
    assert caplog.text.count(f"{OTHER} has 1 segment of the log") == 1


def test_verify_does_not_call_messages_lost_that_are_in_another_folder(
    store: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert verify([str(store), *LOCAL]) == ExitCode.DAMAGE
    assert OTHER in caplog.text
    printed = capsys.readouterr().out
    assert "log_elsewhere" in printed
    assert "newer_elsewhere" in printed
    assert "lost" not in printed


def test_verify_explains_entries_of_a_copy_that_is_older_than_its_queues(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("broker.conf", "checkpoint"))
    assert verify([str(copy), *LOCAL]) == ExitCode.DAMAGE
    printed = " ".join(capsys.readouterr().out.split())
    assert "it is a copy that is older than the queues" in printed
    assert "in a copy, copy the log again after the queues" in printed


def test_rebuild_in_place_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rebuild([str(store), "--in-place", "--local"]) == ExitCode.REFUSED
    assert "messages in this log are not read, and would be missing in the rebuilt queues" in capsys.readouterr().err


def test_source_fails_unless_it_is_permissive(store: Path) -> None:
    def partitions(mode: str) -> int:
        return len(
            CommitLogReader(
                ReadOptions.parse({"path": str(store), "mode": mode}, formats=COMMITLOGS),
                spark_schema(SOURCE.select_columns(["topic"])),
            ).partitions()
        )

    with pytest.raises(StoreError, match=OTHER):
        partitions("FAILFAST")
    assert partitions("DROPMALFORMED") == 1
