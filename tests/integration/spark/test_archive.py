"""The archive: every record is in the lake once, despite any changes between two runs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.added_files import added_files
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.committer import commit_messages, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.spark_reader import with_bodies
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.reading.snapshots import plan_splits
from commitlake.connectors.reading.store_identity_check import StoreReplacedError
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.archive import command as archive
from commitlake.jobs.archive.report import summary_lines
from commitlake.jobs.query import command as query
from commitlake.pipelines.archive import run as archive_run
from commitlake.pipelines.archive.commit_series import archive_concurrently
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.message_keys.progress import followed_version
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.tables.archive_runs import ARCHIVE_RUNS, GAPS, QUARANTINE
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.comparing import plain_rows, spark_rows, with_entries
from tests.support.logs import closed_segment, messages, new_message, open_segment, records, write_store

SIZE = 16384
FIRST = messages(30)
SECOND = messages(30, seed=2)


@dataclasses.dataclass(frozen=True)
class Archive:
    """A store, a lake, and functions that use them."""

    spark: SparkSession
    runner: Runner
    store: Path
    lake: Path

    def write(self, *segments: bytes, base_offset: int = 0) -> None:
        """Write consecutive segments, and replace those of the same names."""
        write_store(self.store, [(base_offset + SIZE * number, data) for number, data in enumerate(segments)])

    def run(self, **changes: object) -> Result:
        """Archive new messages."""
        # Queue offsets of these logs begin at 0 again in each segment, which the suites rightly refuse.
        config = Config(str(self.store), Lake(str(self.lake)), quality=False)
        return run_archive(self.runner, dataclasses.replace(config, **changes))  # type: ignore[arg-type]

    def table(self, name: str = "messages") -> DataFrame:
        """One of the lake's tables."""
        return self.spark.read.format("delta").load(f"{self.lake}/{name}")

    def messages(self) -> list[dict[str, object]]:
        """The archived messages, with the plain reader's columns."""
        return spark_rows(self.table().drop("store_date", "body_ref"))

    def versions(self, name: str = "messages") -> int:
        """Return the number of commits of a table after the one that created it."""
        return DeltaTable(f"{self.lake}/{name}").version()

    def sequences(self) -> list[int]:
        """The finished runs."""
        return sorted(row["sequence"] for row in self.table("archive_runs").collect())


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.long("what commits is the same"))])
def runner(request: pytest.FixtureRequest, spark: SparkSession) -> Runner:
    """The runner of tasks: threads in every run; Spark before a release, or for tests marked `on_spark`."""
    return SparkRunner(spark) if request.param == "spark" else ThreadRunner()


on_spark = pytest.mark.parametrize("runner", ["spark"], indirect=True)
"""For tests of tasks and their results, which run on Spark each time."""


@pytest.fixture
def small(spark: SparkSession, runner: Runner, tmp_path: Path) -> Archive:
    """A store of an open segment and no lake yet."""
    found = Archive(spark, runner, tmp_path / "broker-a" / "store", tmp_path / "lake")
    found.write(open_segment(FIRST, SIZE))
    return found


def end_of(sent: Sequence[NewMessage], base_offset: int = 0) -> int:
    """Return the physical offset after these messages."""
    return base_offset + sum(len(record) for record in records(sent, base_offset))


def assert_same_table(one: DataFrame, other: DataFrame) -> None:
    """Two tables hold the same rows."""
    assert_df_equality(with_entries(one), with_entries(other), ignore_row_order=True, ignore_metadata=True)


# --- what is archived ---


