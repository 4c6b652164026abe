"""Tests of `commitlake explain` on small stores: output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.jobs.explain import command as explain
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import RARE, SEGMENT_BYTES, STORED_MS, unique_key, without_seeks, write_indexed_store

pytestmark = pytest.mark.usefixtures("own_folder")

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def free_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make look-ups free, so that indexes are used for small segments, too."""
    without_seeks(monkeypatch)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with its indexes."""
    return write_indexed_store(tmp_path_factory.mktemp("broker-a") / "store")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit code, output and errors."""
    capsys.readouterr()
    code = explain.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(code), out, err


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, object]]:
    """Return the rows of a successful run."""
    code, out, err = run(capsys, *arguments, "--output", "json")
    assert (code, err) == (0, "")
    return list(json.loads(out)["rows"])


def test_everything_is_answered_by_a_scan(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, store)
    assert row["answered_by"] == ["scan"]
    assert row["bytes"] == row["bytes_planned"]
    assert row["segments"] == row["segments_planned"]
    assert row["reasons"] == {}


def test_a_topic_is_answered_from_its_queues(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, store, "--topic", RARE, "--queue", 0, "--queue", 1)
    assert row["answered_by"] == ["ConsumeQueue"]
    assert row["records"] == 20


def test_a_key_is_answered_from_the_index(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, store, "--topic", RARE, "--key", unique_key(40))
    assert "IndexFile" in row["answered_by"]  # type: ignore[operator]


def test_times_and_offsets_skip_segments(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    middle = STORED_MS + 300_000
    (row,) = rows(capsys, store, "--from", middle, "--to", middle + 1000, "--clock-tolerance", 0)
    assert row["segments_skipped_by_time"] == row["segments"] - row["segments_planned"]  # type: ignore[operator]
    (row,) = rows(capsys, store, "--from-offset", SEGMENT_BYTES, "--to-offset", 2 * SEGMENT_BYTES)
    assert (row["segments_planned"], row["bytes_planned"]) == (1, SEGMENT_BYTES)


def test_a_table_is_the_default_format(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, store, "--topic", "topic-0", "--topic", "topic-1")
    assert code == 0
    assert out.splitlines()[0] == f"{store.parent.name}  {store}/commitlog"
    assert "  answered by scan\n" in out
    assert "  no index    ConsumeQueue: a scan is faster" in out
    code, out, _ = run(capsys, store, "--from", "2100-01-01")
    assert "nothing: no segment can have matching records" in out
    assert "records with a wrong clock between the samples" in out
    assert "0 bytes" not in out


def test_the_option_no_indexes_forces_a_scan(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, store, "--topic", RARE, "--no-indexes")
    assert row["answered_by"] == ["scan"]
    assert list(row["reasons"]) == ["the option useIndexes is false"]  # type: ignore[call-overload]


def test_a_missing_segment_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_indexed_store(tmp_path / "store")
    (root / "commitlog" / segment_name(SEGMENT_BYTES)).unlink()
    code, _, err = run(capsys, root)
    assert code == 3
    assert f"no segment from {SEGMENT_BYTES} to {2 * SEGMENT_BYTES}" in err
    assert run(capsys, root, "--from-offset", 2 * SEGMENT_BYTES)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--key", "a"], "--key needs --topic"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "is not before --to"),
        (["--from-offset", "5", "--to-offset", "5"], "--from-offset 5 is not before --to-offset 5"),
        (["--topic", ""], "--topic: expected a topic, found ''"),
        (["--topic", "a", "--key", " "], "--key: expected a key, found ' '"),
        (["--clock-tolerance", "-1"], "option clockTolerance: expected at least 0 ms, found -1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    store: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    code, _, err = run(capsys, store, *arguments)
    assert code == 2
    assert expected in err


def test_a_path_without_a_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, tmp_path / "nowhere")
    assert code == 2
    assert "does not exist" in err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        explain.main(["--help"])
    assert ended.value.code == 0
    assert "commitlake explain /data/rocketmq/store --topic orders" in capsys.readouterr().out


def test_explain_needs_no_jvm(store: Path) -> None:
    code = f"import sys\nfrom commitlake.jobs.explain import command\nsys.exit(command.main([{str(store)!r}]))"
    environment = {"PATH": "", "HOME": str(store), "JAVA_HOME": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "answered by scan" in done.stdout
