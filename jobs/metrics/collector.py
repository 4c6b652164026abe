"""A Prometheus collector that measures current figures, at most once per interval."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from commitlake.jobs.metrics.gauges import up
from commitlake.schemas.errors import CommitLakeError

_LOG = logging.getLogger(__name__)


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
                self._families = self._measure_or_report()
                self._measured_at = time.monotonic()
            yield from self._families

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield nothing, so that registration does not trigger a measurement."""
        yield from ()

    def _measure_or_report(self) -> Sequence[GaugeMetricFamily]:
        try:
            return [*self._measure(), up(is_readable=True)]
        except (CommitLakeError, OSError) as error:
            _LOG.warning("the metrics cannot be read: %s", error)
            return [up(is_readable=False)]
