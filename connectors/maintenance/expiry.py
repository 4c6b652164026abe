"""Rows and bodies that are older than they should be kept, by date: whole data files, whole packs, nothing else.

`messages` is partitioned by date. In the other tables a file's age is that of its newest row, and files of different
months are never merged: a row there may live up to a month longer than it should.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from connectors.lake.delta import delta_table
from connectors.maintenance.table_files import TableFile, exchange_files, read_table_files
from connectors.packs.names import PackFile
from connectors.packs.stores import PackStore


@dataclass(frozen=True, slots=True)
class Expired:
    """What is, or was, too old."""

    count: int = 0
    bytes: int = 0
    rows: int = 0


def expired_files(table_uri: str, before: datetime.date) -> list[TableFile]:
    """The data files whose rows all are of dates before one."""
    return [file for file in read_table_files(delta_table(table_uri)) if file.date < before]


def expire_files(table_uri: str, files: list[TableFile], before: datetime.date) -> None:
    """Take files out of a table in one commit; VACUUM deletes them when nobody can read them any more.

    Args:
        table_uri: path or URI of the table.
        files: from `expired_files`.
        before: the date, for the commit's metadata.

    Raises:
        ConcurrentMaintenanceError: if somebody else has replaced some of them meanwhile.
    """
    if files:
        note = {"action": "expire", "before": before.isoformat()}
        exchange_files(table_uri, files, [], changes_data=True, note=note)


def expired_packs(packs: Iterable[PackFile], before: datetime.date) -> list[PackFile]:
    """The packs of dates before one; those of messages without a time go by when they were written."""
    return [pack for pack in packs if (pack.store_date or pack.modified.date()) < before]


def delete_packs(store: PackStore, packs: Iterable[PackFile]) -> None:
    """Delete packs; whoever asks for a body of theirs is told that it has expired."""
    store.delete([pack.name for pack in packs])


def measure(things: Iterable[TableFile | PackFile]) -> Expired:
    """How much that is."""
    count = size = rows = 0
    for thing in things:
        count, size = count + 1, size + thing.size
        rows += (thing.rows or 0) if isinstance(thing, TableFile) else 0
    return Expired(count, size, rows)
