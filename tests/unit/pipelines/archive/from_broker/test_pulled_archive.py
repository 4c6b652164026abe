"""A pulled archive has the same rows as one of the files, each once, despite changes between its runs."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.body_reader import fetch_body
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.reading.errors import DamagedLogError, StoreError
from commitlake.connectors.reading.store_identity_check import StoreReplacedError
from commitlake.connectors.rocketmq.errors import NoRouteError
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive import commit_series
from commitlake.pipelines.archive.commit_series import archive_concurrently
from commitlake.pipelines.archive.from_broker import planning
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import OnBadRange, plan_work, run_archive
from commitlake.schemas.errors import CommitLakeError, ConcurrentRunError, ExitCode
from tests.support.live_brokers import STORE, LiveCluster
from tests.support.live_reading import create_topic, delete_first_segments, put
from tests.support.pulled_lakes import PulledLake


def files_lake(lake: PulledLake, tmp_path: Path) -> PulledLake:
    """Make a lake of the same broker's files."""
    other = PulledLake(lake.cluster, tmp_path / "files")
    other.read_files()
    return other


def test_rows_equal_those_of_the_files_for_any_number_of_runs_and_parts(
    cluster: LiveCluster, lake: PulledLake, tmp_path: Path
) -> None:
    broker = cluster.brokers["broker-a"]
    create_topic(broker, "other", 1)
    for first, partition in ((0, 32 << 20), (50, 1000), (75, 4000)):
        put(broker, 25, first)
        put(broker, 5, first, (0,), topic="other", body=b"x" * 300)
        assert lake.pull(partition).messages == 30
    put(broker, 25, 25)
    assert lake.pull().messages == 25
    assert lake.pull().sequence == 0
    files = files_lake(lake, tmp_path)
    assert lake.rows() == files.rows()
    assert lake.progress().end == files.progress().end
    assert lake.progress().last_record == files.progress().last_record
    packs = open_pack_store(Lake(str(lake.folder)).packs)
    for row in DeltaTable(str(lake.folder / "messages")).to_pyarrow_table().to_pylist():
        body = fetch_body(packs, row, as_stored=True)
        assert body is not None
        assert zlib.crc32(body) & 0x7FFFFFFF == row["body_crc"]


def test_rows_of_every_kind_equal_those_of_the_files(tmp_path: Path) -> None:
    end_ms = fill_shop_store(tmp_path / "broker-a", orders=30, options=STORE).end_ms
    with LiveCluster(tmp_path) as cluster:
        cluster.clock.now_ms = end_ms
        lake = PulledLake(cluster, tmp_path / "lake")
        lake.pull()
        rows = lake.rows()
        assert {row["kind"] for row in rows} == {"normal", "delay", "half", "op", "retry", "dlq"}
        assert rows == files_lake(lake, tmp_path).rows()


def test_a_run_ends_at_the_end_of_the_log_at_planning(cluster: LiveCluster, lake: PulledLake) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 10)
    first = lake.plan()
    put(broker, 10, 10)  # the second plan finds these in the queues, after the first one's end
    later = plan_work(lake.config, end_snapshot=first.snapshot)
    result = run_archive(HERE, replace(lake.config, max_partition_bytes=500), later)
    assert (result.messages, lake.progress().end) == (10, first.snapshot.ranges["broker-a"].end)
    pulled = lake.progress().pulled
    assert pulled is not None
    assert pulled.offsets == {"orders": {"0": 5, "1": 5}}
    assert lake.pull().messages == 10
    assert len(lake.offsets()) == len(set(lake.offsets())) == 20


def test_only_one_of_two_runs_over_the_same_messages_commits(cluster: LiveCluster, lake: PulledLake) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 10)
    late, later = plan_work(lake.config), plan_work(lake.config)
    put(broker, 4, 10)
    lake.pull()
    with pytest.raises(ConcurrentRunError, match="another run has archived broker-a meanwhile"):
        run_archive(HERE, lake.config, late)
    assert archive_concurrently(HERE, lake.config, later).sequence == 0
    assert len(lake.offsets()) == 14


