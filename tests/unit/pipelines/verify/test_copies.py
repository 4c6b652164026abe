"""A copy in an object store has the findings of the store, except those of the IndexFile that is not copied."""

from __future__ import annotations

import gc
import pickle
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files import shipped_files
from commitlake.connectors.reading.files.remote_files import RemoteFile
from commitlake.connectors.reading.files.shipped_files import ShippedStoreFiles
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import LocalRunner
from commitlake.connectors.shipping.folder_target import FolderTarget
from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.pipelines.verify import index_check, store_verification
from commitlake.pipelines.verify.findings import Finding
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import StoreReport
from commitlake.schemas.layouts.rocketmq.checkpoint import Checkpoint, serialize_checkpoint
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY
from commitlake.schemas.layouts.rocketmq.indexfile import IndexFileEntry
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.shipped_manifest import FILES_MANIFEST
from tests.support.findings import check_findings
from tests.support.index_damages import (
    index_entry,
    index_header,
    index_paths,
    put_index_entry,
    put_index_header,
    swap_slots,
)
from tests.support.indexed_stores import OPTIONS, STEP_MS, Clock, message, write_indexed_store
from tests.support.remote_copies import COPY, publish, serve_copies, ship_copy, ship_rounds
from tests.support.ship_targets import MemoryTarget
from tests.support.store_damages import DAMAGES, ROCKETMQ, Damages, cut_file, patch
from tests.support.store_reports import report_of
from tests.support.waiting import let_pass

Damage = Callable[[Damages, Path], object]

IN_BOTH: dict[str, Damage] = {
    "none": lambda *_: None,
    "log: a flipped bit in a body": lambda d, root: d.patch_field(root, d.record(root), "body_crc", 1),
    "log: zeros where a record was": lambda d, root: d.clear_record(root, d.record(root)),
    "log: a segment gone": lambda d, root: d.segment(root, 2 * d.segment_bytes)[0].unlink(),
    "log: a segment cut within a record": Damages.cut_segment,
    "queue: an empty entry": lambda d, root: d.clear_entry(root, 5),
    "queue: another's offset": lambda d, root: d.change_entry(root, 5, **{d.offset_name: 0}),
    "queue: an entry too many": lambda d, root: d.put_entry(root, d.queue_end(root), d.entry(root, 0)),
    "queue: gone": lambda d, root: shutil.rmtree(d.queue_folder(root)),
    "queue: the first file gone": lambda d, root: d.queue_file(root, 0)[0].unlink(),
    "queue: a file in the middle gone": lambda d, root: d.queue_file(root, d.queue_file_entries)[0].unlink(),
    "small: no checkpoint": lambda _, root: (root / "checkpoint").unlink(),
    "small: a checkpoint cut": lambda _, root: cut_file(root / "checkpoint", 10),
    "small: a crash": lambda _, root: (root / "abort").touch(),
}
IN_INDEX: dict[str, Callable[[Path], object]] = {
    "chains exchanged": swap_slots,
    "an entry of another key": lambda root: put_index_entry(
        index_paths(root)[1], 7, index_entry(index_paths(root)[1], 7)._replace(key_hash=1)
    ),
    "a count in the last copied file": lambda root: put_index_header(
        index_paths(root)[-2], index_header(index_paths(root)[-2])._replace(index_count=3)
    ),
    "a size that no file has": lambda root: cut_file(index_paths(root)[1], 50),
}


