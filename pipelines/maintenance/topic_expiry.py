"""Drops the rows of old messages from the typed tables of topics.

They have the age of their messages, also if the table was made later. A file whose rows are all old is dropped whole; a
file whose oldest row is kept a month too long already is written again without its old rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.lake.delta_log.file_actions import TOPIC_TIME, TableFile, read_table_files
from commitlake.connectors.lake.lake import TOPIC_TABLES, Lake
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.expiry import ExpiredFiles, measure_files, record_expiry
from commitlake.pipelines.maintenance.file_replacement import replace_table_files

_TOO_LONG = datetime.timedelta(days=31)


def expire_topic_rows(lake: Lake, table: str, first_kept_date: datetime.date, *, dry_run: bool) -> ExpiredFiles:
    """Remove the rows of old messages from the typed table of a topic in one commit, and return what was removed.

    Args:
        table: path of the table in the lake.
        first_kept_date: the first date of `_store_timestamp` that is kept.
        dry_run: True to change nothing.

    Raises:
        ConcurrentMaintenanceError: if another process has replaced some of the files meanwhile.
    """
    kept_from = datetime.datetime.combine(first_kept_date, datetime.time(), datetime.UTC)
    files = read_table_files(lake.table(table))
    old = [file for file in files if file.date < first_kept_date]
    mixed = [
        file
        for file in files
        if file.date >= first_kept_date and file.first_time is not None and file.first_time < kept_from - _TOO_LONG
    ]
    removed = measure_files(old)
    removed = replace(
        removed, rows=removed.rows + sum(_count_rows_before(lake, table, file, kept_from) for file in mixed)
    )
    if not dry_run and (old or mixed):
        rewritten = [rewrite_file(lake, table, file, partial(_drop_rows_before, kept_from)) for file in mixed]
        # Before rows are deleted: without this record, an audit would take them for lost.
        record_expiry(lake, TOPIC_TABLES, first_kept_date)
        note = {"action": "expire", "before": first_kept_date.isoformat()}
        replace_table_files(lake, table, [*old, *mixed], rewritten, changes_data=True, note=note)
    return removed


def _count_rows_before(lake: Lake, table: str, file: TableFile, time: datetime.datetime) -> int:
    with lake.open_folder(table).open_input_file(unquote(file.path)) as source:
        times = pq.read_table(source, columns=[TOPIC_TIME]).column(TOPIC_TIME)
    return pc.sum(pc.less(times, pa.scalar(time, times.type))).as_py() or 0


def _drop_rows_before(time: datetime.datetime, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for batch in batches:
        times = batch.column(TOPIC_TIME)
        yield batch.filter(pc.greater_equal(times, pa.scalar(time, times.type)).fill_null(True))
