"""Finds the minutes whose rows in `lag_minutes` are up to date: they equal what `commitlake lag --at` answers now."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.lake import PinnedLake
from commitlake.pipelines.lag_minutes.minute_computation import first_minute_at
from commitlake.pipelines.lag_minutes.minutes_to_recompute import find_minutes_to_compute, newest_versions
from commitlake.pipelines.lag_minutes.progress import NOTHING, read_progress
from commitlake.pipelines.maintenance.expiry import read_expiries


class CoveredMinutes(NamedTuple):
    """Minutes of a store for which `lag_minutes` has the lag, as numbers of minutes since 1970.

    Attributes:
        first: the first of them; rows of earlier minutes may have expired.
        last: the last of them.
    """

    first: int
    last: int

    def contains_minute(self, minute: int) -> bool:
        """Return whether `lag_minutes` has the lag at the given minute."""
        return self.first <= minute <= self.last


def find_covered_minutes(lake: PinnedLake, brokers: Sequence[str]) -> dict[str, CoveredMinutes]:
    """Return, by store, the minutes for which `lag_minutes` has the final lag; empty without the table.

    Args:
        lake: the lake; it has `consumer_offsets`.
        brokers: stores of interest.
    """
    table = lake.find("lag_minutes")
    if table is None:
        return {}
    last = read_last_commit(lake)
    archived = {} if last is None else last.stores
    progress = read_progress(table, list(brokers))
    expired = read_expiries(lake.table("messages")).get("lag_minutes")
    midnight = None if expired is None else datetime.datetime.combine(expired, datetime.time(), datetime.UTC)
    first = 0 if midnight is None else first_minute_at(midnight)
    lasts = {broker: store.until for broker, store in progress.stores.items() if store.until != NOTHING}
    if not progress.is_computed_from(newest_versions(lake), archived):
        todo = find_minutes_to_compute(lake, progress, archived)
        # Up to the minute before the first one to compute again. `todo` lacks stores without an archived snapshot.
        lasts = {broker: min(last, todo[broker].first - 1) for broker, last in lasts.items() if broker in todo}
    return {broker: CoveredMinutes(first, last) for broker, last in lasts.items()}
