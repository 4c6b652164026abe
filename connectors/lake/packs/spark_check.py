"""Measurement of bodies in packs, row by row, for an audit on Spark; bodies are not passed to the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from commitlake.connectors.lake.packs.body_check import ERROR, KEPT, check_bodies
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.packs.spark_reader import by_pack
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.worker_errors import carry_errors

_ERROR = StructField(ERROR, StringType(), nullable=True, metadata={"comment": "the reason why a body is not available"})


def with_found_bodies(messages: DataFrame, location: PackLocation | str) -> DataFrame:
    """Return messages with the actual size and CRC of their bodies in the packs.

    Args:
        messages: has `KEPT`, `body_ref`, `body_size` and `body_crc`.
        location: location of the packs, for every executor.

    Returns:
        `KEPT`, the actual `body_size` and `body_crc` (null if the body is not available), and `error`, the reason.
    """
    wanted = messages.select(*KEPT, "body_size", "body_crc", "body_ref")
    fields = [field for field in wanted.schema if field.name != "body_ref"]
    return by_pack(wanted).mapInArrow(_checker(location), StructType([*fields, _ERROR]))


def _checker(location: PackLocation | str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carry_errors():
            store, cache = open_store(location), FrameCache()
            for batch in batches:
                yield from check_bodies(batch, store, cache)

    return check
