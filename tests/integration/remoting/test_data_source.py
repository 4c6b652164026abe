"""`format("rocketmq")` against real brokers: rows are those of the broker's own log, and streams give each once."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from commitlake import register
from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer
from commitlake.connectors.rocketmq.options import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from commitlake.connectors.rocketmq.sink.options import SinkOptions
from commitlake.schemas.times import epoch_ms
from tests.servers.rocketmq import BrokerOptions, RocketMQ
from tests.support.comparing import with_entries
from tests.support.live_reading import parsed, rows
from tests.support.topic_reading import make_topic, wait_for
from tests.support.waiting import wait_until

WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    """A session with all formats."""
    register(spark)
    return spark


def wait_for_messages(admin: Admin, topic: str, count: int) -> None:
    """Wait until a topic's queues hold so many messages."""
    wait_for(
        lambda: admin.broker_topic_stats(topic, "broker-a"),
        lambda found: found is not None and sum(one.max_offset for one in found.offset_table.values()) == count,
    )


def read(spark: SparkSession, servers: RocketMQ, topic: str, **given: object) -> DataFrame:
    values = {"namesrv": servers.name_server_address, "topics": topic} | {key: str(it) for key, it in given.items()}
    return spark.read.format("rocketmq").options(**values).load()


def test_rows_are_those_of_the_log_and_can_be_written_again(
    registered: SparkSession, servers: RocketMQ, admin: Admin, options: ClientOptions, topic: str
) -> None:
    spark, copy = registered, f"{topic}Copy"
    for name in (topic, copy):
        make_topic(admin, name, 3)
    with Producer("DataSource", options) as producer:
        producer.send_batch([OutgoingMessage(topic, b"in a batch", tags="batch"), OutgoingMessage(topic, b"x")])
        for number in range(70):
            message = OutgoingMessage(
                topic, b"body %d" % number, f"tag{number % 3}", (f"k{number}",), {"n": str(number)}
            )
            producer.send(message)
        producer.send(OutgoingMessage(topic, b"long " * 2000))
    count = 73
    wait_for_messages(admin, topic, count)
    found = read(spark, servers, topic, body="stored", minPartitions=4).cache()
    log = spark.read.format("commitlog").options(body="stored", topics=topic, broker=servers.broker_name)
    assert found.count() == count
    assertDataFrameEqual(with_entries(found), with_entries(log.load(str(servers.store))))

    # Rows that were read are written with their properties, and are the same except for their offsets.
    columns = ["body", "body_codec", "properties", "tags", "keys", "unique_key", "flag"]
    given = {"namesrv": servers.name_server_address, "topic": copy, "body": "stored", "maxBatchMessages": "20"}
    found.select(columns).write.format("rocketmq").mode("append").options(**given).save()
    wait_for_messages(admin, copy, count)
    own = ["body", "body_codec", "tags", "keys", "unique_key", "flag", "body_crc", "kind", "properties['n'] AS n"]
    assertDataFrameEqual(read(spark, servers, copy, body="stored").selectExpr(own), found.selectExpr(own))

    with pytest.raises(PySparkException, match=r"queue 9 of broker-a is not among the 3 queues"):
        read(spark, servers, topic, startingOffsets=f'{{"{topic}": {{"broker-a": {{"9": 1}}}}}}').count()
    empty = spark.createDataFrame([(b"",)], "body binary")
    with pytest.raises(PySparkException, match=r"expected to send 1 row, 1 was not sent: 1 invalid, topic .*: body"):
        empty.write.format("rocketmq").mode("append").options(**{**given, "body": "decompressed"}).save()


