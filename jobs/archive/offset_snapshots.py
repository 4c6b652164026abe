"""Snapshots of consumer offsets that `archive` takes of the stores it reads; see `pipelines.snapshot`."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.reading.errors import EmptyStoreError
from commitlake.connectors.reading.snapshots import StoreRange, take_snapshot
from commitlake.connectors.reading.stores import Store, find_stores, for_each_store
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.snapshot.progress import StoreSnapshot
from commitlake.pipelines.snapshot.store_file_reader import read_store_snapshot
from commitlake.pipelines.snapshot.table_append import AppendedCounts, append_store_snapshots, group_snapshots
from commitlake.schemas.errors import ConcurrentRunError

if TYPE_CHECKING:
    from commitlake.pipelines.archive.from_broker.pull_task_input import BrokerSource

_LOG = logging.getLogger(__name__)
_NOT_SAVED = "; the offsets of these consumers are not saved this time"


def read_offset_snapshots(config: Config) -> list[StoreSnapshot]:
    """Read the consumer offsets of a run's stores, before the run determines the end of their logs.

    So after the run the lake has every message that these offsets count.
    """
    if config.source is not None:
        return _read_broker_offsets(config.source)
    return _read_store_offsets(_list_stores(config))


def _read_broker_offsets(source: BrokerSource) -> list[StoreSnapshot]:
    """Ask brokers for consumer offsets; a broker that refuses or does not answer is skipped with a warning."""
    from commitlake.connectors.rocketmq.errors import RocketMQError
    from commitlake.pipelines.snapshot.broker_queries import fetch_store_snapshot

    found = []
    with source.open_admin() as admin:
        for name in source.brokers or sorted(admin.clusters().broker_addr_table):
            try:
                found.append(fetch_store_snapshot(admin, name))
            except RocketMQError as error:
                _LOG.warning("%s: %s; the offsets of its consumers are not saved this time", name, error)
    return found


def _list_stores(config: Config) -> list[Store]:
    """Return the stores of an archive run; an empty list if no message has been stored yet."""
    try:
        return find_stores(config.store, config.broker, formats=config.layout)
    except EmptyStoreError:
        return []


def _read_store_offsets(stores: Sequence[Store]) -> list[StoreSnapshot]:
    now = datetime.datetime.now(datetime.UTC)
    found = for_each_store(lambda store: read_store_snapshot(store, now), stores)
    return [progress for progress in found if progress is not None]


def unreadable_offsets_sentences(snapshots: Sequence[StoreSnapshot]) -> list[str]:
    """Return sentences on files of consumer offsets that could not be read."""
    return [f"{sentence}{_NOT_SAVED}" for progress in snapshots for sentence in progress.unreadable]


def append_snapshots(
    config: Config, snapshots: Sequence[StoreSnapshot], store_ranges: Mapping[str, StoreRange]
) -> list[AppendedCounts]:
    """Append the offsets and subscriptions that have changed since the last snapshot to the lake's tables.

    Args:
        snapshots: the snapshots from `read_offset_snapshots`.
        store_ranges: ranges of the stores' logs, found after the snapshots were read.
    """
    added: list[AppendedCounts] = []
    ends = {broker: log_range.end for broker, log_range in store_ranges.items()}
    ended = [replace(progress, log_end=ends.get(progress.broker)) for progress in snapshots]
    for group in group_snapshots(ended):
        try:
            added += append_store_snapshots(config.lake, group)
        except ConcurrentRunError as error:  # another process has added the same offsets
            _LOG.warning("%s", error)
        except (QueryError, LogDamagedError) as error:  # the messages are still archived
            _LOG.warning(
                "consumer_offsets or subscriptions of %s cannot be read: %s; consumer offsets are not saved "
                "until 'commitlake maintain --repair' has repaired them",
                config.lake.root,
                error,
            )
    return added


class PeriodicSnapshots:
    """Snapshots of consumer offsets, taken at an interval while an archive follows its stores.

    The end of a log must be found after its consumers' offsets were read, so the stores are listed after that. The next
    snapshot reads the offsets of the listed stores, so a new store has its first snapshot one interval later.

    Args:
        config: settings of the archive.
        interval: time between two snapshots.
    """

    def __init__(self, config: Config, interval: datetime.timedelta) -> None:
        self._config = config
        self._seconds = interval.total_seconds()
        self._next = time.monotonic()
        self._stores: list[Store] | None = None

    def take_snapshot_if_due(self) -> bool:
        """Take a snapshot if the interval has passed and the lake exists, and return whether it was taken."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._seconds
        if read_last_commit(self._config.lake) is None:
            return False
        snapshots = _read_store_offsets(self._stores or _list_stores(self._config))
        for sentence in unreadable_offsets_sentences(snapshots):
            _LOG.warning("%s", sentence)
        self._stores = _list_stores(self._config)
        ranges = take_snapshot(self._stores).ranges
        append_snapshots(self._config, [one for one in snapshots if one.broker in ranges], ranges)
        return True
