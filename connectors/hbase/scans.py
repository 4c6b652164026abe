"""Scans of a table of messages, salt by salt and page by page."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from commitlake.connectors.hbase.cells import VALUE, parse_row, to_batch
from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.keys import MESSAGE, prefix_end


def read_messages_of_salt(client: Client, salt: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Read all messages of one salt, page by page, in the order of their keys.

    Raises:
        HBaseError: if a row contains no message, or if HBase did not answer in time.
    """
    prefix = bytes((salt,)) + MESSAGE
    for page in client.scan(prefix, prefix_end(prefix), page_rows=client.options.batch_rows):
        yield to_batch([parse_row(row.cells[VALUE]) for row in page], columns)