@on_spark
def test_every_record_is_a_row_of_the_declared_table(small: Archive) -> None:
    result = small.run()
    assert (result.sequence, result.messages, result.quarantined, result.bytes) == (1, 30, 0, end_of(FIRST))
    table = small.table()
    assert table.dtypes == [(field.name, field.dataType.simpleString()) for field in spark_schema(MESSAGES)]
    assert table.schema["topic"].metadata["comment"] == MESSAGES["topic"].comment
    assert small.messages() == plain_rows(small.store)
    detail = DeltaTable(f"{small.lake}/messages")
    assert detail.metadata().partition_columns == ["store_date"]
    assert {row["store_date"].isoformat() for row in table.select("store_date").collect()} == {"2023-11-14"}
    (finished,) = small.table("archive_runs").collect()
    assert small.table("archive_runs").schema.fieldNames() == ARCHIVE_RUNS.names
    assert (finished["sequence"], finished["messages"], finished["quarantined"], finished["stores"]) == (1, 30, 0, 1)
    assert finished["started_at"] <= finished["finished_at"]
    assert not finished["recovered"]


def bodies_of(archived: Archive) -> dict[int, bytes]:
    """The archived bodies, by the offset of their record."""
    rows = (
        with_bodies(archived.table(), f"{archived.lake}/bodies", as_stored=True)
        .select("physical_offset", "body")
        .collect()
    )
    return {row["physical_offset"]: bytes(row["body"]) for row in rows}


@pytest.mark.long("bodies are compared in unit tests of tasks each time")
def test_every_body_is_in_a_pack(small: Archive) -> None:
    small.run()
    (store,) = find_stores(str(small.store), formats=COMMITLOGS)
    messages = [found.message for found in walk_store(store, SIZE) if found.message is not None]
    assert bodies_of(small) == {message.physical_offset: message.body for message in messages}


@pytest.mark.long("killed runs are repeated each time")
def test_files_of_a_killed_first_run_do_not_disturb_the_next_run(small: Archive) -> None:
    work = find_archive_work(str(small.store), None, Lake(str(small.lake)))
    table = open_messages_for_append(Lake(str(small.lake)))
    splits = plan_splits(work.stores[0], work.snapshot.ranges[work.stores[0].broker], 3000)
    tasks = ArchiveTasks(splits, Lake(str(small.lake)), work.commit.run_id, "1")
    assert [row.table for row in tasks.run_task(0, tasks.parts[:1])] == ["messages", "topic_minutes", ""]
    assert table.version() == 0
    assert small.run(max_partition_bytes=3000).messages == 30
    assert small.messages() == plain_rows(small.store)
    assert len(bodies_of(small)) == 30


@pytest.mark.long("a second run over a lake in S3 changes nothing each time")
def test_a_second_run_without_new_messages_changes_nothing(small: Archive) -> None:
    small.run()
    once = small.spark.createDataFrame(small.table().toArrow())
    again = small.run()
    assert (again.sequence, again.messages) == (0, 0)
    assert_same_table(small.table(), once)
    assert small.versions() == 1
    assert small.sequences() == [1]


@on_spark
@pytest.mark.long("in threads, runs follow one another in most tests; the commit is the same")
def test_runs_over_a_growing_store_equal_one_full_archive(small: Archive, tmp_path: Path) -> None:
    small.write(open_segment(FIRST[:11], SIZE))
    first = small.run()
    small.write(open_segment(FIRST, SIZE))
    second = small.run()
    small.write(closed_segment(FIRST, SIZE), open_segment(SECOND[:5], SIZE, SIZE), bytes(SIZE))
    third = small.run()
    small.write(
        closed_segment(FIRST, SIZE), closed_segment(SECOND, SIZE, SIZE), open_segment(FIRST[:3], SIZE, 2 * SIZE)
    )
    fourth = small.run()
    assert [run.messages for run in (first, second, third, fourth)] == [11, 19, 5, 28]
    assert small.sequences() == [1, 2, 3, 4]
    full = dataclasses.replace(small, lake=tmp_path / "full")
    full.run(max_partition_bytes=3000)
    assert_same_table(small.table().drop("body_ref"), full.table().drop("body_ref"))
    assert small.messages() == plain_rows(small.store)
    assert bodies_of(small) == bodies_of(full)


