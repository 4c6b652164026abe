"""Whether `message_keys` holds the keys of `messages`: all of them, and no others.

Both are read file by file, by tasks of a runner. A task returns how many keys a file has and the sum of their hashes,
for each part of the keys; which part a key is in follows from its hash. Two tables with the same sums have the same
keys; where they differ, only these parts need to be looked at key by key.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.delta import delta_table, storage_options
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.table_rows import TableRows
from commitlake.connectors.lake.versions import AddedFile, snapshot_files
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.message_keys.progress import followed_version
from commitlake.pipelines.message_keys.rows import COLUMNS, REPEATING, SCHEMA, to_keys
from commitlake.pipelines.quality.checksums import column_hashes, part_numbers
from commitlake.schemas.tables.messages import MESSAGES

_MESSAGES = to_arrow_schema(MESSAGES, timezone="UTC")


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


@dataclass(frozen=True)
class KeyFiles:
    """Data files with keys, and how they are read; it can be pickled.

    Attributes:
        table: the columns.
        files: the files.
        is_messages: whether the table is `messages`, whose rows give the keys, or `message_keys`.
        since: rows that were stored before that date are left out; None for none.
    """

    table: TableRows
    files: tuple[AddedFile, ...]
    is_messages: bool
    since: datetime.date | None = None

    @property
    def rows(self) -> int:
        """How many rows the files have, as far as their writers said."""
        return sum(file.rows or 0 for file in self.files)

    def read(self, file: AddedFile) -> Iterator[pa.Table]:
        """Read the keys of a file: tables of `MESSAGE_KEYS`, each column in one chunk."""
        for rows in self.table.read(file):
            if self.since is not None:
                first = datetime.datetime(self.since.year, self.since.month, self.since.day, tzinfo=datetime.UTC)
                rows = rows.filter(pc.greater_equal(rows.column("store_timestamp"), pa.scalar(first)))  # noqa: PLW2901
            keys = to_keys(rows) if self.is_messages else rows
            if keys.num_rows:
                yield keys.select(SCHEMA.names).unify_dictionaries().combine_chunks()


def keys_of_messages(lake: LakePaths, version: int | None = None, since: datetime.date | None = None) -> KeyFiles:
    """Return the files of a version of `messages`, whose rows give keys; of the newest where not given."""
    schema = pa.schema([_MESSAGES.field(name) for name in COLUMNS])
    return _key_files(lake, lake.messages, schema, version, since, is_messages=True)


def keys_of_table(lake: LakePaths, version: int | None = None, since: datetime.date | None = None) -> KeyFiles:
    """Return the files of a version of `message_keys`; of the newest where not given."""
    return _key_files(lake, lake.message_keys, SCHEMA, version, since, is_messages=False)


def _key_files(
    lake: LakePaths, uri: str, schema: pa.Schema, version: int | None, since: datetime.date | None, *, is_messages: bool
) -> KeyFiles:
    files = snapshot_files(uri, storage_options(uri, lake.s3), version).files
    return KeyFiles(TableRows(uri, lake.s3, schema, REPEATING), files, is_messages, since)


def check_keys(lake: LakePaths, since: datetime.date | None = None, runner: Runner = HERE) -> KeysCheck:
    """Compare `message_keys` with `messages`.

    Args:
        lake: where the tables lie.
        since: messages that were stored before that date are left out; all are compared where not given.
        runner: what reads the files.
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
    expected = sum_keys(keys_of_messages(lake, since=since), runner)
    found = sum_keys(keys_of_table(lake, since=since), runner)
    return KeysCheck(int(expected[0].sum()), int(found[0].sum()), bool((expected == found).all()))


def sum_keys(keys: KeyFiles, runner: Runner, parts: int = 1) -> Array:
    """Count keys and sum up their hashes.

    Args:
        keys: where they are.
        runner: what reads the files.
        parts: into how many parts they are divided.

    Returns:
        2 x parts: how many keys each part has, and the sum of their hashes modulo 2^64.
    """
    total = np.zeros((2, parts), np.int64)
    for _, sums in runner.run(partial(_sums_of_file, keys, parts), keys.files):
        total += sums
    return total


def _sums_of_file(keys: KeyFiles, parts: int, file: AddedFile) -> Array:
    sums = np.zeros((2, parts), np.int64)
    for rows in keys.read(file):
        hashes = key_row_hashes(rows)
        numbers = part_numbers(hashes, parts)
        sums[0] += np.bincount(numbers, minlength=parts)
        np.add.at(sums[1], numbers, hashes)
    return sums


def key_row_hashes(keys: pa.Table) -> Array:
    """Hash the rows of a table of `MESSAGE_KEYS`, each column in one chunk."""
    return column_hashes(keys, SCHEMA.names)
