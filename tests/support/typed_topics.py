"""Typed tables of topics that are written in the test's process, where Spark is not what is tested."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.added_files import readable_added_files
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import TOPIC_TABLES, Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.topics.progress import (
    MESSAGES_ID,
    TopicProgress,
    misfits_application_id,
    read_misfits_version,
    read_topic_progress,
)
from commitlake.schemas.tables.columns import TEXT, Column, Columns, ListOf
from commitlake.schemas.tables.topics import PLACE, SCHEMA_NUMBER, TOPIC_MISFITS, UNKNOWN_FIELDS

DOCUMENT = Columns([Column("tag", TEXT), Column("lines", ListOf(Columns([Column("sku", TEXT)]), has_nulls=True))])
"""Columns of the documents."""


def follow_topic(
    lake: Lake, topic: str, is_misfit: Callable[[int], bool] = lambda _: False, document: Columns = DOCUMENT
) -> str:
    """Add the new messages of a topic to its table, as `commitlake topics` does, and return the table's path.

    Args:
        lake: the lake.
        topic: the topic, and the name of its table.
        is_misfit: says for the offset of a message in the log whether it is a misfit.
        document: columns of the documents; their values are of no meaning.
    """
    table = f"{TOPIC_TABLES}/{topic}"
    reading = lake.pin_versions()
    before = read_topic_progress(reading.find(table))
    new = readable_added_files(reading, before.version)
    messages = pa.concat_tables(
        pq.read_table(lake.open_folder("messages").open_input_file(one.name)) for one in new.files
    )
    messages = messages.filter(pc.equal(messages["topic"], topic))
    is_row = pa.array([not is_misfit(offset) for offset in messages["physical_offset"].to_pylist()], pa.bool_())
    rows, misfits = messages.filter(is_row), messages.filter(pc.invert(is_row))
    after = TopicProgress(new.version, before.version, new.version if misfits.num_rows else before.misfits, 1)
    numbers, old = after.transaction_numbers(), before.transaction_numbers()
    others = {name: (old[name], number) for name, number in numbers.items() if name != MESSAGES_ID}
    columns = Columns([*document, *PLACE, UNKNOWN_FIELDS, SCHEMA_NUMBER])
    step = (None if before.version < 0 else old[MESSAGES_ID], numbers[MESSAGES_ID])
    files = [_write(lake, table, _typed(rows, columns))] if rows.num_rows else []
    assert commit_with_transaction(lake, table, files, MESSAGES_ID, step, other_transactions=others, columns=columns)
    if misfits.num_rows:
        recorded = read_misfits_version(reading.find("topic_misfits"), topic)
        file = _write(lake, "topic_misfits", _misfits(misfits, topic))
        step = (None if recorded < 0 else recorded + 1, after.misfits + 1)
        assert commit_with_transaction(lake, "topic_misfits", [file], misfits_application_id(topic), step)
    return table


def _typed(messages: pa.Table, columns: Columns) -> pa.Table:
    schema = arrow_schema(columns)
    place = {name: messages[name.removeprefix("_")] for name in PLACE.names}
    count, document = messages.num_rows, [name for name in columns.names if not name.startswith("_")]
    values = {"tag": messages["tags"], "lines": pa.array([[{"sku": "a"}, {}]] * count, schema.field("lines").type)}
    for name in document[2:]:
        values[name] = pa.array([f"{name} {number}" for number in range(count)])
    values |= {**place, "_unknown": pa.nulls(count, schema.field("_unknown").type), "_schema": pa.array([1] * count)}
    return pa.table([values[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _misfits(messages: pa.Table, topic: str) -> pa.Table:
    schema, count = arrow_schema(TOPIC_MISFITS), messages.num_rows
    others = {"topic_table": topic, "reason": "not_json", "field": "", "expected": "JSON", "found": "text"}
    values = {name: pa.array([text] * count) for name, text in others.items()} | {"schema": pa.array([1] * count)}
    columns = [values[name] if name in values else messages[name] for name in schema.names]
    return pa.table([column.cast(schema.field(i).type) for i, column in enumerate(columns)], schema=schema)


def _write(lake: Lake, table: str, rows: pa.Table) -> DataFile:
    scalars = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    name = f"part-{secrets.token_hex(16)}.zstd.parquet"
    return write_plain_file(rows, lake, table, name, statistics=scalars, has_row_sum=False)
