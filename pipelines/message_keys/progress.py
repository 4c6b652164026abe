"""Progress of `message_keys` in following `messages`. It imports little, so that look-ups start quickly.

A query opens `messages` with a check that its newest versions, which other tables have, are not lost.
"""

from __future__ import annotations

from deltalake import DeltaTable

from commitlake.connectors.lake import added_files
from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError

APPLICATION_ID = "commitlake.message_keys"
BUSINESS_KEY = "key"
UNIQUE_KEY = "unique_key"
"""Values of the column `kind`."""


def followed_version(lake: Lake) -> int:
    """Return the version of `messages` up to which `message_keys` is filled; -1 if it has never been filled."""
    return added_files.processed_version(lake, "message_keys", APPLICATION_ID)


def followed_version_in(table: DeltaTable | None) -> int:
    """Return the version of `messages` up to which the open table `message_keys` is filled; -1 for none."""
    return added_files.read_processed_version(table, APPLICATION_ID)


def followed_erasure(lake: Lake) -> int:
    """Return the number of the newest erasure whose keys are removed from `message_keys`; 0 if there is none."""
    return added_files.processed_erasure_number(lake, "message_keys")


def open_newest_messages(lake: Lake) -> DeltaTable:
    """Open the newest version of `messages`; raise an error if `message_keys` was filled from a later one.

    Raises:
        LogDamagedError: if its log is damaged, or has lost its newest versions.
    """
    try:
        followed = followed_version(lake)  # first, because a writer may add to both meanwhile
    except (LakeError, OSError):  # reported when message_keys is read
        followed = -1
    table = lake.table("messages")
    if followed > table.version():
        raise LogDamagedError(
            f"{lake.uri('messages')}: the newest version in its _delta_log is {table.version()}, but message_keys was "
            f"updated up to version {followed}: the last entries of the log are lost. {WAY_OUT}"
        )
    return table
