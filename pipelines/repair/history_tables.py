"""Rebuilds from their data files those tables whose rows cannot be restored from another table or a store.

`erasures` and `evidence` are rebuilt after any damage, and the histories of settings and offsets after that of a log.

These tables only grow, and no two rows have the same key. The table is therefore the set of rows of all its data files,
including merged ones. A file that a killed writer left is included: the erasure that it records has then begun. Rows of
`erasures` in a lost file are restored as far as `messages` has them. An erased row of `messages` names its erasure in
the property COMMITLAKE_ERASED, so its place and its hash after the erasure can be found there. Its hash before, and the
place of its body, are only in an older version of the row.

If a repair is killed at any step, the next one repeats it. The file with all rows is written before any other is moved
aside, and a lake without the table counts as damaged as long as `messages` says that something was erased.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import secrets
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import APPLICATION_ID as ARCHIVE
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.erasures import MARKER, ErasedMessages, newest_erasure_number, parse_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.snapshot_tables import snapshot_application_id
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.maintenance.file_replacement import new_table_file, replace_table_files
from commitlake.pipelines.masking.erased_rows import CHANGED_COLUMNS, erased_row_mask
from commitlake.pipelines.masking.erasure_rows import (
    ERASURES_SCHEMA,
    ErasureWriter,
    make_erasure_rows,
    to_erasures_schema,
)
from commitlake.pipelines.repair.commits import make_repair_note
from commitlake.pipelines.repair.data_file_check import DataDamage
from commitlake.pipelines.repair.delta_log import REPAIR_KEY, ReplacedFiles
from commitlake.pipelines.topics.schema_history import schemas_application_id
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.erasures import ErasureEvent
from commitlake.schemas.tables.lake_tables import LAKE_TABLES, SNAPSHOT_TABLES, RowOrigin, tables_with_origin
from commitlake.schemas.tables.messages import MESSAGES

KEPT_TABLES = tables_with_origin(RowOrigin.ERASURES, RowOrigin.EVIDENCE)
"""Tables whose rows have a `number`, and are in no other table."""
_NUMBERED_BY = {"erasures": ERASURE, "evidence": "commitlake.evidence"}
"""By table, the application that counts `number`."""
HISTORIES = ("store_config", *SNAPSHOT_TABLES)
"""Tables of earlier states."""
TOPIC_SCHEMAS = "topic_schemas"
"""The table of the schemas of topics, which is rebuilt as the histories are."""
REBUILD_TEXT = "it is rebuilt from the rows of its data files"
RETENTION = datetime.timedelta(days=7)
"""Retention of an erasure whose own is lost, counted from the time it was done: the default of `erase`."""
_SHORTEST_CUT = 32
"""Texts of statistics in a log are cut at this length or a larger one."""
UNKNOWN_REASON = "not known: the row with the reason was lost; a repair has written this one"
_MESSAGES: pa.Schema = arrow_schema(MESSAGES).remove(MESSAGES.names.index("store_date"))


def rebuild_from_intact_files(
    aside_folder: ReplacedFiles, table: str, damages: Sequence[DataDamage] = ()
) -> Iterator[str]:
    """Rebuild a table from its intact data files, and move the files that it replaces aside.

    Args:
        table: one of `KEPT_TABLES`.
        damages: damaged data files, if the table's log is intact.

    Yields:
        Sentences on rows that are lost.
    """
    lake = aside_folder.lake
    declared = LAKE_TABLES[table]
    found = _read_files(lake, table, arrow_schema(declared.columns))
    yield from found.problems
    for damaged in damages:
        if unquote(damaged.file.path) not in found.names:
            yield f"{table}: {format_count(damaged.file.rows or 0, 'row')} of data file {damaged}"
    rows = _distinct_rows(found.rows, declared.key, table)
    newest = pc.max(rows.column("number")).as_py() or 0
    if table == "erasures":
        restored = restore_erasures(lake, rows)
        rows, newest = pa.concat_tables([rows, restored.rows]), restored.newest
        yield from restored.lines
    last = read_last_commit(lake)
    numbers = {_NUMBERED_BY[table]: newest, **({ARCHIVE: last.sequence} if last else {})}
    _replace_table(aside_folder, table, rows, found.names, numbers)


def rebuild_history_table(aside_folder: ReplacedFiles, table: str) -> Iterator[str]:
    """Rebuild a table whose rows never change from its data files, as its log is damaged; move old files aside.

    Its rows never change, so files of earlier versions have the same ones. A row of a snapshot holds only changes: if a
    file of snapshots cannot be read, the table starts empty.

    Yields:
        Sentences on rows that are lost.
    """
    lake, schema = aside_folder.lake, LAKE_TABLES[table].columns
    columns = arrow_schema(schema)
    found = _read_files(lake, table, columns)
    yield from found.problems
    is_whole = not found.problems or table not in SNAPSHOT_TABLES
    if not is_whole:
        yield f"{table}: all snapshots so far"
    key = tuple(field.name for field in columns if not pa.types.is_nested(field.type))
    rows = _distinct_rows(found.rows, key, table) if is_whole else columns.empty_table()
    numbers = {ARCHIVE: last.sequence} if (last := read_last_commit(lake)) else {}
    # Snapshots are numbered by store; only "not 0" matters, as the next one continues from it.
    if table in SNAPSHOT_TABLES:
        numbers = {
            snapshot_application_id(broker): 1 for broker in rows.column("broker").unique().drop_null().to_pylist()
        }
    if table == TOPIC_SCHEMAS:
        newest = rows.select(["topic_table", "number"]).group_by("topic_table").aggregate([("number", "max")])
        numbers = {
            schemas_application_id(row["topic_table"]): row["number_max"]
            for row in newest.to_pylist()
            if row["number_max"] is not None
        }
    _replace_table(aside_folder, table, rows, found.names, numbers or {REPAIR_KEY: 1})


def keep_earlier_snapshots(aside_folder: ReplacedFiles, table: str, damages: Sequence[DataDamage]) -> Iterator[str]:
    """Rebuild a table of snapshots without its damaged files and the snapshots that depended on them.

    A snapshot of a store holds only what has changed since the one before. Those that are older than the ones in the
    damaged files are complete, and later ones are not. The next snapshot is compared with what is left. One commit
    exchanges the files, so that a repair that is killed has changed nothing, or all.

    Args:
        damages: the damaged data files; the table's log is intact.

    Yields:
        Sentences on snapshots that are lost.

    Raises:
        LakeError: if an intact file cannot be read; nothing was changed.
    """
    lake, columns = aside_folder.lake, arrow_schema(LAKE_TABLES[table].columns)
    files = read_table_files(lake.table(table))
    names = {unquote(file.path) for file in files}
    found = _read_files(lake, table, columns, names - {unquote(damage.file.path) for damage in damages})
    if found.problems:  # they were intact a moment ago
        raise LakeError(f"{found.problems[0]}. The table was not changed: run the repair again")
    rows = found.rows
    for damage in damages:
        broker, since = _first_broker_and_time(damage)
        is_lost = pc.is_valid(rows["broker"]) if broker is None else pc.equal(rows["broker"], broker)
        if since is not None:
            is_lost = pc.and_(is_lost, pc.greater_equal(rows["as_of"], since))
        # Also rows of intact files: later snapshots hold only the changes since the lost one.
        rows = rows.filter(pc.invert(is_lost))
        of_store = "" if broker is None else f" of broker {broker!r}"
        when = "so far" if since is None else f"from {since:%Y-%m-%d %H:%M:%S} UTC on"
        yield f"{table}: all snapshots{of_store} {when}"
    name = f"part-repair-{secrets.token_hex(16)}.zstd.parquet"
    kept = [new_table_file(write_plain_file(rows, lake, table, name))] if rows.num_rows else []
    lost = sum(file.rows or 0 for file in files) - rows.num_rows
    replace_table_files(lake, table, files, kept, changes_data=True, note=make_repair_note(lost))
    # After the commit: before it, readers need the files.
    for path in sorted(names):
        aside_folder.move_file(f"{table}/{path}")


def _first_broker_and_time(damage: DataDamage) -> tuple[str | None, datetime.datetime | None]:
    """Return the broker and the first time in a damaged data file, from its statistics; None where unknown."""
    least, greatest = damage.bounds
    broker = least.get("broker")
    # Statistics of a long text may be cut.
    is_only = isinstance(broker, str) and len(broker) < _SHORTEST_CUT and broker == greatest.get("broker")
    return broker if is_only else None, least.get("as_of")


class _IntactFiles(NamedTuple):
    """Rows of a table's readable data files, the names of all files, and sentences on files that cannot be read."""

    rows: pa.Table
    names: Sequence[str]
    problems: Sequence[str]


