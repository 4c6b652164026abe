"""Compiles the kernel, and leaves it in numba's cache: `python -m connectors.warm`, once, at set-up.

The cache lies beside the source, or in the user's cache folder where that may not be written; a worker's first batch
then finds everything compiled.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from connectors.archive.task import ArchiveTasks
from connectors.commitlog.batches import read_split
from connectors.commitlog.kernel import hop
from connectors.commitlog.kernel.borders import find_border
from connectors.commitlog.mapping import Mapping
from connectors.commitlog.options import Mode
from connectors.commitlog.plan import plan_splits, take_snapshot
from connectors.commitlog.request import Request
from connectors.commitlog.stores import Store, find_stores
from connectors.facts.entries import queue_entries
from connectors.facts.records import read_facts
from connectors.lake.paths import LakePaths
from connectors.packs.frames import PackRefs
from connectors.packs.location import pack_location
from connectors.packs.reader import read_bodies
from connectors.packs.stores import open_store
from schemas.layouts.commitlog import NewMessage, serialize_blank, serialize_message
from schemas.layouts.hosts import Host
from schemas.layouts.segments import segment_name
from schemas.tables.messages import SOURCE

_SEGMENT_BYTES = 4096


def warm() -> int:
    """Read a log of one message, one bad range and one property that is not UTF-8; the rows that came of it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "commitlog"
        folder.mkdir()
        (folder / segment_name(0)).write_bytes(_segment())
        (store,) = find_stores(scratch)
        _archive(store, scratch)
        request = Request(to_arrow_schema(SOURCE, timezone="UTC"), Mode.PERMISSIVE)
        _map(folder / segment_name(0))
        _find_border()
        splits = plan_splits(store, take_snapshot([store]).ranges[store.broker], 64)
        for split in splits:  # what `verify` looks at
            for facts in read_facts(split):
                list(queue_entries(facts))
        return sum(batch.num_rows for split in splits for batch in read_split(split, request))


def _archive(store: Store, scratch: str) -> None:
    """What an archive run's tasks do, and read a body back."""
    splits = plan_splits(store, take_snapshot([store]).ranges[store.broker], _SEGMENT_BYTES)
    lake = LakePaths(scratch)
    tasks = ArchiveTasks(splits, lake, pack_location(lake.bodies), "warm", "")
    (row,) = (row for row in tasks.run([0]) if row.table == "messages")
    rows = pq.ParquetFile(f"{lake.messages}/{row.path}").read(["body_ref", "body_crc"])
    pack, *places = rows.column("body_ref").combine_chunks().flatten()
    refs = PackRefs(*(place.to_numpy(zero_copy_only=False) for place in places))
    read_bodies(open_store(tasks.bodies), pack[0].as_py(), refs, rows.column("body_crc").to_numpy().astype(np.int64))


def _find_border() -> None:
    """What a plan of a large segment does."""
    parts = np.empty((hop.PART_COUNT, 1), np.int64)
    find_border(np.zeros(_SEGMENT_BYTES, np.uint8), 8, 0, 0, _SEGMENT_BYTES, _SEGMENT_BYTES, 1 << 20, parts)


def _map(path: Path) -> None:
    with path.open("rb") as file:
        mapping = Mapping.of(file.fileno(), 0, _SEGMENT_BYTES)
        if mapping is not None:
            mapping.close()


def _segment() -> bytes:
    host = Host.of("127.0.0.1", 10911)
    data = b""
    for body in (b"first", b"second", b"third"):
        message = NewMessage("topic", body, 0, host, properties=(("KEYS", "a b"), ("TAGS", "tag"), ("city", "Zuerich")))
        data += serialize_message(
            message, queue_offset=0, physical_offset=len(data), store_timestamp=0, store_host=host
        )
    data = data.replace(b"second", b"Second").replace(b"Zuerich", b"Z\xfcrich_", 1)
    return (data + serialize_blank(_SEGMENT_BYTES - len(data))).ljust(_SEGMENT_BYTES, b"\0")


if __name__ == "__main__":
    warm()
