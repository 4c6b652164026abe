"""The table's column `body_ref`: where a message's body lies. Null where the lake has no body for the message."""

from __future__ import annotations

from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType


def _field(name: str, data_type: DataType, comment: str) -> StructField:
    return StructField(name, data_type, nullable=True, metadata={"comment": comment})


BODY_REF = StructType(
    [
        _field("pack", StringType(), "name of the pack, relative to the lake's folder of bodies"),
        _field("frame_offset", LongType(), "where the frame begins in the pack"),
        _field("frame_length", IntegerType(), "bytes of the frame as stored"),
        _field("offset", IntegerType(), "where the body begins in the frame's content"),
        _field("length", IntegerType(), "bytes of the body"),
    ]
)