def _read_files(lake: Lake, table: str, columns: pa.Schema, file_names: Collection[str] | None = None) -> _IntactFiles:
    """Read data files in a table's folder, by default all, including files that no current version refers to."""
    parts, names, problems = [columns.empty_table()], [], []
    try:
        files = lake.open_folder(table)
        infos = files.get_file_info(pafs.FileSelector("", allow_not_found=True))
    except TableNotFoundError:  # no such folder
        infos = []
    for info in infos:
        if not info.is_file or not info.path.endswith(".parquet") or info.base_name.startswith("."):
            continue
        names.append(info.path)
        if file_names is not None and info.path not in file_names:
            continue
        try:
            with files.open_input_file(info.path) as source:
                parts.append(_cast_to_schema(pq.read_table(source, page_checksum_verification=True), columns))
        except (pa.ArrowException, OSError) as error:
            problems.append(f"{table}: the rows of data file {info.path}: {str(error).splitlines()[0]}")
    return _IntactFiles(pa.concat_tables(parts), names, problems)


def _replace_table(
    aside_folder: ReplacedFiles,
    table: str,
    rows: pa.Table,
    data_file_names: Sequence[str],
    progress_numbers: Mapping[str, int],
) -> None:
    """Move a table's files aside, and create it again with the given rows.

    Args:
        table: name of the table.
        rows: its rows.
        data_file_names: its data files so far.
        progress_numbers: the progress numbers of applications, at least one.
    """
    lake, uri = aside_folder.lake, aside_folder.lake.uri(table)
    # The new file first, so that a killed repair still finds all rows in the folder.
    file = write_plain_file(rows, lake, table, f"part-repair-{secrets.token_hex(16)}.zstd.parquet")
    for name in data_file_names:
        aside_folder.move_file(f"{table}/{name}")
    aside_folder.move_log(table)
    (first, number), *others = progress_numbers.items()
    beside = {name: (0, other) for name, other in others}
    if not commit_with_transaction(lake, table, [file], first, (None, number), other_transactions=beside):
        raise LakeError(
            f"{uri}: another program wrote to the table during the repair. Stop that program, then run the repair again"
        )


