"""Adds new records of the stores' consume logs to `consumptions`.

Each commit records its position in a store's consume log as the version of an application transaction (Delta's `txn`
action). If a run is killed, the next one continues from there; of two concurrent runs, only one commits.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import pyarrow as pa

from commitlake.connectors.lake.backoff import TableUpdate
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.reading.stores import Store

_TABLE = "consumptions"
_APPLICATION = "commitlake.consumptions."


def read_consume_log_progress(lake: Lake, broker: str) -> int | None:
    """Return the consume log offset up to which `consumptions` has a store's records; None if it has none."""
    table = lake.find(_TABLE)
    return None if table is None else table.transaction_version(f"{_APPLICATION}{broker}")


def follow_consume_logs(lake: Lake, stores: Sequence[Store]) -> TableUpdate:
    """Add to `consumptions` the records that were written to the stores' consume logs since the last run.

    Raises:
        UnsafeFileError: if a file of a consume log is a link or not regular.
    """
    rows = 0
    problems: list[str] = []
    for store in stores:
        read_consume_log = store.format.read_consume_log
        if read_consume_log is None:
            continue
        progress = read_consume_log_progress(lake, store.broker)
        for part in read_consume_log(store.folder, store.broker, progress):
            problems += part.problems
            if part.end == progress:
                continue
            files = []
            if part.rows.num_rows:
                name = f"part-{secrets.token_hex(16)}.zstd.parquet"
                files = [write_plain_file(pa.Table.from_batches([part.rows]), lake, _TABLE, name)]
            # Also without rows, so that the next run does not read this part again.
            step = (progress, part.end)
            if not commit_with_transaction(lake, _TABLE, files, f"{_APPLICATION}{store.broker}", step):
                return TableUpdate(_TABLE, rows=rows, is_unfinished=True, problems=problems)
            progress = part.end
            rows += part.rows.num_rows
    return TableUpdate(_TABLE, rows=rows, problems=problems)
