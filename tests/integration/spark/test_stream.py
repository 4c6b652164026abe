"""The source `commitlog` as a stream: any number of micro-batches gives the rows of one batch read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.sources.stream_ranges import RANGES, to_snapshot
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.comparing import COLUMNS, Row, intact, plain_rows, spark_rows
from tests.support.logs import START_MS, messages, new_message, open_segment, records, write_store

SIZE = 16384
WAIT_SECONDS = 120


class Sink:
    """Collects a stream, micro-batch by micro-batch; continues from its checkpoint when it is run again."""

    def __init__(self, spark: SparkSession, folder: Path, path: Path | str) -> None:
        self._spark, self._checkpoint, self._path = spark, folder / "checkpoint", path
        self.batches: list[list[Row]] = []

    def start(self, *, schema: str | None = None, path: Path | str | None = None, **options: object) -> StreamingQuery:
        """Run it, by default with Trigger.AvailableNow."""
        trigger: dict[str, Any] = {"availableNow": True}
        if "processingTime" in options:
            trigger = {"processingTime": options.pop("processingTime")}
        reader = self._spark.readStream.format("commitlog")
        if schema is not None:
            reader = reader.schema(schema)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        frame = reader.load(str(path or self._path))
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start()

    def run(self, **options: Any) -> list[Row]:
        """Run until all present data is read, and return the new rows."""
        before = len(self.batches)
        query = self.start(**options)
        assert query.awaitTermination(WAIT_SECONDS)
        return [row for batch in self.batches[before:] for row in batch]

    def fails(self, **options: Any) -> str:
        """Return the error message of a run that must fail."""
        with pytest.raises(StreamingQueryException) as error:
            self.start(**options).awaitTermination(WAIT_SECONDS)
        return str(error.value)

    def _take(self, batch: DataFrame, _number: int) -> None:
        self.batches.append(spark_rows(batch))

    @property
    def rows(self) -> list[Row]:
        """All rows so far, in order of broker and offset."""
        return sorted(
            (row for batch in self.batches for row in batch), key=lambda row: (row["broker"], row["physical_offset"])
        )


class FailingSink(Sink):
    """Fails once, in the micro-batch with a number."""

    def __init__(self, spark: SparkSession, folder: Path, path: Path | str, fails_at: int) -> None:
        super().__init__(spark, folder, path)
        self._fails_at = fails_at
        self.failed: list[Row] = []

    def _take(self, batch: DataFrame, number: int) -> None:
        if number == self._fails_at and not self.failed:
            self.failed = spark_rows(batch)
            raise ValueError("stopped on purpose")
        super()._take(batch, number)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of a broker's store."""
    return tmp_path / "broker-a" / "store"


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path, store: Path) -> Sink:
    return Sink(spark, tmp_path, store)


@pytest.fixture
def broker(store: Path) -> Iterator[MessageStore]:
    """A broker that writes small segments."""
    options = StoreOptions(segment_size_bytes=SIZE, index_slots=100, index_entries=400, max_message_size_bytes=4096)
    with MessageStore.open(store, options) as opened:
        yield opened


def put(broker: MessageStore, count: int, seed: int = 1) -> None:
    for message in messages(count, seed):
        broker.put(message)


# --- rows ---


@pytest.mark.long("a restarted stream reads a store that has grown each time")
def test_a_store_that_grows_between_triggers_is_read_once(sink: Sink, broker: MessageStore, store: Path) -> None:
    query = sink.start(processingTime="0 seconds")
    try:
        for seed in range(5):
            put(broker, 60, seed)
            query.processAllAvailable()
    finally:
        query.stop()
    assert sink.rows == plain_rows(store)
    assert len(sink.batches) >= 5


@pytest.mark.long("a killed stream has several batches each time")
def test_available_now_ends_after_several_batches(sink: Sink, broker: MessageStore, store: Path) -> None:
    put(broker, 200)
    assert len(sink.run(maxBytesPerTrigger=5000)) == 200
    assert sink.rows == plain_rows(store)
    assert len(sink.batches) > 200 * 250 / 8000
    assert all(sum(row["size"] for row in batch) < 5000 + 500 for batch in sink.batches)
    assert sink.run(maxBytesPerTrigger=5000) == []


def test_a_restart_continues_from_the_checkpoint(sink: Sink, broker: MessageStore, store: Path) -> None:
    for seed, options in enumerate([{}, {"maxBytesPerTrigger": 3000}, {"maxPartitionBytes": 700}]):
        put(broker, 70, seed)
        assert len(sink.run(**options)) == 70
    assert sink.rows == plain_rows(store)


@pytest.mark.long("a restart reads its checkpoint each time; where a batch ends has unit tests")
def test_a_failed_batch_is_repeated_with_the_same_rows(
    spark: SparkSession, tmp_path: Path, broker: MessageStore, store: Path
) -> None:
    sink = FailingSink(spark, tmp_path, store, fails_at=1)
    put(broker, 100)
    assert "stopped on purpose" in sink.fails(maxBytesPerTrigger=4000)
    put(broker, 20, 2)
    sink.run(maxBytesPerTrigger=100_000)  # the checkpoint determines the first batch, not the option
    assert sink.batches[1] == sink.failed
    assert sink.rows == plain_rows(store)


