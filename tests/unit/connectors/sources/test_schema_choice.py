"""The columns of a read."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from commitlake.connectors.reading.options import Mode
from commitlake.connectors.sources.schema_choice import check_columns, choose_columns
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.columns import INT32, TEXT, Column, Columns

_TABLE = Columns([Column("topic", TEXT), Column("size", INT32), Column("_bad", TEXT)])


def test_the_default_columns_include_bad_ranges_only_in_permissive_mode() -> None:
    assert choose_columns(_TABLE, None, Mode.FAILFAST, "_bad").names == ["topic", "size"]
    assert choose_columns(_TABLE, None, Mode.PERMISSIVE, "_bad").names == ["topic", "size", "_bad"]


def test_named_columns_are_chosen_in_their_order() -> None:
    assert choose_columns(_TABLE, ("size", "topic"), Mode.FAILFAST, "_bad").names == ["size", "topic"]
    with pytest.raises(UsageError, match="expected some of topic, size, _bad, found 'tag'"):
        choose_columns(_TABLE, ("tag",), Mode.FAILFAST, "_bad")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([StructField("tag", StringType())], "a column 'tag', which this source does not have: expected some of topic"),
        ([StructField("size", LongType())], "column size: expected the type int, found bigint"),
        ([StructField("size", IntegerType())], "mode PERMISSIVE needs the column _bad"),
    ],
)
def test_other_columns_are_errors(fields: list[StructField], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_columns(StructType(fields), _TABLE, Mode.PERMISSIVE, "_bad")
