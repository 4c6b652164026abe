"""Tests of the command `restore`: written files, messages, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.restore.command import _read_offsets_file, main
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.schemas.errors import ExitCode
from tests.support.indexed_stores import SEGMENT_BYTES, STORED_MS, write_indexed_store

SIZES = ("--queue-file-size", "320", "--index-slots", "50", "--index-entries", "200")
COUNT = 200


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for reading only."""
    return write_indexed_store(tmp_path_factory.mktemp("restored") / "broker-a" / "store", COUNT)


@pytest.fixture
def lake(store: Path, tmp_path: Path) -> Path:
    """A lake with the store."""
    lake = Lake(str(tmp_path / "lake"))
    work = find_archive_work(str(store), None, lake)
    open_messages_for_append(lake)
    tasks = ArchiveTasks(work.splits(5000), lake, work.commit.run_id, "1")
    manifest = list(tasks.run_task(0, tasks.parts))
    commit_run(
        lake,
        [row.data_file for row in manifest if row.table == "messages"],
        work.commit,
        work.previous_progress,
    )
    return tmp_path / "lake"


def restore(lake: Path, *arguments: str) -> int:
    """Run the command."""
    return main(["--lake", str(lake), "--out", str(lake.parent / "out"), *SIZES, *arguments])


def segments(root: Path) -> list[tuple[str, bytes]]:
    """Return the contents of a log's files."""
    return [(path.name, path.read_bytes()) for path in sorted((root / "commitlog").iterdir())]


def test_a_store_is_restored(lake: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restore(lake) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"broker-a: {COUNT} records from physical offset 0 to " in printed.err
    assert f"{COUNT} entries of 12 queues, 800 keys" in printed.err
    assert "no group offsets" in printed.err
    assert f"the broker needs mappedFileSizeCommitLog={SEGMENT_BYTES}" in printed.err
    assert segments(lake.parent / "out") == segments(store)


def test_quiet_prints_nothing(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restore(lake, "--quiet") == ExitCode.OK
    assert capsys.readouterr() == ("", "")


def test_a_store_is_restored_as_it_was_at_a_time(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restore(lake, "--at", str(STORED_MS + 51_000), "--broker", "broker-a") == ExitCode.OK
    assert "broker-a: 41 records from physical offset 0 to 10699, in 1 segment of 16,384" in capsys.readouterr().err


def test_a_range_of_offsets_can_be_selected(lake: Path) -> None:
    assert restore(lake, "--from-offset", "20000", "--to-offset", "40000") == ExitCode.OK
    assert [int(name) for name, _ in segments(lake.parent / "out")] == [16384, 32768]


def test_offsets_of_groups_are_read_from_a_file(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lake.parent / "offsets.json"
    path.write_text(json.dumps({"offsetTable": {"rare@group": {"0": 1, "1": 50}}}))
    assert restore(lake, "--offsets", str(path)) == ExitCode.OK
    assert "1 group offsets were beyond the end of the log, and are set to its end; 0 belong" in capsys.readouterr().err
    assert '"rare@group"' in (lake.parent / "out" / "config" / "consumerOffset.json").read_text()


def test_a_missing_body_is_an_error_or_left_out(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    min(lake.rglob("*.zst")).unlink()
    assert restore(lake) == ExitCode.USAGE
    assert "Has it expired by a lifecycle rule?" in capsys.readouterr().err
    out = lake.parent / "other"
    assert main(["--lake", str(lake), "--out", str(out), *SIZES, "--on-missing", "skip"]) == ExitCode.DAMAGE
    found = capsys.readouterr().err
    assert "records are left out" in found
    assert "restore-notes.jsonl lists them" in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "now", "--to", "now"], "--at and --to cannot be used together"),
        (["--from", "-1h", "--to", "-2h"], "is not before --to"),
        (["--from-offset", "5", "--to-offset", "5"], "--from-offset 5 is not before --to-offset 5"),
        (["--broker", "broker-b"], "--broker: the lake has no store 'broker-b'. Did you mean 'broker-a'?"),
        (["--offsets", __file__], "expected a consumerOffset.json"),
        (["--queue-file-size", "30"], "expected a multiple of 20"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    lake: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert restore(lake, *arguments) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_a_folder_that_is_not_a_lake_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restore(tmp_path) == ExitCode.USAGE
    assert "is not a lake" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--from-offset", "-1"], ["--threads", "0"], ["--delay-levels", "1x"]])
def test_invalid_values_are_refused(lake: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        restore(lake, *arguments)
    assert end.value.code == 2


def test_offsets_are_read_up_to_a_limit() -> None:
    with pytest.raises(
        JobError, match=r"--offsets /dev/zero: expected a file of at most \d+ bytes, found a larger one"
    ):
        _read_offsets_file(Path("/dev/zero"))
