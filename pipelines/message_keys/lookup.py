"""The places of the messages that have a key: from `message_keys`, and, of what it does not follow yet, `messages`.

A look-up reads a row group of each file of `message_keys`, and the keys of what is newer. It needs neither Spark
nor the compiler, which would take longer to load than to find anything.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import delta_table, storage_options
from commitlake.connectors.lake.erasures import read_erased_places
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.versions import VersionGoneError, table_files
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, followed_version, new_files

PLACES = pa.schema([
    ("broker", pa.string()), ("physical_offset", pa.int64()), ("topic", pa.string()),
    ("store_timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip
_COLUMNS = {BUSINESS_KEY: "keys"}  # of messages; that of the other kind is called as the kind is


def find_keys(lake: LakePaths, keys: Sequence[str], kind: str = BUSINESS_KEY) -> pa.Table:
    """Where the messages of some keys are.

    Args:
        lake: where the tables lie.
        keys: any of them is wanted.
        kind: what they are, see `progress`.

    Returns:
        A table of `PLACES`, in no order; a message that has several of the keys may be in it more than once.

    Raises:
        VersionsError: where rows of `messages` were changed since, or what is new is no longer there to be read.
    """
    found = [_followed(lake, keys, kind), *_newer(lake, keys, kind)]
    return pa.concat_tables(table.select(PLACES.names).cast(PLACES) for table in found)


def key_hash(key: str) -> int:
    """The hash by which a key is found."""
    return zlib.crc32(key.encode())


def _followed(lake: LakePaths, keys: Sequence[str], kind: str) -> pa.Table:
    try:
        table = delta_table(lake.message_keys, lake.s3)
    except TableNotFoundError:
        return PLACES.empty_table()
    wanted = _Wanted(keys, kind)
    folder = table_files(lake.message_keys, storage_options(lake.message_keys, lake.s3))
    names = [unquote(action["path"]) for action in file_actions(table).to_pylist() if wanted.may_be_in(action)]
    return pa.concat_tables([PLACES.empty_table(), *(wanted.read(folder, name) for name in names)])


class _Wanted:
    """The rows of `message_keys` that some keys have."""

    def __init__(self, keys: Sequence[str], kind: str) -> None:
        self._hashes = sorted({key_hash(key) for key in keys})
        self._where = (
            (pc.field("key_hash").isin(self._hashes)) & (pc.field("key").isin(list(keys))) & (pc.field("kind") == kind)
        )

    def may_be_in(self, action: dict[str, Any]) -> bool:
        """Whether a data file, as the log describes it, may have such rows."""
        return self._may_be_between(
            (action.get("min") or {}).get("key_hash"), (action.get("max") or {}).get("key_hash")
        )

    def read(self, folder: pafs.FileSystem, name: str) -> pa.Table:
        """The places in one file; its pages' checksums are compared, which the SQL engine would not do."""
        with folder.open_input_file(name) as file, pq.ParquetFile(file, page_checksum_verification=True) as source:
            number = source.schema_arrow.names.index("key_hash")
            groups = []
            for group in range(source.num_row_groups):
                statistics = source.metadata.row_group(group).column(number).statistics
                known = statistics is not None and statistics.has_min_max
                if self._may_be_between(statistics.min if known else None, statistics.max if known else None):
                    groups.append(group)
            rows = source.read_row_groups(groups, [*PLACES.names, "key_hash", "key", "kind"], use_threads=False)
        return rows.filter(self._where).select(PLACES.names).cast(PLACES)

    def _may_be_between(self, least: int | None, greatest: int | None) -> bool:
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
                f"the data file {added.name} is no longer there: expected VACUUM to leave what message_keys has yet "
                "to follow. Let message_keys follow, by 'commitlake archive' without --no-keys"
            ) from None
        rows = erased.without(rows).combine_chunks()
        values = rows.column(column).combine_chunks()
        if kind == BUSINESS_KEY:
            wanted = pc.is_in(pc.list_flatten(values), pa.array(keys))
            yield rows.take(pc.list_parent_indices(values).filter(wanted).unique())
        else:
            yield rows.filter(pc.is_in(values, pa.array(keys)))