def test_files_and_queues_can_be_read_alternately(cluster: LiveCluster, lake: PulledLake, tmp_path: Path) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 9)
    lake.read_files()
    put(broker, 6, 9)
    plan = lake.plan()
    assert sum(one.wanted.size for one in plan.plans["broker-a"].ranges) == 6  # it does not pull what it would drop
    assert lake.pull().messages == 6
    create_topic(broker, "new", 1)
    put(broker, 3, 15, (0,), topic="new")
    assert lake.pull().messages == 3
    put(broker, 5, 18)
    assert lake.read_files().messages == 5
    put(broker, 5, 23)
    assert lake.pull().messages == 5
    assert lake.rows() == files_lake(lake, tmp_path).rows()


def test_a_topic_added_later_begins_at_its_first_message(
    cluster: LiveCluster, lake: PulledLake, tmp_path: Path
) -> None:
    broker = cluster.brokers["broker-a"]
    create_topic(broker, "other", 1)
    put(broker, 6)
    put(broker, 4, 6, (0,), topic="other")
    assert lake.pull(topics=("orders",)).messages == 6
    with pytest.raises(
        StoreError, match=r"took only the topics orders: .* Run 'archive --from-broker' without --topic"
    ):
        lake.read_files()
    assert lake.pull(topics=("orders",)).sequence == 0
    assert lake.pull().messages == 4
    assert lake.rows() == files_lake(lake, tmp_path).rows()
    with pytest.raises(NoRouteError, match="topic 'odrers': none of the brokers has this topic"):
        lake.pull(topics=("odrers",))
    with pytest.raises(NoRouteError, match="knows no broker 'b': expected one of broker-a"):
        lake.pull(brokers=("b",))


def test_messages_deleted_before_archiving_are_counted_and_recorded(cluster: LiveCluster, lake: PulledLake) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 10)
    assert lake.pull().gaps == 0
    put(broker, 600, 10, body=b"x" * 200)
    delete_first_segments(broker)
    kept = sum(broker.store.max_offset("orders", queue) - broker.store.min_offset("orders", queue) for queue in (0, 1))
    lost = 600 - kept
    assert 0 < lost < 600
    with pytest.raises(CommitLakeError, match=rf"broker-a: {lost} messages gone: .*--on-gap record") as refused:
        run_archive(HERE, replace(lake.config, on_gap=OnBadRange.FAIL))
    assert refused.value.exit_code is ExitCode.DAMAGE
    result = lake.pull()
    assert (result.messages, result.gaps, result.verdict.is_damage) == (kept, 1, True)
    assert f"broker-a: {lost:,} messages were lost before they were archived: topic orders, queue 0" in str(
        result.notes
    )
    (gap,) = DeltaTable(str(lake.folder / "gaps")).to_pyarrow_table().to_pylist()
    assert (gap["broker"], gap["end_offset"]) == ("broker-a", broker.store.min_physical_offset)
    assert gap["found"].startswith(f"{lost} messages gone: topic orders, queue 0 of broker-a, offsets 5 to ")


def test_a_recreated_topic_is_read_from_its_first_message(cluster: LiveCluster, lake: PulledLake) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 10)
    lake.pull()
    for again, count in ((1, 4), (2, 30)):  # fewer messages than before, and more
        broker.store.delete_queues("orders")
        create_topic(broker)
        put(broker, count)
        result = lake.pull()
        assert result.messages == count, again
        assert "2 queues start at 0 again" in str(result.notes)
    assert len(set(lake.offsets())) == 44


def test_another_broker_of_the_same_name_is_refused(cluster: LiveCluster, lake: PulledLake, tmp_path: Path) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 10)
    lake.pull()
    with LiveCluster(tmp_path / "again") as again:
        create_topic(again.brokers["broker-a"])
        other = PulledLake(again, lake.folder)
        put(again.brokers["broker-a"], 5)
        with pytest.raises(StoreReplacedError, match=r"expected a log up to \d+ or more, found one that ends"):
            other.pull()
        put(again.brokers["broker-a"], 30, 100)
        with pytest.raises(StoreReplacedError, match=r"expected the last archived record, of "):
            other.pull()


