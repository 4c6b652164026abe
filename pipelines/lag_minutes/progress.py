"""Progress of `lag_minutes`, as its log records it in numbers of Delta's application transactions (`txn`).

commitlake.lag_minutes.messages          version of `messages` that was read, plus one; likewise for the other tables
commitlake.lag_minutes.until/BROKER      last minute of the store that the table has, minutes since 1970
commitlake.lag_minutes.archived/BROKER   physical offset up to which the store was archived then
commitlake.lag_minutes.topics/BROKER     number that stands for the topics of the store that were archived then
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED

FOLLOWED = ("messages", OFFSETS, SUBSCRIBED, "store_config")
"""The tables from which `lag_minutes` is computed."""
_PREFIX = "commitlake.lag_minutes"
APPLICATION_ID = f"{_PREFIX}.messages"
"""Application whose number every commit to the table carries."""
NOTHING = -1
"""Last minute of a store of which the table has no minute."""


@dataclass(frozen=True, slots=True)
class StoreMinutes:
    """Last computed minute of one store in `lag_minutes`, and the state of the archive that it was computed from.

    Attributes:
        until: its last minute, as a number of minutes since 1970; `NOTHING` for none.
        archived: physical offset up to which the store was archived when the minutes were computed.
        topics: number that stands for its archived topics then; 0 for all of them.
    """

    until: int = NOTHING
    archived: int = 0
    topics: int = 0


@dataclass(frozen=True, slots=True)
class MinutesProgress:
    """Last minute of each store in `lag_minutes`, and the table versions from which the minutes were computed.

    Attributes:
        versions: by followed table, the version that was read; -1 for none.
        stores: the minutes of each store, by broker.
    """

    versions: Mapping[str, int]
    stores: Mapping[str, StoreMinutes] = field(default_factory=dict)

    def is_computed_from(self, versions: Mapping[str, int], archive_progress: Mapping[str, StoreProgress]) -> bool:
        """Return whether the minutes were computed from the given table versions and archive progress.

        Args:
            versions: newest version of each followed table.
            archive_progress: how far each store is archived.
        """
        known = {broker: archive_progress.get(broker, StoreProgress(0)) for broker in self.stores}
        return dict(versions) == dict(self.versions) and all(
            (store.archived, store.topics) == (known[broker].end, checksum_topics(known[broker]))
            for broker, store in self.stores.items()
        )

    def transaction_numbers(self) -> dict[str, int]:
        """Return the numbers that record this progress in the Delta log, by `appId` of their `txn` action."""
        # Plus one, because 0 is what the log has for a table without a commit.
        found = {f"{_PREFIX}.{table}": version + 1 for table, version in self.versions.items()}
        for broker, store in self.stores.items():
            found[f"{_PREFIX}.until/{broker}"] = store.until + 1
            found[f"{_PREFIX}.archived/{broker}"] = store.archived
            found[f"{_PREFIX}.topics/{broker}"] = store.topics
        return found


def read_progress(table: DeltaTable | None, brokers: list[str]) -> MinutesProgress:
    """Read how far `lag_minutes` is computed, from the `txn` actions of its Delta log.

    Args:
        table: `lag_minutes`; None if it does not exist yet.
        brokers: stores of interest.
    """

    def number(name: str) -> int:
        return 0 if table is None else table.transaction_version(f"{_PREFIX}.{name}") or 0

    stores = {
        broker: StoreMinutes(number(f"until/{broker}") - 1, number(f"archived/{broker}"), number(f"topics/{broker}"))
        for broker in brokers
    }
    return MinutesProgress({table_name: number(table_name) - 1 for table_name in FOLLOWED}, stores)


def checksum_topics(progress: StoreProgress) -> int:
    """Return a checksum of the names of a store's archived topics; 0 if all topics are archived."""
    # Numbers of transactions are all that a commit records; two sets with the same checksum are unlikely enough.
    return 0 if progress.pulled_topics is None else 1 + zlib.crc32("\n".join(sorted(progress.pulled_topics)).encode())
