"""Checks that `message_keys` has exactly the keys of `messages`.

Both tables are read by tasks of a runner. A task returns the number of keys of some files and the sum of their hashes,
for each part of the keys; the part of a key follows from its hash. Tables with equal sums have the same keys. If sums
differ, only these parts must be compared key by key.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import newest_commit
from commitlake.connectors.lake.delta_log.versions import AddedFile, files_of_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner, group_small_tasks
from commitlake.pipelines.message_keys.key_files import COLUMNS, REPEATING, SCHEMA, extract_keys
from commitlake.pipelines.message_keys.progress import followed_version
from commitlake.pipelines.quality.checksums import column_hashes, part_numbers
from commitlake.schemas.tables.messages import MESSAGES

_MESSAGES = arrow_schema(MESSAGES)


@dataclass(frozen=True, slots=True)
class KeysCheck:
    """Result of comparing `message_keys` with the keys in `messages`.

    Attributes:
        expected: number of keys in `messages`.
        found: number of rows of `message_keys`.
        same: True if they are the same rows.
        note: reason why nothing was compared; empty if it was.
    """

    expected: int = 0
    found: int = 0
    same: bool = True
    note: str = ""


@dataclass(frozen=True)
class KeyFiles:
    """Data files from which the keys of messages are read; picklable.

    Attributes:
        table: the columns.
        files: the files.
        is_messages: True if the table is `messages`, whose rows contain the keys; False for `message_keys`.
        since: rows stored before that date are left out; None for no limit.
    """

    table: TableRows
    files: tuple[AddedFile, ...]
    is_messages: bool
    since: datetime.date | None = None

    @property
    def row_count(self) -> int:
        """Number of rows of the files, where a file without a recorded number counts as 0."""
        return sum(file.rows or 0 for file in self.files)

    @property
    def copy_without_files(self) -> KeyFiles:
        """A copy without its list of files, for tasks that receive their own files."""
        return replace(self, files=())

    def read_keys(self, file: AddedFile) -> Iterator[pa.Table]:
        """Yield the keys in a file as tables with the columns of `message_keys`."""
        for rows in self.table.read_file(file):
            if self.since is not None:
                first = datetime.datetime(self.since.year, self.since.month, self.since.day, tzinfo=datetime.UTC)
                # By rows, because `message_keys` has no partitions of days.
                rows = rows.filter(pc.greater_equal(rows.column("store_timestamp"), pa.scalar(first)))  # noqa: PLW2901
            keys = extract_keys(rows) if self.is_messages else rows
            if keys.num_rows:
                yield keys.select(SCHEMA.names).unify_dictionaries().combine_chunks()


def open_keys_of_messages(lake: Lake, version: int | None = None, since: datetime.date | None = None) -> KeyFiles:
    """Return the files of a version of `messages`, by default the newest, whose rows contain keys."""
    schema = pa.schema([_MESSAGES.field(name) for name in COLUMNS])
    return _find_key_files(lake, "messages", schema, version, since)


def open_keys_of_table(lake: Lake, version: int | None = None, since: datetime.date | None = None) -> KeyFiles:
    """Return the files of a version of `message_keys`, by default the newest."""
    return _find_key_files(lake, "message_keys", SCHEMA, version, since)


def _find_key_files(
    lake: Lake, table: str, schema: pa.Schema, version: int | None, since: datetime.date | None
) -> KeyFiles:
    uri = lake.uri(table)
    files = files_of_table(uri, lake.table_at(table, version)).files
    return KeyFiles(TableRows(uri, lake.s3, schema, REPEATING), files, table == "messages", since)


def check_keys(lake: Lake, since: datetime.date | None = None, runner: Runner = HERE) -> KeysCheck:
    """Compare `message_keys` with the keys in `messages`, by counts and sums of hashes.

    Args:
        since: messages stored before that date are left out; by default all are compared.
    """
    messages = lake.table("messages")
    newest, followed = newest_commit(lake, messages), followed_version(lake)
    if followed < 0:
        return KeysCheck(note="message_keys has not followed messages yet")
    if newest is not None and followed < newest[0]:
        return KeysCheck(note=f"message_keys follows messages to version {followed} of {newest[0]}: not compared")
    if followed > messages.version():
        note = f"message_keys follows messages to version {followed}, but messages ends with {messages.version()}"
        return KeysCheck(same=False, note=note)
    expected = sum_key_hashes(open_keys_of_messages(lake, since=since), runner)
    found = sum_key_hashes(open_keys_of_table(lake, since=since), runner)
    return KeysCheck(int(expected[0].sum()), int(found[0].sum()), bool((expected == found).all()))


def sum_key_hashes(keys: KeyFiles, runner: Runner, part_count: int = 1) -> Array:
    """Return the number of keys in files and the sum of their hashes, for each part of the hash range.

    Args:
        keys: files with the keys.
        part_count: number of parts.

    Returns:
        2 x parts: the number of keys of each part, and the sum of their hashes modulo 2^64.
    """
    total = np.zeros((2, part_count), np.int64)
    groups = group_small_tasks(keys.files, [file.size for file in keys.files], runner.cores)
    for _, sums in runner.run(partial(_sum_key_hashes_of_files, keys.copy_without_files, part_count), groups):
        total += sums
    return total


def _sum_key_hashes_of_files(keys: KeyFiles, part_count: int, files: Sequence[AddedFile]) -> Array:
    sums = np.zeros((2, part_count), np.int64)
    for rows in (rows for file in files for rows in keys.read_keys(file)):
        hashes = key_row_hashes(rows)
        # `add.at`, because many keys belong to one part; sums may overflow, as they do in both tables.
        numbers = part_numbers(hashes, part_count)
        sums[0] += np.bincount(numbers, minlength=part_count)
        np.add.at(sums[1], numbers, hashes)
    return sums


def key_row_hashes(keys: pa.Table) -> Array:
    """Return a hash of each row of `message_keys`."""
    return column_hashes(keys, SCHEMA.names)
