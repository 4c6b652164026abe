"""The options of the source `rocketmq`, checked at once: an unknown or wrong one is an error, never a default.

| option | default | meaning |
| --- | --- | --- |
| namesrv | (needed) | name servers, `host:port`, separated by semicolons or commas |
| brokers | (none) | instead of namesrv, if there is no name server: `host:port` of each broker; it must give its |
| | | settings to any client (GET_BROKER_CONFIG) |
| topics | (needed) | comma-separated; also the broker's own, such as `%DLQ%group` and `SCHEDULE_TOPIC_XXXX` |
| group | TOOLS_CONSUMER | consumer group of the pulls, which every broker has; its offsets are never changed |
| startingOffsets | earliest | earliest, latest or JSON of topic, broker and queue, such as |
| | | `{"orders": {"broker-a": {"0": 4711}}}`; -2 is a queue's first message, -1 its end; queues that are not named |
| | | begin at their first message. A new stream begins at latest |
| startingTimestamp | (none) | begin at the first message stored at this time or later: ms since 1970 or ISO 8601 (UTC |
| | | unless it says otherwise), or JSON of ms by topic, broker and queue |
| endingOffsets | latest | as startingOffsets; exclusive |
| endingTimestamp | (none) | end before the first message stored at this time or later |
| minPartitions | 1 | divide queues by offsets into at least this number of partitions |
| failOnDataLoss | true | fail if messages were deleted before they were read; false: log their number and continue |
| tags | all | one or more, separated by `||`: brokers return no other messages |
| sql | all | an SQL92 filter, such as `price > 2 AND region = 'EU'`; the broker needs enablePropertyFilter=true |
| columns | all but body | comma-separated; other columns are not decoded |
| body | none | none, stored or decompressed: whether there is a column `body`, and its contents; decompressed
| | | if only `columns` names it |
| maxBodyBytes | 64 MiB | maximum size of a decompressed body |
| maxBatchBytes | 4 MiB | bytes of answers that a worker holds at a time; a single answer may be larger |
| mode | FAILFAST | for damaged records: FAILFAST, PERMISSIVE (rows with `_corrupt_record`) or DROPMALFORMED |
| timeoutMs | 10000 | time limit for an answer |
| retrySeconds | 60 | time for which an unresponsive broker is retried |
| tlsConfig | the environment's | a `tls.properties` file on every machine, see `connectors.rocketmq.options` |
| credentialsProvider | the environment | `module:function` that returns (access key, secret key) in every process; by |
| | | default COMMITLAKE_ROCKETMQ_ACCESS_KEY and COMMITLAKE_ROCKETMQ_SECRET_KEY are used |

A stream (`readStream`) has the same options, except endingOffsets and endingTimestamp, and this one:

| option | default | meaning |
| --- | --- | --- |
| maxOffsetsPerTrigger | no limit | offsets of a micro-batch, in fair shares of the available offsets of each queue |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.engine.option_values import OptionValues
from commitlake.connectors.formats.engine.options import BodyForm, Mode
from commitlake.connectors.option_names import known_options
from commitlake.connectors.rocketmq.errors import InvalidMessageError
from commitlake.connectors.rocketmq.messages import check_group
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import ALL_MESSAGES, MessageFilter
from commitlake.connectors.rocketmq.source.positions import Edge, ReadPosition, parse_by_queue, parse_offsets
from commitlake.connectors.rocketmq.spark_options import (
    SHARED,
    client_options,
    credentials_of,
    provider,
    refuse_secrets,
)

KNOWN = (
    *SHARED, "topics", "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "minPartitions",
    "failOnDataLoss", "tags", "sql", "columns", "body", "maxBodyBytes", "maxBatchBytes", "mode", "maxOffsetsPerTrigger",
)  # fmt: skip
TOOLS_GROUP = "TOOLS_CONSUMER"
_FOR_STREAMS = ("maxOffsetsPerTrigger",)
_FOR_BATCHES = ("endingOffsets", "endingTimestamp")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read; see the module's tables.

    Attributes:
        client: addresses, time limits and other settings of the connections.
        start: start of the read.
        end: end of the read.
        credentials_provider: see `spark_options.credentials_of`.
        given: names of the options that were given.
    """

    client: ClientOptions
    topics: tuple[str, ...]
    start: ReadPosition
    end: ReadPosition
    group: str = TOOLS_GROUP
    min_partitions: int = 1
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    message_filter: MessageFilter = ALL_MESSAGES
    columns: tuple[str, ...] | None = None
    body: BodyForm = BodyForm.NONE
    max_body_bytes: int = 64 << 20
    max_batch_bytes: int = 4 << 20
    mode: Mode = Mode.FAILFAST
    retry_seconds: int = 60
    credentials_provider: str | None = None
    given: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Parse options as Spark passes them: strings, with names in any case.

        Raises:
            OptionError: if a name is not known, or a value is not valid.
        """
        refuse_secrets(given)
        values = known_options(given, KNOWN, OptionError)
        read = OptionValues(values)
        topics = read.names("topics")
        client = client_options(values, read)
        if topics is None:
            raise OptionError("the option 'topics' is missing: names of topics separated by commas")
        return cls(
            client=client,
            topics=tuple(dict.fromkeys(topics)),
            start=_position(values, read, "starting", Edge.EARLIEST),
            end=_position(values, read, "ending", Edge.LATEST),
            group=_group(values),
            min_partitions=read.least("minPartitions", 1, 1, "partition"),
            max_offsets_per_trigger=read.least("maxOffsetsPerTrigger", 0, 1, "offset") or None,
            fail_on_data_loss=read.flag("failOnDataLoss", default=True),
            message_filter=_filter(values),
            columns=read.names("columns"),
            body=read.choice("body", BodyForm, BodyForm.NONE),
            max_body_bytes=read.size("maxBodyBytes", 64 << 20),
            max_batch_bytes=read.size("maxBatchBytes", 4 << 20),
            mode=read.choice("mode", Mode, Mode.FAILFAST, upper=True),
            retry_seconds=read.least("retrySeconds", 60, 0, "seconds"),
            credentials_provider=provider(values),
            given=frozenset(values),
        )

    def for_batch(self) -> SourceOptions:
        """Return the options after checking that none of them is for streams.

        Raises:
            OptionError: if one is; the message names the first.
        """
        for name in _FOR_STREAMS:
            if name in self.given:
                raise OptionError(f"option {name} is for streams: expected spark.readStream, found spark.read")
        return self

    def for_stream(self) -> SourceOptions:
        """Return the options after checking that none of them is for batches.

        Raises:
            OptionError: if one is; the message names the first.
        """
        for name in _FOR_BATCHES:
            if name in self.given:
                raise OptionError(f"option {name} is only for spark.read: a stream has no end")
        return self

    @property
    def stream_start(self) -> ReadPosition:
        """Return the position at which a new stream begins."""
        is_given = {"startingOffsets", "startingTimestamp"} & self.given
        return self.start if is_given else ReadPosition("startingOffsets", Edge.LATEST)

    def open_puller(self) -> Puller:
        """Create a client in this process.

        Raises:
            OptionError: if the keys, or the TLS settings, are not valid.
        """
        return Puller(self.group, self.client, credentials_of(self.credentials_provider))


def _group(values: Mapping[str, str]) -> str:
    try:
        return check_group(values.get("group", TOOLS_GROUP))
    except InvalidMessageError as error:
        raise OptionError(f"option {error}") from None


def _filter(values: Mapping[str, str]) -> MessageFilter:
    if {"tags", "sql"} <= values.keys():
        raise OptionError("options tags and sql: expected one of them, found both")
    for name in ("tags", "sql"):
        if name in values:
            if not values[name].strip():
                raise OptionError(f"option {name}: expected a filter, found nothing")
            return MessageFilter(values[name].strip(), is_sql=name == "sql")
    return ALL_MESSAGES


def _position(values: Mapping[str, str], read: OptionValues, prefix: str, edge: Edge) -> ReadPosition:
    by_offset, by_time = f"{prefix}Offsets", f"{prefix}Timestamp"
    if {by_offset, by_time} <= values.keys():
        raise OptionError(f"options {by_offset} and {by_time}: expected one of them, found both")
    if by_offset in values:
        parsed = parse_offsets(by_offset, values[by_offset])
        if isinstance(parsed, Edge):
            return ReadPosition(by_offset, parsed)
        return ReadPosition(by_offset, edge, offsets=parsed)
    if by_time in values and values[by_time].lstrip().startswith("{"):
        expected = 'a time, or JSON of ms since 1970 such as {"orders": {"broker-a": {"0": 1795183200000}}}'
        return ReadPosition(by_time, edge, times=parse_by_queue(by_time, values[by_time], 0, expected))
    return ReadPosition(by_time if by_time in values else by_offset, edge, time_ms=read.time(by_time))
