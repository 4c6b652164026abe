"""A copy in an object store is rebuilt and salvaged like the store."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.jobs.rebuild import command
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.salvage.run import salvage_store
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.schemas.errors import UsageError
from commitlake.schemas.shipped_manifest import FILES_MANIFEST
from tests.support.indexed_stores import OPTIONS, Clock, message, write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.rebuilt_stores import files_of
from tests.support.remote_copies import COPY, publish, serve_copies, ship_copy
from tests.support.ship_targets import MemoryTarget, folder_target
from tests.support.store_damages import DAMAGES, Damages


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the object store has its objects in."""
    serve_copies(tmp_path / "remote", monkeypatch)
    return tmp_path / "remote"


@pytest.fixture(params=["rocketmq", "jmq"])
def damages(request: pytest.FixtureRequest) -> Damages:
    """Functions that write and damage a store of a format."""
    return DAMAGES[request.param]


@pytest.fixture
def store(damages: Damages, tmp_path: Path) -> Path:
    """A store with its queues, whose sizes of files are not the defaults."""
    write = write_indexed_store if damages.log == "commitlog" else write_jmq_store
    return write(tmp_path / "store")


def found(place: Path | str) -> Store:
    """Return the store of a place."""
    (only,) = find_stores(str(place), "a", formats=all_formats())
    return only


