"""The places of the messages that have a key: from `message_keys`, and, of what it does not follow yet, `messages`.

A look-up reads one page of each file of `message_keys`, and the column of the keys of what is newer. It needs neither
Spark nor the compiler, which would take longer to load than to find anything.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from connectors.lake.delta import delta_table, storage_options
from connectors.lake.paths import LakePaths
from connectors.lake.reader import run_sql
from connectors.lake.versions import VersionGoneError, table_files
from connectors.message_keys.progress import BUSINESS_KEY, followed_version, new_files

PLACES = pa.schema([
    ("broker", pa.string()), ("physical_offset", pa.int64()), ("topic", pa.string()),
    ("store_timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip
_NAME = "message_keys"
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
    hashes = ", ".join(str(key_hash(key)) for key in keys)
    texts = ", ".join("'" + key.replace("'", "''") + "'" for key in keys)
    wanted = f"key_hash IN ({hashes}) AND key IN ({texts}) AND kind = '{kind}'"
    answer = run_sql(table, _NAME, f"SELECT {', '.join(PLACES.names)} FROM {_NAME} WHERE {wanted}").read_all()
    return pa.table([column.cast(field.type) for column, field in zip(answer, PLACES, strict=True)], schema=PLACES)


def _newer(lake: LakePaths, keys: Sequence[str], kind: str) -> Iterator[pa.Table]:
    files, _ = new_files(lake, followed_version(lake))
    if not files:
        return
    folder = table_files(lake.messages, storage_options(lake.messages, lake.s3))
    column = _COLUMNS.get(kind, kind)
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
        values = rows.column(column).combine_chunks()
        if kind == BUSINESS_KEY:
            wanted = pc.is_in(pc.list_flatten(values), pa.array(keys))
            yield rows.take(pc.list_parent_indices(values).filter(wanted).unique())
        else:
            yield rows.filter(pc.is_in(values, pa.array(keys)))
