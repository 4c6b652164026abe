"""Queues and IndexFiles of a real broker as rows: they agree with the log's own records."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.consumequeue import tags_code
from commitlake.schemas.layouts.rocketmq.indexfile import key_hash, tags_index_key
from commitlake.schemas.layouts.rocketmq.topics import SCHEDULE_TOPIC
from tests.servers.recording import RecordedStore
from tests.support.index_times import check_index_times
from tests.support.indexed_stores import plan_of, read_splits


@pytest.fixture
def messages(recorded_store: RecordedStore) -> list[Message]:
    """Every record of the log, by the plain reader."""
    return list(read_splits(plan_of(recorded_store.store).splits))


def test_queue_entries_match_the_records_of_the_log(
    spark: SparkSession, recorded_store: RecordedStore, messages: list[Message]
) -> None:
    frame = spark.read.format("consumequeue").load(str(recorded_store.store))
    columns = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code")
    found = {tuple(row[name] for name in columns[:5]): row["tags_code"] for row in frame.collect()}
    expected = {
        (each.topic, each.queue_id, each.queue_offset, each.physical_offset, each.size): tags_code(
            each.properties.get(props.TAGS)
        )
        for each in messages
    }
    assert found.keys() == expected.keys()
    differ = {place[0] for place, code in found.items() if code != expected[place]}
    assert differ == {SCHEDULE_TOPIC}  # its codes are times of delivery
    topic = messages[0].topic
    chosen = frame.sparkSession.read.format("consumequeue").option("topics", topic).load(str(recorded_store.store))
    assert {row["topic"] for row in chosen.collect()} == {topic}
    joined = frame.join(
        spark.read.format("commitlog").load(str(recorded_store.store)),
        ["broker", "topic", "queue_id", "queue_offset", "physical_offset", "size"],
    )
    assert joined.count() == len(messages)


def test_index_entries_match_the_keys_of_the_records(
    spark: SparkSession, recorded_store: RecordedStore, messages: list[Message]
) -> None:
    reader = spark.read.format("indexfile")
    rows = reader.load(str(recorded_store.store)).collect()
    found = Counter((row["physical_offset"], row["key_hash"]) for row in rows)
    by_keys, by_tags = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for each in messages:
        unique_key, tags = each.properties.get(props.UNIQ_KEY), each.properties.get(props.TAGS)
        for key in ([unique_key] if unique_key else []) + list(each.keys or ()):
            by_keys[each.physical_offset, key_hash(each.topic, key)] += 1
        if tags:
            by_tags[each.physical_offset, key_hash(each.topic, tags_index_key(tags))] += 1
    assert found == (by_keys + by_tags if recorded_store.version >= "5.5" else by_keys)
    times = {each.physical_offset: each.store_timestamp for each in messages}
    check_index_times(
        (row["entry"], times[row["physical_offset"]], row["store_timestamp"].timestamp() * 1000)
        for row in sorted(rows, key=lambda row: (row["file"], row["entry"]))
    )
    headers = reader.option("content", "headers").load(str(recorded_store.store)).collect()
    assert sum(header["index_count"] - 1 for header in headers) == len(rows)
    slots = reader.option("content", "slots").load(str(recorded_store.store)).collect()
    assert len(slots) == sum(header["used_slots"] for header in headers)


def test_wrong_options_are_errors_in_spark(spark: SparkSession, recorded_store: RecordedStore) -> None:
    with pytest.raises(PySparkException, match="did you mean 'topics'"):
        spark.read.format("consumequeue").option("topcs", "a").load(str(recorded_store.store)).collect()
