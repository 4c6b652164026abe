"""Lag of one store's groups at many times: reads the tables only a few times, unlike `lag_of_lake` for each time.

Of `consumer_offsets`, `subscriptions` and `store_config`, what the times need is read once; `messages` is asked for
each of the times.
"""

from __future__ import annotations

import datetime

from commitlake.connectors.lake.archive_commits import StoreProgress, read_last_commit
from commitlake.connectors.lake.lake import PinnedLake
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, open_snapshots
from commitlake.connectors.lake.store_config import config_at, read_config_changes
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.loaded_snapshots import LoadedSnapshots
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable
from commitlake.pipelines.lag.offsets import offset_state_at
from commitlake.pipelines.lag.store_lag import lag_of_groups
from commitlake.pipelines.lag.subscriptions import Subscriptions, SubscriptionTimeline
from commitlake.pipelines.snapshot.progress import OffsetKind


class StoreLag:
    """Computes the lag of one store's groups at several times, each later than the one before.

    Args:
        lake: The lake; it has snapshots of the store.
        broker: The store's name.
        first: The first of the times.
        last: The last of the times.
    """

    def __init__(self, lake: PinnedLake, broker: str, first: datetime.datetime, last: datetime.datetime) -> None:
        self._snapshots = LoadedSnapshots(lake.table(OFFSETS), broker, first, last)
        subscribed = open_snapshots(lake, SUBSCRIBED)
        self._subscribed = None if subscribed is None else SubscriptionTimeline(subscribed, broker, last)
        self._config = read_config_changes(lake, broker)
        commit = read_last_commit(lake)
        self._progress = (commit and commit.stores.get(broker)) or StoreProgress(0)
        self._messages = LakeMessages(ArrowMessagesTable(lake.table("messages")), broker, last=last)

    def lag_rows_at(self, time: datetime.datetime) -> list[LagRow]:
        """Return the lag of the groups at a time, which must be later than in the previous call.

        It is empty before the first snapshot.
        """
        moment = offset_state_at(self._snapshots, OffsetKind.GROUP, time)
        if moment is None:
            return []
        subscriptions = Subscriptions() if self._subscribed is None else self._subscribed.subscriptions_at_time(time)
        return lag_of_groups(
            moment,
            self._messages,
            subscriptions.at_later_time(time),
            config_at(self._config, time),
            self._progress,
        )
