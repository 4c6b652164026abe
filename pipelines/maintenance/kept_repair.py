"""Rebuilds tables whose rows are in no other table, nor in a store, from their data files.

`erasures` and `evidence` are rebuilt after any damage, and the histories of settings and offsets after that of a log.

These tables only grow, and no two rows have the same key. The table is therefore the set of rows of all its data files,
including merged ones. A file that a killed writer left is included: the erasure that it records has then begun. Rows of
`erasures` in a lost file are restored as far as `messages` has them (`lost_erasures`).

If a repair is killed at any step, the next one repeats it. The file with all rows is written before any other is moved
aside, and a lake without the table counts as damaged as long as `messages` says that something was erased.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_log import APPLICATION_ID as ARCHIVE
from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.committer import advance
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.log_names import LOG
from commitlake.connectors.lake.newest_versions import delete_newest
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.connectors.lake.snapshot_tables import SNAPSHOT_TABLES, snapshot_application
from commitlake.connectors.lake.versions import table_files
from commitlake.pipelines.maintenance.data_check import DataDamage
from commitlake.pipelines.maintenance.log_repair import REPAIR_KEY, AsideFolder
from commitlake.pipelines.maintenance.lost_erasures import restore_erasures
from commitlake.schemas.counts import count_text
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.erasures import ERASURES, ErasureEvent
from commitlake.schemas.tables.evidence import EVIDENCE
from commitlake.schemas.tables.store_config import STORE_CONFIG

KEPT_TABLES: dict[str, tuple[Columns, str, tuple[str, ...]]] = {
    "erasures": (ERASURES, ERASURE, ("number", "erasure_id", "event", "at", "broker", "physical_offset")),
    "evidence": (EVIDENCE, "commitlake.evidence", ("number", "document")),
}
"""By table: its columns, the application that counts `number`, and the key of a row."""
HISTORIES: dict[str, Columns] = {"store_config": STORE_CONFIG, **SNAPSHOT_TABLES}
"""The columns of tables of earlier states."""
WAY = "it is rebuilt from the rows of its data files"


def rebuild_kept_table(aside: AsideFolder, table: str, damages: Sequence[DataDamage] = ()) -> Iterator[str]:
    """Rebuild a table, and move the files that it replaces aside.

    Args:
        table: one of `KEPT_TABLES`.
        damages: damaged data files, if the table's log is intact.

    Yields:
        Sentences on rows that are lost.
    """
    lake = aside.lake
    schema, application, key = KEPT_TABLES[table]
    found = _read_files(lake, table, arrow_schema(schema))
    yield from found.problems
    for damaged in damages:
        if unquote(damaged.file.path) not in found.names:
            yield f"{table}: {count_text(damaged.file.rows or 0, 'row')} of data file {damaged}"
    rows = _distinct(found.rows, key, table)
    newest = pc.max(rows.column("number")).as_py() or 0
    if table == "erasures":
        restored = restore_erasures(lake, rows)
        rows, newest = pa.concat_tables([rows, restored.rows]), restored.newest
        yield from restored.lines
    last = read_last_commit(lake.uri("messages"))
    _replace(
        aside, table, schema, rows, found.names, {application: newest, **({ARCHIVE: last.sequence} if last else {})}
    )


def rebuild_history(aside: AsideFolder, table: str) -> Iterator[str]:
    """Rebuild one of `HISTORIES`, whose log is damaged, and move the files that it replaces aside.

    Its rows never change, so files of earlier versions have the same ones. A row of a snapshot holds only changes: if a
    file of snapshots cannot be read, the table starts empty.

    Yields:
        Sentences on rows that are lost.
    """
    lake, schema = aside.lake, HISTORIES[table]
    columns = arrow_schema(schema)
    found = _read_files(lake, table, columns)
    yield from found.problems
    is_whole = not found.problems or table not in SNAPSHOT_TABLES
    if not is_whole:
        yield f"{table}: all snapshots so far"
    key = tuple(field.name for field in columns if not pa.types.is_nested(field.type))
    rows = _distinct(found.rows, key, table) if is_whole else columns.empty_table()
    numbers = {ARCHIVE: last.sequence} if (last := read_last_commit(lake.uri("messages"))) else {}
    if table in SNAPSHOT_TABLES:
        numbers = {snapshot_application(broker): 1 for broker in rows.column("broker").unique().drop_null().to_pylist()}
    _replace(aside, table, schema, rows, found.names, numbers or {REPAIR_KEY: 1})


class _Files(NamedTuple):
    """The rows of a table's intact data files, the names of all of them, and sentences on those with damage."""

    rows: pa.Table
    names: Sequence[str]
    problems: Sequence[str]


def _read_files(lake: Lake, table: str, columns: pa.Schema) -> _Files:
    """Read all data files in the folder of a table, also those of older versions and of killed writers."""
    uri = lake.uri(table)
    parts, names, problems = [columns.empty_table()], [], []
    try:
        files = table_files(uri, lake.storage_options)
        infos = files.get_file_info(pafs.FileSelector("", allow_not_found=True))
    except TableNotFoundError:  # no such folder
        infos = []
    for info in infos:
        if not info.is_file or not info.path.endswith(".parquet") or info.base_name.startswith("."):
            continue
        names.append(info.path)
        try:
            with files.open_input_file(info.path) as source:
                parts.append(_conform(pq.read_table(source, page_checksum_verification=True), columns))
        except (pa.ArrowException, OSError) as error:
            problems.append(f"{table}: the rows of data file {info.path}: {str(error).splitlines()[0]}")
    return _Files(pa.concat_tables(parts), names, problems)


def _replace(
    aside: AsideFolder,
    table: str,
    schema: Columns,
    rows: pa.Table,
    names: Sequence[str],
    numbers: Mapping[str, int],
) -> None:
    """Write the rows of a new table, and move the files of the old one aside.

    Args:
        table: name of the table.
        schema: its columns.
        names: its data files so far.
        numbers: the progress numbers of applications, at least one.
    """
    lake, uri = aside.lake, aside.lake.uri(table)
    file = write_plain_file(rows, uri, f"part-repair-{secrets.token_hex(16)}.zstd.parquet", s3=lake.s3)
    for name in names:
        aside.move(f"{table}/{name}")
    aside.move_folder(f"{table}/{LOG}")
    delete_newest(uri, lake.storage_options)
    (first, number), *others = numbers.items()
    beside = {name: (0, other) for name, other in others}
    if not advance(uri, schema, [file], first, (None, number), beside=beside):
        raise LakeError(f"{uri}: another program has written to it meanwhile. Stop it, then repair again")


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _distinct(rows: pa.Table, key: tuple[str, ...], table: str) -> pa.Table:
    names = [*key]
    numbered = rows.select(key)
    if table == "erasures":
        # Of a message's row as it was before the purge, and after it, the latter is kept: it has no hash of before.
        has_hash = pc.is_valid(rows.column("row_before")).to_numpy()
        rows = rows.take(pa.array(np.argsort(has_hash, kind="stable")))
        is_later = pc.equal(rows.column("event"), str(ErasureEvent.LATER))
        numbered = rows.select(key).append_column("detail", pc.if_else(is_later, rows.column("detail"), None))
        names.append("detail")
    numbered = numbered.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    first = numbered.group_by(names, use_threads=False).aggregate([("row", "min")])
    return rows.take(first.column("row_min"))