def test_several_brokers_share_one_table_and_later_ones_join_it(small: Archive, tmp_path: Path) -> None:
    path = str(tmp_path / "{broker}" / "store")
    small.run(store=path)
    write_store(tmp_path / "broker-b" / "store", [(0, open_segment(SECOND[:7], SIZE))])
    result = small.run(store=path)
    assert (result.messages, result.ranges["broker-a"].size) == (7, 0)
    assert small.messages() == plain_rows(path)
    last = read_last_commit(Lake(str(small.lake)))
    assert last is not None
    assert {name: progress.end for name, progress in last.stores.items()} == {
        "broker-a": end_of(FIRST),
        "broker-b": end_of(SECOND[:7]),
    }


def test_a_torn_end_is_archived_once_it_is_complete(small: Archive) -> None:
    whole, torn = end_of(FIRST[:9]), end_of(FIRST[:10])
    data = open_segment(FIRST[:10], SIZE)
    small.write(data[: torn - 60].ljust(SIZE, b"\0"))
    first = small.run()
    assert (first.messages, first.quarantined, first.ranges["broker-a"].end) == (9, 0, whole)
    assert "an incomplete record, left for the next run" in "\n".join(summary_lines(first))
    assert small.run().sequence == 0
    small.write(open_segment(FIRST, SIZE))
    second = small.run()
    assert (second.messages, second.quarantined) == (21, 0)
    assert small.messages() == plain_rows(small.store)


# --- damage ---


def damaged_segment() -> bytes:
    """Twenty records, the fourth with a flipped bit in its body, and one with properties that are not UTF-8."""
    sent = [new_message(number) for number in range(20)]
    data = bytearray(open_segment([*sent, new_message(20, properties=(("city", "Muenchen"),)), new_message(21)], SIZE))
    data[3 * len(records(sent[:1])[0]) + 88] ^= 1
    return bytes(data.replace(b"Muenchen", b"M\xfcnchen1"))


