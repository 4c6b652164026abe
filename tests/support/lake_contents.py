"""Content of a lake, for comparing a disturbed lake with an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.frames import BodyRef
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import read_body
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.schemas.tables.edges import EDGES


def content(lake: Path) -> dict[str, pa.Table]:
    """Return the rows of all existing tables in a fixed order, without values that differ from run to run."""
    opened = Lake(str(lake))
    tables = {}
    for name, keys, dropped in (
        ("messages", ["broker", "physical_offset"], ["body_ref"]),
        ("quarantine", ["broker", "start_offset"], ["run_id"]),
        ("message_keys", ["key_hash", "key", "kind", "physical_offset"], []),
        ("edges", [field.name for field in EDGES], []),
    ):
        table = opened.find(name)
        if table is None:
            continue
        rows = table.to_pyarrow_table()
        tables[name] = rows.sort_by([(key, "ascending") for key in keys]).drop_columns(dropped).combine_chunks()
    return tables


def minutes(lake: Path) -> pa.Table:
    """Return what the rows of `topic_minutes` count, whose number depends on the division into tasks."""
    table = DeltaTable(Lake(str(lake)).uri("topic_minutes")).to_pyarrow_table()
    keys = ["broker", "topic", "queue_id", "tag", "kind", "minute"]
    sums = table.group_by(keys).aggregate([("messages", "sum"), ("bytes", "sum"), ("body_bytes", "sum")])
    return sums.sort_by([(key, "ascending") for key in keys]).combine_chunks()


def bodies(lake: Path) -> dict[int, bytes]:
    """Return all bodies of a lake of one broker, from its packs, by physical offset."""
    paths = Lake(str(lake))
    packs = open_pack_store(paths.packs)
    rows = DeltaTable(paths.uri("messages")).to_pyarrow_table(columns=["physical_offset", "body_ref", "body_crc"])
    return {
        row["physical_offset"]: read_body(packs, BodyRef(**row["body_ref"]), row["body_crc"])
        for row in rows.to_pylist()
    }


def check_bodies(store: Path, segment_bytes: int, lake: Path) -> None:
    """Check that every message's body in its pack equals that in the log of the store `a`."""
    archived = bodies(lake)
    (found,) = find_stores(str(store), "a", formats=COMMITLOGS)
    records = [record.message for record in walk_store(found, segment_bytes) if record.message is not None]
    assert len(archived) == DeltaTable(Lake(str(lake)).uri("messages")).to_pyarrow_table().num_rows
    assert archived == {message.physical_offset: message.body for message in records}
