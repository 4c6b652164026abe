"""Reading of a range of a queue, pull by pull; every skipped offset is reported.

While the caller uses an answer, the next request is already in progress. An unresponsive broker is retried for a while.
Offsets of the range that the broker does not have are reported to the caller with their number: messages that the
broker has deleted, and the rest of a range that ends after the queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from commitlake.connectors.printable import escape_line
from commitlake.connectors.rocketmq.errors import (
    NoRouteError,
    ProtocolError,
    RefusedError,
    RocketMQError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.puller import DEFAULT_BATCH, PendingPull, PullAnswer, Puller, PullStatus
from commitlake.schemas.remoting.codes import BUSY, ResponseCode
from commitlake.schemas.remoting.heartbeats import ALL_TAGS, parse_tag_expression
from commitlake.schemas.remoting.routes import MessageQueue

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
MAX_EMPTY_ANSWERS = 1000
"""Largest number of successive answers without records if every record is wanted: with each of them, a broker skips a
file of its log or of its queue."""
_TRANSIENT = BUSY | {ResponseCode.SYSTEM_ERROR}


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A range of queue offsets, from `begin` to before `end`."""

    queue: MessageQueue
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Return the number of offsets."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{format_queue(self.queue)}, offsets {self.begin} to {self.end}"


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bounds of the wanted part of a broker's log, and the end of the part that an earlier run archived.

    Attributes:
        first_byte: physical offset; messages before it are left out.
        end_byte: physical offset; messages from this offset are left out.
        known_end: physical offset up to which an earlier run has archived the messages of the queues.
    """

    first_byte: int
    end_byte: int
    known_end: int


@dataclass(frozen=True, slots=True)
class PullFilter:
    """The filter that a broker applies to the messages of a pull.

    Attributes:
        expression: `*`, tags separated by `||`, or an SQL92 filter.
        is_sql: whether it is an SQL92 filter.
    """

    expression: str = ALL_TAGS
    is_sql: bool = False

    @property
    def tags(self) -> tuple[str, ...] | None:
        """Return the wanted tags, which a broker only compares by hash; None for all messages, and for SQL92."""
        return None if self.is_sql else parse_tag_expression(self.expression)

    @property
    def selects_all(self) -> bool:
        """Return True if the filter selects every message."""
        return not self.is_sql and self.tags is None


ALL_MESSAGES = PullFilter()


class PulledAnswer(NamedTuple):
    """The records in the answer to one pull.

    Attributes:
        begin: queue offset of this request.
        end: queue offset of the next request.
        body: records as stored.
        may_exceed: whether records after the range's end may be included.
    """

    begin: int
    end: int
    body: bytes
    may_exceed: bool


Lost = Callable[[QueueRange, str], None]
"""A callback for offsets that cannot be read, with the reason; it raises an error, or counts them."""


def format_queue(queue: MessageQueue) -> str:
    """Format a queue for error messages."""
    return f"topic {escape_line(queue.topic)}, queue {queue.queue_id} of {queue.broker_name}"


def read_range(
    puller: Puller,
    queue_range: QueueRange,
    on_lost: Lost,
    message_filter: PullFilter = ALL_MESSAGES,
    *,
    retry_seconds: float = 60.0,
) -> Iterator[PulledAnswer]:
    """Yield the records of a queue range, one pull after another.

    Args:
        on_lost: called for offsets that cannot be read.
        message_filter: filter that the broker applies.
        retry_seconds: time for which an unresponsive broker is retried.

    Raises:
        UnreachableError: if the broker does not answer in that time.
        NoRouteError: if the broker is not known in that time.
        RefusedError: if the broker refuses the request.
        ProtocolError: if its answer does not fit the request, or it never sends a record.
    """
    asking = _PullSender(puller, queue_range, message_filter, retry_seconds)
    position, empty = queue_range.begin, 0
    while position < queue_range.end:
        answer = asking.wait_for_answer(position)
        empty = 0 if answer.status is PullStatus.FOUND else empty + 1
        if empty > MAX_EMPTY_ANSWERS and message_filter.selects_all:
            raise ProtocolError(
                f"{answer.answer.address}: {queue_range}: expected messages, found {empty} answers in a row without "
                f"any, up to queue offset {position}"
            )
        following = _next_position(answer, position, queue_range, message_filter, on_lost)
        if following < queue_range.end:
            asking.send_next_pull(following)
        if answer.status is PullStatus.FOUND:
            yield PulledAnswer(position, following, answer.answer.body, may_exceed=following > queue_range.end)
        position = following


def _next_position(
    answer: PullAnswer, position: int, queue_range: QueueRange, message_filter: PullFilter, on_lost: Lost
) -> int:
    """Return the queue offset at which to continue after an answer, and report messages that are missing."""
    response, queue = answer.response, queue_range.queue
    following, remark = response.next_begin_offset, answer.answer.command.remark or ""
    if answer.status is PullStatus.FOUND:
        return following
    if answer.status is PullStatus.NONE_MATCHED:
        if message_filter.selects_all or remark == "MESSAGE_WAS_REMOVING":
            on_lost(QueueRange(queue, position, min(following, queue_range.end)), "the broker has deleted them")
        return following
    if position < response.min_offset:
        end = min(response.min_offset, queue_range.end)
        on_lost(QueueRange(queue, position, end), f"the queue begins at {response.min_offset}")
        return end
    if position < following <= response.max_offset:
        on_lost(QueueRange(queue, position, min(following, queue_range.end)), "the broker has deleted them")
        return following
    on_lost(QueueRange(queue, position, queue_range.end), f"the queue ends at {response.max_offset}")
    return queue_range.end


class _PullSender:
    """Sender of the pulls for one range, which sends a pull again if a retry may succeed."""

    def __init__(self, puller: Puller, wanted: QueueRange, message_filter: PullFilter, retry_seconds: float) -> None:
        self._puller = puller
        self._wanted = wanted
        self._filter = message_filter
        self._retry_seconds = retry_seconds
        self._ahead: tuple[int, PendingPull] | None = None

    def send_next_pull(self, position: int) -> None:
        """Send the next pull in advance; if that fails, `wait_for_answer` sends it again."""
        try:
            self._ahead = position, self._send_pull(position)
        except RocketMQError:
            self._ahead = None

    def wait_for_answer(self, position: int) -> PullAnswer:
        """Wait for the answer to the pull that begins at a position."""
        deadline = time.monotonic() + self._retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._receive_answer(position)
            except (UnreachableError, NoRouteError) as error:
                problem: RocketMQError = error
            except RefusedError as error:
                if error.code not in _TRANSIENT:
                    raise
                problem = error
            if time.monotonic() + pause > deadline:
                raise problem
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            # The broker may have been restarted at another address.
            self._puller.routing.refresh_brokers()

    def _receive_answer(self, position: int) -> PullAnswer:
        ahead, self._ahead = self._ahead, None
        pending = ahead[1] if ahead is not None and ahead[0] == position else self._send_pull(position)
        answer = pending.wait()
        following = answer.response.next_begin_offset
        if answer.response.offset_delta:
            raise RefusedError(
                pending.address,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"topic {self._wanted.queue.topic} is a static topic, whose offsets differ from those of its records; "
                "it cannot be read by offsets",
            )
        has_more = answer.status is not PullStatus.OFFSET_ILLEGAL and answer.response.max_offset > position
        is_stuck = following <= position and (has_more or answer.status is PullStatus.FOUND)
        is_behind = not pending.is_master and answer.response.max_offset < self._wanted.end
        if is_stuck or (is_behind and answer.status in (PullStatus.NO_NEW, PullStatus.OFFSET_ILLEGAL)):
            found = (
                f"the next at {following} ({answer.answer.command.remark})" if is_stuck else "a slave that is behind"
            )
            raise UnreachableError(
                f"{pending.address}: {format_queue(self._wanted.queue)}: expected messages from queue offset "
                f"{position} on, found {found}"
            )
        return answer

    def _send_pull(self, position: int) -> PendingPull:
        # With a filter, a broker's limit counts returned messages, not examined ones.
        left = self._wanted.end - position if self._filter.selects_all else DEFAULT_BATCH
        return self._puller.send_pull(
            self._wanted.queue,
            position,
            expression=self._filter.expression,
            is_sql=self._filter.is_sql,
            max_messages=min(DEFAULT_BATCH, left),
            from_master=True,
        )
