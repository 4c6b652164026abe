"""JMQ's journal through Spark: the source, the stream, the archive, the audit and the guard, as for RocketMQ's log."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from commitlake import register
from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.spark_reader import with_bodies
from commitlake.connectors.reading.stores import find_stores, segment_size
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.archive import command as archive
from commitlake.jobs.audit import command as audit
from commitlake.jobs.dump import command as dump
from commitlake.jobs.explain import command as explain
from commitlake.jobs.guard import command as guard
from commitlake.jobs.query import command as query
from commitlake.pipelines.archive.run import Config, run_archive
from tests.support.comparing import COLUMNS, Row, intact, spark_rows
from tests.support.indexed_stores import Clock
from tests.support.journals import new_message

FILE_BYTES = 1 << 15
OPTIONS = JournalOptions(journal_file_size_bytes=FILE_BYTES, max_body_size_bytes=4000)
TEXT = b'{"city": "a body that is compressed, as it repeats, repeats and repeats"}' * 10


def fill(root: Path, count: int, first: int = 0) -> None:
    """Store messages of three topics; every tenth body is compressed."""
    chance, clock = random.Random(first), Clock()
    clock.now_ms += 1000 * first
    with JournalStore.open(root, OPTIONS, clock=clock, rng=chance) as store:
        for number in range(first, first + count):
            body = TEXT if number % 10 == 0 else chance.randbytes(20 + chance.randrange(80))
            store.put(new_message(number, f"topic-{number % 3}", body, send_timestamp=clock.now_ms))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A broker's store of several journal files."""
    root = tmp_path / "broker-j" / "store"
    fill(root, 700)
    return root


def plain_rows(path: Path) -> list[Row]:
    """Return every record as the plain reader sees it."""
    (store,) = find_stores(str(path), formats=all_formats())
    rows = [
        store.format.record_rules.row_of(found.message, store.broker)
        for found in walk_store(store, segment_size(store))
        if found.message is not None
    ]
    return [{name: row[name] for name in COLUMNS} for row in rows]


def flip(store: Path, at: int) -> None:
    """Damage a bit of the journal."""
    path = min((store / "journal").iterdir())
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_source_gives_the_rows_of_the_plain_reader(spark: SparkSession, store: Path) -> None:
    register(spark)
    frame = spark.read.format("journal").option("maxPartitionBytes", "10000").load(str(store))
    assert spark_rows(frame.drop("body")) == plain_rows(store)
    one = spark.read.format("journal").option("topics", "topic-1").option("keys", "order-40").load(str(store))
    assert [row["keys"] for row in one.collect()] == [["order-40"]]
    bodies = spark.read.format("journal").option("body", "decompressed").option("columns", "keys,body").load(str(store))
    found = {row["keys"][0]: bytes(row["body"]) for row in bodies.collect()}
    assert found["order-10"] == TEXT


def test_damage_is_a_row_in_permissive_mode(spark: SparkSession, store: Path) -> None:
    register(spark)
    expected = plain_rows(store)
    flip(store, 70)
    frame = spark.read.format("journal").option("mode", "PERMISSIVE").load(str(store))
    rows = spark_rows(frame)
    assert intact(rows) == expected[1:]
    (bad,) = [row["_corrupt_record"] for row in rows if row["size"] is None]
    assert (bad["reason"], bad["start"], bad["end"]) == ("body_crc", 0, expected[0]["size"])


@pytest.mark.long("streams differ by their rows only, which a batch reads each time")
def test_a_stream_reads_each_record_once(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    register(spark)
    seen: list[Row] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.extend(spark_rows(batch))

    def run() -> None:
        reader = spark.readStream.format("journal").option("maxBytesPerTrigger", "50000")
        writer = reader.load(str(store)).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    run()
    assert seen == plain_rows(store)
    fill(store, 200, first=700)
    run()
    assert seen == plain_rows(store)


@pytest.mark.long("the jobs archive a journal each time")
def test_a_journal_is_archived_once_with_its_bodies(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    config = Config(str(store), Lake(str(lake)))
    assert run_archive(SparkRunner(spark), config).messages == 700
    fill(store, 100, first=700)
    assert run_archive(SparkRunner(spark), config).messages == 100
    table = spark.read.format("delta").load(f"{lake}/messages")
    assert spark_rows(table.drop("store_date", "body_ref")) == plain_rows(store)
    bodies = (
        with_bodies(table, str(lake / "bodies"), as_stored=True).where(F.array_contains("keys", "order-41")).collect()
    )
    (stored,) = [row for row in walk(store) if row.business_id == "order-41"]
    assert [bytes(row["body"]) for row in bodies] == [stored.body]


def walk(store: Path) -> list:  # type: ignore[type-arg]
    """Return the messages."""
    (found,) = find_stores(str(store), formats=all_formats())
    return [each.message for each in walk_store(found, segment_size(found)) if each.message is not None]


def test_damage_and_gaps_are_recorded(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    expected = plain_rows(store)
    flip(store, 70)
    second = sorted((store / "journal").iterdir())[1]
    second.unlink()
    result = run_archive(SparkRunner(spark), Config(str(store), Lake(str(lake)), quality=False))
    assert (result.quarantined, result.gaps) == (1, 1)
    gone = range(FILE_BYTES, 2 * FILE_BYTES)
    table = spark.read.format("delta").load(f"{lake}/messages")
    left = [row for row in expected[1:] if row["physical_offset"] not in gone]
    assert spark_rows(table.drop("store_date", "body_ref")) == left


def test_jobs_serve_a_journal(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(tmp_path / "lake")
    assert archive.main(["--store", str(store), "--lake", lake, "--local", "--quiet"]) == 0
    assert query.main(["--lake", lake, "--key", "order-41", "--output", "jsonl"]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["topic"], row["keys"], row["tags"], row["kind"]) == ("topic-2", ["order-41"], "1", "normal")
    assert row["properties"]["jmq.app"] == "shop-2"
    assert audit.main(["--lake", lake, "--store", str(store), "--local", "--quiet"]) == 0
    assert guard.main(["--store", str(store), "--lake", lake, "--output", "json"]) == 0
    capsys.readouterr()
    assert dump.main([str(store), "--body-as", "text"]) == 0
    dumped = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (len(dumped), dumped[10]["body"]) == (700, TEXT.decode())
    assert dump.main([str(store), "--consumequeue", "--topic", "topic-1"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    places = {(row["queue_id"], row["queue_offset"]): row["physical_offset"] for row in entries}
    assert places == {
        (row["queue_id"], row["queue_offset"]): row["physical_offset"] for row in dumped if row["topic"] == "topic-1"
    }
    assert explain.main([str(store), "--topic", "topic-1", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["segments"] > 1
