"""Messages whose bodies were judged, as typed rows and as misfits."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.tables.topics import PLACE, SCHEMA_NUMBER, TOPIC_MISFITS, UNKNOWN_FIELDS

_REFUSAL = {
    "reason": "not_parsed", "field": "", "expected": "a document that Spark parses", "found": "another",
}  # fmt: skip
_CORRUPT = "_commitlake_corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def parse_documents(judged: DataFrame, columns: Columns) -> DataFrame:
    """Parse the documents of judged messages.

    With the column `id long`:

        +------------+-------+      +-------+----------+
        |    document| misfit|      | misfit|    parsed|
        +------------+-------+      +-------+----------+
        |{"id": 4711}|   null|  ->  |   null|{id: 4711}|
        |        null|{...}  |      |{...}  |      null|
        +------------+-------+      +-------+----------+

    Args:
        judged: with `document`, the text of a document that fits or null, and `misfit`, a struct with `reason`,
            `field`, `expected` and `found`, null for one that fits. Other columns are unchanged.
        columns: the columns of a document.

    Returns:
        One row for each row, with `parsed` in place of `document`: a struct of the columns, null in a misfit. A
        document that Spark cannot parse is a misfit, too.
    """
    schema = spark_schema(columns)
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    parsed = judged.withColumn("parsed", F.from_json("document", with_corrupt, _OPTIONS))
    # Each document that gets here was judged to fit, so this catches a difference between the judge and Spark.
    is_refused = F.col("document").isNotNull() & (F.col("parsed").isNull() | F.col(f"parsed.{_CORRUPT}").isNotNull())
    refusal = F.struct(*(F.lit(text).alias(name) for name, text in _REFUSAL.items()))
    return parsed.withColumn("misfit", F.when(is_refused, refusal).otherwise(F.col("misfit"))).drop("document")


def typed_rows(parsed: DataFrame, columns: Columns, renamed: Mapping[str, str], schema_number: int) -> DataFrame:
    """Return the messages that fit as rows of their topic's table.

    Args:
        parsed: as `parse_documents` returns it, with the columns of `messages` that `PLACE` names, and `unknown`.
        columns: the columns of a document.
        renamed: the columns' names in the table, where these are others.
        schema_number: number of the schema.

    Returns:
        One row for each message that fits: the columns of the document, `PLACE`, `_unknown` and `_schema`.
    """
    fields = [F.col(f"parsed.`{name}`").alias(renamed.get(name, name)) for name in columns.names]
    own = [*_place_columns(), F.col("unknown").alias(UNKNOWN_FIELDS.name)]
    number = F.lit(schema_number).cast("int").alias(SCHEMA_NUMBER.name)
    return parsed.where("misfit IS NULL").select(*fields, *own, number)


def misfit_rows(parsed: DataFrame, table: str, schema_number: int) -> DataFrame:
    """Return the messages that do not fit as rows of `topic_misfits`.

    Args:
        parsed: as `parse_documents` returns it, with columns of `messages`.
        table: the topic's table.
        schema_number: number of the schema.

    Returns:
        One row for each message that does not fit: the columns of `TOPIC_MISFITS`.
    """
    misfits = parsed.where("misfit IS NOT NULL").select("*", "misfit.*")
    named = misfits.withColumn("topic_table", F.lit(table)).withColumn("schema", F.lit(schema_number))
    return to_columns(named, TOPIC_MISFITS)


def _place_columns() -> list[SparkColumn]:
    return [F.col(name.removeprefix("_")).alias(name) for name in PLACE.names]
