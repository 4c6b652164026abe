"""Finds the places of messages with a key: in `message_keys`, and in versions of `messages` that it lacks.

A look-up reads the hashes of a row group of each file of `message_keys`, the other columns where a hash matches, and
the keys of newer messages. It needs neither Spark nor the compiler, which would take longer to load than the look-up
itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import join_chunks, to_boolean_array, to_numpy_numbers, to_string_array
from commitlake.connectors.lake.added_files import added_files
from commitlake.connectors.lake.delta_log.file_actions import column_bounds_per_file, read_file_actions
from commitlake.connectors.lake.delta_log.versions import VersionGoneError
from commitlake.connectors.lake.erasures import read_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, followed_version_in

PLACES = pa.schema([
    ("broker", pa.string()), ("physical_offset", pa.int64()), ("topic", pa.string()),
    ("store_timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip
_COLUMNS = {BUSINESS_KEY: "keys"}  # columns of messages; the other kind has a column of its name


def find_message_places(lake: Lake, keys: Sequence[str], key_kind: str = BUSINESS_KEY) -> pa.Table:
    """Find the locations of the messages with any of the given keys.

    Args:
        keys: the keys; a message needs only one of them.
        key_kind: kind of the keys, see `progress`.

    Returns:
        A table of `PLACES`, in no order; a message with several of the keys may appear more than once.

    Raises:
        VersionsError: if rows of `messages` were changed since, or new files no longer exist.
    """
    return _find_places(lake, lake.find("message_keys"), keys, key_kind)


def find_indexed_message_places(lake: Lake, keys: Sequence[str], key_kind: str = BUSINESS_KEY) -> pa.Table | None:
    """Find the locations of messages with any of the given keys in `message_keys`; None if it was never filled.

    A query of `messages` is then faster, because `find_message_places` reads all its keys.
    """
    table = lake.find("message_keys")
    return None if followed_version_in(table) < 0 else _find_places(lake, table, keys, key_kind)


def find_indexed_places_by_key(lake: Lake, keys: Sequence[str], key_kind: str = BUSINESS_KEY) -> pa.Table | None:
    """Find the locations of messages with each of many keys in `message_keys`; None if it was never filled.

    Returns:
        A table of `PLACES` and `key`, in no order.

    Raises:
        VersionsError: as for `find_message_places`.
    """
    table = lake.find("message_keys")
    return None if followed_version_in(table) < 0 else _find_places(lake, table, keys, key_kind, with_key=True)


def key_hash(key: str) -> int:
    """Return the CRC-32 of a key, by which `message_keys` is sorted and searched."""
    return zlib.crc32(key.encode())


def _find_places(
    lake: Lake, table: DeltaTable | None, keys: Sequence[str], key_kind: str, *, with_key: bool = False
) -> pa.Table:
    schema = PLACES.append(pa.field("key", pa.string())) if with_key else PLACES
    found = [
        # The version is that of the table opened above, so that no message is missed between the two parts.
        *_places_in_table(lake, table, keys, key_kind),
        *_places_in_new_files(lake, followed_version_in(table), keys, key_kind, with_key=with_key),
    ]
    nowhere = pa.Table.from_batches([], schema)  # loads no pandas, as an empty table would
    return pa.concat_tables([nowhere, *(rows.select(schema.names).cast(schema) for rows in found)])


def _places_in_table(lake: Lake, table: DeltaTable | None, keys: Sequence[str], key_kind: str) -> Iterator[pa.Table]:
    if table is None:
        return
    wanted = _KeyCriteria(keys, key_kind)
    folder = lake.open_folder("message_keys")
    actions = read_file_actions(table)
    bounds = zip(
        *(column.to_pylist() for column in column_bounds_per_file(actions, "key_hash", pa.int64())), strict=True
    )
    for path, (least, greatest) in zip(actions.column("path").to_pylist(), bounds, strict=True):
        if wanted.may_have_hash_between(least, greatest):
            yield from wanted.read_matching_places(folder, unquote(path))


class _KeyCriteria:
    """Search criteria for rows of `message_keys`: the wanted keys, their hashes and their kind."""

    def __init__(self, keys: Sequence[str], kind: str) -> None:
        self._hashes = sorted({key_hash(key) for key in keys})
        self._keys, self._kinds = to_string_array(list(keys)), to_string_array([kind])

    def read_matching_places(self, folder: pafs.FileSystem, name: str) -> Iterator[pa.Table]:
        """Read the message locations of the wanted keys from a file, with verification of page checksums.

        The hashes are a tenth of a row group's bytes, and few row groups have one that matches.
        """
        with folder.open_input_file(name) as file, pq.ParquetFile(file, page_checksum_verification=True) as source:
            number = source.schema_arrow.names.index("key_hash")
            for group in range(source.num_row_groups):
                statistics = source.metadata.row_group(group).column(number).statistics
                known = statistics is not None and statistics.has_min_max
                if not self.may_have_hash_between(statistics.min if known else None, statistics.max if known else None):
                    continue
                hashes = source.read_row_group(group, ["key_hash"], use_threads=False).column("key_hash")
                has_hash = np.isin(to_numpy_numbers(hashes, null_value=-1), self._hashes)
                if has_hash.any():
                    rows = source.read_row_group(group, [*PLACES.names, "key", "kind"], use_threads=False)
                    yield self._matching_rows(rows.filter(to_boolean_array(has_hash)))

    def _matching_rows(self, rows: pa.Table) -> pa.Table:
        # Different keys may have the same hash.
        is_wanted = pc.and_(pc.is_in(rows.column("key"), self._keys), pc.is_in(rows.column("kind"), self._kinds))
        return rows.filter(is_wanted)

    def may_have_hash_between(self, least_hash: int | None, greatest_hash: int | None) -> bool:
        """Return whether any wanted key has a hash between two bounds; True if a bound is None (unknown)."""
        if least_hash is None or greatest_hash is None:
            return True
        return any(least_hash <= wanted <= greatest_hash for wanted in self._hashes)


def _places_in_new_files(
    lake: Lake, followed_version: int, keys: Sequence[str], key_kind: str, *, with_key: bool
) -> Iterator[pa.Table]:
    files, _ = added_files(lake, followed_version)
    if not files:
        return
    folder = lake.open_folder("messages")
    column = _COLUMNS.get(key_kind, key_kind)
    erased = read_erased_messages(lake)
    for added in files:
        try:
            with folder.open_input_file(added.name) as file:
                columns = [*PLACES.names, column]
                rows = pq.read_table(file, columns=columns, page_checksum_verification=True).combine_chunks()
        except FileNotFoundError:
            raise VersionGoneError(
                f"the data file {added.name} was deleted before its keys were added to message_keys, perhaps by "
                "VACUUM. Run 'commitlake archive' without --no-keys, which updates message_keys"
            ) from None
        # Files that `message_keys` has not followed may still have messages that were erased since.
        rows = erased.drop_erased_rows(rows).combine_chunks()
        values = join_chunks(rows.column(column))
        if key_kind == BUSINESS_KEY:
            each_key = pc.list_flatten(values)
            wanted = pc.is_in(each_key, to_string_array(list(keys)))
            parents = pc.list_parent_indices(values).filter(wanted)
            if with_key:  # a message that repeats a key has a row for each time
                yield rows.take(parents).append_column("key", each_key.filter(wanted))
            else:  # a message that has several of the keys is one place
                yield rows.take(parents.unique())
        else:
            chosen = rows.filter(pc.is_in(values, to_string_array(list(keys))))
            yield chosen.append_column("key", chosen.column(column)) if with_key else chosen
