"""Compiles the kernel, and leaves it in numba's cache: `python -m commitlake.jobs.warm`, once, at set-up.

The cache lies beside the source, or in the user's cache folder where that may not be written; a worker's first batch
then finds everything compiled.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from commitlake.connectors.formats.engine.batches import read_split
from commitlake.connectors.formats.engine.kernel import hop
from commitlake.connectors.formats.engine.kernel.borders import find_border
from commitlake.connectors.formats.engine.layouts import StoreLayout
from commitlake.connectors.formats.engine.mapping import Mapping
from commitlake.connectors.formats.engine.options import Mode
from commitlake.connectors.formats.engine.plan import plan_splits, take_snapshot
from commitlake.connectors.formats.engine.request import Request
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.stores import Store, find_stores
from commitlake.connectors.formats.facts.entries import queue_entries
from commitlake.connectors.formats.facts.reading import read_facts
from commitlake.connectors.formats.jmq.kernel.records import JOURNAL, JOURNAL_PART_COUNT
from commitlake.connectors.formats.jmq.queue_facts import is_written, to_entries
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG
from commitlake.connectors.lake.packs.frames import PackRefs
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.packs.reader import read_bodies
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import Wanted
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_blank, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segments import segment_name
from commitlake.schemas.tables.messages import SOURCE

_SEGMENT_BYTES = 4096


def warm() -> int:
    """Read logs of one message, one bad range and one property that is not UTF-8; the rows that came of it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "commitlog"
        folder.mkdir()
        (folder / segment_name(0)).write_bytes(_segment())
        (store,) = find_stores(scratch)
        _archive(store, scratch)
        request = Request(to_arrow_schema(SOURCE, timezone="UTC"), Mode.PERMISSIVE)
        _map(folder / segment_name(0))
        for tag, part_count in ((COMMITLOG, hop.PART_COUNT), (JOURNAL, JOURNAL_PART_COUNT)):
            _find_border(tag, part_count)
        splits = plan_splits(store, take_snapshot([store]).ranges[store.broker], 64)
        for split in splits:  # what `verify` looks at
            for facts in read_facts(split):
                list(queue_entries(facts))
        rebuild_store(store, Path(scratch) / "rebuilt", Wanted(index_slots=4, index_entries=16), threads=1)
        for split in (of_jmq := _journal_splits(Path(scratch) / "jmq")):
            for facts in read_facts(split):
                for entries in queue_entries(facts):
                    is_written(to_entries(entries))
        splits += of_jmq
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


def _journal_splits(root: Path) -> list[Split]:
    """A journal of three messages, as RocketMQ's log is damaged."""
    (root / journal.FOLDER).mkdir(parents=True)
    host = Host.of("127.0.0.1", 50088)
    data = b""
    for number, body in enumerate((b"first", b"second", b"third")):
        properties = (("city", "Zuerich"),)
        message = journal.NewJournalMessage("topic", body, 0, host, "app", "key", properties=properties)
        data += journal.serialize_message(
            message,
            queue_id=0,
            queue_offset=number,
            journal_offset=len(data),
            receive_timestamp=0,
            store_timestamp=0,
            server_address=host,
        )
    data = data.replace(b"second", b"Second").replace(b"Zuerich", b"Z\xfcrich_", 1)
    (root / journal.FOLDER / segment_name(0)).write_bytes(data.ljust(_SEGMENT_BYTES, b"\0"))
    (store,) = find_stores(str(root), layouts=(StoreLayout.JOURNAL,))
    return plan_splits(store, take_snapshot([store]).ranges[store.broker], 64)


def _find_border(tag: Any, part_count: int) -> None:
    """What a plan of a large segment does."""
    parts = np.empty((part_count, 1), np.int64)
    find_border(tag, np.zeros(_SEGMENT_BYTES, np.uint8), 8, 0, 0, _SEGMENT_BYTES, _SEGMENT_BYTES, 1 << 20, parts)


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
