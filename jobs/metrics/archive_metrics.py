"""Metrics of a lake's state for Prometheus; a store without archived messages has none.

    name                                      labels         value
    commitlake_archive_last_run_timestamp_seconds
                                                             time at which the newest run that found something ended
    commitlake_archive_newest_message_timestamp_seconds
                                              broker         end of the newest minute that is archived
    commitlake_archive_end_offset             broker         physical offset up to which the log is archived
    commitlake_archive_quarantined_ranges     broker         ranges of the log that could not be read
    commitlake_archive_quarantined_bytes      broker         their bytes
    commitlake_archive_missing_ranges         broker         ranges that were deleted before they were archived
    commitlake_archive_missing_bytes          broker         their bytes
    commitlake_dead_letters                   broker, group  archived dead letters

Times are seconds since 1970. Unknown values have no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily

from commitlake.jobs.metrics.gauges import make_gauge
from commitlake.pipelines.archive_health.state import ArchiveState, StoreState
from commitlake.pipelines.dead_letters.causes import GroupCount

_FIGURES: tuple[tuple[str, str, Callable[[StoreState], float | None]], ...] = (
    (
        "commitlake_archive_newest_message_timestamp_seconds",
        "End of the newest minute that is archived",
        lambda store: None if store.newest is None else store.newest.timestamp(),
    ),
    ("commitlake_archive_end_offset", "Offset up to which the log is archived", lambda store: store.end),
    (
        "commitlake_archive_quarantined_ranges",
        "Ranges of the log that could not be read",
        lambda store: store.quarantined.count,
    ),
    (
        "commitlake_archive_quarantined_bytes",
        "Bytes of the log that could not be read",
        lambda store: store.quarantined.bytes,
    ),
    (
        "commitlake_archive_missing_ranges",
        "Ranges of the log that were deleted before they were archived",
        lambda store: store.gaps.count,
    ),
    (
        "commitlake_archive_missing_bytes",
        "Bytes of the log that were deleted before they were archived",
        lambda store: store.gaps.bytes,
    ),
)


def archive_metrics(state: ArchiveState, dead_letters: Iterable[GroupCount]) -> Iterator[GaugeMetricFamily]:
    """Yield Prometheus metrics of a lake: the age of the archive, missing parts of the logs, and dead letters.

    Args:
        dead_letters: Dead letters of the lake, by store and group.
    """
    last_run = [] if state.last_run is None else [((), state.last_run.timestamp())]
    yield make_gauge("commitlake_archive_last_run_timestamp_seconds", "When the newest archive run ended", (), last_run)
    for name, help_text, figure in _FIGURES:
        values = [((store.broker,), value) for store in state.stores if (value := figure(store)) is not None]
        yield make_gauge(name, help_text, ("broker",), values)
    counts = [((one.broker, one.group), float(one.messages)) for one in dead_letters]
    yield make_gauge("commitlake_dead_letters", "Archived dead letters", ("broker", "group"), counts)
