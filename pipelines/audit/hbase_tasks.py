"""Tasks that count the messages in HBase, one for each salt of the table."""

from __future__ import annotations

import pyarrow as pa

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.scans import read_messages_of_salt
from commitlake.connectors.hbase.tables import open_existing_table
from commitlake.pipelines.audit.counts_by_window import count_messages_by_window, merge_windows
from commitlake.pipelines.audit.message_rows import RowCriteria
from commitlake.schemas.tables.messages import MESSAGES


def list_salts(options: HBaseOptions) -> range:
    """Return the salts (prefixes of row keys) of an HBase table, as a range of numbers."""
    with Client(options) as client:
        return range(open_existing_table(client).salts)


def count_messages_of_salt(options: HBaseOptions, criteria: RowCriteria, salt: int) -> pa.Table:
    """Count the messages whose HBase row keys begin with a salt, by queue and time window, as a table of `AUDIT`."""
    with Client(options.with_long_connect_timeout()) as client:
        batches = read_messages_of_salt(client, salt, MESSAGES.names)
        return merge_windows(
            [count_messages_by_window(criteria.select_rows_of(pa.Table.from_batches([batch]))) for batch in batches]
        )
