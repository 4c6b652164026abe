"""The current rows of a source, from the changes in the table of a topic: one row for each primary key.

The newest change of a key wins, by the order of `newest_states`, so changes that are late, repeated or replayed give
the same rows. A deleted row stays, with its key only and `_deleted`: otherwise a late, older change would restore it.

The key is the configured one, or else the primary key that the events say. A table keeps the key by which it was made.

A run takes the files that were added to the table of changes, reads the files of current rows that have one of their
keys, and replaces these in one commit, which records the version of the table of changes that is reached. So a run that
is killed between the two tables is completed by the next. If added files are gone, all changes are merged again, which
gives the same rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.connectors.lake.added_files import AddedFiles, readable_added_files
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.versions import VersionsError
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.lake import PinnedLake
from commitlake.pipelines.topics.progress import CHANGES_ID, CHANGES_TABLE_ID, KEY_ID
from commitlake.pipelines.topics.spark_tables import SparkTables, erasure_step, spark_path
from commitlake.pipelines.topics.topic_config import TopicConfig, TopicConfigError
from commitlake.pipelines.transforms.typed_messages import current_columns, newest_states, row_states
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.tables.columns import BOOLEAN, DATE, INT64, TEXT, TIME, Columns

_KEY_TYPES = (TEXT, INT64, BOOLEAN, DATE, TIME)


def update_current_table(
    tables: SparkTables, config: TopicConfig, columns: Columns, renamed: Mapping[str, str]
) -> None:
    """Merge the changes that a topic's table got since the last run into the table of current rows.

    There is no such table as long as neither the configuration nor an event says a primary key of the columns. A
    configured pattern of several source tables needs a configured key.

    Args:
        tables: the lake's tables.
        config: the topic.
        columns: the columns of a source's row, by their names in the table.
        renamed: these names by the names of their fields, where they are others.

    Raises:
        ConcurrentRunError: if another run was first.
        TopicConfigError: if the events say several primary keys, or the table was made by another.
    """
    reading = tables.lake.pin_versions()
    if (changes := reading.find(config.lake_table)) is None:
        return
    current = reading.find(config.current_table)
    numbers = {name: _number(current, name) for name in (CHANGES_ID, CHANGES_TABLE_ID, KEY_ID)}
    table_id = _number_of_text(str(changes.metadata().id))
    followed = numbers[CHANGES_ID] - 1 if numbers[CHANGES_TABLE_ID] == table_id else -1
    if followed >= changes.version():
        return
    all_rows = rows = tables.read_table(reading, config.lake_table)
    new = _added_files(reading, config.lake_table, followed)
    if followed >= 0 and not new.from_scratch:
        if not new.files:
            return
        rows = tables.spark.read.schema(rows.schema).parquet(*(spark_path(file.path) for file in new.files))
    key = _find_key(rows, all_rows, config, columns, renamed)
    if not key:
        return
    key_number = _number_of_text(", ".join(sorted(key)))
    if numbers[KEY_ID] not in {0, key_number}:
        raise TopicConfigError(
            f"topic {config.topic}: key: expected the key by which {config.current_table} was made, found "
            f"{', '.join(key)}. Delete the table's folder, run `maintain --repair`, and then `topics`"
        )
    rows = tables.without_erased(rows, reading, "_")
    states = row_states(rows, columns, key)
    if not config.key:
        # An event that does not say its key may lack a value of it.
        states = states.dropna(subset=[f"`{name}`" for name in key])
    states = newest_states(states, key)
    replaced: list[TableFile] = []
    if current is not None:
        there = tables.read_table(reading, config.current_table)
        replaced = _files_with_keys(there, states, key, read_table_files(current))
        if replaced:
            names = [unquote(file.path).rpartition("/")[2] for file in replaced]
            old = there.where(F.col("_metadata.file_name").isin(names))
            states = newest_states(states.unionByName(old, allowMissingColumns=True), key)
    files = tables.write_files(states, config.current_table)
    step = (numbers[CHANGES_ID] or None, new.version + 1)
    others = {
        CHANGES_TABLE_ID: (numbers[CHANGES_TABLE_ID], table_id),
        KEY_ID: (numbers[KEY_ID], key_number),
        ERASURE: erasure_step(reading, config.current_table),
    }
    if not commit_with_transaction(
        tables.lake, config.current_table, files, CHANGES_ID, step, other_transactions=others,
        removed_files=[(file.path, file.size) for file in replaced], columns=current_columns(columns),
    ):  # fmt: skip
        raise ConcurrentRunError(f"{tables.lake.uri(config.current_table)}: another run committed first. Run again")


def _number(table: DeltaTable | None, application_id: str) -> int:
    return 0 if table is None else table.transaction_version(application_id) or 0


def _number_of_text(text: str) -> int:
    """Return a number that differs for another text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) + 1


def _find_key(
    rows: DataFrame, all_rows: DataFrame, config: TopicConfig, columns: Columns, renamed: Mapping[str, str]
) -> list[str]:
    """Return the columns of the primary key; none if they are not known, or cannot be a key.

    Args:
        rows: the new changes.
        all_rows: all changes, which are looked at if the new ones do not say a key.
        config: the topic.
        columns: the columns of a source's row.
        renamed: their names by the names of their fields, where they are others.
    """
    if config.key:
        return [renamed.get(name, name) for name in config.key]
    if "*" in config.source_table or "?" in config.source_table:
        return []
    said = _read_primary_keys(rows)
    if not said and rows is not all_rows:
        said = _read_primary_keys(all_rows)
    if len({frozenset(names) for names in said}) > 1:
        found = "; ".join(sorted(", ".join(names) for names in said))
        raise TopicConfigError(
            f"topic {config.topic}: key: expected one primary key in all events, found {found[:200]}. Name the fields "
            "of the present one with key"
        )
    types = {column.name: column.type for column in columns}
    key = [renamed.get(name, name) for name in said[0]] if said else []
    return key if all(types.get(name) in _KEY_TYPES for name in key) else []


def _read_primary_keys(rows: DataFrame) -> list[list[str]]:
    if "_primary_key" not in rows.columns:  # a table of an earlier version
        return []
    said = rows.select("_primary_key").where("_primary_key IS NOT NULL").distinct().limit(3)
    return [list(row["_primary_key"]) for row in said.collect()]


def _added_files(reading: PinnedLake, table: str, after_version: int) -> AddedFiles:
    try:
        return readable_added_files(reading, after_version, table)
    except VersionsError:  # rows were removed, as when they expire
        return replace(readable_added_files(reading, -1, table), from_scratch=True)


def _files_with_keys(
    rows: DataFrame, states: DataFrame, key: Sequence[str], files: Sequence[TableFile]
) -> list[TableFile]:
    """Return the files of a table whose rows have one of the keys of some states."""
    keys = [F.col(f"`{name}`") for name in key]
    named = rows.select(*keys, F.col("_metadata.file_name").alias("file_name"))
    found = named.join(states.select(*keys), list(key), "left_semi").select("file_name").distinct().collect()
    names = {unquote(row["file_name"]) for row in found}
    return [file for file in files if unquote(file.path).rpartition("/")[2] in names]
