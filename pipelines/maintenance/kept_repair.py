"""The tables whose rows nothing else tells, made again from their data files: `erasures` and `evidence`.

They only grow, and no two rows have the same key: the table is the set of the rows of all its data files, merged
ones among them. A file that a killed writer left is taken, too: an erasure that was about to begin has begun then.

Killed at any step, the next repair does it again: the file with all rows is there before any other goes aside, and as
long as `messages` says that something was erased, a lake without the table is damaged.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.lake.archive_log import APPLICATION_ID as ARCHIVE
from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.committer import advance
from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.log_files import LOG
from commitlake.connectors.lake.newest_versions import delete_newest
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.connectors.lake.versions import table_files
from commitlake.pipelines.maintenance.log_repair import AsideFolder
from commitlake.schemas.tables.erasures import ERASURES
from commitlake.schemas.tables.evidence import EVIDENCE

KEPT_TABLES: dict[str, tuple[StructType, str, tuple[str, ...]]] = {
    "erasures": (ERASURES, ERASURE, ("number", "erasure_id", "event", "at", "broker", "physical_offset")),
    "evidence": (EVIDENCE, "commitlake.evidence", ("number", "document")),
}
"""Columns, the application whose number is the greatest `number`, and the key of a row."""
WAY = "it is made again from the rows of its data files"


def rebuild_kept_table(aside: AsideFolder, table: str) -> Iterator[str]:
    """Make a table again; what is replaced goes aside.

    Args:
        aside: where files go.
        table: one of `KEPT_TABLES`.

    Yields:
        Sentences on what is lost.
    """
    lake = aside.lake
    schema, application, key = KEPT_TABLES[table]
    uri = getattr(lake, table)
    columns = to_arrow_schema(schema, timezone="UTC")
    parts, names = [columns.empty_table()], []
    try:
        files = table_files(uri, storage_options(uri, lake.s3))
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
            yield f"{table}: the rows of data file {info.path}: {str(error).splitlines()[0]}"
    rows = _distinct(pa.concat_tables(parts), key)
    file = write_plain_file(rows, uri, f"part-repair-{secrets.token_hex(16)}.zstd.parquet", s3=lake.s3)
    for name in names:
        aside.move(f"{table}/{name}")
    aside.move_folder(f"{table}/{LOG}")
    delete_newest(uri, storage_options(uri, lake.s3))
    newest = pc.max(rows.column("number")).as_py() or 0
    last = read_last_commit(lake.messages)
    archived = {ARCHIVE: (0, last.sequence)} if last else {}
    if not advance(uri, schema, [file], application, (None, newest), beside=archived):
        raise LakeError(f"{uri}: another program has written to it meanwhile: stop it, and repair again")


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _distinct(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    numbered = rows.select(key).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    first = numbered.group_by(list(key), use_threads=False).aggregate([("row", "min")])
    return rows.take(first.column("row_min"))