def test_filters_times_and_tls_reach_the_broker(
    servers: RocketMQ, admin: Admin, options: ClientOptions, topic: str, tmp_path: Path
) -> None:
    make_topic(admin, topic, 2)
    with Producer("DataSource", options) as producer:
        for number in range(60):
            producer.send(OutgoingMessage(topic, b"x", tags=f"tag{number % 3}", properties={"n": str(number)}))
    wait_for_messages(admin, topic, 60)
    given = {"namesrv": servers.name_server_address, "topics": topic}
    settings = tmp_path / "tls.properties"
    settings.write_text("tls.test.mode.enable=true\n")
    found = rows(parsed({**given, "tlsConfig": str(settings), "minPartitions": "5"}))
    assert len({(row["queue_id"], row["queue_offset"]) for row in found}) == len(found) == 60
    assert len(rows(parsed({**given, "tags": "tag1 || tag0"}))) == 40
    assert len(rows(parsed({**given, "sql": "n BETWEEN 10 AND 19"}))) == 10
    times = sorted(epoch_ms(row["store_timestamp"]) for row in found)
    for moment in (times[0], times[30], times[30] + 1, times[-1] + 1):
        later = sum(time >= moment for time in times)
        assert len(rows(parsed({**given, "startingTimestamp": str(moment)}))) == later
        assert len(rows(parsed({**given, "endingTimestamp": str(moment)}))) == 60 - later


@pytest.mark.long("a topic is read and written by batches, and a stream of a log goes on, each time")
def test_a_stream_from_topic_to_topic_gives_each_message_once(
    registered: SparkSession, servers: RocketMQ, admin: Admin, options: ClientOptions, topic: str, tmp_path: Path
) -> None:
    spark, copy = registered, f"{topic}Copy"
    for name in (topic, copy):
        make_topic(admin, name, 2)

    def send(first: int, count: int) -> None:
        with Producer("DataSource", options) as producer:
            for number in range(first, first + count):
                producer.send(OutgoingMessage(topic, str(number).encode()))
        total = first + count
        wait_for_messages(admin, topic, total)

    def run() -> list[int]:
        """Run the stream over all present messages, and return the sizes of its micro-batches."""
        given = {"namesrv": servers.name_server_address, "topics": topic, "body": "stored",
                 "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}  # fmt: skip
        frame = spark.readStream.format("rocketmq").options(**given).load().select("body")
        writer = frame.writeStream.format("rocketmq").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.options(namesrv=servers.name_server_address, topic=copy).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS)
        return [each.numInputRows for each in query.recentProgress if each.numInputRows]

    send(0, 30)
    assert run() == [20, 10]
    send(30, 5)
    assert run() == [5]
    wait_for_messages(admin, copy, 35)
    bodies = [int(row.body) for row in read(spark, servers, copy, body="stored").select("body").collect()]
    assert sorted(bodies) == list(range(35))


@pytest.mark.long("it starts a broker of its own, and 5.5.0 has another kind of accounts")
def test_reads_and_writes_are_signed_with_keys_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rocketmq"
    accounts = folder / "home" / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text("accounts:\n- accessKey: the-shop\n  secretKey: secret-of-the-shop\n  admin: true\n")
    body = zlib.compress(b"signed")
    with RocketMQ("4.9.7", folder, options=BrokerOptions(extra={"aclEnable": True})) as servers:
        monkeypatch.setenv(ACCESS_KEY_VARIABLE, "the-shop")
        monkeypatch.setenv(SECRET_KEY_VARIABLE, "secret-of-the-shop")
        with Admin(ClientOptions(servers.name_server_address)) as admin:
            make_topic(admin, "Signed", 1)
        given = {"namesrv": servers.name_server_address, "retrySeconds": "5"}
        batch = pa.RecordBatch.from_pydict({"body": [body] * 3, "topic": ["Signed"] * 3})
        with SinkOptions.parse(given).open_sender() as sender:
            assert set(sender.send(batch).column("status").to_pylist()) == {"sent"}
        chosen = parsed({**given, "topics": "Signed", "body": "stored"})
        wait_until(lambda: [row["body"] for row in rows(chosen)] == [body] * 3, 30)
        monkeypatch.setenv(SECRET_KEY_VARIABLE, "another-secret")
        with SinkOptions.parse(given).open_sender() as sender:
            (status,) = set(sender.send(batch).column("status").to_pylist())
            assert status == "refused"
