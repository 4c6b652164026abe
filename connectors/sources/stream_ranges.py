"""Option `content=ranges`: rows with the range of each store's log in a micro-batch, for code that reads the log.

    frame = spark.readStream.format("commitlog").option("content", "ranges").load(path)
    frame.writeStream.foreachBatch(lambda batch, number: archive(to_snapshot(batch))).start()

There is one row per store with new data; no message bytes are transferred to the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from commitlake.schemas.tables.columns import INT64, TEXT, Column, Columns

if TYPE_CHECKING:
    from commitlake.connectors.reading.snapshots import Snapshot, StoreRange


RANGES = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("start", INT64, "physical offset of the first byte"),
        Column("end", INT64, "physical offset after the last record, or where the next one begins"),
        Column("last_record", INT64, "physical offset of the last record; null where it is not known"),
    ]
)


def to_batch(ranges: Mapping[str, StoreRange], schema: pa.Schema) -> pa.RecordBatch:
    """Return the ranges of stores as rows, ordered by the stores' names."""
    rows = [
        {"broker": broker, "start": part.start, "end": part.end, "last_record": part.last_record}
        for broker, part in sorted(ranges.items())
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def to_snapshot(batch: DataFrame) -> Snapshot:
    """Convert the rows of a micro-batch with `content=ranges` to a snapshot: the range to read in each store."""
    from commitlake.connectors.reading.snapshots import LogTailKind, Snapshot, StoreRange  # noqa: PLC0415 (loads the kernel)

    return Snapshot(
        {
            row["broker"]: StoreRange(row["start"], row["end"], LogTailKind.CLOSED, last_record=row["last_record"])
            for row in batch.collect()
        }
    )