class PickledRunner(LocalRunner):
    """Runner of tasks in this process that are pickled, as for another process."""

    cores = 1

    def run(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        *,
        is_io_bound: bool = False,  # noqa: ARG002 (of the interface)
    ) -> Iterator[tuple[int, Any]]:
        """Run a function over tasks, see `Runner.run`."""
        for number, task in enumerate(tasks):
            yield number, pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task)))))


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder whose content `COPY` names."""
    serve_copies(tmp_path / "remote", monkeypatch)
    monkeypatch.setattr(store_verification, "_QUEUES_AT_ONCE", 5)
    return tmp_path / "remote"


def found_in(report: StoreReport) -> dict[str, list[Finding]]:
    """Return the findings by class, except that of the IndexFile that is not copied."""
    return {code: found for code, found in report.findings.kept.items() if code != "index_not_copied"}


def check_alike(root: Path, remote: Path) -> None:
    """Check that a store and its copy have the same findings, and the same figures."""
    expected = report_of(root, limit=1000)
    ship_copy(root, remote)
    report = report_of(COPY, PickledRunner(), limit=1000)
    assert found_in(report) == expected.findings.kept
    assert report.root == COPY
    assert (report.records, report.bytes, report.queues, report.groups, report.segments) == (
        expected.records, expected.bytes, expected.queues, expected.groups, expected.segments,
    )  # fmt: skip
    assert not report.is_live


def opened_copies() -> int:
    """Return the number of copies whose manifests are in memory."""
    gc.collect()
    return sum(type(each) is ShippedStoreFiles for each in gc.get_objects())  # isinstance fails for some proxies


def test_manifests_of_few_copies_are_in_memory_at_a_time(
    store: Path, tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_verification, "MAX_COPIES_AT_ONCE", 2)
    ship_copy(store, remote)
    for name in "bcde":
        shutil.copytree(remote / "copy", remote / "copies" / name)
    stores = find_stores(COPY.removesuffix("copy") + "copies/{broker}", formats=COMMITLOGS)
    most = []

    class Counting(PickledRunner):
        """A runner that counts the opened copies before its tasks."""

        def run(
            self, function: Callable[[Any], Any], tasks: Sequence[Any], *, is_io_bound: bool = False
        ) -> Iterator[tuple[int, Any]]:
            """Run a function over tasks, see `Runner.run`."""
            shipped_files._open_files_for_run.cache_clear()  # of the tasks, which usually run in other processes
            most.append(len({task[1].value.broker for task in tasks}))
            assert opened_copies() <= most[-1] + before
            return super().run(function, tasks, is_io_bound=is_io_bound)

    before = opened_copies()
    reports = store_verification.verify_stores(stores, VerifyOptions(), runner=Counting())
    assert [report.broker for report in reports] == [store.broker for store in stores]
    assert most == [2, 2]
    assert [list(report.findings.kept) for report in reports] == [["index_not_copied"]] * 4


def test_copy_without_a_manifest_is_an_error_before_others_are_read(
    store: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_verification, "MAX_COPIES_AT_ONCE", 1)
    ship_copy(store, remote)
    for name in "bc":
        shutil.copytree(remote / "copy", remote / "copies" / name)
    (remote / "copies" / "c" / FILES_MANIFEST).unlink()
    stores = find_stores(COPY.removesuffix("copy") + "copies/{broker}", formats=COMMITLOGS)
    read: list[int] = []
    with pytest.raises(StoreError, match="copies/c: expected a copy that 'commitlake ship' made"):
        store_verification.verify_stores(stores, VerifyOptions(), advance=read.append)
    assert read == []


OTHER_FORMAT = pytest.mark.long("a copy of a store of one of the formats has this damage each time")


def ship_to_folder(store: Path, copy: Path) -> None:
    """Ship a store to a folder; its newest IndexFile is not copied."""
    target = FolderTarget(str(copy), BandwidthLimit())
    target.claim()
    ship_rounds(store, target)
    target.close()


@pytest.mark.parametrize(
    ("title", "name"),
    [
        pytest.param(title, name, marks=() if (place + number) % len(DAMAGES) == 0 else OTHER_FORMAT)
        for place, title in enumerate(IN_BOTH)
        for number, name in enumerate(DAMAGES)
    ],
)
def test_copy_has_the_findings_of_the_store(
    title: str, name: str, intact: Path, intact_jmq: Path, tmp_path: Path, remote: Path
) -> None:
    root = shutil.copytree({"rocketmq": intact, "jmq": intact_jmq}[name], tmp_path / "store")
    IN_BOTH[title](DAMAGES[name], root)
    check_alike(root, remote)


@pytest.mark.parametrize("title", IN_INDEX)
def test_copied_index_files_have_the_findings_of_the_stores(
    title: str, store: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_files, "MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(shipped_files, "BLOCK_BYTES", 512)
    monkeypatch.setattr(index_check, "_PIECE_BYTES", 1000)
    IN_INDEX[title](store)
    assert any(code.startswith("index_") for code in report_of(store).findings.codes)
    check_alike(store, remote)


def test_copy_of_a_store_with_queues_in_rocksdb_has_queues_that_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_indexed_store(tmp_path / "store")
    queues = sum(len(list(topic.iterdir())) for topic in (store / "consumequeue").iterdir())
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000004\n")
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(store, tmp_path / "remote")
    check_findings(report_of(store).findings, {"queue_not_compared": queues})
    check_findings(report_of(COPY).findings, {"queue_not_compared": queues, "index_not_copied": 1})


def test_index_file_that_is_not_copied_is_one_note(store: Path, remote: Path) -> None:
    ship_copy(store, remote)
    report = report_of(COPY)
    check_findings(report.findings, {"index_not_copied": 1})
    assert report.index_files == len(index_paths(store)) - 1
    newest = index_entry(index_paths(store)[-1], 4).physical_offset  # its first entries may belong to the record before
    (finding,) = report.findings
    assert finding.physical_offset is not None
    assert finding.physical_offset <= newest
    later = sum(ROCKETMQ.offset_of(each) >= finding.physical_offset for each in ROCKETMQ.messages(store))
    assert finding.found == f"no file with the keys of {later} records"


def test_copy_of_a_store_with_a_single_index_file_has_none(tmp_path: Path, remote: Path) -> None:
    store = write_indexed_store(tmp_path / "store", 20)
    assert report_of(store).findings.counts == {}
    ship_copy(store, remote)
    report = report_of(COPY)
    check_findings(report.findings, {"index_not_copied": 1})
    assert [each.found for each in report.findings] == ["no file with the keys of 20 records"]


def test_newest_index_file_of_a_copy_in_a_folder_is_checked(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ship_to_folder(store, copy)
    check_findings(report_of(copy).findings, {"index_not_copied": 1})
    newest = index_paths(store)[-1]
    shutil.copy2(newest, copy / "index")  # as 'commitlake rebuild' makes it
    assert report_of(copy).findings.counts == {}
    last = index_header(newest).index_count - 1
    put_index_entry(copy / "index" / newest.name, last, index_entry(newest, last)._replace(key_hash=1))
    assert "index_wrong_hash" in report_of(copy).findings.codes


def test_lost_end_of_a_rebuilt_newest_index_file_has_the_findings_of_the_store(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ship_to_folder(store, copy)
    newest = index_paths(store)[-1]
    for number in range(2, index_header(newest).index_count):
        put_index_entry(newest, number, IndexFileEntry(0, 0, 0, 0))
    put_index_header(newest, index_header(newest)._replace(index_count=2))
    shutil.copy2(newest, copy / "index")
    expected = report_of(store, limit=1000).findings
    assert expected.counts["index_missing_entry"] > 2
    assert report_of(copy, limit=1000).findings.kept == expected.kept


def test_copied_index_files_that_were_deleted_at_the_end_are_reported(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ship_to_folder(store, copy)
    deleted = index_paths(copy)[-2:]
    for path in deleted:
        path.unlink()
    report = report_of(copy)
    check_findings(report.findings, {"index_missing_entry": 2, "index_not_copied": 1})
    missing = report.findings.kept["index_missing_entry"]
    assert [each.file for each in missing] == [f"index/{path.name}" for path in deleted]


def test_log_that_was_shipped_after_its_queues_is_not_damage(tmp_path: Path, remote: Path) -> None:
    target, chance = MemoryTarget(), random.Random(4)
    store = write_indexed_store(tmp_path / "store", 100)
    agent = ship_rounds(store, target)
    let_pass(0.01, "the manifest of the log has a later time than that of the queues")
    clock = Clock()
    clock.now_ms += 1000 * STEP_MS
    with MessageStore.open(store, OPTIONS, clock=clock) as opened:
        for number in range(100, 110):
            opened.put(message(number, chance))
        agent.ship_round(includes_other_files=False)
    publish(target, remote)
    check_findings(report_of(COPY).findings, {"queue_not_dispatched": 10, "index_not_copied": 1})
    agent.ship_round()
    publish(target, remote)
    check_findings(report_of(COPY).findings, {"index_not_copied": 1})


@pytest.mark.parametrize("name", DAMAGES)
def test_newest_record_is_shipped_after_its_entries(name: str, intact: Path, intact_jmq: Path, remote: Path) -> None:
    store, target = {"rocketmq": intact, "jmq": intact_jmq}[name], MemoryTarget()
    now = [0.0]
    agent = ShipAgent(SourceStore(str(store)), target, ShipSettings("broker-a"), clock=lambda: now[0])
    without_index = {"index_not_copied": 1} if name == "rocketmq" else {}
    for expected in ({"log_not_copied": 1}, {}):
        agent.ship_round()
        publish(target, remote)
        check_findings(report_of(COPY).findings, expected | without_index)
        now[0] += 1


def test_missing_entry_is_no_lag_while_the_newest_record_is_awaited(tmp_path: Path, remote: Path) -> None:
    root, chance, target = tmp_path / "store", random.Random(3), MemoryTarget()
    with MessageStore.open(root, OPTIONS, clock=Clock()) as opened:
        for number in range(60):
            opened.put(replace(message(number, chance), topic="only", queue_id=0))
    path, position = ROCKETMQ.queue_file(root, 5, ("only", 0))
    patch(path, position, bytes(ENTRY.size))
    (root / "abort").touch()
    ShipAgent(SourceStore(str(root)), target, ShipSettings("broker-a"), clock=lambda: 0.0).ship_round()
    publish(target, remote)
    check_findings(
        report_of(COPY).findings,
        {"queue_missing_entry": 1, "log_not_copied": 1, "abort_present": 1, "index_not_copied": 1},
    )


@pytest.mark.parametrize(
    ("beyond", "expected"), [(1, {}), (DEFAULT_MAX_RECORD_BYTES, {}), (1 << 40, {"checkpoint_ahead": 1})]
)
def test_checkpoint_may_confirm_no_more_than_the_awaited_record(
    intact: Path, tmp_path: Path, remote: Path, beyond: int, expected: dict[str, int]
) -> None:
    root, target = shutil.copytree(intact, tmp_path / "store"), MemoryTarget()
    newest = ROCKETMQ.messages(root)[-1].physical_offset
    (root / "checkpoint").write_bytes(serialize_checkpoint(Checkpoint(logics_physical_offset=newest + beyond)))
    ShipAgent(SourceStore(str(root)), target, ShipSettings("broker-a"), clock=lambda: 0.0).ship_round()
    publish(target, remote)
    check_findings(report_of(COPY).findings, {"log_not_copied": 1, "index_not_copied": 1} | expected)


def test_entries_that_are_shipped_during_verify_are_ignored(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, chance = MemoryTarget(), random.Random(4)
    with MessageStore.open(tmp_path / "store", OPTIONS, clock=Clock()) as opened:
        for number in range(110):
            opened.put(message(number, chance))
        agent = ship_rounds(tmp_path / "store", target)
        publish(target, remote)

        class Growing(PickledRunner):
            """A runner before whose tasks the copy grows."""

            def run(
                self, function: Callable[[Any], Any], tasks: Sequence[Any], *, is_io_bound: bool = False
            ) -> Iterator[tuple[int, Any]]:
                """Run a function over tasks, see `Runner.run`."""
                for number in range(110, 200):
                    opened.put(message(number, chance))
                agent.ship_round()
                publish(target, remote)
                yield from super().run(function, tasks, is_io_bound=is_io_bound)

        report = report_of(COPY, Growing())
    assert report.records == 110
    check_findings(report.findings, {"abort_present": 1, "index_not_copied": 1})


def test_missing_object_is_an_error(store: Path, remote: Path) -> None:
    ship_copy(store, remote)
    path = ROCKETMQ.queue_file(store, 0)[0].relative_to(store)
    (remote / "copy" / path).unlink()
    with pytest.raises(StoreError, match=rf"copy/{path}: expected \d+ bytes, found no such object"):
        report_of(COPY)


def test_store_in_an_object_store_that_was_not_shipped_is_refused(store: Path, remote: Path) -> None:
    ship_copy(store, remote)
    (remote / "copy" / FILES_MANIFEST).unlink()
    with pytest.raises(StoreError, match=f"{COPY}: expected a copy that 'commitlake ship' made, .* {FILES_MANIFEST}"):
        report_of(COPY)


def test_full_temporary_folder_is_named(store: Path, remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship_copy(store, remote)
    full = partial(open, "/dev/full", "r+b", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full())
    with pytest.raises(StoreError, match=f"{COPY}/index/.* 4240 bytes of room are needed in the temporary folder"):
        report_of(COPY)


def test_queues_are_not_read_again_for_each_range(store: Path, remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship_copy(store, remote)
    paths: list[str] = []
    opened = RemoteFile.__init__

    def open_remote(file: RemoteFile, filesystem: object, path: str) -> None:
        paths.append(path)
        opened(file, filesystem, path)

    monkeypatch.setattr(RemoteFile, "__init__", open_remote)
    report_of(COPY)
    of_queues = [path for path in paths if "consumequeue" in path]
    assert len(of_queues) == len(set(of_queues)) > 10
