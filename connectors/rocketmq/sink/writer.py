"""The Spark writers: columns are checked on the driver, and rows are sent by workers.

Delivery is at least once: if Spark repeats a task, or a micro-batch after a crash, their rows are sent again. (A task
itself repeats a request only after it has found out what has become of the first one, see `sender`.) Each
message keeps the id of its row (`unique_key`, or UNIQ_KEY in `properties`), by which consumers can detect duplicates. A
row that cannot be sent fails its task; rows that were already sent stay in the log.
"""

from __future__ import annotations

import difflib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlake.connectors.rocketmq.errors import InvalidMessageError, RocketMQError
from commitlake.connectors.rocketmq.sink.options import SinkOptions
from commitlake.connectors.rocketmq.sink.outcomes import RowStatus
from commitlake.connectors.rocketmq.sink.prepared_rows import TYPES, check_columns
from commitlake.connectors.rocketmq.sink.sender import RowSender
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.messages import MESSAGES, SOURCE

logger = logging.getLogger(__name__)

_SHOWN = 3


@dataclass
class SentCounts(WriterCommitMessage):
    """Commit message of one write task: counts of the messages that it has sent.

    Attributes:
        messages: number of messages.
        repeated: number of messages that took more than one attempt.
        may_be_twice: number of messages that may be in the log twice.
    """

    messages: int = 0
    repeated: int = 0
    may_be_twice: int = 0


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Check that a DataFrame has the required columns, and no unknown ones.

    Raises:
        UsageError: if a required column is missing, or a column is unknown.
    """
    known = {*TYPES, *MESSAGES.names, *SOURCE.names}
    for name in schema.names:
        if name not in known:
            close = difflib.get_close_matches(name, list(TYPES), n=1)
            nearest = f" (did you mean {close[0]!r}?)" if close else ""
            raise UsageError(
                f"the DataFrame's column {name!r} cannot be sent{nearest}: expected some of {', '.join(TYPES)}, or "
                "columns of the table messages, which are ignored. Put the application's own values into the column "
                "properties"
            )
    try:
        check_columns(to_arrow_schema(schema), options.settings.rows)
    except InvalidMessageError as error:
        raise UsageError(str(error)) from None


def send_batches(sender: RowSender, batches: Iterator[pa.RecordBatch]) -> SentCounts:
    """Send the rows of a task.

    Raises:
        RocketMQError: if rows could not be sent; raised after the other rows of their batch were sent.
    """
    sent = SentCounts()
    for batch in batches:
        if batch.num_rows:
            outcomes = sender.send(batch)
            _check_all_sent(outcomes)
            sent.messages += outcomes.num_rows
            sent.repeated += sum(attempts > 1 for attempts in outcomes.column("attempts").to_pylist())
            sent.may_be_twice += outcomes.column("may_be_twice").true_count
    return sent


def _check_all_sent(outcomes: pa.RecordBatch) -> None:
    statuses = Counter(outcomes.column("status").to_pylist())
    if statuses.keys() == {str(RowStatus.SENT)}:
        return
    reasons: Counter[str] = Counter()
    for row in outcomes.select(["status", "topic", "error"]).to_pylist():
        if row["status"] not in (RowStatus.SENT, RowStatus.SKIPPED):
            reasons[f"{row['status']}, topic {row['topic']}: {row['error']}"] += 1
    missing = outcomes.num_rows - statuses[RowStatus.SENT]
    shown = "; ".join(f"{count} {text}" for text, count in reasons.most_common(_SHOWN))
    raise RocketMQError(
        f"expected to send {format_count(outcomes.num_rows, 'row')}, {format_count(missing, 'was', 'were')} not sent: "
        f"{shown}" + (f"; and {len(reasons) - _SHOWN} other reasons" if len(reasons) > _SHOWN else "")
    )


class _TaskWriter:
    """Common part of the batch writer and the stream writer."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options

    @forward_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentCounts:
        """Send the rows of one task."""
        with self._options.open_sender() as sender:
            return send_batches(sender, iterator)

    def _log_counts(self, commit_messages: list[WriterCommitMessage | None]) -> None:
        done = [message for message in commit_messages if isinstance(message, SentCounts)]
        logger.info(
            "%d messages sent to %s; %d took more than one attempt, %d may be stored twice",
            sum(each.messages for each in done), self._options.client_options.name_servers,
            sum(each.repeated for each in done), sum(each.may_be_twice for each in done),
        )  # fmt: skip


class RocketmqWriter(_TaskWriter, DataSourceArrowWriter):
    """The writer of a DataFrame as a batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts of all tasks."""
        self._log_counts(messages)


class RocketmqStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """The writer of a stream's micro-batches."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 (Spark's)
        """Log the counts of all tasks."""
        self._log_counts(messages)
