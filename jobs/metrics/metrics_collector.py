"""The measurements of `commitlake metrics`, and the collector that repeats them on request.

The lag is measured, and a lake's state, dead letters and traffic.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.lag.arguments import LagArguments
from commitlake.jobs.lag.lag_measurement import measure_lag
from commitlake.jobs.metrics.archive_metrics import archive_metrics
from commitlake.jobs.metrics.gauges import availability_gauge
from commitlake.jobs.metrics.lag_metrics import lag_metrics
from commitlake.jobs.metrics.traffic_metrics import traffic_metrics
from commitlake.pipelines.archive_health.state import ArchiveState, read_archive_state
from commitlake.pipelines.archive_health.traffic import Traffic, read_traffic
from commitlake.pipelines.dead_letters.causes import GroupCount, count_dead_letters_by_group
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.pipelines.lag.store_lag import LagAnswer, read_other_queue_ends
from commitlake.schemas.errors import CommitLakeError

_LOG = logging.getLogger(__name__)
_READ = ("messages", "topic_minutes", "quarantine", "gaps", "archive_runs")
"""Tables from which the state of a lake is computed."""


@dataclass(frozen=True, slots=True)
class LakeAndLagMeasurement:
    """Lag of consumer groups, and the state, dead letters and traffic of a lake, all measured at the same time.

    Attributes:
        lag: The lag of groups.
        state: State of the lake; None if stores are measured.
        dead_letters: Dead letters of the lake.
        traffic: Traffic of the lake's stores.
        ends: End offsets of the queues of topics that no group consumes.
    """

    lag: LagAnswer
    state: ArchiveState | None = None
    dead_letters: Sequence[GroupCount] = ()
    traffic: Traffic = field(default_factory=Traffic)
    ends: Mapping[Queue, QueueSpan] = field(default_factory=dict)

    @classmethod
    def measure(cls, arguments: LagArguments) -> LakeAndLagMeasurement:
        """Measure the lake or stores that the job's arguments name.

        Raises:
            JobError: There is no such broker.
            LakeError: There is no lake.
            CommitLogError: There is no store, or it cannot be read.
            QueryError: A table cannot be read.
        """
        lag = measure_lag(arguments)
        if arguments.lake is None:
            return cls(lag)
        lake = open_lake_argument(arguments).pin_versions()
        with explain_damaged_files(lake, _READ):
            state = read_archive_state(lake)
            return cls(
                lag,
                state,
                count_dead_letters_by_group(lake),
                read_traffic(lake, state),
                read_other_queue_ends(lake, lag),
            )

    def to_metrics(self, cluster: str) -> Iterator[GaugeMetricFamily]:
        """Yield Prometheus metrics of the measured values; `cluster` is the value of the label of this name."""
        yield from lag_metrics(self.lag, cluster, self.ends)
        yield from traffic_metrics(self.traffic, self.lag, cluster)
        if self.state is not None:
            yield from archive_metrics(self.state, self.dead_letters)


class MetricsCollector(Collector):
    """Thread-safe Prometheus collector that measures on request, and caches the result.

    Args:
        measure: Function that returns the metrics.
        keep_seconds: Time for which an answer is reused.
    """

    def __init__(self, measure: Callable[[], Iterable[GaugeMetricFamily]], keep_seconds: float) -> None:
        self._measure, self._keep_seconds = measure, keep_seconds
        self._lock = threading.Lock()
        self._families: Sequence[GaugeMetricFamily] = ()
        self._measured_at = float("-inf")

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current metrics; if the measurement fails, yield only the metric that says so."""
        with self._lock:
            if time.monotonic() - self._measured_at >= self._keep_seconds:
                self._families = self._measure_or_report_failure()
                self._measured_at = time.monotonic()
            yield from self._families

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield nothing, so that registration does not trigger a measurement."""
        yield from ()

    def _measure_or_report_failure(self) -> Sequence[GaugeMetricFamily]:
        try:
            return [*self._measure(), availability_gauge(is_readable=True)]
        except (CommitLakeError, OSError) as error:
            _LOG.warning("the metrics cannot be read: %s", error)
            return [availability_gauge(is_readable=False)]
