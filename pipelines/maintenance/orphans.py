"""Packs that no row names: a killed run wrote them, and the run that came after it divided the log elsewhere.

Only packs of what the archive has behind it are looked at, so that none can be one that a run is about to name: a run
writes packs of offsets from the archived end on. The rows' references are read file by file, that column alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.lake.archive_log import StoreProgress
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.packs.names import PackFile, parse_pack_name
from commitlake.pipelines.maintenance.table_files import folder_of, read_table_files
from commitlake.schemas.tables.messages import BODY_REF, STORE_DATE

_PACK = f"{BODY_REF.name}.pack"
_LOOK_BACK = datetime.timedelta(days=30)


def find_orphans(
    messages_uri: str,
    packs: Iterable[PackFile],
    progress: Mapping[str, StoreProgress],
    now: datetime.datetime,
    age: datetime.timedelta,
    look_back: datetime.timedelta = _LOOK_BACK,
) -> list[PackFile]:
    """Packs that no row of the newest version names.

    Args:
        messages_uri: path or URI of `messages`.
        packs: all there are, listed after `progress` was read.
        progress: how far each store is archived.
        now: the moment of the look.
        age: younger packs are left alone.
        look_back: so are those that are so much older than that: an earlier look has seen them.
    """
    asked = [
        pack
        for pack in packs
        if datetime.timedelta() <= now - pack.modified - age <= look_back and _is_behind(pack, progress)
    ]
    named = _named_packs(messages_uri, {pack.store_date for pack in asked})
    return [pack for pack in asked if pack.name not in named]


def _is_behind(pack: PackFile, progress: Mapping[str, StoreProgress]) -> bool:
    parsed = parse_pack_name(pack.name)
    store = progress.get(parsed.broker)
    return store is not None and parsed.end <= store.end


def _named_packs(messages_uri: str, dates: set[datetime.date | None]) -> set[str]:
    """The packs of some dates that rows name.

    A pack that has a date is named by rows of that date alone; one that has none, by rows of any: of dates for which a
    range had no pack.
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
