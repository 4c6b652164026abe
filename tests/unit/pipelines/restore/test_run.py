"""Runs that are interrupted, and folders, lakes and disks that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.runtime.local_runner import ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.restore import run
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.plan import WORK
from commitlake.pipelines.restore.run import RestoreResult
from commitlake.schemas.errors import UsageError
from tests.support.indexed_stores import SEGMENT_BYTES, write_indexed_store
from tests.support.restored_stores import StoppedError, packs_of, segments, stop_after

Archive = Callable[..., Lake]
Restore = Callable[..., RestoreResult]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of eleven segments."""
    return write_indexed_store(tmp_path / "store")


@pytest.fixture
def lake(store: Path, archive: Archive) -> Lake:
    """A lake of it."""
    return archive(store)


@pytest.fixture
def interrupted(tmp_path: Path, lake: Lake, restore: Restore) -> Path:
    """The folder of a run that was interrupted after its fifth segment."""
    with pytest.raises(StoppedError):
        restore(lake, begin_progress=stop_after(5))
    return tmp_path / "out"


def test_an_interrupted_run_continues_with_the_missing_segments(
    store: Path, lake: Lake, restore: Restore, interrupted: Path
) -> None:
    before = {path.name: path.stat().st_ino for path in (interrupted / WORK / "commitlog").glob("0*[0-9]")}
    assert len(before) == 5
    assert not (interrupted / "commitlog").exists()
    told: list[int] = []
    restored = restore(lake, begin_progress=lambda total: told.append(total) or told.append)  # type: ignore[func-returns-value]
    assert segments(interrupted) == segments(store)
    after = {path.name: path.stat().st_ino for path in (interrupted / "commitlog").iterdir()}
    assert before.items() <= after.items()
    assert restored.records == 600
    assert told[0] == sum(told[1:])
    assert not (interrupted / WORK).exists()


def test_a_continued_run_ignores_messages_archived_since(
    store: Path, lake: Lake, archive: Archive, restore: Restore, interrupted: Path
) -> None:
    before = segments(store)
    write_indexed_store(store, 100, seed=2)
    archive(store)
    assert restore(lake).records == 600
    assert segments(interrupted) == before


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param(ThreadRunner(3), id="threads"),
        pytest.param(ProcessRunner(2), id="processes", marks=pytest.mark.long("two processes start")),
    ],
)
def test_tasks_of_any_runner_restore_the_same(store: Path, lake: Lake, restore: Restore, runner: Runner) -> None:
    restored = restore(lake, runner=runner)
    assert restored.records == 600
    assert segments(restored.out) == segments(store)


@pytest.mark.parametrize("stage", ["_write_config", "_rebuild", "_write_difference_notes"])
def test_a_run_interrupted_after_its_log_is_continued(
    store: Path, lake: Lake, restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run, stage, lambda *_: (_ for _ in ()).throw(StoppedError))
        with pytest.raises(StoppedError):
            restore(lake)
    restored = restore(lake)
    assert (restored.records, restored.rebuilt.entries) == (600, 600)
    assert segments(tmp_path / "out") == segments(store)


def test_a_restored_store_is_not_overwritten(lake: Lake, restore: Restore, tmp_path: Path) -> None:
    restore(lake)
    with pytest.raises(UsageError, match="contains checkpoint, and nothing is overwritten"):
        restore(lake)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        restore(lake, tmp_path / "file")


def test_an_unfinished_run_with_other_options_is_refused(lake: Lake, restore: Restore, interrupted: Path) -> None:
    changes: tuple[dict[str, object], ...] = (
        {"skips_missing_bodies": True}, {"selection": RestoreSelection("", 5)}, {"segment_size": SEGMENT_BYTES * 2},
    )  # fmt: skip
    for change in changes:
        with pytest.raises(
            UsageError, match="contains an unfinished restore of another lake, or one with other options"
        ):
            restore(lake, **change)
    (interrupted / WORK / "plan.json").write_text("[")
    with pytest.raises(UsageError, match="contains an unfinished restore"):
        restore(lake)


def test_a_run_that_failed_can_be_run_again(lake: Lake, restore: Restore, store: Path, tmp_path: Path) -> None:
    pack = list(packs_of(lake))[-1]
    hidden = pack.rename(tmp_path / "hidden")
    with pytest.raises(UsageError, match="pack"):
        restore(lake)
    hidden.rename(pack)
    assert segments(restore(lake).out) == segments(store)


def test_a_disk_without_room_is_refused_before_anything_is_written(
    lake: Lake, restore: Restore, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"[\d,]+ bytes of free disk are needed for 1 segment.*found [\d,]+"):
        restore(lake, segment_size=1 << 50)
    assert not (tmp_path / "out").exists()


def test_the_broker_must_be_named_if_there_are_several(
    store: Path, lake: Lake, archive: Archive, restore: Restore
) -> None:
    archive(store, broker="it's b")
    with pytest.raises(UsageError, match="the lake has 2 brokers: name one of them with --broker: a, it's b"):
        restore(lake)
    assert segments(restore(lake, selection=RestoreSelection("it's b")).out) == segments(store)


def test_a_folder_without_a_lake_is_refused(restore: Restore, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="does not exist"):
        restore(Lake(str(tmp_path / "none")))


def test_groups_begin_at_their_offsets(lake: Lake, restore: Restore) -> None:
    restored = restore(lake, offsets={"rare@group": {0: 4, 1: 99}, "gone@group": {0: 7}})
    config = restored.out / "config"
    assert restored.offsets is not None
    assert (restored.offsets.set_back, restored.offsets.left_out) == (1, 1)
    assert '"rare@group":{\n\t\t\t0:4,\n\t\t\t1:10\n\t\t}' in (config / "consumerOffset.json").read_text()
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert list(groups) == ["group"]
    assert sorted(path.name for path in config.iterdir()) == [
        "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json",
    ]  # fmt: skip
