"""Whether `message_keys` holds the keys of `messages`: all of them, and no others."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.delta import delta_table, storage_options
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.versions import table_files
from commitlake.pipelines.message_keys.progress import followed_version
from commitlake.pipelines.message_keys.rows import COLUMNS, REPEATING, SCHEMA, to_keys
from commitlake.pipelines.quality.checksums import column_hashes

_GROUP_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class KeysCheck:
    """What was compared.

    Attributes:
        expected: rows that the keys of `messages` give.
        found: rows of `message_keys`.
        same: whether they are the same rows.
        note: why nothing was compared; empty where it was.
    """

    expected: int = 0
    found: int = 0
    same: bool = True
    note: str = ""


def check_keys(lake: LakePaths, since: datetime.date | None = None) -> KeysCheck:
    """Compare `message_keys` with `messages`, file by file, in this process.

    Args:
        lake: where the tables lie.
        since: messages that were stored before that date are left out; all are compared where not given.
    """
    messages = delta_table(lake.messages, lake.s3)
    newest, followed = newest_commit(messages), followed_version(lake)
    if followed < 0:
        return KeysCheck(note="message_keys has not followed messages yet")
    if newest is not None and followed < newest[0]:
        return KeysCheck(note=f"message_keys has followed messages to version {followed} of {newest[0]}: not compared")
    if followed > messages.version():
        note = f"message_keys has followed messages to version {followed}, and messages ends with {messages.version()}"
        return KeysCheck(same=False, note=note)
    expected = _sums(to_keys(rows) for rows in _tables(lake, "messages", COLUMNS, since))
    found = _sums(rows.select(SCHEMA.names) for rows in _tables(lake, "message_keys", SCHEMA.names, since))
    return KeysCheck(expected[0], found[0], expected == found)


def _sums(tables: Iterator[pa.Table]) -> tuple[int, int]:
    """How many rows there are, and the sum of their hashes."""
    count = total = 0
    for table in tables:
        whole = table.unify_dictionaries().combine_chunks()
        count += whole.num_rows
        total += int(column_hashes(whole, SCHEMA.names).sum(dtype=np.int64)) if whole.num_rows else 0
    return count, total & 0xFFFFFFFFFFFFFFFF


def _tables(lake: LakePaths, name: str, columns: list[str], since: datetime.date | None) -> Iterator[pa.Table]:
    uri = getattr(lake, name)
    try:
        table = delta_table(uri, lake.s3)
    except TableNotFoundError:
        return
    files = table_files(uri, storage_options(uri, lake.s3))
    for path in file_actions(table).column("path").to_pylist():
        with (
            files.open_input_file(unquote(path)) as source,
            pq.ParquetFile(source, read_dictionary=REPEATING, page_checksum_verification=True) as parquet,
        ):
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, columns)
                if since is not None:
                    first = datetime.datetime(since.year, since.month, since.day, tzinfo=datetime.UTC)
                    rows = rows.filter(pc.greater_equal(rows.column("store_timestamp"), pa.scalar(first)))
                for start in range(0, rows.num_rows, _GROUP_ROWS):
                    yield rows.slice(start, _GROUP_ROWS)
