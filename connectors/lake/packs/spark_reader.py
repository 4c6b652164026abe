"""A column `body` for any DataFrame that has the columns `body_ref` and `body_crc` of the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from commitlake.connectors.lake.packs.body_batches import batches_with_bodies
from commitlake.connectors.lake.packs.frames import MAX_FRAME_BYTES
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.worker_errors import carry_errors
from commitlake.schemas.tables.messages import BODY_PLACE

_Batches = Iterator[pa.RecordBatch]


def with_bodies(
    messages: DataFrame, bodies: PackLocation | str, *, max_frame_bytes: int = MAX_FRAME_BYTES
) -> DataFrame:
    """Return the same rows with their bodies, read from the packs and checked by their CRC.

    The rows are shuffled by pack, so that one task reads a pack sequentially and each frame once. If a body is not
    available, the query fails (`PackError`); a row without a reference has a null body.

    Args:
        messages: has `body_ref` (see `schemas.tables.messages`) and `body_crc` (int, null if unknown); other columns
            are unchanged.
        bodies: the lake's bodies: a folder that every executor can read, or `s3://bucket/prefix`, whose endpoint and
            region, if not given by `pack_location`, are those of the driver; every executor needs credentials.
        max_frame_bytes: size of the largest body that may be read; see `read_bodies`.

    Returns:
        The columns of `messages` and `body` (binary); the same number of rows, in no particular order.

    Raises:
        ValueError: if a column is missing or has another type, or `body` already exists.
        PackStoreError: if packs cannot be stored in this kind of place.
        S3Error: if they are in an object store, and the URI names no bucket.
    """
    _check_columns(messages.schema)
    location = pack_location(bodies) if isinstance(bodies, str) else bodies
    open_store(location)
    schema = StructType([*messages.schema.fields, StructField("body", BinaryType(), nullable=True)])
    return by_pack(messages).mapInArrow(_reader(location, max_frame_bytes), schema)


def by_pack(messages: DataFrame) -> DataFrame:
    """Return the same rows, partitioned so that those of one pack are together, and sorted by place.

    Args:
        messages: has `body_ref`.
    """
    # With an explicit number, because Spark would otherwise merge partitions by their small size without bodies.
    partitions = int(str(messages.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    # Rows without a body are not shuffled, because they would all end up in one partition.
    group = F.coalesce(F.col("body_ref.pack"), F.concat(F.lit("none "), F.spark_partition_id().cast("string")))
    return messages.repartition(partitions, group).sortWithinPartitions(
        "body_ref.pack", "body_ref.frame_offset", "body_ref.offset"
    )


def _check_columns(schema: StructType) -> None:
    if "body" in schema.names:
        raise ValueError("the column body exists already: drop it, or use it")
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
