"""The outcome of each sent row: the message's position, or the reason why it was not sent.

| column | type | meaning |
| --- | --- | --- |
| status | string | sent: the message is in the log; invalid: it cannot be sent; refused: the broker refuses it; |
| | | in_doubt: it may be in the log, as an answer was lost; failed: it is not in the log; skipped: not tried, as an |
| | | earlier row of its queue could not be sent |
| topic | string | topic of the row |
| broker, queue_id, queue_offset | string, int, long | position of the message; null if it was not sent |
| msg_id | string | its offset message id, or that of the record that contains its whole batch |
| store_status | string | SEND_OK, or the missing flush or copy: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, |
| | | SLAVE_NOT_AVAILABLE; null if an answer was lost and the message was found in the log |
| attempts | int | number of requests that contained it |
| may_be_twice | boolean | whether an earlier attempt may have stored it, too |
| error | string | reason why it was not sent |
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.producers.messages import SendStatus
from commitlake.connectors.rocketmq.producers.sending import StoredResult
from commitlake.connectors.rocketmq.sink.prepared_rows import PreparedRows
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.routes import MessageQueue


class RowStatus(StrEnum):
    """The status of a row: sent, not sent, or perhaps sent."""

    SENT = "sent"
    INVALID = "invalid"
    REFUSED = "refused"
    IN_DOUBT = "in_doubt"
    FAILED = "failed"
    SKIPPED = "skipped"


OUTCOME = pa.schema(
    [
        pa.field("status", pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("broker", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("queue_offset", pa.int64()),
        pa.field("msg_id", pa.string()),
        pa.field("store_status", pa.string()),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("may_be_twice", pa.bool_(), nullable=False),
        pa.field("error", pa.string()),
    ]
)
_STATUSES = list(RowStatus)


class RowOutcomes:
    """The outcomes of one batch of rows, collected while it is sent."""

    def __init__(self, rows: PreparedRows) -> None:
        """Record rows that cannot be sent as invalid; all others count as skipped until their outcome is recorded."""
        count = len(rows.items)
        self._rows = rows
        self._statuses = np.full(count, _STATUSES.index(RowStatus.SKIPPED), np.int32)
        self._queue_ids = np.zeros(count, np.int32)
        self._offsets = np.full(count, -1, np.int64)
        self._attempts = np.zeros(count, np.int32)
        self._may_be_twice = np.zeros(count, np.bool_)
        self._brokers = _SharedTexts(count)
        self._stored = _SharedTexts(count)
        self._errors = _SharedTexts(count)
        self._msg_ids: list[str | None] = [None] * count
        for row, error in rows.errors.items():
            self._statuses[row] = _STATUSES.index(RowStatus.INVALID)
            self._errors.set_text(np.array([row]), error)

    def add_sent_rows(
        self, row_numbers: Array, stored: StoredResult, attempts: int, *, may_be_duplicated: bool
    ) -> None:
        """Record rows as sent, with their positions. A broker may give one id to each message, or to a whole batch."""
        count = len(row_numbers)
        given = stored.response.msg_id.split(",")
        ids: list[str | None] = [*given] if len(given) == count else [given[0] if len(given) == 1 else None] * count
        self._statuses[row_numbers] = _STATUSES.index(RowStatus.SENT)
        self._brokers.set_text(row_numbers, stored.queue.broker_name)
        self._queue_ids[row_numbers] = stored.queue.queue_id
        self._offsets[row_numbers] = stored.response.queue_offset + np.arange(count)
        self._stored.set_text(row_numbers, SendStatus(stored.code).name)
        self._attempts[row_numbers] = attempts
        self._may_be_twice[row_numbers] = may_be_duplicated
        for row, msg_id in zip(row_numbers.tolist(), ids, strict=True):
            self._msg_ids[row] = msg_id

    def add_found_rows(
        self, row_numbers: Array, queue: MessageQueue, messages: Sequence[Message], attempts: int
    ) -> None:
        """Record rows as sent because their messages were found in the queue, although no answer confirmed them."""
        self._statuses[row_numbers] = _STATUSES.index(RowStatus.SENT)
        self._brokers.set_text(row_numbers, queue.broker_name)
        self._queue_ids[row_numbers] = queue.queue_id
        self._offsets[row_numbers] = [message.queue_offset for message in messages]
        self._attempts[row_numbers] = attempts
        for row, message in zip(row_numbers.tolist(), messages, strict=True):
            self._msg_ids[row] = message.msg_id

    def add_unsent_rows(
        self, row_numbers: Array, status: RowStatus, error: str, attempts: int, *, may_be_duplicated: bool = False
    ) -> None:
        """Record rows that are certainly or possibly not in the log, with the reason."""
        self._statuses[row_numbers] = _STATUSES.index(status)
        self._errors.set_text(row_numbers, error)
        self._attempts[row_numbers] = attempts
        self._may_be_twice[row_numbers] = may_be_duplicated

    def to_batch(self) -> pa.RecordBatch:
        """Return a batch with the outcome of each row, in the order of the rows."""
        rows = self._rows
        is_nowhere = pa.array(self._offsets < 0)
        topics = pa.array([target.topic for target in rows.targets], pa.string())
        columns = [
            pa.array([str(status) for status in _STATUSES]).take(pa.array(self._statuses)),
            topics.take(pa.array(rows.target_numbers)),
            self._brokers.column(),
            pc.if_else(is_nowhere, pa.scalar(None, pa.int32()), pa.array(self._queue_ids)),
            pc.if_else(is_nowhere, pa.scalar(None, pa.int64()), pa.array(self._offsets)),
            pa.array(self._msg_ids, pa.string()),
            self._stored.column(),
            pa.array(self._attempts),
            pa.array(self._may_be_twice),
            self._errors.column(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTCOME)


class _SharedTexts:
    """Column of strings that is filled for many rows at a time with the same string."""

    def __init__(self, count: int) -> None:
        self._numbers = np.full(count, -1, np.int32)
        self._values: dict[str, int] = {}

    def set_text(self, row_numbers: Array, text: str) -> None:
        """Assign a text to rows."""
        self._numbers[row_numbers] = self._values.setdefault(text, len(self._values))

    def column(self) -> pa.Array:
        """Return the texts, null for rows without one."""
        codes = pa.array(self._numbers, mask=self._numbers < 0)
        return pa.array(list(self._values), pa.string()).take(codes)
