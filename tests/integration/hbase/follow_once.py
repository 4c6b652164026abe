"""One run of the follower, as a process of its own that a test can kill: `follow_once LAKE PORT TABLE`."""

from __future__ import annotations

import sys

from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.table_update import follow_messages
from commitlake.connectors.lake.lake import Lake


def main(lake: str, port: str, table: str) -> None:
    """Follow, and print a line for each completed version."""
    print("begins", flush=True)
    options = HBaseOptions(host="127.0.0.1", port=int(port), table=table, salts=4, batch_rows=200)
    follow_messages(
        None, Lake(lake), options, on_version=lambda version, rows: print(f"version {version}: {rows}", flush=True)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
