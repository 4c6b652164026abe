"""The content of an HBase table, read without the tested code where necessary."""

from __future__ import annotations

from typing import Any

import happybase

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.scans import read_messages_of_salt
from commitlake.connectors.hbase.tables import open_existing_table
from commitlake.schemas.tables.messages import MESSAGES
from tests.support.hbase_tables import by_place

Cells = dict[bytes, dict[bytes, tuple[bytes, int]]]


def all_cells(options: HBaseOptions) -> Cells:
    """Return every cell of the table's messages and entries, with its timestamp."""
    connection = happybase.Connection(options.host, options.port, timeout=90_000)
    try:
        rows = connection.table(options.table).scan(columns=[b"m"], include_timestamp=True, batch_size=2000)
        return dict(rows)
    finally:
        connection.close()


def hbase_rows(options: HBaseOptions) -> list[dict[str, Any]]:
    """Return all messages, in the order of their primary key."""
    with Client(options) as client:
        batches = [
            batch
            for salt in range(open_existing_table(client).salts)
            for batch in read_messages_of_salt(client, salt, MESSAGES.names)
        ]
    return by_place([row for batch in batches for row in batch.to_pylist()])