def _cast_to_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _distinct_rows(rows: pa.Table, key_columns: tuple[str, ...], table: str) -> pa.Table:
    names = [*key_columns]
    numbered = rows.select(key_columns)
    if table == "erasures":
        # Of a message's row as it was before the purge, and after it, the latter is kept: it has no hash of before.
        has_hash = pc.is_valid(rows.column("row_before")).to_numpy()
        rows = rows.take(pa.array(np.argsort(has_hash, kind="stable")))
        is_later = pc.equal(rows.column("event"), str(ErasureEvent.LATER))
        numbered = rows.select(key_columns).append_column("detail", pc.if_else(is_later, rows.column("detail"), None))
        names.append("detail")
    numbered = numbered.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    first = numbered.group_by(names, use_threads=False).aggregate([("row", "min")])
    return rows.take(first.column("row_min"))


@dataclass(frozen=True, slots=True)
class RestoredErasures:
    """Restored rows of the table `erasures`, and the number of the newest erasure.

    Attributes:
        rows: rows of `erasures`.
        newest: number of the newest erasure that any table knows; 0 for none.
        lines: sentences on the restored rows, and on what remains unknown.
    """

    rows: pa.Table
    newest: int
    lines: tuple[str, ...]


def restore_erasures(lake: Lake, rows: pa.Table) -> RestoredErasures:
    """Restore rows that the table `erasures` has lost, from the rows of `messages` that are marked as erased.

    Args:
        rows: the rows that `erasures` still has.
    """
    known = dict(_erasure_ids_with_numbers(rows))
    # Logs of tables have numbers whose rows are all lost; they must not be given again.
    newest = max([*known.values(), *(_applied_erasure(lake, table) for table in LAKE_TABLES)], default=0)
    recorded = rows.filter(pc.is_in(rows.column("event"), pa.array([ErasureEvent.MESSAGE, ErasureEvent.COPY])))
    erased = _unrecorded_rows(_read_marked_rows(lake), recorded)
    ids = sorted({*erased.column("erasure_id").to_pylist()} - known.keys())
    used = {*known.values()}
    free = (number for number in itertools.count(1) if number not in used)
    for erasure_id, number in zip(ids, free, strict=False):
        known[erasure_id] = number
        newest = max(newest, number)
    writer = ErasureWriter(time.time_ns() // 1000, f"{socket.gethostname()} {os.getpid()}", "repair")
    begun = _make_missing_begun_rows(rows, known, writer)
    restored, incomplete = _restore_message_rows(lake, erased, known, newest, writer)
    used = {*known.values()}
    unknown = newest - sum(0 < number <= newest for number in used)
    first = next((number for number in itertools.count(1) if number not in used), 1)
    lines = [*_restored_loss_sentences(begun, restored, incomplete), *_unrestored_loss_sentences(unknown, first)]
    return RestoredErasures(pa.concat_tables([begun, restored]), newest, tuple(lines))


def _erasure_ids_with_numbers(rows: pa.Table) -> Iterator[tuple[str, int]]:
    distinct = rows.select(["erasure_id", "number"]).group_by(["erasure_id", "number"]).aggregate([])
    for row in distinct.to_pylist():
        if row["erasure_id"] is not None and row["number"] is not None:
            yield row["erasure_id"], row["number"]


def _applied_erasure(lake: Lake, table: str) -> int:
    """Return the number of the newest erasure that is applied to a table; 0 if the table is missing or damaged."""
    try:
        return newest_erasure_number(lake.find(table))
    except LakeError:
        return 0


def _read_marked_rows(lake: Lake) -> pa.Table:
    """Return the rows of `messages` that are marked as erased, with the column `erasure_id`; one for each message."""
    parts = []
    for rows in _read_all_batches(lake):
        ids = _erasure_marker_values(rows)
        chosen = np.flatnonzero(pc.is_valid(ids).to_numpy(zero_copy_only=False))
        chosen = chosen[erased_row_mask(rows.select(CHANGED_COLUMNS).take(pa.array(chosen)), by_any_version=True)]
        if len(chosen):
            parts.append(rows.take(pa.array(chosen)).append_column("erasure_id", ids.take(pa.array(chosen))))
    schema = _MESSAGES.append(pa.field("erasure_id", pa.string()))
    return _first_row_by_message(pa.concat_tables([schema.empty_table(), *parts]))


def _read_all_batches(lake: Lake) -> Iterator[pa.Table]:
    """Read all readable data files in the folder of `messages`, including those of older versions."""
    try:
        files = lake.open_folder("messages")
        infos = files.get_file_info(pafs.FileSelector("", allow_not_found=True, recursive=True))
    except TableNotFoundError:
        return
    for info in infos:
        if not info.is_file or not info.path.endswith(".parquet") or info.path.startswith(("_", ".")):
            continue
        try:
            with (
                files.open_input_file(info.path) as source,
                pq.ParquetFile(source, page_checksum_verification=True) as parquet,
            ):
                for group in range(parquet.num_row_groups):
                    yield _cast_to_schema(parquet.read_row_group(group, use_threads=False), _MESSAGES).combine_chunks()
        except (pa.ArrowException, OSError):  # the check of messages reports the file
            continue


def _erasure_marker_values(rows: pa.Table) -> pa.Array:
    found = pc.map_lookup(rows.column("properties"), MARKER, "last")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _first_row_by_message(rows: pa.Table) -> pa.Table:
    """Return the first row of each message, without rows that lack a broker or physical offset."""
    rows = rows.filter(pc.and_(pc.is_valid(rows.column("broker")), pc.is_valid(rows.column("physical_offset"))))
    numbered = rows.select(["broker", "physical_offset"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    first = numbered.group_by(["broker", "physical_offset"], use_threads=False).aggregate([("row", "min")])
    return rows.take(first.column("row_min")).combine_chunks()


def _unrecorded_rows(marked_rows: pa.Table, recorded_rows: pa.Table) -> pa.Table:
    columns = ["broker", "physical_offset", "erasure_id", "number"]
    is_whole = reduce(pc.and_, [pc.is_valid(recorded_rows.column(name)) for name in columns])
    return parse_erased_messages(recorded_rows.filter(is_whole), 0).drop_erased_rows(marked_rows)


def _make_missing_begun_rows(
    rows: pa.Table, numbers_by_erasure_id: Mapping[str, int], writer: ErasureWriter
) -> pa.Table:
    """Return a restored row with the event `begun` for each erasure that lacks it, at its earliest known time."""
    has_row = {row["erasure_id"] for row in _rows_of_event(rows, ErasureEvent.BEGUN).select(["erasure_id"]).to_pylist()}
    times = rows.select(["erasure_id"]).append_column("at", rows.column("at").cast(pa.int64()))
    earliest = {
        row["erasure_id"]: row["at_min"] for row in times.group_by("erasure_id").aggregate([("at", "min")]).to_pylist()
    }
    lost = sorted(
        (number, erasure_id) for erasure_id, number in numbers_by_erasure_id.items() if erasure_id not in has_row
    )
    detail = json.dumps({"restored": True, "retention_s": RETENTION.total_seconds()}, sort_keys=True)
    made: list[dict[str, Any]] = [
        {
            "number": number,
            "erasure_id": erasure_id,
            "event": str(ErasureEvent.BEGUN),
            "at": min(earliest.get(erasure_id) or writer.at, writer.at),
            "reason": UNKNOWN_REASON,
            "owner": writer.owner,
            "detail": detail,
            "parser_version": writer.parser_version,
        }
        for number, erasure_id in lost
    ]
    schema = pa.schema([pa.field("at", pa.int64()) if field.name == "at" else field for field in ERASURES_SCHEMA])
    return to_erasures_schema(pa.Table.from_pylist(made, schema))


def _rows_of_event(rows: pa.Table, event: ErasureEvent) -> pa.Table:
    return rows.filter(pc.equal(rows.column("event"), str(event)))


def _restore_message_rows(
    lake: Lake,
    erased_rows: pa.Table,
    numbers_by_erasure_id: Mapping[str, int],
    newest_number: int,
    writer: ErasureWriter,
) -> tuple[pa.Table, int]:
    """Return restored rows of `erasures` for messages, and how many have no data left from before the erasure."""
    if not erased_rows.num_rows:
        return to_erasures_schema(ERASURES_SCHEMA.empty_table()), 0
    ids = erased_rows.column("erasure_id").to_pylist()
    numbers = [numbers_by_erasure_id[erasure_id] for erasure_id in ids]
    places = parse_erased_messages(
        erased_rows.select(["broker", "physical_offset", "erasure_id"]).append_column(
            "number", pa.array(numbers, pa.int64())
        ),
        newest_number,
    )
    after = erased_rows.select(_MESSAGES.names)
    older, index = _find_unerased_rows(lake, places, after)
    before = pa.concat_tables([after, older]).take(pa.array(index)).combine_chunks()
    table = make_erasure_rows(before, after, ids, numbers, ErasureEvent.MESSAGE, writer)
    is_known = pa.array(index >= after.num_rows)
    for name in ("row_before", "lake_before"):
        column = pc.if_else(is_known, table.column(name), pa.scalar(None, pa.int64()))
        table = table.set_column(table.schema.get_field_index(name), ERASURES_SCHEMA.field(name), column)
    is_needed = np.array(numbers, np.int64) > _applied_erasure(lake, "profiles")  # to correct the profiles
    return table, int(((index < after.num_rows) & is_needed).sum())


def _find_unerased_rows(lake: Lake, erased_messages: ErasedMessages, erased_rows: pa.Table) -> tuple[pa.Table, Array]:
    """Find, in older data files of `messages`, the rows of erased messages from before their erasure.

    Returns:
        The unerased rows; and for each message, the index of its row in `erased_rows` followed by the unerased rows.
    """
    parts = []
    for rows in _read_all_batches(lake):
        of_messages = erased_messages.find_row_erasure_indexes(
            *(rows.column(name).combine_chunks() for name in ("broker", "physical_offset"))
        )
        chosen = np.flatnonzero(of_messages >= 0)
        chosen = chosen[~erased_row_mask(rows.select(CHANGED_COLUMNS).take(pa.array(chosen)), by_any_version=True)]
        if len(chosen):
            parts.append(rows.take(pa.array(chosen)))
    older = _first_row_by_message(pa.concat_tables([_MESSAGES.empty_table(), *parts]))
    keys = zip(older.column("broker").to_pylist(), older.column("physical_offset").to_pylist(), strict=True)
    row_of = {key: erased_rows.num_rows + row for row, key in enumerate(keys)}
    wanted = zip(
        erased_rows.column("broker").to_pylist(), erased_rows.column("physical_offset").to_pylist(), strict=True
    )
    return older, np.array([row_of.get(key, row) for row, key in enumerate(wanted)], np.int64)


def _restored_loss_sentences(begun_rows: pa.Table, restored_rows: pa.Table, incomplete_count: int) -> Iterator[str]:
    if begun_rows.num_rows:
        numbers = ", ".join(map(str, begun_rows.column("number").to_pylist()[:5]))
        yield (
            f"erasures: reason and retention of {format_count(begun_rows.num_rows, 'erasure')} (number {numbers}): "
            "it is "
            f"listed as restored, with a retention of {RETENTION.days} days; later copies of its messages are not "
            "recognised until they are erased again"
        )
    if incomplete_count:
        yield (
            f"erasures: the checksums before the erasure of {format_count(incomplete_count, 'message')}, of "
            f"{restored_rows.num_rows:,} restored from messages: 'audit' does not compare row_checksum and "
            "lake_checksum of "
            "their windows"
        )


def _unrestored_loss_sentences(erasure_count: int, first_number: int) -> Iterator[str]:
    if erasure_count:
        yield (
            f"erasures: all rows of {format_count(erasure_count, 'erasure')}, the first of them number "
            f"{first_number:,}; messages has "
            "no row of them"
        )
