"""Messages whose bodies were judged, as typed rows and as misfits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.columns import TEXT, Column, Columns, ListOf, MapOf
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.tables.topics import (
    BEFORE,
    CHANGE,
    CHANGE_NUMBER,
    IS_DELETED,
    PLACE,
    SCHEMA_NUMBER,
    TOPIC_MISFITS,
    UNKNOWN_FIELDS,
)

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


def change_document(columns: Columns) -> Columns:
    """Return the columns of a document with changes, whose rows have the given columns."""
    rows = (Column(side, columns) for side in ("before", "after"))
    change = Columns([*CHANGE, *rows, Column(UNKNOWN_FIELDS.name, MapOf(TEXT, TEXT))])
    return Columns([Column("changes", ListOf(change))])


def change_columns(columns: Columns) -> Columns:
    """Return the columns of the table of a topic with change events, whose rows have the given columns."""
    before = (column._replace(name=f"{BEFORE}{column.name}") for column in columns)
    return Columns([*columns, *before, *CHANGE, CHANGE_NUMBER, *PLACE, UNKNOWN_FIELDS, SCHEMA_NUMBER])


def current_columns(columns: Columns) -> Columns:
    """Return the columns of the table of current rows, which have the given columns."""
    own = (CHANGE["_event_time"], CHANGE["_order"], CHANGE_NUMBER, IS_DELETED)
    return Columns([*columns, *own, *PLACE, UNKNOWN_FIELDS, SCHEMA_NUMBER])


def change_rows(parsed: DataFrame, columns: Columns, renamed: Mapping[str, str], schema_number: int) -> DataFrame:
    """Return the changes of messages that fit as rows of their topic's table.

    With the column `id long`:

        +------------------------------------------+      +----+----------+------+----+
        |                                    parsed|      |  id|_before_id|   _op|_row|
        +------------------------------------------+      +----+----------+------+----+
        |[{_op: insert, after: {1}},               |  ->  |   1|      null|insert|   0|
        | {_op: delete, before: {2}}]              |      |null|         2|delete|   1|
        +------------------------------------------+      +----+----------+------+----+

    Args:
        parsed: as `parse_documents` returns it for `change_document`, with the columns of `messages` that `PLACE`
            names.
        columns: the columns of a row, as the source names them.
        renamed: the columns' names in the table, where these are others.
        schema_number: number of the schema.

    Returns:
        One row for each change: the columns of `change_columns`.

    >>> from commitlake.schemas.tables.columns import INT64
    >>> columns = Columns([Column("id", INT64)])
    >>> text = '{"changes": [{"_op": "insert", "after": {"id": 1}}, {"_op": "delete", "before": {"id": 2}}]}'
    >>> misfit = "misfit struct<reason: string, field: string, expected: string, found: string>"
    >>> judged = spark.createDataFrame([(text, None)], f"document string, {misfit}")
    >>> parsed = parse_documents(judged, change_document(columns))
    >>> place = [f"null AS {name.removeprefix('_')}" for name in PLACE.names]
    >>> rows = change_rows(parsed.selectExpr("*", *place), columns, {"id": "order_id"}, 1)
    >>> for row in rows.select("order_id", "_before_order_id", "_op", "_row").collect():
    ...     print(row)
    Row(order_id=1, _before_order_id=None, _op='insert', _row=0)
    Row(order_id=None, _before_order_id=2, _op='delete', _row=1)
    """
    fits = parsed.where("misfit IS NULL").select(
        "*", F.posexplode("parsed.changes").alias(CHANGE_NUMBER.name, "change")
    )
    names = [(name, renamed.get(name, name)) for name in columns.names]
    after = [F.col(f"change.after.`{name}`").alias(column) for name, column in names]
    before = [F.col(f"change.before.`{name}`").alias(f"{BEFORE}{column}") for name, column in names]
    own = [F.col(f"change.{name}").alias(name) for name in CHANGE.names]
    unknown = F.col(f"change.{UNKNOWN_FIELDS.name}").alias(UNKNOWN_FIELDS.name)
    number = F.lit(schema_number).cast("int").alias(SCHEMA_NUMBER.name)
    return fits.select(*after, *before, *own, CHANGE_NUMBER.name, *_place_columns(), unknown, number)


def row_states(changes: DataFrame, columns: Columns, key: Sequence[str]) -> DataFrame:
    """Return the states of rows after each change.

    With the columns `id long` and `name string`, and the key `id`:

        +----+----+----------+------------+------+      +---+----+--------+
        |  id|name|_before_id|_before_name|   _op|      | id|name|_deleted|
        +----+----+----------+------------+------+      +---+----+--------+
        |   1|   a|      null|        null|insert|  ->  |  1|   a|   false|
        |   2|   a|         1|           a|update|      |  1|null|    true|
        +----+----+----------+------------+------+      |  2|   a|   false|
                                                        +---+----+--------+

    Args:
        changes: rows of a table of `change_columns`.
        columns: the columns of a source's row, by their names in the table.
        key: the columns of the primary key; never null on a side that a change has. An update may lack the row
            before it if its key is the same.

    Returns:
        A row for each change that has a row after it, and one for each key that has no row after it: the columns of
        `current_columns`. Changes of tables are in no row.

    >>> from commitlake.schemas.tables.columns import INT64
    >>> columns = Columns([Column("id", INT64), Column("name", TEXT)])
    >>> insert = {"id": 1, "name": "a", "_op": "insert"}
    >>> update = {"id": 2, "name": "a", "_before_id": 1, "_before_name": "a", "_op": "update"}
    >>> changes = spark.createDataFrame([insert, update], spark_schema(change_columns(columns)))
    >>> for row in row_states(changes, columns, ["id"]).select("id", "name", "_deleted").collect():
    ...     print(row)
    Row(id=1, name='a', _deleted=False)
    Row(id=1, name=None, _deleted=True)
    Row(id=2, name='a', _deleted=False)
    """
    types = {field.name: field.dataType for field in spark_schema(columns).fields}

    def state(prefix: str, *, is_deleted: bool) -> SparkColumn:
        values = (
            F.lit(None).cast(types[name]) if is_deleted and name not in key else F.col(f"`{prefix}{name}`")
            for name in columns.names
        )
        named = [value.alias(name) for value, name in zip(values, columns.names, strict=True)]
        return F.struct(*named, F.lit(is_deleted).alias(IS_DELETED.name))

    gone, there = state(BEFORE, is_deleted=True), state("", is_deleted=False)
    # PostgreSQL sends no row before an update of other columns than the key.
    is_other_key = F.lit(False)
    for name in key:
        before = F.col(f"`{BEFORE}{name}`")
        is_other_key |= before.isNotNull() & (before != F.col(f"`{name}`"))
    states = (
        F.when(F.col("_op") == "delete", F.array(gone))
        .when((F.col("_op") == "update") & is_other_key, F.array(gone, there))
        .when(F.col("_op").isin("insert", "update", "snapshot"), F.array(there))
    )
    wanted = current_columns(columns)
    own = [name for name in wanted.names if name not in {*columns.names, IS_DELETED.name}]
    exploded = changes.select(*own, F.explode(states).alias("state")).select(*own, "state.*")
    return exploded.select(*(F.col(f"`{name}`") for name in wanted.names))


def newest_states(states: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the newest state of each row.

    Changes are ordered by the source's order, then by the time at which the broker stored them, and by their place.

    Args:
        states: rows of `current_columns`.
        key: the columns of the primary key.

    Returns:
        One row for each value of the key, with the columns of `states`.

    >>> rows = [(1, "a", [1, 5]), (1, "b", [2, 4]), (1, "c", [1, 6]), (2, "d", [1, 1])]
    >>> states = spark.createDataFrame(rows, "id long, name string, _order array<long>")
    >>> same = [f"null AS {name}" for name in ("_store_timestamp", "_broker", "_physical_offset", "_row")]
    >>> for row in sorted(newest_states(states.selectExpr("*", *same), ["id"]).select("id", "name").collect()):
    ...     print(row)
    Row(id=1, name='b')
    Row(id=2, name='d')
    """
    order = [
        F.col(name).desc()
        for name in ("_order", "_store_timestamp", "_broker", "_physical_offset", CHANGE_NUMBER.name)
    ]  # fmt: skip
    window = Window.partitionBy(*(F.col(f"`{name}`") for name in key)).orderBy(*order)
    return states.withColumn("newest_first", F.row_number().over(window)).where("newest_first = 1").drop("newest_first")


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