@on_spark
def test_damage_is_quarantined_and_everything_else_is_archived(
    small: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write(damaged_segment())
    arguments = ["--store", str(small.store), "--lake", str(small.lake), "--no-quality"]
    assert archive.main(arguments) == 3
    err = capsys.readouterr().err
    assert "run 1: 21 messages" in err
    assert "verdict: archived, with damage or loss: 2 ranges or records could not be read correctly" in err
    assert small.table().count() == 21
    quarantine = small.table("quarantine")
    assert quarantine.schema.fieldNames() == QUARANTINE.names
    bad, marked = quarantine.orderBy("start_offset").collect()
    size = len(records([new_message(0)])[0])
    assert (bad["broker"], bad["reason"], bad["start_offset"]) == ("broker-a", "body_crc", 3 * size)
    assert bad["end_offset"] == 4 * size
    assert bytes(bad["first_bytes"])[:8] == records([new_message(0)])[0][:8]
    (finished,) = small.table("archive_runs").collect()
    assert (marked["reason"], marked["run_id"]) == ("properties_encoding", finished["run_id"])
    assert (finished["quarantined"], finished["gaps"]) == (2, 0)
    assert archive.main(arguments) == 0
    assert small.table("quarantine").count() == 2
    assert "No new messages" in capsys.readouterr().err


@pytest.mark.long("gaps are the same code without Spark, which is tested each time")
def test_a_store_whose_oldest_segments_were_deleted_has_a_gap(small: Archive) -> None:
    small.run()
    shutil.rmtree(small.store)
    small.write(closed_segment(SECOND, SIZE, 2 * SIZE), open_segment(FIRST[:4], SIZE, 3 * SIZE), base_offset=2 * SIZE)
    result = small.run()
    assert (result.messages, result.quarantined, result.gaps) == (34, 0, 1)
    gaps = small.table("gaps")
    assert gaps.schema.fieldNames() == GAPS.names
    (gap,) = gaps.collect()
    assert (gap["broker"], gap["start_offset"], gap["end_offset"]) == ("broker-a", end_of(FIRST), 2 * SIZE)
    assert gap["found"] == "no such file"
    assert small.table().count() == 64
    assert not (small.lake / "quarantine").exists()


def test_a_store_whose_archived_segments_were_deleted_has_no_gap(small: Archive) -> None:
    small.write(closed_segment(FIRST, SIZE), open_segment(SECOND[:3], SIZE, SIZE))
    small.run()
    shutil.rmtree(small.store)
    small.write(open_segment(SECOND, SIZE, SIZE), base_offset=SIZE)
    result = small.run()
    assert (result.messages, result.gaps) == (27, 0)


@on_spark
def test_a_segment_that_is_deleted_while_the_run_reads_is_a_gap(
    small: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.write(closed_segment(FIRST, SIZE), open_segment(SECOND[:3], SIZE, SIZE))

    def delete_first(lake: Lake) -> object:
        (small.store / "commitlog" / segment_name(0)).unlink()
        return open_messages_for_append(lake)

    monkeypatch.setattr(archive_run, "open_messages_for_append", delete_first)
    result = small.run()
    assert (result.messages, result.gaps) == (3, 1)
    (gap,) = small.table("gaps").collect()
    assert (gap["start_offset"], gap["end_offset"], gap["found"]) == (0, SIZE, "deleted since it was listed")


@pytest.mark.long("a segment that is deleted meanwhile is tested each time")
@on_spark
def test_a_segment_truncated_during_a_run_stops_it_and_the_next_completes(
    small: Archive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write(closed_segment(FIRST, SIZE), open_segment(SECOND, SIZE, SIZE))
    newest = small.store / "commitlog" / segment_name(SIZE)
    whole = newest.read_bytes()

    def cut_newest(lake: Lake) -> object:
        os.truncate(newest, 5000)
        return open_messages_for_append(lake)

    with monkeypatch.context() as patched:
        patched.setattr(archive_run, "open_messages_for_append", cut_newest)
        assert archive.main(["--store", str(small.store), "--lake", str(small.lake), "--no-quality"]) == 1
    found = capsys.readouterr().err
    assert f"{newest} is now shorter than the {SIZE} bytes that it had when this run began" in found
    assert "Traceback" not in found
    assert read_last_commit(Lake(str(small.lake))) is None
    newest.write_bytes(whole)
    small.run()
    assert small.messages() == plain_rows(small.store)
    assert not (small.lake / "quarantine").exists()


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    ("option", "damage", "code", "written"),
    [
        ([], "corrupt", 3, 21),
        (["--on-corrupt", "quarantine"], "corrupt", 0, 21),
        (["--on-corrupt", "fail"], "corrupt", 3, 0),
        (["--on-gap", "fail"], "corrupt", 3, 21),
        ([], "gap", 3, 30),
        (["--on-gap", "record"], "gap", 0, 30),
        (["--on-gap", "fail"], "gap", 3, 0),
    ],
)
def test_damage_and_gaps_are_recorded_or_stop_the_run(
    small: Archive, capsys: pytest.CaptureFixture[str], option: list[str], damage: str, code: int, written: int
) -> None:
    if damage == "corrupt":
        small.write(damaged_segment())
    else:
        small.write(closed_segment(FIRST[:15], SIZE), bytes(0), open_segment(SECOND[:15], SIZE, 2 * SIZE))
        (small.store / "commitlog" / segment_name(SIZE)).unlink()
    assert (
        archive.main(["--store", str(small.store), "--lake", str(small.lake), "--no-quality", "--local", *option])
        == code
    )
    if written:
        assert small.table().count() == written
    else:
        err = capsys.readouterr().err
        assert "Nothing was archived" in err
        assert "physical offsets" in err
        assert read_last_commit(Lake(str(small.lake))) is None
        assert not (small.lake / "archive_runs").exists()


# --- runs that were stopped, and runs at once ---


@pytest.mark.long("runs that are killed are tested each time")
def test_a_run_stopped_after_its_commit_is_completed_by_the_next(small: Archive) -> None:
    small.write(damaged_segment())
    small.run()
    expected = small.spark.createDataFrame(small.table("quarantine").toArrow())
    shutil.rmtree(small.lake / "archive_runs")
    shutil.rmtree(small.lake / "quarantine" / "_delta_log")
    shutil.rmtree(small.lake / "_newest")
    small.write(bytes(SIZE))  # what was read is not needed again
    shutil.rmtree(small.store)
    small.write(open_segment([], SIZE, SIZE), base_offset=SIZE)
    result = small.run()
    assert (result.sequence, list(result.recovered)) == (0, [1])
    assert_same_table(small.table("quarantine"), expected)
    (finished,) = small.table("archive_runs").collect()
    assert (finished["sequence"], finished["messages"], finished["quarantined"], finished["recovered"]) == (
        1,
        21,
        2,
        True,
    )
    assert small.table().count() == 21
    assert "  run 1, which another process had left unfinished, is now finished" in summary_lines(result)
    assert list(small.run().recovered) == []


@pytest.mark.long("one stopped run is made good, with its quarantine, each time")
def test_quarantine_is_not_written_twice_after_a_stop(small: Archive) -> None:
    small.write(damaged_segment())
    small.run()
    shutil.rmtree(small.lake / "archive_runs")
    (small.lake / "_newest" / "archive_runs.json").unlink()
    small.write(damaged_segment(), open_segment([], SIZE))
    assert list(small.run().recovered) == [1]
    assert small.table("quarantine").count() == 2
    assert small.sequences() == [1]


@pytest.mark.long("one stopped run is made good each time")
def test_several_stopped_runs_are_completed_before_the_next(small: Archive) -> None:
    small.write(open_segment(FIRST[:5], SIZE))
    small.run()
    small.write(open_segment(FIRST[:9], SIZE))
    small.run()
    shutil.rmtree(small.lake / "archive_runs")
    (small.lake / "_newest" / "archive_runs.json").unlink()
    small.write(open_segment(FIRST, SIZE))
    result = small.run()
    assert (result.sequence, list(result.recovered), result.messages) == (3, [1, 2], 21)
    rows = {row["sequence"]: (row["messages"], row["recovered"]) for row in small.table("archive_runs").collect()}
    assert rows == {1: (5, True), 2: (4, True), 3: (21, False)}
    assert small.messages() == plain_rows(small.store)


def test_a_second_commit_of_one_number_is_refused_and_changes_nothing(small: Archive) -> None:
    small.run()
    last = read_last_commit(Lake(str(small.lake)))
    assert last is not None
    with pytest.raises(ConcurrentRunError, match="archive commit 1"):
        commit_messages(
            open_messages_for_append(Lake(str(small.lake))), [], dataclasses.replace(last, run_id="another")
        )
    assert small.messages() == plain_rows(small.store)
    assert read_last_commit(Lake(str(small.lake))) == last


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(False, marks=pytest.mark.long("three runs over one store are raced each time")),
        pytest.param(True, marks=pytest.mark.long("the same race with tables that are there")),
    ],
)
def test_only_one_of_two_concurrent_runs_succeeds(small: Archive, begun: bool) -> None:
    if begun:
        small.write(open_segment(FIRST[:5], SIZE))
        small.run()
        small.write(open_segment(FIRST, SIZE))
    config = Config(str(small.store), Lake(str(small.lake)), quality=False)
    works = [find_archive_work(config.store, None, config.lake) for _ in range(2)]
    assert works[0].commit.sequence == works[1].commit.sequence
    outcomes = at_once([lambda work=work: run_archive(small.runner, config, work) for work in works])  # type: ignore[misc]
    won = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    lost = [outcome for outcome in outcomes if not isinstance(outcome, Result)]
    assert len(won) == 1
    assert [type(error) for error in lost] == [ConcurrentRunError]
    assert small.messages() == plain_rows(small.store)
    assert small.sequences() == ([1, 2] if begun else [1])
    assert small.run().sequence == 0