@pytest.mark.long("the planner has a unit test; lost segments of later batches are reported each time")
def test_records_of_a_failed_first_batch_deleted_before_the_retry_are_reported(
    spark: SparkSession, tmp_path: Path, broker: MessageStore, store: Path
) -> None:
    sink = FailingSink(spark, tmp_path, store, fails_at=0)
    put(broker, 250)
    sink.fails()
    (store / "commitlog" / segment_name(0)).unlink()
    assert f"physical offsets 0 to {SIZE} ({SIZE} bytes) were deleted" in sink.fails()
    rows = sink.run(failOnDataLoss="false", mode="PERMISSIVE")
    gaps = [row["_corrupt_record"] for row in rows if row["_corrupt_record"]]
    assert [(gap["start"], gap["end"], gap["reason"]) for gap in gaps] == [(0, SIZE, "missing_segment")]
    assert intact(rows) == plain_rows(store)


def test_a_cluster_is_one_stream_and_a_new_broker_joins_it(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "cluster"
    for name in ("a", "b"):
        write_store(root / name, [(0, open_segment(messages(20, ord(name)), SIZE))])
    sink = Sink(spark, tmp_path, root / "{broker}")
    query = sink.start(processingTime="0 seconds", startingOffset="latest")
    try:
        query.processAllAvailable()
        write_store(root / "a", [(0, open_segment(messages(25, ord("a")), SIZE))])
        write_store(root / "c", [(0, open_segment(messages(10, ord("c")), SIZE))])
        query.processAllAvailable()
        query.processAllAvailable()  # a store joins in a batch of its own, which has no rows of the store
    finally:
        query.stop()
    assert [row["broker"] for row in sink.rows] == ["a"] * 5 + ["c"] * 10


@pytest.mark.long("a batch gives requested columns each time")
def test_a_schema_or_columns_can_be_requested(sink: Sink, broker: MessageStore) -> None:
    put(broker, 10)
    rows = sink.run(schema="broker string, physical_offset long, keys array<string>, body binary", body="stored")
    assert [set(row) for row in rows] == [{"broker", "physical_offset", "keys", "body"}] * 10
    assert [row["body"] for row in rows] == [message.body for message in messages(10)]


@pytest.mark.long("batches begin at times each time")
def test_a_stream_begins_at_its_starting_timestamp(sink: Sink, store: Path) -> None:
    write_store(store, [(0, open_segment(messages(20), SIZE))])
    rows = sink.run(startingTimestamp=START_MS + 1000 + 12, topics="topic-0,topic-1")
    assert [row["store_timestamp"] - START_MS - 1000 for row in rows] == [12, 13, 15, 16, 18, 19]


@pytest.mark.long("where a stream ends has unit tests")
def test_the_progress_reports_the_end_of_the_log(sink: Sink, broker: MessageStore) -> None:
    put(broker, 100)
    query = sink.start(maxBytesPerTrigger=3000)
    query.awaitTermination(WAIT_SECONDS)
    (source,) = query.recentProgress[0]["sources"]
    stores = {when: json.loads(source[when])["stores"]["broker-a"]["offset"] for when in ("endOffset", "latestOffset")}
    assert stores["endOffset"] < 4000
    assert stores["latestOffset"] > 10_000


# --- faults ---


def damaged_segment() -> tuple[bytes, list[int]]:
    """Return a segment of 20 messages, one of which has a false size, and where the messages begin."""
    sent = [new_message(number) for number in range(20)]
    starts = [0]
    for record in records(sent):
        starts.append(starts[-1] + len(record))
    data = bytearray(open_segment(sent, SIZE))
    data[starts[7] : starts[7] + 4] = b"\x7f\xff\xff\xff"
    return bytes(data), starts


@pytest.mark.long("damage is a row of a batch, and lost segments are a row of a stream, each time")
def test_damage_is_a_row_in_permissive_mode(sink: Sink, store: Path) -> None:
    data, starts = damaged_segment()
    write_store(store, [(0, data)])
    rows = sink.run(mode="PERMISSIVE", maxBytesPerTrigger=1000)
    assert intact(rows) == plain_rows(store)
    (bad,) = (row["_corrupt_record"] for row in rows if row["_corrupt_record"])
    assert (bad["start"], bad["end"], bad["reason"]) == (starts[7], starts[8], "total_size")


@pytest.mark.long("lost segments fail a stream, and damage fails a read, each time")
def test_damage_fails_the_stream_and_another_mode_lets_it_continue(sink: Sink, store: Path) -> None:
    data, starts = damaged_segment()
    write_store(store, [(0, data)])
    assert f"physical offset {starts[7]}" in sink.fails()
    assert len(sink.run(mode="DROPMALFORMED")) == 19


@pytest.mark.long("archives wait for a torn tail each time; where a stream ends has unit tests")
def test_a_torn_tail_is_waited_for(sink: Sink, store: Path) -> None:
    whole = open_segment(messages(20), SIZE)
    end = len(whole.rstrip(b"\0"))
    write_store(store, [(0, whole[: end - 200].ljust(SIZE, b"\0"))])
    first = sink.run()
    assert 17 <= len(first) < 20
    assert sink.run() == []
    write_store(store, [(0, whole)])
    assert len(first) + len(sink.run()) == 20
    assert sink.rows == plain_rows(store)


def test_lost_segments_fail_the_stream_or_are_a_row(sink: Sink, broker: MessageStore, store: Path) -> None:
    put(broker, 20)
    sink.run()
    read_to = sink.rows[-1]["physical_offset"] + sink.rows[-1]["size"]
    put(broker, 250, 2)
    (store / "commitlog" / segment_name(0)).unlink()
    (store / "commitlog" / segment_name(SIZE)).unlink()
    told = sink.fails()
    assert (
        f"store 'broker-a': physical offsets {read_to} to {2 * SIZE} ({2 * SIZE - read_to} bytes) were deleted" in told
    )
    assert "failOnDataLoss=false" in told
    rows = sink.run(failOnDataLoss="false", mode="PERMISSIVE")
    gaps = [row["_corrupt_record"] for row in rows if row["_corrupt_record"]]
    assert [(gap["start"], gap["end"], gap["reason"]) for gap in gaps] == [(read_to, 2 * SIZE, "missing_segment")]
    assert intact(rows) == plain_rows(store)


@pytest.mark.long("the planner has a unit test of it")
def test_a_store_that_was_set_up_again_is_refused(sink: Sink, store: Path) -> None:
    write_store(store, [(0, open_segment(messages(20), SIZE))])
    sink.run()
    write_store(store, [(0, open_segment(messages(40, seed=9), SIZE))])
    told = sink.fails(failOnDataLoss="false")
    assert "store 'broker-a'" in told
    assert "start with a new checkpoint" in told


@pytest.mark.long("the planner has a unit test of it")
def test_a_checkpoint_of_another_broker_is_refused(sink: Sink, store: Path) -> None:
    write_store(store, [(0, open_segment(messages(20), SIZE))])
    sink.run()
    other = shutil.copytree(store, store.parents[1] / "broker-b" / "store")
    assert "store 'broker-a', which the stream has read up to" in sink.fails(path=other)


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffset": 5}, "option endingOffset is only for spark.read: a stream has no end"),
        ({"startingOffset": 0, "startingTimestamp": 0}, "expected only one of them, found both"),
        ({"startingOffset": "newest"}, "expected a physical offset, earliest, latest or JSON"),
        pytest.param(
            {"startingOffset": 3},
            "found 3, which is inside a record",
            marks=pytest.mark.long("it fails in the query, which has all of its retries first"),
        ),
        ({"maxBytesPerTrigger": 0}, "expected at least 1 byte"),
        ({"content": "lines"}, "option content: expected one of rows, ranges"),
    ],
)
def test_a_wrong_option_is_refused(sink: Sink, store: Path, options: dict[str, object], message: str) -> None:
    write_store(store, [(0, open_segment(messages(20), SIZE))])
    with pytest.raises(Exception, match=message):  # Spark's errors of planning, or of the query
        sink.run(**options)


