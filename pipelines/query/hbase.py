"""Checks that HBase has all messages of the lake before it answers a query."""

from __future__ import annotations

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError


def missing_in_hbase(table: DeltaTable, address: str, table_name: str | None) -> str:
    """Return a sentence on versions of `messages` that HBase does not have yet; empty if it has all archived messages.

    Args:
        address: HOST[:PORT] of HBase's Thrift server.
        table_name: name of the table in HBase, None for the default.

    Raises:
        HBaseError: if HBase cannot be reached.
        LogDamagedError: if `messages` has lost versions that HBase has.
    """
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.options import HBaseOptions
    from commitlake.connectors.hbase.progress import read_progress

    newest = newest_commit(table)
    if newest is None:
        return ""
    version, commit = newest
    with Client(HBaseOptions.of_address(address, **({"table": table_name} if table_name else {}))) as client:
        progress = read_progress(client)
    found = None if progress is None else progress.version
    if progress is not None and progress.followed != str(table.metadata().id):
        return "the table in HBase has followed another lake"
    if found is not None and version <= found <= table.version():
        return ""
    if found is not None and found > delta_table(table.table_uri).version():  # by its current log
        raise LogDamagedError(
            f"{table.table_uri}: expected version {found} in its _delta_log, to which HBase has followed it, found "
            f"version {table.version()} as the newest: the last entries are lost. {WAY_OUT}"
        )
    where = "is being loaded for the first time" if found is None else f"has followed messages to version {found}"
    return f"HBase {where}, expected version {version}, of archive run {commit.sequence}"
