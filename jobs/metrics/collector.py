"""Gives a scrape of Prometheus the lag of now, measured at most once in a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from commitlake.jobs.metrics.families import families_of, readable, unreadable
from commitlake.pipelines.lag.answer import Answer
from commitlake.schemas.errors import CommitLakeError

_LOG = logging.getLogger(__name__)


class LagCollector(Collector):
    """Measures lag when it is asked; thread-safe.

    Args:
        measure: Measures it.
        cluster: The label `cluster`.
        keep_seconds: How long an answer is given again.
    """

    def __init__(self, measure: Callable[[], Answer], cluster: str, keep_seconds: float) -> None:
        self._measure, self._cluster, self._keep_seconds = measure, cluster, keep_seconds
        self._lock = threading.Lock()
        self._families: Sequence[GaugeMetricFamily] = ()
        self._measured_at = float("-inf")

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics; where the lag cannot be read, one that says so."""
        with self._lock:
            if time.monotonic() - self._measured_at >= self._keep_seconds:
                self._families = self._ask()
                self._measured_at = time.monotonic()
            yield from self._families

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield nothing: the registry then need not measure to know the names."""
        yield from ()

    def _ask(self) -> Sequence[GaugeMetricFamily]:
        try:
            return [*families_of(self._measure(), self._cluster), readable()]
        except (CommitLakeError, OSError) as error:
            _LOG.warning("the lag cannot be read: %s", error)
            return [unreadable()]
