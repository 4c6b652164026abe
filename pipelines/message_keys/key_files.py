"""Rows and data files of `message_keys`, from rows of `messages` that a task has in memory, or that data files have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import string_bytes_and_offsets
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.erasures import NOTHING_ERASED, ErasedMessages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.crc import crc32
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, UNIQUE_KEY
from commitlake.schemas.tables.messages import MESSAGE_KEYS

MAX_ROWS = 1 << 18
"""Largest number of rows of `messages` whose keys go to one file, unless one data file has more: some 150 MiB of a
worker's memory."""
_MAX_BYTES = 32 << 20  # of the columns that keys are made of, likewise
_GROUP_ROWS = 1 << 16
_ENCODINGS = {
    "key_hash": "DELTA_BINARY_PACKED",
    "key": "PLAIN",
    "physical_offset": "DELTA_BINARY_PACKED",
    "store_timestamp": "DELTA_BINARY_PACKED",
}


def _hash_texts(text_bytes: Array, offsets: Array, hashes: Array) -> None:
    """Compute the CRC-32 of each string.

    Args:
        text_bytes: uint8, the concatenated strings.
        offsets: int64, start of each string, and the end.
        hashes: int64, receives one hash for each string.
    """
    for row in range(len(hashes)):
        hashes[row] = np.int64(crc32(text_bytes, offsets[row], offsets[row + 1] - offsets[row]))


hash_texts = cast("Callable[[Array, Array, Array], None]", compiled(_hash_texts))
SCHEMA = arrow_schema(MESSAGE_KEYS)
REPEATING = ["broker", "topic"]
COLUMNS = ["broker", "physical_offset", "topic", "unique_key", "keys", "store_timestamp"]
_PLACE = ["broker", "physical_offset", "topic", "store_timestamp"]


def extract_keys(messages: pa.Table) -> pa.Table:
    """Return the keys of messages, sorted by their hashes.

    Args:
        messages: has `COLUMNS`, as in a data file of `messages`; columns of `REPEATING` should be dictionaries.

    Returns:
        A table of `MESSAGE_KEYS`. A key that a message has twice gives one row.
    """
    messages = messages.select(COLUMNS).unify_dictionaries().combine_chunks()
    places = messages.select(_PLACE)
    keys, parents = _business_keys(messages)
    has_unique = pc.is_valid(messages.column("unique_key"))
    unique_keys = messages.column("unique_key").filter(has_unique).combine_chunks()
    texts = pa.concat_arrays([keys, unique_keys])
    rows = np.concatenate([parents, np.flatnonzero(has_unique.to_numpy())])
    kinds = np.repeat(np.array([0, 1], np.int8), [len(keys), len(unique_keys)])
    hashes = key_hashes(texts)
    order = _hash_sort_order(hashes)
    columns = dict(zip(_PLACE, places.take(pa.array(rows[order])).columns, strict=True))
    columns["key_hash"] = pa.array(hashes[order])
    columns["key"] = texts.take(pa.array(order))
    columns["kind"] = pa.DictionaryArray.from_arrays(kinds[order], [BUSINESS_KEY, UNIQUE_KEY])
    return pa.table([columns[name] for name in SCHEMA.names], SCHEMA.names)


def key_hashes(texts: pa.Array) -> Array:
    """Return the CRC-32 of each string as int64.

    Args:
        texts: strings without nulls.
    """
    hashes = np.empty(len(texts), np.int64)
    data, offsets = string_bytes_and_offsets(texts)
    hash_texts(data, offsets.astype(np.int64), hashes)
    return hashes


def _hash_sort_order(hashes: Array) -> Array:
    """Return the row order that sorts 32-bit hashes; rows with equal hashes keep their order.

    Hash and index are sorted as one number, in half the time of `argsort`.
    """
    both = hashes.astype(np.uint64) << np.uint64(32) | np.arange(len(hashes), dtype=np.uint64)
    both.sort()
    return (both & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _business_keys(messages: pa.Table) -> tuple[pa.Array, Array]:
    """Return the distinct business keys of each message in one array, and for each key the index of its message."""
    lists = messages.column("keys").combine_chunks()
    keys, parents = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    if (parents[1:] == parents[:-1]).any():  # some message has several keys, perhaps equal ones
        once = pa.table({"parent": parents, "key": keys}).group_by(["parent", "key"]).aggregate([])
        keys, parents = once.column("key").combine_chunks(), once.column("parent").to_numpy()
    return keys, parents


@dataclass(frozen=True)
class PreparedKeys:
    """Data files of `message_keys` that archive tasks wrote together with their data files of `messages`.

    Attributes:
        messages: names of the data files of `messages`.
        erasure: number of the newest erasure that was known; none of its messages, nor of earlier ones, are there.
        files: data files of `message_keys`, which no version refers to yet.
    """

    messages: frozenset[str]
    erasure: int
    files: list[DataFile]


class KeyWriter:
    """Collects the keys of a task's messages, and writes them to files whose names begin with `name`.

    Args:
        lake: where the tables are.
        name: beginning of the file names.
        erased: messages whose keys are left out.
    """

    def __init__(self, lake: Lake, name: str, erased: ErasedMessages = NOTHING_ERASED) -> None:
        self._lake = lake
        self._name = name
        self._erased = erased
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._written: list[DataFile] = []

    def add_messages(self, messages: pa.Table) -> None:
        """Collect the keys in rows of `messages`, and write collected keys to a file before they are too many."""
        rows = messages.select(COLUMNS)
        size = rows.nbytes
        if self._rows + rows.num_rows > MAX_ROWS or self._bytes + size > _MAX_BYTES:
            self._write_keys()
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += size
        if self._bytes > _MAX_BYTES:  # the data file is written next, which needs the memory
            self._write_keys()

    def finish_files(self) -> list[DataFile]:
        """Write the remaining keys and return all files; they are in no table until they are committed."""
        self._write_keys()
        return self._written

    def _write_keys(self) -> None:
        if not self._waiting:
            return
        parts, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        name = f"{self._name}-{len(self._written):03d}.zstd.parquet"
        file = write_keys(parts, self._erased, self._lake, name)
        if file is not None:
            self._written.append(file)


def write_keys(key_tables: Sequence[pa.Table], erased: ErasedMessages, lake: Lake, name: str) -> DataFile | None:
    """Write the keys of messages to a file, if there are any; it is in no table until it is committed.

    Args:
        key_tables: rows of `messages` with the columns that `extract_keys` needs.
        erased: messages whose keys are left out.
        name: name of the file.
    """
    rows = extract_keys(erased.drop_erased_rows(pa.concat_tables(key_tables)))
    if not rows.num_rows:
        return None
    return write_plain_file(rows, lake, "message_keys", name, _ENCODINGS, _GROUP_ROWS, has_row_sum=False)
