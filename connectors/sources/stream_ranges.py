"""`content=ranges`: what a micro-batch takes of each store, for a reader that reads the log itself.

    frame = spark.readStream.format("commitlog").option("content", "ranges").load(path)
    frame.writeStream.foreachBatch(lambda batch, number: archive(to_snapshot(batch))).start()

One row per store that has something new; no byte of a message crosses into the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructType

from commitlake.schemas.tables.columns import column

if TYPE_CHECKING:
    from commitlake.connectors.formats.engine.plan import Snapshot, StoreRange


RANGES = StructType(
    [
        column("broker", StringType(), "the store's name"),
        column("start", LongType(), "physical offset of the first byte"),
        column("end", LongType(), "physical offset behind the last record, or where the next one begins"),
        column("last_record", LongType(), "physical offset of the last record; null where it is not known"),
    ]
)


def to_batch(ranges: Mapping[str, StoreRange], schema: pa.Schema) -> pa.RecordBatch:
    """Ranges as rows, in order of the stores' names."""
    rows = [
        {"broker": broker, "start": part.start, "end": part.end, "last_record": part.last_record}
        for broker, part in sorted(ranges.items())
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def to_snapshot(batch: DataFrame) -> Snapshot:
    """The snapshot that a micro-batch of ranges stands for."""
    from commitlake.connectors.formats.engine.plan import Snapshot, StoreRange, TailKind  # noqa: PLC0415 (loads the kernel)

    return Snapshot(
        {
            row["broker"]: StoreRange(row["start"], row["end"], TailKind.CLOSED, last_record=row["last_record"])
            for row in batch.collect()
        }
    )
