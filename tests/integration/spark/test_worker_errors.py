"""Errors of this project in any of Spark's processes keep their type when the driver raises them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from commitlake.connectors.reading.errors import DamagedLogError, StoreError
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.connectors.worker_errors import extract_worker_error, raise_worker_errors
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.integer_parsing import NumberError, require_int
from tests.support.logs import closed_segment, messages, open_segment, write_store

SIZE = 16384


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two segments, of which the first is damaged."""
    damaged = bytearray(closed_segment(messages(20), SIZE))
    damaged[300] ^= 1
    return write_store(
        tmp_path / "broker-a" / "store", [(0, bytes(damaged)), (SIZE, open_segment(messages(5), SIZE, SIZE))]
    )


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("commitlog").options(**options).load(str(path))


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (
            partial(require_int, name="queue", minimum=0, maximum=9),
            NumberError,
            "queue: expected a whole number from 0 to",
        ),
        (int, ValueError, "invalid literal for int"),
    ],
)
def test_a_task_that_fails_raises_its_error(
    spark: SparkSession, function: Callable[[str], int], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as raised:
        list(SparkRunner(spark).run(function, ["1", "x"]))
    assert type(raised.value) is kind
    assert isinstance(raised.value.__cause__, PySparkException)


def test_a_source_that_fails_while_reading_raises_its_error(spark: SparkSession, store: Path) -> None:
    with pytest.raises(DamagedLogError, match="physical offset"), raise_worker_errors():
        read(spark, store).collect()


def test_a_source_that_fails_while_planning_raises_its_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"), raise_worker_errors():
        read(spark, tmp_path / "nowhere").collect()


def test_a_source_with_a_wrong_option_raises_its_error(spark: SparkSession, store: Path) -> None:
    with pytest.raises(UsageError, match="expected one of FAILFAST"), raise_worker_errors():
        read(spark, store, mode="LOUD").collect()


@pytest.mark.long("a stream that fails names its error, and errors of reads are found, each time")
def test_the_error_of_a_failed_stream_is_found(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    def run() -> None:
        stream = spark.readStream.format("commitlog").option("mode", "DROPMALFORMED").load(str(store))
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination(60)

    run()
    shutil.rmtree(store / "commitlog")
    write_store(store, [(8 * SIZE, open_segment(messages(5), SIZE, 8 * SIZE))])
    with pytest.raises(StreamingQueryException) as raised:
        run()
    assert isinstance(extract_worker_error(raised.value), StoreError)


def test_an_error_of_spark_itself_is_raised_unchanged(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="nothing"), raise_worker_errors():
        spark.sql("SELECT nothing").collect()
