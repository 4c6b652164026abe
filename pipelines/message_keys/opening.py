"""Open `messages` for an answer: not without the newest versions, which other tables have followed already."""

from __future__ import annotations

from deltalake import DeltaTable

from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.paths import LakeError, LakePaths
from commitlake.connectors.lake.reader import open_table
from commitlake.pipelines.message_keys.progress import followed_version


def open_messages(lake: LakePaths) -> DeltaTable:
    """The table `messages`, which must be as new as what has followed it.

    Raises:
        LakeError: where there is no lake.
        LogDamagedError: where its log is damaged, or has lost its newest versions.
    """
    try:
        followed = followed_version(lake)  # first: a writer may add to both meanwhile
    except (LakeError, OSError):  # said where message_keys is asked
        followed = -1
    table = open_table(lake, "messages")
    if followed > table.version():
        raise LogDamagedError(
            f"{lake.messages}: expected version {followed} in its _delta_log, to which message_keys has followed it, "
            f"found version {table.version()} as the newest: the last entries are lost. "
            f"{WAY_OUT}"
        )
    return table
