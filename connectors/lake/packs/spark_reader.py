"""A column `body` for any DataFrame that has the columns `body_ref`, `body_crc` and `body_codec` of the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType

from commitlake.connectors.lake.packs.body_batches import (
    BodyForm,
    batches_with_bodies,
    convert_bodies,
    decompress_bodies,
)
from commitlake.connectors.lake.packs.frames import MAX_FRAME_BYTES
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.reading.decoding.bodies import DEFAULT_MAX_BYTES
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.tables.messages import BODY_PLACE
from commitlake.schemas.tables.spark_schemas import spark_schema

_Batches = Iterator[pa.RecordBatch]
_PARTITIONS = 200
"""Number of partitions where the session has none: Spark's default."""


def with_bodies(
    messages: DataFrame,
    packs: PackLocation | str,
    *,
    as_stored: bool = False,
    body_form: BodyForm = BodyForm.BYTES,
    max_bytes: int = DEFAULT_MAX_BYTES,
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> DataFrame:
    """Return the same rows with their bodies as the producers sent them, read from the packs and checked by their CRC.

    The rows are shuffled by pack, so that one task reads a pack sequentially and each frame once. If a body is not
    available, the query fails (`PackError`); a row without a reference has a null body. Anybody who may send a message
    can send a body that does not match its compression: such a body is null, and `body_error` says why.

    Args:
        messages: has `body_ref` (see `schemas.tables.messages`), `body_crc` (int, null if unknown) and `body_codec`;
            other columns are unchanged.
        packs: the lake's bodies: `Lake.packs`, or their root, which is a folder that every executor can read, or
            `s3://bucket/prefix` with the driver's endpoint and region; every executor needs credentials.
        as_stored: True for bodies as the broker stored them, which may be compressed; `body_codec` is not needed then,
            and there is no `body_error`.
        max_bytes: largest size of a decompressed body; a larger one is null, and an error.
        max_frame_bytes: size of the largest stored body that may be read; see `read_bodies`.

    Returns:
        The columns of `messages`, `body` (binary, or string by `body_form`) and `body_error` (string, null if the body
        is there); the same number of rows, in no particular order.

    Raises:
        ValueError: if a column is missing or has another type, or `body` or `body_error` already exists.
        PackStoreError: if packs cannot be stored in this kind of place.
        S3Error: if they are in an object store, and the URI names no bucket.
    """
    _check_columns(messages.schema, as_stored=as_stored)
    location = packs if isinstance(packs, PackLocation) else pack_location(packs)
    open_pack_store(location)
    body_type = BinaryType() if as_stored or body_form is BodyForm.BYTES else StringType()
    added = [StructField("body", body_type, nullable=True)]
    if not as_stored:
        added.append(StructField("body_error", StringType(), nullable=True))
    schema = StructType([*messages.schema.fields, *added])
    convert = partial(convert_bodies, body_form=body_form)
    read = _make_body_reader(location, max_frame_bytes, None if as_stored else max_bytes, convert)
    return repartition_by_pack(messages).mapInArrow(read, schema)


def map_bodies(
    messages: DataFrame, packs: PackLocation, convert: Callable[[pa.RecordBatch], pa.RecordBatch], schema: StructType
) -> DataFrame:
    """Return what a function makes of the same rows with their bodies, as the producers sent them.

    The function is called in the task that reads the bodies, so they do not have to go through the JVM.

    Args:
        messages: as for `with_bodies`.
        packs: likewise.
        convert: gets batches with the columns of `messages`, `body` (binary) and `body_error`, see `with_bodies`, and
            returns those of `schema`; it is sent to the tasks.
        schema: columns of the result.
    """
    _check_columns(messages.schema, as_stored=False)
    read = _make_body_reader(packs, MAX_FRAME_BYTES, DEFAULT_MAX_BYTES, convert)
    return repartition_by_pack(messages).mapInArrow(read, schema)


def repartition_by_pack(messages: DataFrame) -> DataFrame:
    """Return the same rows, repartitioned by pack and sorted by the bodies' positions in the pack.

    Args:
        messages: has `body_ref`.
    """
    # With an explicit number, because Spark would otherwise merge partitions by their small size without bodies.
    partitions = str(messages.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    # Rows without a body are not shuffled, because they would all end up in one partition.
    group = F.coalesce(F.col("body_ref.pack"), F.concat(F.lit("none "), F.spark_partition_id().cast("string")))
    number = int(partitions) if partitions.isdecimal() else _PARTITIONS  # Databricks has "auto"
    return messages.repartition(number, group).sortWithinPartitions(
        "body_ref.pack", "body_ref.frame_offset", "body_ref.offset"
    )


def _check_columns(schema: StructType, *, as_stored: bool) -> None:
    expected: dict[str, DataType] = {"body_ref": spark_schema(BODY_PLACE), "body_crc": IntegerType()}
    if not as_stored:
        expected["body_codec"] = StringType()
    for name in ("body",) if as_stored else ("body", "body_error"):
        if name in schema.names:
            raise ValueError(f"the DataFrame has a column {name} already: drop it, or use it")
    for name, wanted in expected.items():
        found = schema[name].dataType.simpleString() if name in schema.names else "no such column"
        if found != wanted.simpleString():
            advice = "" if name != "body_codec" else "; as_stored=True returns bodies as stored, without it"
            raise ValueError(f"column {name}: expected {wanted.simpleString()}, found {found}{advice}")


def _make_body_reader(
    location: PackLocation,
    max_frame_bytes: int,
    max_bytes: int | None,
    convert: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> Callable[[_Batches], _Batches]:
    """Return a function that adds bodies to batches: as stored if `max_bytes` is None."""

    def add_bodies_to_batches(batches: _Batches) -> _Batches:
        with forward_worker_errors():
            store, cache = open_pack_store(location), FrameCache()
            for batch in batches:
                for stored in batches_with_bodies(batch, store, cache, max_frame_bytes):
                    if max_bytes is None:
                        yield stored
                    else:
                        yield from map(convert, decompress_bodies(stored, max_bytes))

    return add_bodies_to_batches
