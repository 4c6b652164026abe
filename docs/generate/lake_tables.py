"""Make the reference of the lake's tables: every column with its type and comment, and queries to start with."""

from __future__ import annotations

import ast
import importlib
import inspect
from itertools import pairwise
from types import ModuleType

from commitlake.pipelines.topics.changes.change_reader import CHANGE_FORMATS
from commitlake.pipelines.transforms.typed_messages import change_columns, current_columns
from commitlake.schemas.tables.columns import Column, Columns, DataType, ListOf, MapOf
from commitlake.schemas.tables.lake_tables import LAKE_TABLES, LakeTable, RowOrigin
from commitlake.schemas.tables.spark_schemas import spark_field
from commitlake.schemas.tables.topics import PLACE, SCHEMA_NUMBER, UNKNOWN_FIELDS
from docs.generate.prose import markdown_of, table
from docs.generate.table_queries import QUERIES

_ORIGINS = {
    RowOrigin.ARCHIVE: "`archive` writes it.",
    RowOrigin.COMMITS: "`archive` writes it, with each run.",
    RowOrigin.MESSAGES: "It is derived from `messages`, and can be made again from it.",
    RowOrigin.COMPUTED: "`archive --backfill` writes it. It can be computed again from the other tables.",
    RowOrigin.SNAPSHOTS: "`snapshot` and `archive` write it.",
    RowOrigin.CONSUME_LOGS: "`archive` writes it, for JMQ stores.",
    RowOrigin.REPLAYS: "`replay` and `dlq redrive` write it.",
    RowOrigin.ERASURES: "`erase` writes it.",
    RowOrigin.TOPICS: "`topics` writes it.",
    RowOrigin.EVIDENCE: "Jobs with `--evidence-key` write it.",
}
_INTRO = """# Tables

A lake is a folder, or a prefix in an object store, with one Delta table in each subfolder. Any tool that reads Delta
can read them. `commitlake query --table NAME` prints rows of one, and `commitlake query --sql` takes any `SELECT`.

Times are UTC. Every column may be null, so that a table can gain columns.
"""
_TOPIC_TABLES = """## topics/NAME

One row per message of a typed topic that fits its schema, see [topics as tables](../how-to/topics.md). `topics` writes
it. It has the columns of the schema, and these:

{documents}

## topics/NAME with changes

One row per change, if the messages of the topic are change events. It has the columns of the schema with the values
after the change, the same with the prefix `_before_` with the values before it, and these:

{changes}

`_order` depends on the format:

{orders}

## topics/NAME_current

One row per primary key of the source, which is the row after its newest change. `topics` writes it. It has the columns
of the schema, and these, which are those of the newest change:

{current}"""


def page() -> str:
    """Return the page of all tables."""
    contents = table(
        ("Table", "Rows"),
        ([f"[`{name}`](#{name})", _first_sentence(name)] for name in LAKE_TABLES),
    )
    sections = (_section(name, entry) for name, entry in LAKE_TABLES.items())
    return "\n\n".join([_INTRO, contents, *sections, _topic_tables()]) + "\n"


def schema_of(name: str) -> Columns:
    """Return the columns of a table."""
    return LAKE_TABLES[name].columns


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"commitlake.schemas.tables.{LAKE_TABLES[name].module}")


def _prose(name: str) -> str:
    """Return the description of a table: its module's, or, in a module with several tables, that of its columns."""
    module = _module(name)
    text = module.__doc__ or ""
    if text.startswith(f"`{name}`: "):
        description = text.removeprefix(f"`{name}`: ")
        return description[:1].upper() + description[1:]
    statements = ast.parse(inspect.getsource(module)).body
    for statement, following in pairwise(statements):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name.upper():
            return str(ast.literal_eval(ast.unparse(following)))
    raise KeyError(name)


def _section(name: str, entry: LakeTable) -> str:
    parts = [f"## {name}", markdown_of(_prose(name)), _origin(entry), _columns(schema_of(name))]
    parts += [
        f'{purpose}:\n\n```console\n$ commitlake query --lake /data/lake --sql "{sql}"\n```'
        for purpose, sql in QUERIES[name]
    ]
    return "\n\n".join(parts)


def _topic_tables() -> str:
    """Return the sections on the tables of topics, whose other columns are those of a schema."""
    columns = Columns([])
    orders = ((f"`{each.name}`", each.order) for each in CHANGE_FORMATS.values())
    return _TOPIC_TABLES.format(
        documents=_columns(Columns([*PLACE, UNKNOWN_FIELDS, SCHEMA_NUMBER])),
        changes=_columns(change_columns(columns)),
        orders=table(("Format", "Numbers"), orders),
        current=_columns(current_columns(columns)),
    )


def _origin(entry: LakeTable) -> str:
    text = _ORIGINS[entry.origin]
    if entry.sort_columns:
        text += f" `maintain` sorts it by {', '.join(f'`{column}`' for column in entry.sort_columns)}."
    return text


def _columns(schema: Columns) -> str:
    rows = ((f"`{name}`", kind, comment) for name, kind, comment in _described(schema, ""))
    return table(("Column", "Type", "Meaning"), rows)


def _described(schema: Columns, prefix: str) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for column in schema:
        name = prefix + column.name
        rows.append((name, _type_name(column.type), column.comment))
        inner = column.type.element if isinstance(column.type, ListOf) else column.type
        if isinstance(inner, Columns):
            rows += _described(inner, name + ("[]." if isinstance(column.type, ListOf) else "."))
    return rows


def _type_name(kind: DataType) -> str:
    if isinstance(kind, Columns):
        return "struct"
    if isinstance(kind, ListOf):
        return f"array of {_type_name(kind.element)}"
    if isinstance(kind, MapOf):
        return f"map of {_type_name(kind.key)} to {_type_name(kind.value)}"
    return str(spark_field(Column("", kind)).dataType.simpleString())


def _first_sentence(name: str) -> str:
    return " ".join(_prose(name).partition("\n\n")[0].split())
