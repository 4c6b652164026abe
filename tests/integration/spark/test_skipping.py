"""Reads of a store with indexes by Spark: the rows of a full scan, from a part of its bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from commitlake.broker_lite.stores.rocketmq import StoreOptions
from commitlake.connectors.reading.planning import ReadMethod
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.comparing import Row, plain_rows, spark_rows
from tests.support.indexed_stores import RARE, STORED_MS, plan_of, unique_key, write_indexed_store

SEGMENT_BYTES = 8 << 20
LARGE = StoreOptions(segment_size_bytes=SEGMENT_BYTES, index_slots=5000, index_entries=20_000)
MIDDLE_MS = STORED_MS + 300_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments, with ConsumeQueues and IndexFiles, in which looking up pays."""
    root = tmp_path_factory.mktemp("skipping") / "store"
    return write_indexed_store(root, options=LARGE, max_body=100_000)


@pytest.fixture(scope="module")
def all_rows(store: Path) -> list[Row]:
    """Every record, as the plain reader sees it."""
    return plain_rows(store)


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    """Return a DataFrame of the source."""
    reader = spark.read.format("commitlog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def test_topics_are_read_by_their_queues(spark: SparkSession, store: Path, all_rows: list[Row]) -> None:
    frame = read(spark, store, topics=RARE, queueIds="0,2")
    assert spark_rows(frame) == [row for row in all_rows if row["topic"] == RARE and row["queue_id"] in (0, 2)]
    (plan,) = plan_of(store, topics=RARE, queueIds="0,2").stores
    assert plan.read_methods == [ReadMethod.CONSUME_QUEUE]
    assert frame.rdd.getNumPartitions() == len(plan.splits)
    assert read(spark, store, topics=RARE).where("tags = 'tag-1'").count() == 0


def test_keys_are_looked_up(store: Path) -> None:
    (plan,) = plan_of(store, topics=RARE, keys="order-40").stores
    assert plan.read_methods == [ReadMethod.INDEX_FILE]


@pytest.mark.parametrize(
    "keys",
    [
        "group-20,order-3",
        unique_key(100),
        *(
            pytest.param(keys, marks=pytest.mark.long("several keys, and a unique one, are found each time"))
            for keys in ("order-40", unique_key(101), "nothing")
        ),
    ],
)
def test_keys_are_found(spark: SparkSession, store: Path, all_rows: list[Row], keys: str) -> None:
    wanted = set(keys.split(","))
    expected = [row for row in all_rows if row["topic"] == RARE and wanted & {row["unique_key"], *row["keys"]}]
    assert spark_rows(read(spark, store, topics=RARE, keys=keys)) == expected
    assert spark_rows(read(spark, store, topics=RARE, keys=keys, useIndexes="false")) == expected


def test_times_skip_segments(spark: SparkSession, store: Path, all_rows: list[Row]) -> None:
    options = {"startingTimestamp": MIDDLE_MS, "endingTimestamp": MIDDLE_MS + 20_000, "clockTolerance": 5000}
    frame = read(spark, store, **options)
    assert spark_rows(frame) == [row for row in all_rows if MIDDLE_MS <= row["store_timestamp"] < MIDDLE_MS + 20_000]
    assert frame.rdd.getNumPartitions() <= 3


def test_damage_that_is_skipped_fails_no_read(
    spark: SparkSession, store: Path, all_rows: list[Row], tmp_path: Path
) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    path = copy / "commitlog" / segment_name(0)
    path.write_bytes(path.read_bytes()[:200].ljust(SEGMENT_BYTES, b"\xff"))
    copied = {"broker": all_rows[0]["broker"]}
    later = copied | {"startingTimestamp": MIDDLE_MS, "clockTolerance": 0}
    assert spark_rows(read(spark, copy, **later)) == [row for row in all_rows if row["store_timestamp"] >= MIDDLE_MS]
    with pytest.raises(PySparkException, match="physical offset"):
        read(spark, copy, **copied).toArrow()


@pytest.mark.long("the time bounds of a lost segment have unit tests")
def test_a_lost_segment_that_may_hold_wanted_messages_fails_the_read(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    (copy / "commitlog" / segment_name(2 * SEGMENT_BYTES)).unlink()
    with pytest.raises(PySparkException, match="missing_segment"):
        read(spark, copy, topics=RARE).toArrow()
    with pytest.raises(PySparkException, match="missing_segment"):
        read(spark, copy, endingTimestamp=MIDDLE_MS).toArrow()
    assert read(spark, copy, startingTimestamp=STORED_MS + 560_000, clockTolerance=0).count() > 0


@pytest.mark.long("indexes that do not fit have unit tests with the same error")
def test_a_wrong_index_fails_the_read_and_the_error_names_the_option(
    spark: SparkSession, store: Path, all_rows: list[Row], tmp_path: Path
) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    queues = copy / "consumequeue"
    for old, new in ((RARE, "aside"), ("topic-1", RARE), ("aside", "topic-1")):
        (queues / old).rename(queues / new)
    with pytest.raises(PySparkException, match="useIndexes=false") as error:
        read(spark, copy, topics="topic-1").toArrow()
    assert "expected topic 'topic-1'" in str(error.value)
    found = spark_rows(read(spark, copy, topics="topic-1", useIndexes="false", broker=all_rows[0]["broker"]))
    assert found == [row for row in all_rows if row["topic"] == "topic-1"]
