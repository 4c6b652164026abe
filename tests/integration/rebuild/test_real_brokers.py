"""Rebuilt and salvaged stores compared with real brokers' own: byte by byte, and served to their clients.

Only two things are not compared, because they cannot be equal: names of IndexFiles, which are times of creation, and
the checkpoint, which has the times up to which a broker had flushed its files.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.jobs.rebuild.command import main
from commitlake.pipelines.rebuild.run import RebuildResult, rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings, find_settings
from commitlake.pipelines.salvage.run import salvage_store
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS
from tests.servers.java_programs import Row, consume_all, dump_store, run_java
from tests.servers.recording import RECORDING_OPTIONS, RecordedStore
from tests.servers.rocketmq import SMALL_FILES, RocketMQ, StartBroker
from tests.support.served_stores import LEVELS, assert_same, assert_serves, business, files_of, ipv4

INDEXES = ("consumequeue", "batchconsumequeue", "index", "checkpoint")
FAULTS = 12


def rebuild(root: Path, out: Path, like: Path | None = None, *, close_heads: bool = False) -> RebuildResult:
    """Rebuild a store; where nothing is left of its indexes, with the settings of another."""
    (model,) = find_stores(str(like or root), "a", formats=COMMITLOGS)
    found = find_settings(like or root, RequestedSettings(delay_levels_ms=LEVELS), ROCKETMQ, segments=model.segments)
    sizes = found.queue_file_size, found.index_slots, found.index_entries
    wanted = RequestedSettings(None, *sizes, found.index_tags, LEVELS, close_heads)
    (store,) = find_stores(str(root), "a", formats=COMMITLOGS)
    return rebuild_store(store, out, wanted, partition_bytes=400_000)


def without_indexes(root: Path) -> Path:
    """Take away all that a rebuild makes."""
    for name in INDEXES:
        if (root / name).is_dir():
            shutil.rmtree(root / name)
        else:
            (root / name).unlink(missing_ok=True)
    return root


def test_a_rebuilt_store_equals_the_brokers_own(recorded_store: RecordedStore, tmp_path: Path) -> None:
    rebuilt = rebuild(recorded_store.store, tmp_path / "out")
    assert rebuilt.totals.records == len(recorded_store.decoded)
    assert rebuilt.index_files > 3
    assert_same(recorded_store.store, rebuilt.out)


@pytest.mark.long("a whole log is compared with the broker's own files each time")
def test_a_rebuild_without_the_first_segment_equals_the_brokers_own(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    theirs = without_indexes(recorded_store.copy_to(tmp_path / "theirs"))
    min((theirs / "commitlog").iterdir()).unlink()
    ours = Path(shutil.copytree(theirs, tmp_path / "ours"))
    servers = start_broker(recorded_store.version, theirs, RECORDING_OPTIONS)
    servers.stop_broker()
    # The broker may have added records of its own after the end; they are in its log, too.
    shutil.copytree(theirs / "commitlog", ours / "commitlog", dirs_exist_ok=True)
    assert_same(theirs, rebuild(ours, tmp_path / "out", like=recorded_store.store).out)


@pytest.mark.long("the rebuilt files equal the broker's own, and a broker serves a salvaged store, each time")
def test_a_broker_serves_every_message_of_a_rebuilt_store(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = without_indexes(recorded_store.copy_to(tmp_path / "store"))
    (root / "config" / "topics.json").unlink()
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    rebuild(root, root, like=recorded_store.store)
    before = files_of(root / "consumequeue")
    servers = start_broker(recorded_store.version, root, RECORDING_OPTIONS, recorded_store.broker_port)
    assert_serves(servers, ipv4(business(recorded_store.decoded)))
    servers.stop_broker()
    after = files_of(root / "consumequeue")
    assert [name for name, data in before.items() if not after[name].startswith(data.rstrip(b"\0"))] == []


@pytest.mark.long("the rebuilt files equal the broker's own, and a broker serves a salvaged store, each time")
def test_a_broker_keeps_the_files_that_a_rebuild_in_place_made(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = recorded_store.copy_to(tmp_path / "store")
    (root / "abort").touch()
    levels = ("--delay-levels", RECORDING_OPTIONS.message_delay_level or DEFAULT_DELAY_LEVELS)
    assert main([str(root), "--in-place", "--local", *levels]) == ExitCode.OK
    made = {path.name for path in (root / "index").iterdir()}
    servers = start_broker(recorded_store.version, root, RECORDING_OPTIONS, recorded_store.broker_port)
    servers.stop_broker()
    assert made <= {path.name for path in (root / "index").iterdir()}  # it deletes the newest where it finds `abort`
    (report,) = verify_stores(find_stores(str(root), "a", formats=COMMITLOGS), VerifyOptions(LEVELS))
    assert dict(report.findings.counts) == {}, list(report.findings)


@pytest.mark.long("what the broker does alone, which changes with its version only")
def test_entries_repeated_by_a_killed_broker_are_not_damage(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = recorded_store.copy_to(tmp_path / "store")
    (root / "abort").touch()
    servers = start_broker(recorded_store.version, root, RECORDING_OPTIONS, recorded_store.broker_port)
    servers.stop_broker()
    (report,) = verify_stores(find_stores(str(root), "a", formats=COMMITLOGS), VerifyOptions(LEVELS))
    assert report.findings.codes <= {"index_repeated_entry"}, list(report.findings)


def damage(root: Path, seed: int) -> None:
    """Make random faults in the first two segments, and delete a segment."""
    chance = random.Random(seed)
    paths = sorted((root / "commitlog").iterdir())
    for path in paths[:2]:
        data = bytearray(path.read_bytes())
        for _ in range(FAULTS):
            at, size = chance.randrange(1 << 16), chance.choice([1, 1, 8, 64, 512])
            data[at : at + size] = chance.randbytes(size) if chance.random() < 0.5 else bytes(size)
        path.write_bytes(data)
    paths[2].unlink()


def intact_rows(before: list[Row], damaged: Path, whole: Path) -> list[Row]:
    """Return records none of whose bytes has changed."""
    rows = []
    for row in before:
        name = row["segment"]
        path = damaged / "commitlog" / name
        if not path.exists():
            continue
        begin = row["physical_offset"] - int(name)
        there = path.read_bytes()[begin : begin + row["size"]]
        if there == (whole / "commitlog" / name).read_bytes()[begin : begin + row["size"]]:
            rows.append(row)
    return rows


def test_a_broker_serves_every_intact_message_of_a_salvaged_store(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = recorded_store.copy_to(tmp_path / "damaged")
    damage(root, seed=7)
    (store,) = find_stores(str(root), "a", formats=COMMITLOGS)
    salvaged = salvage_store(store, tmp_path / "clean")
    rebuild(salvaged.out, salvaged.out, like=recorded_store.store, close_heads=True)
    intact = intact_rows(recorded_store.decoded, root, recorded_store.store)
    assert salvaged.records >= len(intact) > 500
    servers = start_broker(recorded_store.version, salvaged.out, RECORDING_OPTIONS, recorded_store.broker_port)
    assert_serves(servers, ipv4(business(intact)))
    assert {row["physical_offset"] for row in business(intact)} - set(pulled(servers, business(intact))) == set()
    servers.stop_broker()
    decoded = {row["physical_offset"] for row in dump_store(recorded_store.version, salvaged.out)}
    assert [row for row in intact if row["physical_offset"] not in decoded] == []


def pulled(servers: RocketMQ, rows: list[Row]) -> Iterator[int]:
    """Yield the physical offsets of all messages of the rows' topics, pulled by our own client."""
    with Puller("salvage", ClientOptions(servers.name_server_address)) as puller:
        for topic in sorted({row["topic"] for row in rows}):
            for queue in puller.queues(topic):
                for message in puller.read(queue, puller.min_offset(queue), puller.max_offset(queue)):
                    yield message.physical_offset


