"""Options of the source: the error for a wrong value names the expected one."""

from __future__ import annotations

import pytest

from commitlake.connectors.reading.options import BodyForm, Mode
from commitlake.connectors.rocketmq.queue_reading import PullFilter
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.positions import QueueEdge, ReadPosition
from commitlake.connectors.rocketmq.spark_options import load_credentials
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.signing import Credentials

NEEDED = {"namesrv": "mq:9876", "topics": "orders"}
QUEUE = MessageQueue("orders", "broker-a", 3)


def parse(**given: str) -> SourceOptions:
    return SourceOptions.parse(NEEDED | given)


def test_missing_options_have_their_defaults() -> None:
    options = parse()
    assert (options.topics, options.group, options.min_partitions) == (("orders",), "TOOLS_CONSUMER", 1)
    assert options.start == ReadPosition("startingOffsets", QueueEdge.EARLIEST)
    assert options.end == ReadPosition("endingOffsets", QueueEdge.LATEST)
    assert options.stream_start == ReadPosition("startingOffsets", QueueEdge.LATEST)
    assert (options.fail_on_data_loss, options.max_offsets_per_trigger, options.columns) == (True, None, None)
    assert (options.body, options.mode, options.client_options.request_seconds) == (BodyForm.NONE, Mode.FAILFAST, 10.0)
    assert options.message_filter.selects_all


def test_names_are_accepted_in_any_case() -> None:
    options = SourceOptions.parse({"NAMESRV": "a:1; b:2", "Topics": "x, y,x", "minpartitions": "7", "TAGS": "a || b"})
    assert (options.client_options.name_server_addresses, options.topics, options.min_partitions) == (
        ["a:1", "b:2"], ("x", "y"), 7,
    )  # fmt: skip
    assert options.message_filter == PullFilter("a || b")
    assert options.message_filter.tags == ("a", "b")


def test_positions_are_offsets_times_or_words() -> None:
    by_queue = '{"orders": {"broker-a": {"3": 17}}}'
    assert parse(startingOffsets=by_queue).start.offsets == {QUEUE: 17}
    assert parse(startingOffsets=by_queue).stream_start.offsets == {QUEUE: 17}
    assert parse(startingOffsets="Latest").start.edge is QueueEdge.LATEST
    assert parse(endingTimestamp="2026-11-20T14:00").end.time_ms == 1795183200000
    assert parse(endingTimestamp=by_queue).end.times == {QUEUE: 17}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"topic": "x"},
            r"there is no option 'topic' \(did you mean 'topics'\?\): expected some of namesrv, brokers, group",
        ),
        ({"startingOffset": "1"}, r"did you mean 'startingOffsets'\?"),
        ({"namesrv": ""}, "the option 'namesrv' is missing"),
        ({"namesrv": "mq"}, "option namesrv: expected an address as host:port, found 'mq'"),
        ({"topics": ","}, "option topics: expected at least one name"),
        ({"group": "a b"}, "option group: expected only letters"),
        ({"startingOffsets": "17"}, "option startingOffsets: expected earliest, latest or JSON such as"),
        ({"startingOffsets": '{"orders": {"broker-a": {"x": 1}}}'}, "option startingOffsets: expected earliest"),
        ({"startingOffsets": '{"orders": {"broker-a": {"0": -3}}}'}, "option startingOffsets: expected earliest"),
        ({"startingOffsets": '{"orders": {"0": 1}}'}, "option startingOffsets: expected earliest"),
        ({"endingOffsets": "[]"}, "option endingOffsets: expected earliest"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp: expected a time as ms since 1970"),
        ({"startingTimestamp": '{"orders": 1}'}, "option startingTimestamp: expected a time, or JSON of ms"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "options startingOffsets and startingTimestamp"),
        ({"minPartitions": "0"}, "option minPartitions: expected at least 1"),
        ({"maxOffsetsPerTrigger": "x"}, "option maxOffsetsPerTrigger: expected a whole number"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss: expected true or false, found 'no'"),
        ({"tags": "a", "sql": "b = 1"}, "options tags and sql: expected only one of them"),
        ({"tags": " "}, "option tags: expected a filter"),
        ({"tags": "|| ||"}, "option tags: expected tags such as 'paid .. refunded', found none in '|| ||'"),
        ({"body": "text"}, "option body: expected one of none, stored, decompressed"),
        ({"mode": "x"}, "option mode: expected one of FAILFAST"),
        ({"retrySeconds": "-1"}, "option retrySeconds: expected at least 0"),
        (
            {"credentialsProvider": "os.system('x')"},
            "option credentialsProvider: expected the name of a Python function as module:function",
        ),
    ],
)
def test_a_wrong_option_is_an_error(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SourceOptions.parse(NEEDED | given)


@pytest.mark.parametrize("name", ["accessKey", "secretkey", "SECRET_KEY", "securityToken"])
def test_keys_given_as_options_are_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"is refused, because Spark writes options into plans and logs.*COMMITLAKE_ROCKETMQ_ACCESS_KEY",
    ) as caught:
        SourceOptions.parse(NEEDED | {name: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_topics_are_required() -> None:
    with pytest.raises(UsageError, match="the option 'topics' is missing"):
        SourceOptions.parse({"namesrv": "mq:9876"})


def test_batches_refuse_options_of_streams_and_vice_versa() -> None:
    with pytest.raises(UsageError, match="option maxOffsetsPerTrigger is for streams"):
        parse(maxOffsetsPerTrigger="5").for_batch()
    with pytest.raises(UsageError, match=r"option endingTimestamp is only for spark\.read"):
        parse(endingTimestamp="5").for_stream()
    assert parse(maxOffsetsPerTrigger="5").for_stream().max_offsets_per_trigger == 5


def give_keys() -> tuple[str, str]:
    """Return keys, as a provider does."""
    return "reader", "hunter2"


def give_nothing() -> None:
    """Return nothing: this is not a valid provider."""


def test_a_function_gives_the_keys() -> None:
    assert load_credentials(None) is None
    assert load_credentials(f"{__name__}:give_keys") == Credentials("reader", "hunter2")
    with pytest.raises(UsageError, match=r"returns .access key, secret key. or .*, found NoneType"):
        load_credentials(f"{__name__}:give_nothing")
    with pytest.raises(UsageError, match="has no attribute 'give_more'"):
        load_credentials(f"{__name__}:give_more")
    with pytest.raises(UsageError, match="No module named"):
        load_credentials("no_such_module:f")
