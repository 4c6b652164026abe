"""Finds the places of messages with a key: in `message_keys`, and in versions of `messages` that it lacks.

A look-up reads a row group of each file of `message_keys`, and the keys of newer messages. It needs neither Spark nor
the compiler, which would take longer to load than the look-up itself.
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
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import delta_table, storage_options
from commitlake.connectors.lake.erasures import read_erased_places
from commitlake.connectors.lake.file_actions import file_actions, file_bounds
from commitlake.connectors.lake.new_files import new_files
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.versions import VersionGoneError, table_files
from commitlake.connectors.plain_arrays import combined, mask_of, numbers_of, texts_of
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, followed_version

PLACES = pa.schema([
    ("broker", pa.string()), ("physical_offset", pa.int64()), ("topic", pa.string()),
    ("store_timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip
_NOWHERE = pa.Table.from_batches([], PLACES)
_COLUMNS = {BUSINESS_KEY: "keys"}  # columns of messages; the other kind has a column of its name


def find_keys(lake: LakePaths, keys: Sequence[str], kind: str = BUSINESS_KEY) -> pa.Table:
    """Find the places of the messages with the given keys.

    Args:
        lake: locations of the tables.
        keys: the keys; a message needs only one of them.
        kind: kind of the keys, see `progress`.

    Returns:
        A table of `PLACES`, in no order; a message with several of the keys may appear more than once.

    Raises:
        VersionsError: if rows of `messages` were changed since, or new files no longer exist.
    """
    found = [_followed(lake, keys, kind), *_newer(lake, keys, kind)]
    return pa.concat_tables(table.select(PLACES.names).cast(PLACES) for table in found)


def key_hash(key: str) -> int:
    """Return the hash by which a key is found."""
    return zlib.crc32(key.encode())


def _followed(lake: LakePaths, keys: Sequence[str], kind: str) -> pa.Table:
    try:
        table = delta_table(lake.message_keys, lake.s3)
    except TableNotFoundError:
        return _NOWHERE
    wanted = _Wanted(keys, kind)
    folder = table_files(lake.message_keys, storage_options(lake.message_keys, lake.s3))
    actions = file_actions(table)
    bounds = zip(*(column.to_pylist() for column in file_bounds(actions, "key_hash", pa.int64())), strict=True)
    paths = zip(actions.column("path").to_pylist(), bounds, strict=True)
    names = [unquote(path) for path, (least, greatest) in paths if wanted.may_be_between(least, greatest)]
    return pa.concat_tables([_NOWHERE, *(wanted.read(folder, name) for name in names)])


class _Wanted:
    """Criteria for rows of `message_keys`."""

    def __init__(self, keys: Sequence[str], kind: str) -> None:
        self._hashes = sorted({key_hash(key) for key in keys})
        self._keys, self._kinds = texts_of(list(keys)), texts_of([kind])

    def read(self, folder: pafs.FileSystem, name: str) -> pa.Table:
        """Read the matching places of one file, with a check of page checksums, which the SQL engine does not do."""
        with folder.open_input_file(name) as file, pq.ParquetFile(file, page_checksum_verification=True) as source:
            number = source.schema_arrow.names.index("key_hash")
            groups = []
            for group in range(source.num_row_groups):
                statistics = source.metadata.row_group(group).column(number).statistics
                known = statistics is not None and statistics.has_min_max
                if self.may_be_between(statistics.min if known else None, statistics.max if known else None):
                    groups.append(group)
            rows = source.read_row_groups(groups, [*PLACES.names, "key_hash", "key", "kind"], use_threads=False)
        has_hash = mask_of(np.isin(numbers_of(rows.column("key_hash"), null=-1), self._hashes))
        rows = rows.filter(has_hash)
        is_wanted = pc.and_(pc.is_in(rows.column("key"), self._keys), pc.is_in(rows.column("kind"), self._kinds))
        return rows.filter(is_wanted).select(PLACES.names).cast(PLACES)

    def may_be_between(self, least: int | None, greatest: int | None) -> bool:
        """Return whether rows between two hashes may match; None for an unknown bound."""
        if least is None or greatest is None:
            return True
        return any(least <= wanted <= greatest for wanted in self._hashes)


def _newer(lake: LakePaths, keys: Sequence[str], kind: str) -> Iterator[pa.Table]:
    files, _ = new_files(lake, followed_version(lake))
    if not files:
        return
    folder = table_files(lake.messages, storage_options(lake.messages, lake.s3))
    column = _COLUMNS.get(kind, kind)
    erased = read_erased_places(lake)
    for added in files:
        try:
            with folder.open_input_file(added.name) as file:
                columns = [*PLACES.names, column]
                rows = pq.read_table(file, columns=columns, page_checksum_verification=True).combine_chunks()
        except FileNotFoundError:
            raise VersionGoneError(
                f"the data file {added.name} no longer exists: expected VACUUM to leave files that message_keys does "
                "not have yet. Update message_keys by 'commitlake archive' without --no-keys"
            ) from None
        rows = erased.without(rows).combine_chunks()
        values = combined(rows.column(column))
        if kind == BUSINESS_KEY:
            wanted = pc.is_in(pc.list_flatten(values), texts_of(list(keys)))
            yield rows.take(pc.list_parent_indices(values).filter(wanted).unique())
        else:
            yield rows.filter(pc.is_in(values, texts_of(list(keys))))
