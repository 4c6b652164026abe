"""Writes the table `replay_rows`: all messages of a replay that changes or copies them, before any is sent."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from commitlake.connectors.lake.committer import advance
from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.delta import seal
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.plain_arrays import dict_rows
from commitlake.pipelines.replay.changed_rows import SCHEMA
from commitlake.pipelines.replay.changes import Changes, as_produced, finish
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.planned import PlannedMessages
from commitlake.schemas.tables.replay_rows import IDENTITY, REPLAY_ROWS, TRANSFORMED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRANSFORMED = pa.schema([SCHEMA.field(name) for name in TRANSFORMED.names])


def write_changed(lake: Lake, messages: PlannedMessages, changes: Changes, spark: SparkSession | None = None) -> None:
    """Change the messages of a plan and write them to `replay_rows`.

    Args:
        messages: messages of a plan on the table `messages`.
        changes: changes to make.
        spark: session that runs the function, if there is one.

    Raises:
        ReplayError: if the result of the function cannot be sent.
        QueryError: if the lake cannot be read.
    """
    replay_id = messages.plan.replay_id
    if changes.transform is None:
        _commit(lake, replay_id, "masked", _masked_files(lake, messages, changes))
        return
    if spark is None:
        raise ValueError("a function over a DataFrame needs a Spark session")
    from commitlake.pipelines.replay.transforming import transformed_rows  # noqa: PLC0415 (loads Spark)

    _commit(lake, replay_id, "originals", _original_files(lake, messages))
    try:
        rows = transformed_rows(spark, lake, replay_id, changes.transform)
        _commit(lake, replay_id, "transformed", _transformed_files(lake, replay_id, rows, changes))
        _check_identity(lake, replay_id)
    except BaseException:
        _delete(lake, f"replay_id = {text_literal(replay_id)}")
        raise
    _delete(lake, f"replay_id = {text_literal(replay_id)} AND NOT is_changed")


def write_copied(lake: Lake, messages: PlannedMessages) -> None:
    """Copy the messages of a plan to `replay_rows`, so that they can be sent after their source is gone.

    Args:
        messages: messages of a plan on a table that was copied from a log or from topics.

    Raises:
        QueryError: if the table cannot be read.
    """
    _commit(lake, messages.plan.replay_id, "copied", _copied_files(lake, messages))


def _copied_files(lake: Lake, messages: PlannedMessages) -> Iterator[DataFile]:
    before = 0
    for number in range(len(messages.plan.parts)):
        rows = messages.rows(number, before)
        before += rows.num_rows
        stored = messages.bodies(rows)
        rows = rows.set_column(rows.column_names.index("body"), "body", stored.values)
        errors = [stored.errors.get(row) for row in range(rows.num_rows)]
        yield _file(lake, messages.plan.replay_id, rows, errors, is_changed=True)


def _commit(lake: Lake, replay_id: str, stage: str, files: Iterable[DataFile]) -> None:
    advance(lake.uri("replay_rows"), REPLAY_ROWS, list(files), f"commitlake.replay_rows/{replay_id}/{stage}", (None, 1))


def _delete(lake: Lake, condition: str) -> None:
    lake.table("replay_rows").delete(condition)
    seal(lake.uri("replay_rows"), lake.s3)


def _parts(messages: PlannedMessages) -> Iterator[tuple[pa.Table, list[str | None]]]:
    before = 0
    for number in range(len(messages.plan.parts)):
        rows = messages.rows(number, before)
        before += rows.num_rows
        yield as_produced(rows, messages.bodies(rows))


def _masked_files(lake: Lake, messages: PlannedMessages, changes: Changes) -> Iterator[DataFile]:
    for rows, errors in _parts(messages):
        is_there = pa.array([error is None for error in errors], pa.bool_())
        yield from _failed_files(lake, messages.plan.replay_id, rows, errors)
        done, why = finish(rows.filter(is_there), changes)
        yield _file(lake, messages.plan.replay_id, done, why, is_changed=True)


def _original_files(lake: Lake, messages: PlannedMessages) -> Iterator[DataFile]:
    for rows, errors in _parts(messages):
        is_there = pa.array([error is None for error in errors], pa.bool_())
        yield from _failed_files(lake, messages.plan.replay_id, rows, errors)
        done = rows.filter(is_there)
        yield _file(lake, messages.plan.replay_id, done, [None] * done.num_rows, is_changed=False)


def _failed_files(lake: Lake, replay_id: str, rows: pa.Table, errors: Sequence[str | None]) -> Iterator[DataFile]:
    """Write the rows of messages whose body cannot be read."""
    failed = rows.filter(pa.array([error is not None for error in errors], pa.bool_()))
    if failed.num_rows:
        yield _file(lake, replay_id, failed, [error for error in errors if error is not None], is_changed=True)


def _file(lake: Lake, replay_id: str, rows: pa.Table, errors: Sequence[str | None], *, is_changed: bool) -> DataFile:
    columns = {name: rows.column(name) for name in _TRANSFORMED.names} | {
        "replay_id": pa.repeat(replay_id, rows.num_rows),
        "is_changed": pa.repeat(is_changed, rows.num_rows),
        "error": pa.array(errors, pa.string()),
    }
    table = pa.table({name: columns[name] for name in SCHEMA.names}).cast(SCHEMA)
    name = f"part-{secrets.token_hex(16)}.zstd.parquet"
    return write_plain_file(table, lake.uri("replay_rows"), name, s3=lake.s3)


def _transformed_files(
    lake: Lake, replay_id: str, rows: Iterable[pa.RecordBatch], changes: Changes
) -> Iterator[DataFile]:
    for batch in rows:
        done, why = finish(pa.Table.from_batches([batch]).cast(_TRANSFORMED), changes)
        yield _file(lake, replay_id, done, why, is_changed=True)


def _check_identity(lake: Lake, replay_id: str) -> None:
    """Check that a function has kept the columns that identify messages."""
    known = ", ".join(
        name for name in IDENTITY if name != "sys_flag"
    )  # the codec bits of sys_flag depend on the new body
    rows = f"SELECT {known} FROM t WHERE replay_id = {text_literal(replay_id)} AND"
    made = f"{rows} is_changed AND error IS NULL EXCEPT {rows} NOT is_changed"
    twice = f"{rows} is_changed GROUP BY {known} HAVING count(*) > 1"
    table = lake.table("replay_rows")
    wrong = [row for sql in (made, twice) for row in dict_rows(run_sql(table, "t", f"{sql} LIMIT 1").read_all())]
    if wrong:
        raise ReplayError(
            f"--transform: broker {wrong[0]['broker']}, offset {wrong[0]['physical_offset']}: the function duplicated "
            f"a message, or changed one of the columns {', '.join(IDENTITY)}, which identify a message"
        )
