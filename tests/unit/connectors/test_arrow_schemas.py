"""Arrow's forms of tables are those that Spark makes of the same columns."""

from __future__ import annotations

import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.edges import EDGES
from commitlake.schemas.tables.messages import MESSAGES, SOURCE
from commitlake.schemas.tables.profile import PROFILE
from commitlake.schemas.tables.spark_schemas import spark_schema


@pytest.mark.parametrize("columns", [MESSAGES, SOURCE, PROFILE, EDGES], ids=["messages", "source", "profile", "edges"])
def test_names_and_types_are_those_of_spark(columns: Columns) -> None:
    found, expected = arrow_schema(columns), to_arrow_schema(spark_schema(columns))
    assert found.equals(expected)
    assert [(field.name, str(field.type), field.nullable) for field in found] == [
        (field.name, str(field.type), field.nullable) for field in expected
    ]


def test_comments_are_left_out() -> None:
    assert all(field.metadata is None for field in arrow_schema(MESSAGES))