@pytest.mark.parametrize("option", ["maxBytesPerTrigger", "failOnDataLoss", "content", "startingOffset"])
def test_a_batch_refuses_options_for_streams(spark: SparkSession, store: Path, option: str) -> None:
    write_store(store, [(0, open_segment(messages(20), SIZE))])
    value = {"maxBytesPerTrigger": "1", "failOnDataLoss": "true", "content": "rows", "startingOffset": "latest"}[option]
    with pytest.raises(Exception, match=f"option {option}.*for streams"):
        spark.read.format("commitlog").option(option, value).load(str(store)).collect()


# --- ranges ---


@pytest.mark.long("ranges are archived by `archive --available-now` each time")
def test_a_batch_can_read_the_ranges_of_a_stream(
    spark: SparkSession, tmp_path: Path, broker: MessageStore, store: Path
) -> None:
    found: list[Row] = []

    def take(batch: DataFrame, number: int) -> None:
        assert batch.schema.simpleString() == spark_schema(RANGES).simpleString()
        snapshot = to_snapshot(batch).to_json()
        found.extend(spark_rows(spark.read.format("commitlog").option("snapshot", snapshot).load(str(store))))

    for seed in range(2):
        put(broker, 100, seed)
        frame = spark.readStream.format("commitlog").option("content", "ranges").option("maxBytesPerTrigger", 7000)
        writer = frame.load(str(store)).writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS)
    assert found == plain_rows(store)
    assert set(found[0]) == set(COLUMNS)
