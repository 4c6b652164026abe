"""Snapshots of the shop's offsets, taken while its messages are written, for the demo's history of lag."""

from __future__ import annotations

from dataclasses import replace

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.archive.snapshots import read_snapshots
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.snapshot.append import append_progress
from commitlake.pipelines.snapshot.progress import StoreSnapshot


class OffsetHistory:
    """Snapshots of a run's stores, which are kept in memory until the lake exists.

    Args:
        config: settings of the run.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._read: list[StoreSnapshot] = []

    def read(self) -> None:
        """Read the current offsets."""
        found = read_snapshots(self._config)
        stores = find_stores(self._config.store, self._config.broker, formats=self._config.layout) if found else ()
        ranges = take_snapshot(stores).ranges
        self._read += [replace(progress, log_end=ranges[progress.broker].end) for progress in found]

    def append(self) -> None:
        """Append the snapshots to the lake, oldest first."""
        for progress in self._read:
            append_progress(Lake(self._config.lake), progress)
