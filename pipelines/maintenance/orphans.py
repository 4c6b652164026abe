"""Finds packs that no row refers to.

A killed run leaves such packs if the next run divides the log differently. Only packs of the archived part of the log
are examined, because a running archive writes packs only after the archived end. Only the column of references is read,
file by file.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping

import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.lake.archive_log import StoreProgress
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.packs.errors import PackError, PackStoreError
from commitlake.connectors.lake.packs.merged import read_members
from commitlake.connectors.lake.packs.names import PackFile, parse_pack_name
from commitlake.connectors.lake.packs.stores import PackStore
from commitlake.pipelines.maintenance.table_files import folder_of, read_table_files
from commitlake.schemas.tables.messages import BODY_REF, STORE_DATE

_PACK = f"{BODY_REF.name}.pack"
_LOOK_BACK = datetime.timedelta(days=30)


def find_orphans(
    store: PackStore,
    messages_uri: str,
    packs: Iterable[PackFile],
    progress: Mapping[str, StoreProgress],
    now: datetime.datetime,
    age: datetime.timedelta,
    look_back: datetime.timedelta = _LOOK_BACK,
) -> list[PackFile]:
    """Return packs that no row of the newest version refers to.

    Args:
        messages_uri: path or URI of `messages`.
        packs: all packs, listed after `progress` was read.
        progress: archived end of each store.
        now: current time.
        age: packs younger than this are not examined.
        look_back: packs older than `age` by more than this are not examined: an earlier call has seen them.
    """
    asked = [
        pack
        for pack in packs
        if datetime.timedelta() <= now - pack.modified - age <= look_back and is_archived(pack, progress)
    ]
    named = named_packs(messages_uri, {pack.store_date for pack in asked})
    return [pack for pack in asked if not _is_named(store, pack, named)]


def _is_named(store: PackStore, pack: PackFile, named: Collection[str]) -> bool:
    if not parse_pack_name(pack.name).is_merged:
        return pack.name in named
    try:
        return any(name in named for name in read_members(store, pack))
    except PackStoreError:
        raise
    except PackError:  # an audit reports it
        return True


def is_archived(pack: PackFile, progress: Mapping[str, StoreProgress]) -> bool:
    """Return whether a pack is of the archived part of a log, so that no running archive is writing it."""
    parsed = parse_pack_name(pack.name)
    store = progress.get(parsed.broker)
    return store is not None and parsed.end <= store.end


def named_packs(messages_uri: str, dates: set[datetime.date | None]) -> set[str]:
    """Return the packs that rows refer to, for the given dates.

    A pack with a date is referred to only by rows of that date. A pack without one holds bodies of several dates, so
    rows of any date may refer to it.
    """
    texts = {None if date is None else date.isoformat() for date in dates}
    files = folder_of(messages_uri)
    found: set[str] = set()
    for file in read_table_files(delta_table(messages_uri)) if texts else ():
        if None in texts or file.partition.get(STORE_DATE.name) in texts:
            with pq.ParquetFile(files.open_input_file(file.path), page_checksum_verification=True) as source:
                for batch in source.iter_batches(columns=[_PACK]):
                    names = pc.unique(pc.struct_field(batch.column(BODY_REF.name), "pack"))
                    found.update(name for name in names.to_pylist() if name is not None)
    return found
