"""The measurements of `commitlake metrics`: the lag, and a lake's state, dead letters and traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily

from commitlake.jobs.arguments.places import lake_of
from commitlake.jobs.cli.damaged_files import naming_damaged_files
from commitlake.jobs.lag.arguments import LagArguments
from commitlake.jobs.lag.source import measure_lag
from commitlake.jobs.metrics.archive_families import archive_families
from commitlake.jobs.metrics.lag_families import lag_families
from commitlake.jobs.metrics.traffic_families import traffic_families
from commitlake.pipelines.archive_health.state import ArchiveState, read_archive_state
from commitlake.pipelines.archive_health.traffic import Traffic, read_traffic
from commitlake.pipelines.dead_letters.causes import GroupCount, count_by_group
from commitlake.pipelines.lag.answer import LagAnswer, queue_ends
from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.lag.queues import QueueSpan

_READ = ("messages", "topic_minutes", "quarantine", "gaps", "archive_runs")
"""Tables from which the state of a lake is computed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Lag of groups, and a lake's state, dead letters and traffic, all measured at the same time.

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
    def of(cls, arguments: LagArguments) -> Measured:
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
        lake = lake_of(arguments).pinned()
        with naming_damaged_files(lake, _READ):
            state = read_archive_state(lake)
            return cls(lag, state, count_by_group(lake), read_traffic(lake, state), queue_ends(lake, lag))

    def families(self, cluster: str) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics; `cluster` is the value of the label of this name."""
        yield from lag_families(self.lag, cluster, self.ends)
        yield from traffic_families(self.traffic, self.lag, cluster)
        if self.state is not None:
            yield from archive_families(self.state, self.dead_letters)
