"""Drops rows and bodies that are older than their retention, as whole data files and whole packs.

`messages` is partitioned by date. In the other tables the age of a file is that of its newest row, and files of
different months are never merged, so a row may be kept up to a month too long.
Before anything is dropped, the first date that is kept is recorded as a property of `messages`:

commitlake.expiredBefore.TABLE, or commitlake.expiredBefore.bodies; `topics` stands for all typed tables. The property
outlives the entries of the log, so that an audit does not report expired rows as lost.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.names import PackFile, parse_pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.pipelines.maintenance.file_replacement import NO_HOOKS, ConcurrentMaintenanceError, replace_table_files

_PROPERTY = "commitlake.expiredBefore."
_MAX_TRIES = 100
_WAIT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ExpiredFiles:
    """Number, size and rows of the files that an expiry drops or, in a dry run, would drop."""

    count: int = 0
    bytes: int = 0
    rows: int = 0


def find_expired_files(lake: Lake, table: str, first_kept_date: datetime.date) -> list[TableFile]:
    """Return the data files whose rows all have dates before a given one."""
    return [file for file in read_table_files(lake.table(table)) if file.date < first_kept_date]


def expire_files(lake: Lake, table: str, files: list[TableFile], first_kept_date: datetime.date) -> None:
    """Remove files from a table in one commit; VACUUM deletes them when no reader needs them any more.

    Args:
        table: name of the table.
        files: from `find_expired_files`.
        first_kept_date: the date, recorded in the commit's metadata.

    Raises:
        ConcurrentMaintenanceError: if another process has replaced some of the files meanwhile.
    """
    if files:
        note = {"action": "expire", "before": first_kept_date.isoformat()}
        replace_table_files(lake, table, files, [], changes_data=True, note=note)


def record_expiry(lake: Lake, table_or_bodies: str, first_kept_date: datetime.date) -> None:
    """Record in `messages`, before old data is dropped, the first date that a table or the bodies keep.

    Args:
        lake: the lake, whose table `messages` holds the record.
        table_or_bodies: name of a table, `bodies`, or `topics` for the typed tables of topics.
        first_kept_date: the first date that is kept. If a later or equal date is recorded already, nothing changes.

    Raises:
        ConcurrentMaintenanceError: if other writers committed first on every attempt.
    """
    for attempt in range(_MAX_TRIES):
        table = lake.table("messages")
        # A shorter retention has applied before: what it dropped stays dropped.
        if first_kept_date <= read_expiries(table).get(table_or_bodies, datetime.date.min):
            return
        try:
            table.alter.set_table_properties(
                {f"{_PROPERTY}{table_or_bodies}": first_kept_date.isoformat()},
                raise_if_not_exists=False,
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError:  # an archive run or another maintain committed a version first; retry
            time.sleep(_WAIT_SECONDS * min(attempt, 10))
        else:
            lake.seal_log("messages")
            return
    raise ConcurrentMaintenanceError(
        f"{lake.uri('messages')}: other writers committed first at each of {_MAX_TRIES} attempts; nothing of "
        f"{table_or_bodies} was dropped. Run the command again"
    )


def read_expiries(messages: DeltaTable) -> dict[str, datetime.date]:
    """Return the first kept date of each table from which rows have expired, of `bodies`, and of typed `topics`."""
    return {
        name.removeprefix(_PROPERTY): datetime.date.fromisoformat(value)
        for name, value in messages.metadata().configuration.items()
        if name.startswith(_PROPERTY) and value is not None
    }


def find_expired_packs(
    packs: Iterable[PackFile], first_kept_date: datetime.date, brokers: Collection[str]
) -> list[PackFile]:
    """Return the packs older than a date, taken from their name or else from their last change.

    Args:
        packs: all packs.
        first_kept_date: the first date that is kept.
        brokers: brokers of this lake; other lakes may keep packs in the same place.
    """
    return [
        pack
        for pack in packs
        if (pack.store_date or pack.modified.date()) < first_kept_date and parse_pack_name(pack.name).broker in brokers
    ]


def delete_packs(store: PackStore, packs: Iterable[PackFile]) -> None:
    """Delete packs, after which requests for their bodies report that they have expired."""
    store.delete([pack.name for pack in packs])


def measure_files(files: Iterable[TableFile | PackFile]) -> ExpiredFiles:
    """Return the number, total size and rows of files."""
    count = size = rows = 0
    for thing in files:
        count, size = count + 1, size + thing.size
        rows += (thing.rows or 0) if isinstance(thing, TableFile) else 0
    return ExpiredFiles(count, size, rows)