@pytest.mark.long("two runs over one store are raced each time")
def test_concurrent_runs_over_different_stores_succeed(small: Archive, tmp_path: Path) -> None:
    other = dataclasses.replace(small, store=tmp_path / "broker-b" / "store")
    other.write(open_segment(SECOND[:7], SIZE))
    config = [Config(str(store), Lake(str(small.lake)), quality=False) for store in (small.store, other.store)]
    works = [find_archive_work(each.store, None, each.lake) for each in config]
    assert works[0].commit.sequence == works[1].commit.sequence
    outcomes = at_once(
        [
            lambda each=each, work=work: run_archive(small.runner, each, work)  # type: ignore[misc]
            for each, work in zip(config, works, strict=True)
        ]
    )
    assert sorted(outcome.sequence for outcome in outcomes if isinstance(outcome, Result)) == [1, 2]
    assert small.messages() == plain_rows(str(tmp_path / "{broker}" / "store"))
    assert small.sequences() == [1, 2]
    last = read_last_commit(Lake(str(small.lake)))
    assert last is not None
    assert {name: progress.end for name, progress in last.stores.items()} == {
        "broker-a": end_of(FIRST),
        "broker-b": end_of(SECOND[:7]),
    }


def test_concurrent_runs_over_one_store_archive_each_message_once(small: Archive) -> None:
    config = Config(str(small.store), Lake(str(small.lake)), quality=False)
    works = [find_archive_work(config.store, None, config.lake) for _ in range(3)]
    results = at_once(
        [lambda work=work: archive_concurrently(small.runner, config, work) for work in works]  # type: ignore[misc]
    )
    assert sorted(result.sequence for result in results if isinstance(result, Result)) == [0, 0, 1]
    assert small.messages() == plain_rows(small.store)


