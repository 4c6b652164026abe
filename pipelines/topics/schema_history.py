"""The schemas by which the tables of topics were derived, in the table `topic_schemas`."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import TOPIC_TABLES, Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.sql import text_literal
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.tables.topics import TOPIC_SCHEMAS

TABLE = "topic_schemas"


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A schema of a topic's table, with its number in the history.

    Attributes:
        number: its number, from 1.
        text: the JSON Schema.
        rename: names of columns, by the names of their fields.
        source: where it is from: `file`.
        topic: the topic that the table had then.
    """

    number: int
    text: str
    rename: Mapping[str, str] = field(default_factory=dict)
    source: str = "file"
    topic: str = ""


def schemas_application_id(table_name: str) -> str:
    """Return the name of the Delta application whose transaction number counts the schemas of a topic's table."""
    return f"commitlake.topics.schema/{table_name}"


def read_topic_schema(lake: Lake, table_name: str, number: int | None = None) -> TopicSchema | None:
    """Return a schema of a topic's table, by default the newest one; None if there is none."""
    history = lake.find(TABLE)
    if history is None:
        return None
    where = f"topic_table = {text_literal(table_name)}" + ("" if number is None else f" AND number = {number}")
    sql = f"SELECT number, schema, rename, source, topic FROM {TABLE} WHERE {where} ORDER BY number DESC LIMIT 1"
    rows = run_sql(history, TABLE, sql).read_all().to_pylist()
    if not rows:
        return None
    row = rows[0]
    return TopicSchema(row["number"], row["schema"], dict(row["rename"] or ()), row["source"], row["topic"])


def read_topics_by_table(lake: Lake) -> dict[str, list[str]]:
    """Return the topics that each typed table has had, by its path in the lake; only tables of `commitlake topics`."""
    history = lake.find(TABLE)
    if history is None:
        return {}
    sql = f"SELECT DISTINCT topic_table, topic FROM {TABLE} ORDER BY topic"
    found: dict[str, list[str]] = {}
    for row in run_sql(history, TABLE, sql).read_all().to_pylist():
        found.setdefault(f"{TOPIC_TABLES}/{row['topic_table']}", []).append(row["topic"])
    return found


def record_topic_schema(
    lake: Lake, table_name: str, topic: str, text: str, rename: Mapping[str, str], source: str
) -> TopicSchema:
    """Add a schema to the history of a topic's table, unless it is the newest one, and return it with its number.

    Raises:
        ConcurrentRunError: if another run added one at the same time.
    """
    newest = read_topic_schema(lake, table_name)
    if newest is not None and (newest.text, newest.rename, newest.topic) == (text, rename, topic):
        return newest
    number = 1 if newest is None else newest.number + 1
    row = {
        "topic_table": table_name, "topic": topic, "number": number, "recorded_at": datetime.datetime.now(datetime.UTC),
        "source": source, "schema": text, "rename": list(rename.items()),
    }  # fmt: skip
    rows = pa.Table.from_pylist([row], schema=arrow_schema(TOPIC_SCHEMAS))
    file = write_plain_file(rows, lake, TABLE, f"part-{secrets.token_hex(16)}.zstd.parquet")
    step = (None if newest is None else newest.number, number)
    if not commit_with_transaction(lake, TABLE, [file], schemas_application_id(table_name), step):
        raise ConcurrentRunError(f"{lake.uri(TABLE)}: another run recorded a schema of {table_name} first. Run again")
    return TopicSchema(number, text, rename, source, topic)
