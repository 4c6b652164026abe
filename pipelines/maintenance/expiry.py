"""Rows and bodies that are older than they should be kept, by date: whole data files, whole packs, nothing else.

`messages` is partitioned by date. In the other tables a file's age is that of its newest row, and files of different
months are never merged: a row there may live up to a month longer than it should.

Before anything goes, `messages` says so among its properties: commitlake.expiredBefore.TABLE, or of `bodies`, is the
first date of which all is kept. There it outlives the log's entries, and an audit does not take for lost what is gone.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from commitlake.connectors.lake.delta import delta_table, seal
from commitlake.connectors.lake.packs.names import PackFile, parse_pack_name
from commitlake.connectors.lake.packs.stores import PackStore
from commitlake.pipelines.maintenance.table_files import (
    NO_HOOKS,
    ConcurrentMaintenanceError,
    TableFile,
    exchange_files,
    read_table_files,
)

_PROPERTY = "commitlake.expiredBefore."
_MOST_TRIES = 100
_WAIT_SECONDS = 0.02


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


def announce_expiry(messages_uri: str, what: str, before: datetime.date) -> None:
    """Say of which dates something is no longer kept, before the first of it goes.

    Args:
        messages_uri: path or URI of `messages`, where it is said.
        what: a table, or `bodies`.
        before: the first date that is kept. One that is earlier than what is said already changes nothing.

    Raises:
        ConcurrentMaintenanceError: if others were first again and again.
    """
    for attempt in range(_MOST_TRIES):
        table = delta_table(messages_uri)
        if before <= read_expiries(table).get(what, datetime.date.min):
            return
        try:
            table.alter.set_table_properties(
                {f"{_PROPERTY}{what}": before.isoformat()},
                raise_if_not_exists=False,
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError:  # an archive run or another maintain made a version; look again
            time.sleep(_WAIT_SECONDS * min(attempt, 10))
        else:
            seal(messages_uri)
            return
    raise ConcurrentMaintenanceError(
        f"{messages_uri}: others made a version first {_MOST_TRIES} times; nothing of {what} was dropped. Run it again"
    )


def read_expiries(messages: DeltaTable) -> dict[str, datetime.date]:
    """By table, or `bodies`: the first date of which all is kept. What is not in it never lost anything to its age."""
    return {
        name.removeprefix(_PROPERTY): datetime.date.fromisoformat(value)
        for name, value in messages.metadata().configuration.items()
        if name.startswith(_PROPERTY) and value is not None
    }


def expired_packs(packs: Iterable[PackFile], before: datetime.date, brokers: Collection[str]) -> list[PackFile]:
    """The packs of dates before one; those that have no date go by when they were written.

    Args:
        packs: all there are.
        before: the first date that is kept.
        brokers: the lake's: another lake may have its packs in the same place.
    """
    return [
        pack
        for pack in packs
        if (pack.store_date or pack.modified.date()) < before and parse_pack_name(pack.name).broker in brokers
    ]


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