def test_concurrent_runs_over_four_stores_leave_out_no_key(small: Archive, tmp_path: Path) -> None:
    configs = []
    for name in "bcde":
        other = dataclasses.replace(small, store=tmp_path / f"broker-{name}" / "store")
        other.write(open_segment(SECOND, SIZE))
        configs.append(Config(str(other.store), Lake(str(small.lake)), quality=False))
    works = [find_archive_work(config.store, None, config.lake) for config in configs]
    results = at_once(
        [
            lambda config=config, work=work: archive_concurrently(small.runner, config, work)  # type: ignore[misc]
            for config, work in zip(configs, works, strict=True)
        ]
    )
    assert [result.unfinished_tables for result in results if isinstance(result, Result)] == [[]] * 4
    assert not added_files(Lake(str(small.lake)), followed_version(Lake(str(small.lake))))[0]


def test_the_later_of_two_overlapping_runs_is_refused(small: Archive) -> None:
    small.write(open_segment(FIRST[:10], SIZE))
    config = Config(str(small.store), Lake(str(small.lake)), quality=False)
    shorter = find_archive_work(config.store, None, config.lake)
    small.write(open_segment(FIRST, SIZE))
    longer = find_archive_work(config.store, None, config.lake)
    assert run_archive(small.runner, config, longer).messages == 30
    with pytest.raises(ConcurrentRunError, match="another run has archived broker-a meanwhile"):
        run_archive(small.runner, config, shorter)
    assert small.messages() == plain_rows(small.store)


@pytest.mark.long("many stores; several are one run each time")
def test_two_hundred_stores_are_archived_in_one_run(small: Archive, tmp_path: Path) -> None:
    for number in range(200):
        write_store(tmp_path / "many" / f"broker-{number:03d}" / "store", [(0, open_segment(FIRST[:3], SIZE))])
    result = small.run(store=str(tmp_path / "many" / "{broker}" / "store"))
    assert (result.messages, len(result.ranges)) == (600, 200)
    assert small.table().select("broker").distinct().count() == 200
    assert small.run(store=str(tmp_path / "many" / "{broker}" / "store")).sequence == 0


