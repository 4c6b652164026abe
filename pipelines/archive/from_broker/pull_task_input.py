"""Input of a task that pulls: ranges of queues of one broker, with limits and retries, but without secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from commitlake.connectors.lake.store_progress import LastRecord, QueueReport
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import LogPart, QueueRange
from commitlake.connectors.rocketmq.throttle import RateLimit, Throttle
from commitlake.schemas.layouts.rocketmq.topics import TOOLS_GROUP

if TYPE_CHECKING:
    from commitlake.connectors.reading.batches import BatchInspector
    from commitlake.connectors.reading.read_request import Request
    from commitlake.connectors.rocketmq.log_reading import ReadRange


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """Brokers of a cluster, with settings for pulling.

    Attributes:
        client: addresses of the name servers.
        brokers: names of the brokers; all that the name servers know if empty.
        topics: names of the topics; all that the brokers have if empty.
        rate: limit for all tasks together.
        retry_seconds: time for which requests to a broker that does not answer are retried.
    """

    client: ClientOptions
    brokers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    rate: RateLimit = field(default_factory=RateLimit)
    retry_seconds: float = 60.0

    def open_admin(self) -> Admin:
        """Return a client for queries.

        Raises:
            UsageError: if the keys or TLS settings in the environment are invalid.
        """
        return Admin(self.client)

    def open_puller(self) -> Puller:
        """Return a client for pulling, with a consumer group that exists on every broker.

        The group's offsets are never changed.

        Raises:
            UsageError: as for `open_admin`.
        """
        return Puller(TOOLS_GROUP, self.client)


@dataclass(frozen=True, slots=True)
class PulledRange:
    """Range of offsets to pull from one queue.

    Attributes:
        wanted: the range.
        resumes: True if an earlier run has read up to its start.
    """

    wanted: QueueRange
    resumes: bool


@dataclass(frozen=True, slots=True)
class PulledPart:
    """Part of an archive run: ranges of queue offsets that are pulled from one broker.

    Attributes:
        source: brokers and limits, with this task's share of the rate.
        ranges: the ranges.
        log: the part of the broker's log whose messages are wanted.
        start: physical offset up to which the lake has the broker's log.
        size: estimated size in bytes of the log.
    """

    source: BrokerSource
    ranges: Sequence[PulledRange]
    log: LogPart
    start: int
    size: int

    @property
    def broker(self) -> str:
        """Name of the broker that the part is pulled from; it is also the name of its store in the lake."""
        return self.ranges[0].wanted.queue.broker_name

    @property
    def end(self) -> int:
        """Physical offset up to which the lake has the broker's log once the part is archived."""
        return self.log.end_byte

    def read(
        self, request: Request, inspect_batch: BatchInspector, on_report: Callable[[QueueReport], None]
    ) -> Iterator[pa.RecordBatch]:
        """Pull the messages of all ranges, and yield them in batches.

        Args:
            inspect_batch: called with the records of each batch before it is yielded.
            on_report: called with a report after each range.

        Raises:
            RocketMQError: if a broker cannot be reached, or has lost messages since the run was planned.
            DamagedLogError: if bytes are not valid records.
        """
        # Importing the compiled reader takes a second, so it is imported only where bytes are read.
        from commitlake.connectors.rocketmq.log_reading import LogReader  # noqa: PLC0415

        with self.source.open_puller() as puller:
            reader = LogReader(puller, request, inspect_batch, Throttle(self.source.rate), self.source.retry_seconds)
            for one in self.ranges:
                yield from reader.read(
                    one.wanted, self.log, lambda read: on_report(_to_queue_report(read)), is_resumed=one.resumes
                )


def _to_queue_report(read_range: ReadRange) -> QueueReport:
    queue, last = read_range.wanted.queue, read_range.last_taken
    return QueueReport(
        queue.broker_name,
        queue.topic,
        queue.queue_id,
        read_range.wanted.begin,
        read_range.wanted.end,
        read_range.end,
        read_range.taken,
        read_range.lost,
        read_range.lost_where,
        read_range.is_new_queue,
        None if last is None else LastRecord(*last),
    )
