"""Planning of a stream's micro-batches, in the Python process that Spark starts for it.

Queues and brokers that appear while the stream runs are read from their first message. If a broker does not answer or
is not in the topic's route, its queues stay at their positions; the others continue, and a warning is logged. The
stream fails only if no queue can be read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from commitlake.connectors.rocketmq.errors import NoRouteError, UnreachableError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import format_queue
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.positions import QueueBounds
from commitlake.connectors.rocketmq.source.ranges import (
    list_queues,
    query_queue_bounds,
    report_data_loss,
    resolve_offsets,
)
from commitlake.connectors.rocketmq.source.stream_offsets import Offsets, StreamPosition
from commitlake.connectors.sources.stream_size_shares import fair_shares
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.remoting.routes import MessageQueue

logger = logging.getLogger(__name__)

_THREADS = 8


class QueueStreamPlanner:
    """The planner of one stream, which decides what each micro-batch reads.

    Attributes:
        latest: ends of the queues when the last micro-batch was planned.
    """

    def __init__(self, puller: Puller, options: SourceOptions) -> None:
        """Create the planner, without any request."""
        self.latest: Offsets = {}
        self._puller = puller
        self._options = options
        self._target: Mapping[MessageQueue, int] | None = None
        self._silent: set[MessageQueue] = set()

    def close(self) -> None:
        """Close the connections."""
        self._puller.close()

    def first_position(self) -> StreamPosition:
        """Return the position at which a stream without a checkpoint begins.

        Raises:
            UsageError: if a named queue does not exist.
            RocketMQError: if a queue does not have a named offset, and the options require a failure, or if a request
                to a broker fails.
        """
        position = self._options.stream_start
        bounds = query_queue_bounds(self._puller, list_queues(self._puller, self._options.topics))
        offsets = resolve_offsets(self._puller, position, bounds)
        for queue, (first, end) in bounds.items():
            if not first <= offsets[queue] <= end:
                text = f"{format_queue(queue)}: option {position.option} names offset {offsets[queue]}"
                self._report_loss(f"{text}, the queue holds {first} to {end}")
            offsets[queue] = min(max(offsets[queue], first), end)
        return StreamPosition(offsets, is_initial=True)

    def stop_at_current_ends(self) -> None:
        """Fix the stream's end at the current ends of the queues."""
        self._target = {queue: bounds.end for queue, bounds in self._ask_bounds().items()}

    def next_position(self, start: StreamPosition, limit: int | None) -> StreamPosition:
        """Return the end of the micro-batch that begins at `start`; the same offsets if there are no new messages.

        Args:
            limit: maximum number of offsets; at least one of each queue is allowed.

        Raises:
            RocketMQError: if messages were deleted, and the options require a failure.
            UnreachableError: if no queue can be queried.
        """
        bounds = self._ask_bounds()
        # If Spark asks again after a crash, a stream may begin elsewhere, so the first end carries all starts.
        begins: dict[MessageQueue, int] = dict(start.offsets) if start.is_initial else {}
        ends: dict[MessageQueue, int] = dict(start.offsets)
        waiting: dict[MessageQueue, int] = {}
        for queue in sorted(bounds):
            begin = self._offset_to_read(queue, start, bounds[queue])
            if begin is None:
                continue
            end = bounds[queue].end if self._target is None else min(bounds[queue].end, self._target.get(queue, begin))
            if begin != start.offsets.get(queue):
                begins[queue] = begin
                ends[queue] = begin
            if end > begin:
                waiting[queue] = end - begin
        self.latest = {**ends, **{queue: held.end for queue, held in bounds.items()}}
        # `fair_shares` divides among names.
        names = {str(number): queue for number, queue in enumerate(waiting)}
        available = {name: waiting[queue] for name, queue in names.items()}
        shares = available if limit is None else fair_shares(available, limit)
        for name, share in shares.items():
            queue = names[name]
            ends[queue] = begins.get(queue, start.offsets.get(queue, 0)) + share
        # The same object, by which the reader sees that there is no new micro-batch.
        if ends == start.offsets:
            return start
        return StreamPosition(ends, begins)

    def _offset_to_read(self, queue: MessageQueue, start: StreamPosition, bounds: QueueBounds) -> int | None:
        """Return the offset from which a stream reads a queue; None if it does not read this queue."""
        known = start.offsets.get(queue)
        if known is None:
            if self._target is not None and queue not in self._target:
                return None  # it appeared after the stream's end was fixed
            return bounds.first
        if bounds.first <= known <= bounds.end:
            return known
        if known < bounds.first:
            count = bounds.first - known
            self._report_loss(
                f"{format_queue(queue)}: {format_count(count, 'message')}, offsets {known} to {bounds.first}, "
                f"{'was' if count == 1 else 'were'} deleted before the stream has read them"
            )
        else:
            self._report_loss(
                f"{format_queue(queue)}: the stream has read up to offset {known}, but the queue ends at {bounds.end}: "
                "the topic was recreated, or the broker has lost messages. It is read from its first message again"
            )
        return bounds.first

    def _ask_bounds(self) -> dict[MessageQueue, QueueBounds]:
        """Return the first and next offset of each queue whose broker answers now."""
        for topic in self._options.topics:
            # Routes are kept for a while, and would hide new queues and brokers.
            self._puller.routing.forget_route(topic)
        queues = list_queues(self._puller, self._options.topics)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="rocketmq-stream") as pool:
            answers = dict(zip(queues, pool.map(self._ask_queue_bounds, queues), strict=True))
        found = {queue: bounds for queue, bounds in answers.items() if isinstance(bounds, QueueBounds)}
        problems = {queue: error for queue, error in answers.items() if not isinstance(error, QueueBounds)}
        if problems and not found:
            raise next(iter(problems.values()))
        for queue, error in problems.items():
            if queue not in self._silent:
                logger.warning("%s waits, because its broker cannot be asked: %s", format_queue(queue), error)
        self._silent = set(problems)
        return found

    def _ask_queue_bounds(self, queue: MessageQueue) -> QueueBounds | UnreachableError | NoRouteError:
        try:
            return QueueBounds(self._puller.offsets.first(queue), self._puller.offsets.next(queue))
        except (UnreachableError, NoRouteError) as error:
            return error

    def _report_loss(self, text: str) -> None:
        report_data_loss(text, is_error=self._options.fail_on_data_loss)
