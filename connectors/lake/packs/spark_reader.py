"""A column `body` for any DataFrame that has kept the columns `body_ref` and `body_crc` of the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import MAX_FRAME_BYTES, PackRefs
from commitlake.connectors.lake.packs.kernel import UNKNOWN_CRC
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.packs.reader import FrameCache, read_bodies
from commitlake.connectors.lake.packs.stores import PackStore, open_store
from commitlake.connectors.worker_errors import carry_errors
from commitlake.schemas.tables.messages import BODY_PLACE

BATCH_BYTES = 64 << 20  # of bodies in one Arrow batch: what a worker and the JVM hold at once, for each task

_Batches = Iterator[pa.RecordBatch]


def with_bodies(
    messages: DataFrame, bodies: PackLocation | str, *, max_frame_bytes: int = MAX_FRAME_BYTES
) -> DataFrame:
    """The same rows with their bodies, read from the packs and compared with their CRC.

    The rows are shuffled by pack, so that one task reads a pack from its beginning to its end, each frame once. A body
    that cannot be had fails the query (`PackError`); a row without a reference has a null body.

    Args:
        messages: has `body_ref` (see `schemas.tables.messages`) and `body_crc` (int, null where it is unknown); other
            columns pass through.
        bodies: the lake's bodies: a folder that every executor finds, or `s3://bucket/prefix`, whose endpoint and
            region, if not given by `pack_location`, are those of the driver; every executor needs credentials.
        max_frame_bytes: the largest body that may be read; see `read_bodies`.

    Returns:
        The columns of `messages` and `body` (binary), a row for each row, in no order.

    Raises:
        ValueError: if a column is missing, of another type, or `body` is there already.
        PackStoreError: if the bodies are in a place that packs cannot be in.
        S3Error: if they are in an object store, and the URI names no bucket.
    """
    _check_columns(messages.schema)
    location = pack_location(bodies) if isinstance(bodies, str) else bodies
    open_store(location)
    schema = StructType([*messages.schema.fields, StructField("body", BinaryType(), nullable=True)])
    return by_pack(messages).mapInArrow(_reader(location, max_frame_bytes), schema)


def by_pack(messages: DataFrame) -> DataFrame:
    """The same rows, those of one pack together in one partition, and in its order.

    Args:
        messages: has `body_ref`.
    """
    # By number: left to itself, Spark would judge the partitions by their size without bodies, and join them to a few.
    partitions = int(str(messages.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    # Rows without a body would meet in one partition, being of the same null pack; they stay where they come from.
    group = F.coalesce(F.col("body_ref.pack"), F.concat(F.lit("none "), F.spark_partition_id().cast("string")))
    return messages.repartition(partitions, group).sortWithinPartitions(
        "body_ref.pack", "body_ref.frame_offset", "body_ref.offset"
    )


def _check_columns(schema: StructType) -> None:
    if "body" in schema.names:
        raise ValueError("the column body is there already: drop it, or go on with it")
    for name, expected in (("body_ref", BODY_PLACE), ("body_crc", IntegerType())):
        found = schema[name].dataType.simpleString() if name in schema.names else "no such column"
        if found != expected.simpleString():
            raise ValueError(f"column {name}: expected {expected.simpleString()}, found {found}")


def _reader(location: PackLocation, max_frame_bytes: int) -> Callable[[_Batches], _Batches]:
    def read(batches: _Batches) -> _Batches:
        with carry_errors():
            store, cache = open_store(location), FrameCache()
            for batch in batches:
                yield from batches_with_bodies(batch, store, cache, max_frame_bytes)

    return read


def batches_with_bodies(
    batch: pa.RecordBatch, store: PackStore, cache: FrameCache, max_frame_bytes: int = MAX_FRAME_BYTES
) -> _Batches:
    """A batch's rows with their bodies, in as many batches as the bodies' size asks for.

    Args:
        batch: has `body_ref` and `body_crc`; rows of one pack stand together, or the pack is read more than once.
        store: where the packs lie.
        cache: from one batch to the next.
        max_frame_bytes: see `read_bodies`.

    Yields:
        The batch's columns and `body`, in order; more than `BATCH_BYTES` of bodies only where one body is larger.

    Raises:
        PackError: if a body cannot be had, or is another.
    """
    refs = batch.column("body_ref")
    fields = pa.RecordBatch.from_arrays(refs.flatten(), names=[field.name for field in refs.type])
    crcs = _numbers(batch.column("body_crc"), UNKNOWN_CRC)
    for start, end in _slices(np.maximum(_numbers(fields.column("length"), 0), 0)):
        rows = batch.slice(start, end - start)
        runs = [
            _read_run(fields.slice(first, last - first), crcs[first:last], store, cache, max_frame_bytes)
            for first, last in pack_runs(fields.column("pack"), start, end)
        ]
        body = runs[0] if len(runs) == 1 else pa.concat_arrays(runs)
        yield pa.RecordBatch.from_arrays([*rows.columns, body], names=[*rows.schema.names, "body"])


def _slices(lengths: Array) -> Iterator[tuple[int, int]]:
    """Stretches of rows with at most `BATCH_BYTES` of bodies, or with one row."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        taken = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, taken + BATCH_BYTES, side="right")))
        yield start, end
        start = end


def pack_runs(packs: pa.Array, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Stretches of the rows from `start` to `end` that are of one pack, or of none."""
    codes = _numbers(packs.slice(start, end - start).dictionary_encode().indices, -1)
    changes = np.flatnonzero(codes[1:] != codes[:-1]) + 1 + start
    yield from pairwise([start, *changes.tolist(), end])


def _read_run(
    fields: pa.RecordBatch, crcs: Array, store: PackStore, cache: FrameCache, max_frame_bytes: int
) -> pa.Array:
    pack = fields.column("pack")[0].as_py()
    if pack is None:
        return pa.nulls(len(fields), pa.binary())
    for name in fields.schema.names:
        if fields.column(name).null_count:
            advice = "The table's body_ref was not written by 'archive', or is damaged"
            raise PackError(pack, None, f"a body_ref with a {name}", "null", advice)
    places = PackRefs(*(_numbers(fields.column(name), 0) for name in BODY_PLACE.names[1:]))
    return read_bodies(store, pack, places, crcs, max_frame_bytes=max_frame_bytes, cache=cache)


def _numbers(values: pa.Array, null: int) -> Array:
    numbers: Array = values.cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)
    return numbers
