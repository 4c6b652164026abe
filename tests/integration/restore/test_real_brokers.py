"""Restored archives of real brokers' stores: equal byte by byte, and served by brokers to their Java clients."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.formats.rocketmq.topic_configs import read_topics
from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.rebuild.settings import RequestedSettings, find_settings
from commitlake.pipelines.restore.config_files import parse_offsets
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.run import RestoreResult, restore_store
from commitlake.schemas.layouts.rocketmq.topics import TOPICS_TABLE
from tests.servers.java_programs import dump_store
from tests.servers.recording import RECORDING_OPTIONS, RecordedStore
from tests.servers.rocketmq import StartBroker
from tests.support.served_stores import LEVELS, assert_same, assert_serves, business, ipv4
from tests.support.store_configs import record_config


@pytest.fixture(scope="module")
def lake(recorded_store: RecordedStore, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with everything that the broker wrote."""
    lake = Lake(str(tmp_path_factory.mktemp("restored") / "lake"))
    work = find_archive_work(str(recorded_store.store), "a", lake)
    open_messages_for_append(lake)
    tasks = ArchiveTasks(work.splits(400_000), lake, work.commit.run_id, "1")
    manifest = list(tasks.run_task(0, tasks.parts))
    commit_run(
        lake,
        [row.data_file for row in manifest if row.table == "messages"],
        work.commit,
        work.previous_progress,
    )
    record_config(lake, work)
    return lake


def restore(lake: Lake, like: RecordedStore, out: Path, chosen: RestoreSelection | None = None) -> RestoreResult:
    """Restore with the settings found in a store's files."""
    found = find_settings(like.store, RequestedSettings(delay_levels_ms=LEVELS), ROCKETMQ)
    sizes = found.queue_file_size, found.index_slots, found.index_entries
    wanted = RequestedSettings(None, *sizes, like.version == "5.5.0", LEVELS)
    path = like.store / "config" / "consumerOffset.json"
    offsets = parse_offsets(path.read_bytes(), str(path))
    return restore_store(lake, out, chosen or RestoreSelection(""), settings=wanted, offsets=offsets)


def test_a_restored_store_equals_the_brokers_own(recorded_store: RecordedStore, lake: Lake, tmp_path: Path) -> None:
    restored = restore(lake, recorded_store, tmp_path / "out")
    assert restored.records == len(recorded_store.decoded)
    assert (restored.lost, restored.lacking) == (0, 0)
    # Older brokers put a batch's properties after each message's own: the table has only the last of each.
    assert (restored.made_up, restored.by_rule > 0) == (0, recorded_store.version == "4.9.7")
    ours, theirs = (read_topics(root)[TOPICS_TABLE] for root in (restored.out, recorded_store.store))
    assert ours == theirs
    for row in recorded_store.decoded:
        theirs, ours = (root / "commitlog" / row["segment"] for root in (recorded_store.store, restored.out))
        place = row["physical_offset"] - int(row["segment"])
        with theirs.open("rb") as one, ours.open("rb") as other:
            one.seek(place)
            other.seek(place)
            assert one.read(row["size"]) == other.read(row["size"])
    assert_same(recorded_store.store, restored.out)


@pytest.mark.long("a restored store equals the broker's own byte by byte each time")
def test_a_broker_serves_every_message_of_a_restored_store(
    recorded_store: RecordedStore, lake: Lake, start_broker: StartBroker, tmp_path: Path
) -> None:
    restored = restore(lake, recorded_store, tmp_path / "store")
    before = (restored.out / "consumequeue").rglob("0*")
    queues = {path: path.read_bytes() for path in before if path.is_file()}
    servers = start_broker(recorded_store.version, restored.out, RECORDING_OPTIONS, recorded_store.broker_port)
    assert_serves(servers, ipv4(business(recorded_store.decoded)))
    servers.stop_broker()
    assert [path for path, data in queues.items() if not path.read_bytes().startswith(data.rstrip(b"\0"))] == []


@pytest.mark.long("a restored store equals the broker's own byte by byte each time")
def test_a_broker_starts_from_a_store_restored_to_a_time(
    recorded_store: RecordedStore, lake: Lake, start_broker: StartBroker, tmp_path: Path
) -> None:
    rows = sorted(recorded_store.decoded, key=lambda row: int(row["physical_offset"]))
    at = rows[len(rows) // 2]["store_timestamp"]
    moment = datetime.datetime.fromtimestamp(at / 1000, datetime.UTC)
    restored = restore(lake, recorded_store, tmp_path / "store", RestoreSelection("", end=moment))
    wanted = [row for row in rows if row["store_timestamp"] < at]
    assert restored.records == len(wanted) < len(rows)
    assert len(dump_store(recorded_store.version, restored.out)) == len(wanted)
    servers = start_broker(recorded_store.version, restored.out, RECORDING_OPTIONS, recorded_store.broker_port)
    kept = ipv4(business(wanted))
    # Messages delivered or retried from now on are new; none of those that were stored later exists.
    served = assert_serves(servers, kept)
    later = {row["msg_id"] for row in rows if row["store_timestamp"] >= at}
    known = {(row["physical_offset"], row["store_timestamp"]) for row in rows if row["msg_id"] in later}
    assert [row for row in served if (row["physical_offset"], row["store_timestamp"]) in known] == []
