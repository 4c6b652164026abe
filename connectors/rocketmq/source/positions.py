"""Positions at which a read begins and ends in each queue: given offsets, given times, or the queue's ends.

    {"orders": {"broker-a": {"0": 4711, "1": -2}, "broker-b": {"0": -1}}}

-2 is the queue's first message, -1 its end, as in Spark's Kafka source. Queues that are not named are read from their
first message, or to their end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from commitlake.connectors.rocketmq.errors import RocketMQError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import format_queue
from commitlake.connectors.rocketmq.time_search import first_offset_at
from commitlake.schemas.errors import ExitCode, UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, int_in_range, parse_int
from commitlake.schemas.remoting.routes import MessageQueue

EARLIEST, LATEST = -2, -1
_EXAMPLE = '{"orders": {"broker-a": {"0": 4711}}}'
_MAX_QUEUE_ID = (1 << 31) - 1


class QueueEdge(StrEnum):
    """Start or end of all queues, as a position for a read."""

    EARLIEST = "earliest"
    LATEST = "latest"


class QueueBounds(NamedTuple):
    """Bounds of a queue: the offset of its first message, and the offset that its next message will get."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The start or end of a read in all queues: given as offsets, as times, or as the first or last message.

    Attributes:
        option: name of the option, for errors.
        edge: first message or end, for queues without an offset or time of their own.
        time_ms: time for queues without an offset or time of their own; None to use `edge`.
        offsets: offsets by queue; may be EARLIEST or LATEST.
        times: times by queue, ms since 1970.
    """

    option: str
    edge: QueueEdge
    time_ms: int | None = None
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    times: Mapping[MessageQueue, int] = field(default_factory=dict)

    def check_queues(self, known_queues: Mapping[MessageQueue, object]) -> None:
        """Check that every queue that the position names exists.

        Raises:
            UsageError: if one does not exist.
        """
        for queue in (*self.offsets, *self.times):
            if queue not in known_queues:
                raise UsageError(
                    f"option {self.option}: the queue {format_queue(queue)} is not among the "
                    f"{format_count(len(known_queues), 'queue')} of the topics that can be read"
                )

    def resolve_offset(self, puller: Puller, queue: MessageQueue, bounds: QueueBounds) -> int:
        """Return the offset in a queue for this start or end of a read; a given offset is not checked.

        Args:
            puller: client that searches for times.
            bounds: current content of the queue.

        Raises:
            RocketMQError: if a request to the broker fails.
        """
        offset = self.offsets.get(queue)
        if offset is not None and offset >= 0:
            return offset
        if offset is None:
            time_ms = self.times.get(queue, self.time_ms)
            if time_ms is not None:
                return first_offset_at(puller, queue, time_ms, bounds.first, bounds.end)
        is_first = offset == EARLIEST if offset is not None else self.edge is QueueEdge.EARLIEST
        return bounds.first if is_first else bounds.end


def parse_offsets(text: str) -> QueueEdge | dict[MessageQueue, int]:
    """Parse the value of `startingOffsets` or `endingOffsets`.

    Raises:
        ValueError: if it is neither `earliest`, `latest` nor JSON of offsets by queue.
    """
    if text.strip().lower() in list(QueueEdge):
        return QueueEdge(text.strip().lower())
    return parse_numbers_by_queue(text, EARLIEST, f"earliest, latest or JSON such as {_EXAMPLE}")


def parse_numbers_by_queue(text: str, minimum: int, expected: str) -> dict[MessageQueue, int]:
    """Parse JSON with a number for each topic, broker and queue.

    Args:
        text: JSON.
        minimum: the smallest allowed number.
        expected: description of the expected value, for errors.

    Raises:
        ValueError: if the value has another form.
    """
    try:
        return dict(_flatten_tree(json.loads(text), minimum))
    except (ValueError, AttributeError, RecursionError):
        raise ValueError(f"expected {expected}, found {text[:200]!r}") from None


def to_nested_dict(numbers: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return numbers by queue as nested dictionaries of topic, broker and queue, in a fixed order."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(numbers):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = numbers[queue]
    return tree


def from_nested_dict(tree: Any, minimum: int = 0) -> dict[MessageQueue, int]:
    """Convert nested dictionaries from `to_nested_dict` back to numbers by queue.

    Raises:
        ValueError: if it is not such a result.
        AttributeError: if it is not such a result.
    """
    return dict(_flatten_tree(tree, minimum))


def _flatten_tree(tree: Any, minimum: int) -> list[tuple[MessageQueue, int]]:
    found = []
    for topic, brokers in tree.items():
        for broker, queues in brokers.items():
            for queue_id, value in queues.items():
                number, queue = int_in_range(value, minimum, INT64_MAX), parse_int(queue_id, 0, _MAX_QUEUE_ID)
                if number is None or queue is None:
                    raise ValueError(
                        f"queue {queue_id}: expected the number of a queue with an offset or time of at least "
                        f"{minimum}, found {value}"
                    )
                found.append((MessageQueue(str(topic), str(broker), queue), number))
    return found


def describe_offset_problem(
    queue: MessageQueue, begin: int, end: int, bounds: QueueBounds, position: ReadPosition, *, is_begin: bool
) -> str | None:
    """Return an error sentence if an option's offset is outside the queue; None if it is inside.

    Args:
        begin: start of the read.
        end: end of the read.
        bounds: current content of the queue.
        position: position of the option.
        is_begin: whether the option sets the start.
    """
    asked = begin if is_begin else end
    if bounds.first <= asked <= bounds.end:
        return None
    return (
        f"{format_queue(queue)}: option {position.option} names offset {asked}, the queue holds {bounds.first} to "
        f"{bounds.end}"
    )


def data_loss_error(text: str) -> RocketMQError:
    """Return the error for messages that are missing from a queue."""
    return RocketMQError(
        f"{text}. With the option failOnDataLoss=false, the read continues without them, and logs their number",
        exit_code=ExitCode.USAGE,
    )
