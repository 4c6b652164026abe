"""The sink's options and columns, and the results of its tasks; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from commitlake.connectors.rocketmq.data_source import RocketmqDataSource
from commitlake.connectors.rocketmq.errors import RocketMQError
from commitlake.connectors.rocketmq.sink.options import SinkOptions
from commitlake.connectors.rocketmq.sink.writer import RocketmqWriter, SentCounts, check_schema
from commitlake.schemas.errors import UsageError
from tests.support.live_brokers import LiveCluster
from tests.support.live_reading import create_topic

NEEDED = {"namesrv": "mq:9876"}
TYPES: dict[str, DataType] = {
    "binary": BinaryType(), "int": IntegerType(), "long": LongType(), "string": StringType(),
}  # fmt: skip


def struct(columns: str) -> StructType:
    """Return a schema of columns as `name type`, with commas between; Spark's own parser needs a JVM."""
    pairs = [column.split() for column in columns.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path) as made:
        create_topic(made.brokers["broker-a"])
        yield made


def test_missing_options_have_their_defaults() -> None:
    settings = SinkOptions.parse(NEEDED).settings
    assert (settings.group, settings.rows.topic, settings.rows.is_stored) == ("commitlake_writer", None, None)
    assert (settings.limits.max_bytes, settings.limits.max_messages, settings.max_in_flight) == (1 << 20, 1000, 8)
    assert (settings.answer_seconds, settings.retry_seconds) == (10.0, 60)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"topics": "x"},
            r"there is no option 'topics' \(did you mean 'topic'\?\): expected some of namesrv, brokers, group",
        ),
        ({"topic": "a b"}, "option topic: expected only letters"),
        ({"group": ""}, "option group: expected a name"),
        ({"body": "none"}, "option body: expected one of stored and decompressed, found 'none'"),
        ({"maxInFlight": "0"}, "option maxInFlight: expected at least 1"),
        ({"maxBatchBytes": "1k"}, "option maxBatchBytes: expected a whole number, found '1k'"),
        ({"secretKey": "hunter2"}, "is refused, because Spark writes options into plans and logs"),
    ],
)
def test_a_wrong_option_is_an_error(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SinkOptions.parse(NEEDED | given)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("topic string", "the column body is missing, found topic"),
        ("body binary", "the column topic is missing, found body"),
        ("body string, topic string", "column body: expected binary, found string"),
        ("body binary, topic string, tag string", r"column 'tag' cannot be sent \(did you mean 'tags'\?\)"),
        ("body binary, topic string, keys string", "column keys: expected list"),
    ],
)
def test_wrong_columns_are_an_error(schema: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_schema(struct(schema), SinkOptions.parse(NEEDED))


def test_columns_of_messages_are_left_out() -> None:
    schema = struct("body binary, topic string, broker string, physical_offset long, queue_id int")
    check_schema(schema, SinkOptions.parse(NEEDED))


def test_overwrite_mode_is_refused() -> None:
    source = RocketmqDataSource(NEEDED)
    with pytest.raises(UsageError, match="mode overwrite is not supported"):
        source.writer(struct("body binary, topic string"), overwrite=True)


@pytest.mark.parametrize("topic", ["%DLQ%billing", "%RETRY%billing", "TBW102", "rmq_sys_wheel_timer"])
def test_rows_for_system_topics_are_refused_without_the_option(cluster: LiveCluster, topic: str) -> None:
    given = {"namesrv": cluster.address, "retrySeconds": "0"}
    with pytest.raises(UsageError, match=r"option topic: expected a topic of an application.*option systemTopics"):
        SinkOptions.parse(given | {"topic": topic})
    schema = struct("body binary, topic string")
    rows = pa.RecordBatch.from_pydict({"body": [b"x", b"y"], "topic": ["orders", topic]})
    with pytest.raises(RocketMQError, match=r"1 was not sent: 1 invalid, topic .*found the broker's own"):
        RocketmqWriter(SinkOptions.parse(given), schema).write(iter([rows]))
    assert SinkOptions.parse(given | {"topic": topic, "systemTopics": "true"}).settings.rows.has_system_topics


def test_dead_letters_are_written_with_the_option(cluster: LiveCluster) -> None:
    given = {"namesrv": cluster.address, "retrySeconds": "0", "systemTopics": "true"}
    rows = pa.RecordBatch.from_pydict({"body": [b"x"], "topic": ["%DLQ%billing"]})
    writer = RocketmqWriter(SinkOptions.parse(given), struct("body binary, topic string"))
    assert writer.write(iter([rows])) == SentCounts(messages=1)


def test_a_task_returns_its_count_or_the_reason_of_failure(cluster: LiveCluster) -> None:
    options = SinkOptions.parse({"namesrv": cluster.address, "topic": "orders", "retrySeconds": "0"})
    writer = RocketmqWriter(options, struct("body binary"))
    good = pa.RecordBatch.from_pydict({"body": [b"x"] * 5})
    sent = writer.write(iter([good, good.slice(0, 0), good]))
    assert sent == SentCounts(messages=10)
    writer.commit([sent, None])
    bad = pa.RecordBatch.from_pydict({"body": [b"x", b"", b""]})
    expected = "expected to send 3 rows, 2 were not sent: 2 invalid, topic orders: body: expected at least one byte"
    with pytest.raises(RocketMQError, match=expected):
        writer.write(iter([bad]))