@pytest.mark.long("what the broker does alone, which changes with its version only")
def test_a_broker_serves_no_message_after_the_first_fault(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = recorded_store.copy_to(tmp_path / "damaged")
    rows = sorted(business(recorded_store.decoded), key=lambda row: int(row["physical_offset"]))
    hit = rows[len(rows) // 3]
    path = root / "commitlog" / hit["segment"]
    data = bytearray(path.read_bytes())
    data[hit["physical_offset"] - int(hit["segment"]) + 4] ^= 1  # its magic
    path.write_bytes(data)
    (root / "abort").touch()
    servers = start_broker(recorded_store.version, without_indexes(root), RECORDING_OPTIONS)
    topics = sorted({row["topic"] for row in rows if row["physical_offset"] < hit["physical_offset"]})
    # The broker may write new records at the offsets of lost ones: the store time distinguishes them.
    known = {(row["physical_offset"], row["store_timestamp"]) for row in rows}
    served = {(row["physical_offset"], row["store_timestamp"]) for row in consume_all(servers, *topics)} & known
    assert max(served)[0] < hit["physical_offset"]
    assert len(served) < len(rows) / 2


@pytest.mark.long("a setting that is rarely used, with a broker of its own; batch queues have unit tests")
def test_inner_batches_are_queued_as_the_broker_queues_them(start_broker: StartBroker, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    topic = {"topicName": "Batched", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False,
             "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {"queue.type": "BatchCQ"}}  # fmt: skip
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"Batched": topic}}))
    servers = start_broker("5.5.0", store, SMALL_FILES)
    run_java(servers, "SendLoad", [servers.name_server_address, "Batched", "batch", "640", "50", "1"])
    servers.stop_broker()
    (found,) = find_stores(str(store), "a", formats=COMMITLOGS)
    rebuilt = rebuild_store(found, tmp_path / "out", RequestedSettings())
    assert_same(store, rebuilt.out)
    assert sum(1 for data in files_of(store / "batchconsumequeue").values() if any(data)) == 2