def test_a_lake_has_all_brokers_of_a_cluster(cluster: LiveCluster, lake: PulledLake) -> None:
    create_topic(cluster.add("broker-b"))
    for name, count in (("broker-a", 4), ("broker-b", 6)):
        put(cluster.brokers[name], count)
    assert lake.pull(brokers=("broker-b",)).messages == 6
    assert lake.pull().messages == 4
    assert {row["broker"] for row in lake.rows()} == {"broker-a", "broker-b"}


def damage(cluster: LiveCluster, physical_offset: int, place: int) -> None:
    """Change a byte of a stored record."""
    path = cluster.brokers["broker-a"].store.path / "commitlog" / f"{0:020}"
    with path.open("r+b") as segment:
        segment.seek(physical_offset + place)
        byte = segment.read(1)[0]
        segment.seek(-1, 1)
        segment.write(bytes([byte ^ 0x55]))


def test_a_damaged_body_is_quarantined_like_one_from_the_files(
    cluster: LiveCluster, lake: PulledLake, tmp_path: Path
) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 10, body=b"x" * 50)
    record = broker.store.get("orders", 0, 2).messages[0]
    damage(cluster, record.physical_offset, 100)
    result = lake.pull()
    assert (result.messages, result.quarantined, result.verdict.is_damage) == (9, 1, True)
    files = files_lake(lake, tmp_path)
    assert lake.rows() == files.rows()
    columns = ["broker", "start_offset", "end_offset", "reason", "first_bytes"]
    found, expected = (
        DeltaTable(str(one.folder / "quarantine")).to_pyarrow_table(columns=columns).to_pylist()
        for one in (lake, files)
    )
    assert found == expected


def test_the_error_for_an_invalid_record_names_the_queue(cluster: LiveCluster, lake: PulledLake) -> None:
    broker = cluster.brokers["broker-a"]
    put(broker, 10)
    damage(cluster, broker.store.get("orders", 1, 2).messages[0].physical_offset, 4)
    with pytest.raises(
        DamagedLogError, match=r"topic orders, queue 1 of broker-a, queue offsets 0 to 5: .*found magic"
    ):
        lake.pull()
    assert lake.pull(topics=("DefaultCluster",)).messages == 0


def test_a_large_pull_commits_in_parts_each_of_which_a_run_over_the_files_can_continue(
    cluster: LiveCluster, lake: PulledLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster.brokers["broker-a"]
    create_topic(broker, "other", 1)
    for first in range(0, 60, 20):
        put(broker, 20, first)
        put(broker, 3, first, (0,), topic="other", body=b"x" * 300)
    monkeypatch.setattr(planning, "_SMALL_RANGE", 4)
    ends: list[int] = []
    monkeypatch.setattr(commit_series, "run_archive", killed_after(2, ends, lake))
    config = replace(lake.config, commit_bytes=3000)
    with pytest.raises(KeyboardInterrupt):
        archive_concurrently(HERE, config, lake.plan())
    assert len(ends) == 2
    other = PulledLake(cluster, tmp_path / "continued")
    shutil.copytree(lake.folder, other.folder)
    other.read_files()
    monkeypatch.undo()
    result = archive_concurrently(HERE, config, lake.plan())
    assert len(result.earlier) >= 2
    files = files_lake(lake, tmp_path)
    assert lake.rows() == files.rows() == other.rows()
    assert lake.progress().end == files.progress().end


def killed_after(count: int, ends: list[int], lake: PulledLake) -> Callable[..., Result]:
    """Return a run that is interrupted after some commits; it notes where each of them ends."""

    def run(*arguments: Any) -> Result:
        if len(ends) == count:
            raise KeyboardInterrupt
        result = run_archive(*arguments)
        ends.append(lake.progress().end)
        return result

    return run
