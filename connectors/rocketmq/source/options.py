"""Options of reads from live brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commitlake.connectors.reading.options import BodyForm, Mode
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import ALL_MESSAGES, PullFilter
from commitlake.connectors.rocketmq.source.positions import (
    QueueEdge,
    ReadPosition,
    parse_numbers_by_queue,
    parse_offsets,
)
from commitlake.connectors.rocketmq.spark_options import ConnectionOptions, load_credentials, parse_group_name
from commitlake.connectors.source_options import (
    NEEDED,
    OptionUse,
    byte_count,
    choice_parser,
    integer_parser,
    option,
    parse_flag,
    parse_names,
    parse_time_ms,
)
from commitlake.schemas.layouts.rocketmq.topics import TOOLS_GROUP
from commitlake.schemas.remoting.heartbeats import parse_tag_expression
from commitlake.schemas.remoting.routes import MessageQueue


def _parse_topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_names(text)))


def _parse_filter(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a filter of tags or of SQL92, found nothing")
    return text.strip()


def _parse_tags(text: str) -> str:
    """Check a tag expression, and return it unchanged; refuse one without a tag."""
    _parse_filter(text)
    if parse_tag_expression(text) == ():
        raise ValueError(f"expected tags such as 'paid || refunded', found none in {text!a}")
    return text


def _parse_time(text: str) -> int | Mapping[MessageQueue, int]:
    """Parse a time for all queues, or JSON of times by queue."""
    if not text.lstrip().startswith("{"):
        return parse_time_ms(text)
    expected = 'a time, or JSON of ms since 1970 such as {"orders": {"broker-a": {"0": 1795183200000}}}'
    return parse_numbers_by_queue(text, 0, expected)


@dataclass(frozen=True)
class SourceOptions(ConnectionOptions):
    """Options of one read from live brokers, as a batch or as a stream."""

    topics: tuple[str, ...] = option(
        "topics",
        _parse_topics,
        NEEDED,
        "comma-separated; also the broker's own, such as `%DLQ%group` and `SCHEDULE_TOPIC_XXXX`",
        missing="names of topics separated by commas",
    )
    group: str = option(
        "group",
        parse_group_name,
        TOOLS_GROUP,
        "consumer group of the pulls, which every broker has; its offsets are never changed",
    )
    starting_offsets: QueueEdge | Mapping[MessageQueue, int] | None = option(
        "startingOffsets",
        parse_offsets,
        None,
        'earliest, latest or JSON of topic, broker and queue, such as `{"orders": {"broker-a": {"0": 4711}}}`; -2 is a '
        "queue's first message, -1 its end; queues that are not named begin at their first message. A new stream "
        "begins at latest",
        shown="earliest",
    )
    starting_timestamp: int | Mapping[MessageQueue, int] | None = option(
        "startingTimestamp",
        _parse_time,
        None,
        "begin at the first message stored at this time or later: ms since 1970 or ISO 8601 (UTC unless it says "
        "otherwise), or JSON of ms by topic, broker and queue",
    )
    ending_offsets: QueueEdge | Mapping[MessageQueue, int] | None = option(
        "endingOffsets", parse_offsets, None, "as startingOffsets; exclusive", shown="latest", use=OptionUse.BATCH
    )
    ending_timestamp: int | Mapping[MessageQueue, int] | None = option(
        "endingTimestamp",
        _parse_time,
        None,
        "end before the first message stored at this time or later",
        use=OptionUse.BATCH,
    )
    min_partitions: int = option(
        "minPartitions",
        integer_parser(1, unit="partition"),
        1,
        "divide queues by offsets into at least this number of partitions",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        parse_flag,
        True,
        "fail if messages were deleted before they were read; false: log their number and continue",
    )
    tags: str | None = option(
        "tags", _parse_tags, None, "one or more, separated by `||`: brokers return no other messages", shown="all"
    )
    sql: str | None = option(
        "sql",
        _parse_filter,
        None,
        "an SQL92 filter, such as `price > 2 AND region = 'EU'`; the broker needs enablePropertyFilter=true",
        shown="all",
    )
    columns: tuple[str, ...] | None = option(
        "columns", parse_names, None, "comma-separated; other columns are not decoded", shown="all but body"
    )
    body: BodyForm = option(
        "body",
        choice_parser(BodyForm),
        BodyForm.NONE,
        "none, stored or decompressed: whether there is a column `body`, and its contents; decompressed if only "
        "`columns` names it",
    )
    max_body_bytes: int = option("maxBodyBytes", byte_count, 64 << 20, "maximum size of a decompressed body")
    max_batch_bytes: int = option(
        "maxBatchBytes",
        byte_count,
        4 << 20,
        "bytes of answers that a worker holds at a time; a single answer may be larger",
    )
    mode: Mode = option(
        "mode",
        choice_parser(Mode, str.upper),
        Mode.FAILFAST,
        "for damaged records: FAILFAST, PERMISSIVE (rows with `_corrupt_record`) or DROPMALFORMED",
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        integer_parser(1, unit="offset"),
        None,
        "offsets of a micro-batch, in fair shares of the available offsets of each queue",
        shown="no limit",
        use=OptionUse.STREAM,
    )

    def check(self) -> None:
        """Check the addresses, and that options do not contradict each other."""
        super().check()
        self.refuse_both("startingOffsets", "startingTimestamp")
        self.refuse_both("endingOffsets", "endingTimestamp")
        self.refuse_both("tags", "sql")

    @property
    def start(self) -> ReadPosition:
        """Position at which the read begins, from the options `startingOffsets` and `startingTimestamp`."""
        return _make_position("starting", self.starting_offsets, self.starting_timestamp, QueueEdge.EARLIEST)

    @property
    def end(self) -> ReadPosition:
        """Position at which the read ends, from the options `endingOffsets` and `endingTimestamp`."""
        return _make_position("ending", self.ending_offsets, self.ending_timestamp, QueueEdge.LATEST)

    @property
    def stream_start(self) -> ReadPosition:
        """Position at which a new stream begins."""
        is_given = {"startingOffsets", "startingTimestamp"} & self.given
        return self.start if is_given else ReadPosition("startingOffsets", QueueEdge.LATEST)

    @property
    def message_filter(self) -> PullFilter:
        """Filter that brokers apply."""
        if self.sql is not None:
            return PullFilter(self.sql, is_sql=True)
        return ALL_MESSAGES if self.tags is None else PullFilter(self.tags, is_sql=False)

    def open_puller(self) -> Puller:
        """Create a client that pulls messages from the brokers.

        Raises:
            UsageError: if the keys, or the TLS settings, are not valid.
        """
        return Puller(self.group, self.client_options, load_credentials(self.credentials_provider))


def _make_position(
    option_prefix: str,
    offsets: QueueEdge | Mapping[MessageQueue, int] | None,
    times: int | Mapping[MessageQueue, int] | None,
    default_edge: QueueEdge,
) -> ReadPosition:
    """Return the start or end of a read that offsets or times give; `default_edge` if neither is given."""
    if isinstance(times, int):
        return ReadPosition(f"{option_prefix}Timestamp", default_edge, time_ms=times)
    if times is not None:
        return ReadPosition(f"{option_prefix}Timestamp", default_edge, times=times)
    if isinstance(offsets, QueueEdge) or offsets is None:
        return ReadPosition(f"{option_prefix}Offsets", offsets or default_edge)
    return ReadPosition(f"{option_prefix}Offsets", default_edge, offsets=offsets)