def without_names_of_index_files(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder; IndexFiles are named by the time at which they were made."""
    files = files_of(folder)
    index = [name for name in files if name.startswith("index/")]
    return {name: data for name, data in files.items() if name not in index} | {
        f"index/{number}": files[name] for number, name in enumerate(index)
    }


def test_copy_is_rebuilt_with_the_settings_of_its_queues_and_indexes(store: Path, remote: Path, tmp_path: Path) -> None:
    ship_copy(store, remote)
    expected = rebuild_store(found(store), tmp_path / "of-store", RequestedSettings())
    rebuilt = rebuild_store(found(COPY), tmp_path / "of-copy", RequestedSettings())
    assert rebuilt.settings == expected.settings
    assert rebuilt == replace(expected, out=rebuilt.out)
    files = without_names_of_index_files(tmp_path / "of-copy")
    assert files == without_names_of_index_files(tmp_path / "of-store")
    assert len(files) > 10
    assert not (tmp_path / "of-copy" / ".rebuild" / "parts").exists()


def test_interrupted_rebuild_of_a_copy_continues(store: Path, remote: Path, tmp_path: Path) -> None:
    ship_copy(store, remote)

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        rebuild_store(found(COPY), out, RequestedSettings(), partition_bytes=5000, advance=stop)
    plan = json.loads((out / ".rebuild" / "plan.json").read_text())
    assert plan["root"] == COPY
    with pytest.raises(UsageError, match="an unfinished rebuild of another store"):
        rebuild_store(found(store), out, RequestedSettings(), partition_bytes=5000)
    rebuild_store(found(COPY), out, RequestedSettings(), partition_bytes=5000)
    rebuild_store(found(store), tmp_path / "whole", RequestedSettings())
    expected = without_names_of_index_files(tmp_path / "whole")
    plan_file = ".rebuild/plan.json"
    assert without_names_of_index_files(out) | {plan_file: b""} == expected | {plan_file: b""}


@pytest.mark.parametrize("damages", ["rocketmq"], indirect=True)
def test_damaged_copy_is_salvaged(store: Path, damages: Damages, remote: Path, tmp_path: Path) -> None:
    damages.clear_record(store, damages.record(store))
    ship_copy(store, remote)
    expected = salvage_store(found(store), tmp_path / "of-store")
    salvaged = salvage_store(found(COPY), tmp_path / "of-copy")
    assert salvaged == replace(expected, out=salvaged.out)
    assert salvaged.damages == 1
    logs = [files_of(tmp_path / name / "commitlog") for name in ("of-store", "of-copy")]
    assert logs[0] == logs[1] != {}
    assert files_of(tmp_path / "of-copy" / "config") == files_of(store / "config") != {}
    assert salvage_store(found(COPY), tmp_path / "of-copy") == salvaged  # a later step may have failed


@pytest.mark.parametrize("damages", ["rocketmq"], indirect=True)
def test_records_that_only_the_queues_of_a_copy_have_are_counted_as_lost(
    store: Path, remote: Path, tmp_path: Path
) -> None:
    newest = max((store / "commitlog").iterdir())
    ship_copy(store, remote)
    shutil.rmtree(remote / "copy" / "shipped" / "parts" / "of-commitlog" / newest.name)
    manifest = remote / "copy" / "shipped" / "log.json"
    document = json.loads(manifest.read_text())
    document["files"] = [file for file in document["files"] if not file["name"].endswith(newest.name)]
    manifest.write_text(json.dumps(document))
    assert salvage_store(found(COPY), tmp_path / "out").lost > 0
    (store / "abort").touch()
    ship_copy(store, remote)
    manifest.write_text(json.dumps(document))
    assert salvage_store(found(COPY), tmp_path / "of-running-broker").lost == 0  # its queues may be newer than its log


@pytest.mark.parametrize("damages", ["rocketmq"], indirect=True)
@pytest.mark.parametrize("place", ["objects", "folder"])
def test_newest_record_of_which_a_copy_has_only_the_entry_is_not_lost(
    store: Path, remote: Path, tmp_path: Path, place: str
) -> None:
    target = MemoryTarget() if place == "objects" else folder_target(tmp_path / "copy")
    agent = ShipAgent(SourceStore(str(store)), target, ShipSettings("a"), clock=lambda: 0.0)
    assert agent.ship_round().is_waiting
    if isinstance(target, MemoryTarget):
        publish(target, remote)
    copy = found(COPY if place == "objects" else tmp_path / "copy")
    of_store = salvage_store(found(store), tmp_path / "of-store")
    salvaged = salvage_store(copy, tmp_path / "out")
    assert (salvaged.records, salvaged.lost) == (of_store.records - 1, 0)


@pytest.mark.parametrize("damages", ["rocketmq"], indirect=True)
def test_salvage_reads_the_log_of_a_copy_at_least_as_far_as_its_queues(
    store: Path, remote: Path, tmp_path: Path
) -> None:
    ship_copy(store, remote)
    listed = found(COPY)
    chance = random.Random(2)
    with MessageStore.open(store, OPTIONS, clock=Clock()) as opened:
        for number in range(200):  # more than a segment
            opened.put(message(number, chance))
    ship_copy(store, remote)
    of_store = salvage_store(found(store), tmp_path / "of-store")
    salvaged = salvage_store(listed, tmp_path / "out")
    assert (salvaged.records, salvaged.lost) == (of_store.records, 0)
    assert salvage_store(found(COPY), tmp_path / "out") == salvaged


@pytest.mark.parametrize("damages", ["rocketmq"], indirect=True)
def test_salvage_of_a_copy_that_has_grown_is_not_taken_for_the_same(store: Path, remote: Path, tmp_path: Path) -> None:
    target, seconds = MemoryTarget(), [0.0]
    agent = ShipAgent(SourceStore(str(store)), target, ShipSettings("a"), clock=lambda: seconds[0])
    agent.ship_round()
    publish(target, remote)
    first = salvage_store(found(COPY), tmp_path / "out")
    assert salvage_store(found(COPY), tmp_path / "out") == first
    seconds[0] += 1
    agent.ship_round()  # the newest record, which has been unchanged for a second
    publish(target, remote)
    with pytest.raises(UsageError, match="already contains commitlog"):
        salvage_store(found(COPY), tmp_path / "out")
    assert salvage_store(found(COPY), tmp_path / "other").records == first.records + 1


def test_unknown_topic_is_refused_with_the_nearest_one_of_the_copy(
    store: Path, remote: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ship_copy(store, remote)
    assert command.main([COPY, "--out", str(tmp_path / "out"), "--topic", "topic-l", "--local"]) == 2
    assert "Did you mean 'topic-" in capsys.readouterr().err
    assert command.main([COPY, "--out", str(tmp_path / "out"), "--topic", "topic-1", "--local", "--quiet"]) == 0


def test_copy_is_not_rebuilt_in_place(store: Path, remote: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ship_copy(store, remote)
    assert command.main([COPY, "--in-place", "--local"]) == 2
    assert f"'commitlake ship --store {COPY} --to FOLDER --once' fetches a copy" in capsys.readouterr().err


def test_store_that_was_not_shipped_is_refused(store: Path, remote: Path, tmp_path: Path) -> None:
    ship_copy(store, remote)
    (remote / "copy" / FILES_MANIFEST).unlink()
    with pytest.raises(StoreError, match="expected a copy that 'commitlake ship' made"):
        rebuild_store(found(COPY), tmp_path / "out", RequestedSettings())
    with pytest.raises(StoreError, match="expected a copy that 'commitlake ship' made"):
        salvage_store(found(COPY), tmp_path / "out")
