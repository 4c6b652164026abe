"""Rows of the compiled reader beside records of the plain one."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from commitlake.connectors.formats.engine.batches import read_split
from commitlake.connectors.formats.engine.options import Mode
from commitlake.connectors.formats.engine.request import Request
from commitlake.connectors.formats.engine.splits import Split
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.tables.messages import SOURCE

SCHEMA = to_arrow_schema(SOURCE, timezone="UTC")
SOFT = {str(fault) for fault in (Fault.TOPIC_ENCODING, Fault.PROPERTIES_ENCODING, Fault.TIMESTAMP)}


def read_all(splits: list[Split], mode: Mode, **request: int) -> list[dict[str, object]]:
    """Rows of a read, in physical order."""
    wanted = Request(SCHEMA, mode, **request)  # type: ignore[arg-type]
    batches = [batch for split in splits for batch in read_split(split, wanted)]
    table = pa.Table.from_batches(batches, schema=SCHEMA)
    table.validate(full=True)
    rows: list[dict[str, object]] = table.to_pylist()
    return sorted(rows, key=lambda row: (row["physical_offset"], row["size"] is None))


def check_row(row: dict[str, object], plain: dict[str, object], body: bytes) -> None:
    """One row, column by column."""
    note = row["_corrupt_record"]
    for name, value in plain.items():
        if name in ("magic", "body_sha256"):
            continue
        found = row[name]
        if name in ("born_timestamp", "store_timestamp"):
            if note is not None and found is None:
                continue
            found = round(found.timestamp() * 1000)  # type: ignore[attr-defined]
        if name == "properties":
            found = dict(found)  # type: ignore[call-overload]
        assert found == value, name
    assert row["body"] == body
    assert note is None or note["reason"] in SOFT  # type: ignore[index]
