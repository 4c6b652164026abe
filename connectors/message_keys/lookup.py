"""The places of the messages that have a key: from `message_keys`, and, of what it does not follow yet, `messages`.

A look-up reads one page of each file of `message_keys`, and the column of the keys of what is newer.
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
from connectors.lake.versions import table_files
from connectors.message_keys.follow import followed_version, new_files
from connectors.message_keys.rows import COLUMNS, REPEATING, SCHEMA, to_keys
from schemas.tables.message_keys import BUSINESS_KEY

_NAME = "message_keys"


def find_keys(lake: LakePaths, keys: Sequence[str], kind: str = BUSINESS_KEY) -> pa.Table:
    """Where the messages of some keys are.

    Args:
        lake: where the tables lie.
        keys: all of them are wanted.
        kind: what they are, see `schemas.tables.message_keys`.

    Returns:
        A table of `MESSAGE_KEYS`, in no order.

    Raises:
        VersionsError: where rows of `messages` were changed since.
    """
    found = [_followed(lake, keys, kind), *_newer(lake, keys, kind)]
    return pa.concat_tables(table.select(SCHEMA.names).cast(SCHEMA) for table in found)


def key_hash(key: str) -> int:
    """The hash by which a key is found."""
    return zlib.crc32(key.encode())


def _followed(lake: LakePaths, keys: Sequence[str], kind: str) -> pa.Table:
    try:
        table = delta_table(lake.message_keys, lake.s3)
    except TableNotFoundError:
        return SCHEMA.empty_table()
    hashes = ", ".join(str(key_hash(key)) for key in keys)
    texts = ", ".join("'" + key.replace("'", "''") + "'" for key in keys)
    wanted = f"key_hash IN ({hashes}) AND key IN ({texts}) AND kind = '{kind}'"
    answer = run_sql(table, _NAME, f"SELECT * FROM {_NAME} WHERE {wanted}").read_all()
    return pa.table([column.cast(SCHEMA.field(number).type) for number, column in enumerate(answer)], SCHEMA.names)


def _newer(lake: LakePaths, keys: Sequence[str], kind: str) -> Iterator[pa.Table]:
    files, _ = new_files(lake, followed_version(lake))
    if not files:
        return
    folder = table_files(lake.messages, storage_options(lake.messages, lake.s3))
    for added in files:
        with folder.open_input_file(added.name) as file:
            rows = to_keys(pq.read_table(file, columns=COLUMNS, read_dictionary=REPEATING))
        wanted = pc.and_(pc.is_in(rows.column("key"), pa.array(keys)), pc.equal(rows.column("kind"), kind))
        yield rows.filter(wanted)
