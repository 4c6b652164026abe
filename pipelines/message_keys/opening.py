"""Opens `messages` for a query, with a check that its newest versions, which other tables have, are not lost."""

from __future__ import annotations

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.message_keys.progress import followed_version


def open_messages(lake: Lake) -> DeltaTable:
    """Open the table `messages`, which must be as new as the tables that follow it.

    Raises:
        LakeError: if there is no lake.
        LogDamagedError: if its log is damaged, or has lost its newest versions.
    """
    try:
        followed = followed_version(lake)  # first, because a writer may add to both meanwhile
    except (LakeError, OSError):  # reported when message_keys is read
        followed = -1
    table = lake.table("messages")
    if followed > table.version():
        raise LogDamagedError(
            f"{lake.uri('messages')}: expected version {followed} in its _delta_log, which message_keys has reached, "
            f"found version {table.version()} as the newest: the last entries are lost. "
            f"{WAY_OUT}"
        )
    return table