def at_once(calls: Sequence[Callable[[], Result]]) -> list[object]:
    """Run functions in separate threads, and return the result or the error of each."""
    outcomes: list[object] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def call(number: int) -> None:
        barrier.wait()
        try:
            outcomes[number] = calls[number]()
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            outcomes[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


# --- what is refused ---


@pytest.mark.parametrize("length", [5, pytest.param(40, marks=pytest.mark.long("the same refusal of a longer log"))])
def test_a_store_that_was_set_up_again_is_refused(
    small: Archive, capsys: pytest.CaptureFixture[str], length: int
) -> None:
    small.run()
    small.write(open_segment(messages(length, seed=7), SIZE))
    with pytest.raises(StoreReplacedError):
        small.run()
    assert archive.main(["--store", str(small.store), "--lake", str(small.lake), "--no-quality", "--local"]) == 4
    err = capsys.readouterr().err
    assert "is not the one that was archived under this name" in err
    assert "--broker NAME" in err
    assert (small.versions(), small.sequences()) == (1, [1])


def test_a_folder_of_other_files_is_refused_as_a_lake(small: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    small.lake.mkdir()
    (small.lake / "photo.jpg").write_bytes(b"x")
    with pytest.raises(LakeError, match="is not a lake"):
        small.run()
    assert archive.main(["--store", str(small.store), "--lake", str(small.lake), "--no-quality"]) == 2
    assert "is not a lake: it holds other files" in capsys.readouterr().err
    assert [file.name for file in small.lake.iterdir()] == ["photo.jpg"]


def test_a_missing_store_makes_no_lake(small: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    assert archive.main(["--store", str(small.store / "nowhere"), "--lake", str(small.lake)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not small.lake.exists()


def test_a_store_without_a_record_has_no_new_messages(small: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    small.write(bytes(SIZE))
    assert archive.main(["--store", str(small.store), "--lake", str(small.lake), "--no-quality"]) == 0
    assert "No new messages in 1 store" in capsys.readouterr().err


# --- questions to what was archived ---


IN_QUERY_ENGINES = pytest.mark.long("test_query_engines.py asks both engines questions of the same kinds each time")


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--key", "\\"],
        ["--from", "0001-01-01", "--to", "9999-12-31"],
        ["--where", "properties['k\\\\ey'] is null and body_size > 20"],
        *(
            pytest.param(arguments, marks=IN_QUERY_ENGINES)
            for arguments in (
                ["--topic", "topic-1", "--queue", "1"],
                ["--key", "it's"],
                ["--key", "' or 1=1 --"],
                ["--from", "2023-11-14T22:13:21.005", "--to", "2023-11-14T22:13:21.015"],
                ["--id", "0A00000100002A9F0000000000000000"],
                ["--id", "UNIQUE"],
                ["--limit", "3"],
                ["--columns", "tags,keys,properties,store_timestamp,physical_offset"],
                ["--topic", "nothing"],
            )
        ),
    ],
)
def test_both_engines_give_the_same_answer(
    unusual_lake: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    answers = []
    for engine in ("deltalake", "spark"):
        capsys.readouterr()
        code = query.main(["--lake", str(unusual_lake), "--output", "jsonl", "--engine", engine, *arguments])
        out = capsys.readouterr().out
        answers.append((code, [json.loads(line) for line in out.split("\n") if line]))
    assert answers[0] == answers[1]
    assert answers[0][0] == 0
    if "nothing" not in arguments and "' or 1=1 --" not in arguments:
        assert answers[0][1]


@pytest.fixture(scope="module")
def unusual_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with unusual keys and properties."""
    root = tmp_path_factory.mktemp("odd")
    odd = [
        new_message(0, properties=(("KEYS", "it's \\ odd"), ("k\\ey", "v'"), ("UNIQ_KEY", "UNIQUE"))),
        new_message(1, properties=()),
    ]
    write_store(root / "b" / "store", [(0, open_segment([*odd, *FIRST], SIZE))])
    run_archive(SparkRunner(spark), Config(str(root / "b" / "store"), Lake(str(root / "lake")), quality=False))
    return root / "lake"


@pytest.mark.parametrize(
    "where",
    [
        "cast(topic as int) = 1",
        *(pytest.param(where, marks=IN_QUERY_ENGINES) for where in ("nothing = 1", "topic =", "1; drop table x")),
    ],
)
def test_spark_refuses_a_wrong_predicate_without_a_traceback(
    unusual_lake: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    assert query.main(["--lake", str(unusual_lake), "--engine", "spark", "--where", where]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "the query is invalid" in err
    assert "Traceback" not in err
