"""Tables of topics as typed rows: the columns that each has, and what does not fit into them.

The table of a topic, in the folder `topics` of the lake, has the columns of the topic's schema, and those of `PLACE`,
by which a row leads back to its message. `topic_misfits` has a row for each message that is not in its topic's table,
and `topic_schemas` the schemas by which the tables were derived.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BOOLEAN, INT32, INT64, TEXT, TIME, Column, Columns, ListOf, MapOf

PLACE = Columns(
    [
        Column("_broker", TEXT, "the message's store; with _physical_offset the key of messages"),
        Column("_physical_offset", INT64, "as in messages"),
        Column("_topic", TEXT, "as in messages"),
        Column("_queue_id", INT32, "as in messages"),
        Column("_queue_offset", INT64, "as in messages"),
        Column("_store_timestamp", TIME, "as in messages"),
        Column("_born_timestamp", TIME, "as in messages"),
        Column("_keys", ListOf(TEXT), "as in messages"),
        Column("_tags", TEXT, "as in messages"),
    ]
)
"""Columns of the table of each topic that say which message a row is."""
UNKNOWN_FIELDS = Column(
    "_unknown", MapOf(TEXT, TEXT), "JSON texts of the fields that the schema lacks, by path; null if there is none"
)
SCHEMA_NUMBER = Column("_schema", INT32, "number of the schema in topic_schemas by which the row was derived")
CHANGE = Columns(
    [
        Column("_op", TEXT, "insert, update, delete, snapshot, truncate, ddl or control"),
        Column("_source_database", TEXT, "database in which the row changed"),
        Column("_source_table", TEXT, "table in which the row changed"),
        Column("_event_time", TIME, "time of the change in the source database"),
        Column("_transaction", TEXT, "the source's transaction, such as its GTID; null if the event does not say it"),
        Column("_order", ListOf(INT64), "place of the change in the order of the source's changes, by its format"),
        Column(
            "_primary_key", ListOf(TEXT), "columns of the source's primary key; null if the event does not say them"
        ),
        Column("_sql", TEXT, "the statement of a ddl; else null"),
    ]
)
"""Columns of a table of change events that say what a change is."""
BEFORE = "_before_"
"""Prefix of the columns with a row's values before the change."""
CHANGE_NUMBER = Column("_row", INT32, "number of the change in its message, from 0")
IS_DELETED = Column("_deleted", BOOLEAN, "true if the newest change deleted the row; only its key is kept then")

TOPIC_MISFITS = Columns(
    [
        Column("topic_table", TEXT, "the topic's table"),
        Column("topic", TEXT, "as in messages"),
        Column("broker", TEXT, "as in messages"),
        Column("physical_offset", INT64, "as in messages"),
        Column("queue_id", INT32, "as in messages"),
        Column("queue_offset", INT64, "as in messages"),
        Column("store_timestamp", TIME, "as in messages"),
        Column("born_host", TEXT, "as in messages"),
        Column("reason", TEXT, "why the message does not fit, such as wrong_type or not_json"),
        Column("field", TEXT, "the field at fault, such as lines[2].sku; empty for the whole document"),
        Column("expected", TEXT, "what the schema expects there"),
        Column("found", TEXT, "what the document has there; of a text only the length"),
        Column("schema", INT32, "number of the schema in topic_schemas"),
    ]
)
"""One row per message of a typed topic that is not in the topic's table, because its body does not fit the schema.

Key: (`broker`, `physical_offset`). It has no text of a body, but names of fields.
"""

TOPIC_SCHEMAS = Columns(
    [
        Column("topic_table", TEXT, "the topic's table"),
        Column("topic", TEXT, "the topic"),
        Column("number", INT32, "number of the schema, from 1 for each table"),
        Column("recorded_at", TIME, "time at which it was first used, UTC"),
        Column("source", TEXT, "where it is from: file"),
        Column("schema", TEXT, "the JSON Schema"),
        Column("rename", MapOf(TEXT, TEXT), "columns by the names of their fields, if they have others"),
    ]
)
"""One row per schema by which the table of a topic was derived. Key: (`topic_table`, `number`)."""
