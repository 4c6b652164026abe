"""Planning of a read: the queues, their ranges, and the partitions."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from commitlake.connectors.rocketmq.errors import NoRouteError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import QueueRange, format_queue
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.positions import (
    QueueBounds,
    ReadPosition,
    data_loss_error,
    describe_offset_problem,
)
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.routes import MessageQueue

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

SMALL_OFFSETS = 10_000
"""Smaller ranges share a partition, because starting a Spark task costs more than some broker requests."""
_THREADS = 8

Partition = tuple[QueueRange, ...]


def list_queues(puller: Puller, topics: Iterable[str]) -> list[MessageQueue]:
    """Return all readable queues of the given topics, in order.

    Raises:
        NoRouteError: if no broker has a topic, or none of its queues can be read.
        UnreachableError: if no name server answers.
    """
    queues: list[MessageQueue] = []
    for topic in topics:
        found = puller.queues(topic)
        if not found:
            raise NoRouteError(
                f"topic {topic!r}: expected a queue that can be read, found none in its route: check the topic's "
                "permission"
            )
        queues += found
    return sorted(queues)


def query_queue_bounds(puller: Puller, queues: Sequence[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
    """Return the first and the next offset of each queue, as its broker reports them.

    Raises:
        RocketMQError: if a request to a broker fails.
    """
    # The first offset is asked before the next one: both only grow, so it cannot be the greater one.
    return _ask_for_each_queue(
        queues, lambda queue: QueueBounds(puller.offsets.first(queue), puller.offsets.next(queue))
    )


def resolve_offsets(
    puller: Puller, position: ReadPosition, bounds: Mapping[MessageQueue, QueueBounds]
) -> dict[MessageQueue, int]:
    """Return, for each queue, the offset at which the read begins or ends there.

    Raises:
        UsageError: if a named queue does not exist.
        RocketMQError: if a request to a broker fails.
    """
    position.check_queues(bounds)
    return _ask_for_each_queue(list(bounds), lambda queue: position.resolve_offset(puller, queue, bounds[queue]))


def plan_batch(puller: Puller, options: SourceOptions) -> list[Partition]:
    """Return the partitions of a batch read, each a list of queue ranges.

    Raises:
        UsageError: if a position is in no queue, or an end is before its start.
        RocketMQError: if a queue does not have the requested offsets, and the options require a failure, or if a
            request to a broker fails.
    """
    bounds = query_queue_bounds(puller, list_queues(puller, options.topics))
    begins, ends = resolve_offsets(puller, options.start, bounds), resolve_offsets(puller, options.end, bounds)
    ranges = []
    for queue in bounds:
        begin, end = begins[queue], ends[queue]
        if begin > end and queue in options.start.offsets and queue in options.end.offsets:
            raise UsageError(
                f"options {options.start.option} and {options.end.option}: expected an end after the begin, found the "
                f"queue offsets {begin} and {end} for {format_queue(queue)}"
            )
        for position, is_begin in ((options.start, True), (options.end, False)):
            if (
                text := describe_offset_problem(queue, begin, end, bounds[queue], position, is_begin=is_begin)
            ) is not None:
                report_data_loss(text, is_error=options.fail_on_data_loss)
        # Only after the report of what is outside.
        begin, end = max(begin, bounds[queue].first), min(end, bounds[queue].end)
        if begin < end:
            ranges.append(QueueRange(queue, begin, end))
    return to_partitions(ranges, options.min_partitions)


def report_data_loss(text: str, *, is_error: bool) -> None:
    """Raise an error about missing messages, or only log a warning.

    Raises:
        RocketMQError: if `is_error`.
    """
    if is_error:
        raise data_loss_error(text)
    logger.warning("%s: continuing without them", text)


def to_partitions(ranges: Sequence[QueueRange], min_partitions: int) -> list[Partition]:
    """Divide ranges into at least `min_partitions` partitions, combining small ranges if possible.

    >>> queue = MessageQueue("orders", "broker-a", 0)
    >>> [[str(each)[-15:] for each in part] for part in to_partitions([QueueRange(queue, 0, 90)], 3)]
    [['offsets 0 to 30'], ['ffsets 30 to 60'], ['ffsets 60 to 90']]

    Args:
        ranges: non-empty ranges, in the order in which they are to be read.
        min_partitions: minimum number of partitions; there are fewer only if there are fewer offsets.
    """
    total = sum(each.size for each in ranges)
    pieces: list[QueueRange] = []
    for each in ranges:
        count = 1 if len(ranges) >= min_partitions else min(each.size, -(-each.size * min_partitions // total))
        edges = [each.begin + each.size * number // count for number in range(count + 1)]
        pieces += [QueueRange(each.queue, begin, end) for begin, end in itertools.pairwise(edges)]
    # Joining must leave at least the number of partitions that was asked for.
    may_join = len(pieces) - min_partitions
    partitions: list[list[QueueRange]] = []
    for piece in pieces:
        if may_join > 0 and partitions and sum(one.size for one in partitions[-1]) + piece.size <= SMALL_OFFSETS:
            partitions[-1].append(piece)
            may_join -= 1
        else:
            partitions.append([piece])
    return [tuple(partition) for partition in partitions]


def _ask_for_each_queue(
    queues: Sequence[MessageQueue], ask_broker: Callable[[MessageQueue], _T]
) -> dict[MessageQueue, _T]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="rocketmq-plan") as pool:
        return dict(zip(queues, pool.map(ask_broker, queues), strict=True))
