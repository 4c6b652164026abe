"""Progress of `message_keys` in following `messages`; imports little, so that look-ups start quickly."""

from __future__ import annotations

from deltalake import DeltaTable

from commitlake.connectors.lake import new_files
from commitlake.connectors.lake.lake import Lake

APPLICATION_ID = "commitlake.message_keys"
BUSINESS_KEY = "key"
UNIQUE_KEY = "unique_key"
"""Values of the column `kind`."""


def followed_version(lake: Lake) -> int:
    """Return the version of `messages` that `message_keys` has reached; -1 before the first."""
    return new_files.reached_version(lake, lake.uri("message_keys"), APPLICATION_ID)


def version_in(table: DeltaTable | None) -> int:
    """Return the version of `messages` that the open table `message_keys` has reached; -1 for none."""
    return new_files.version_in(table, APPLICATION_ID)


def followed_erasure(lake: Lake) -> int:
    """Return the number of the newest erasure that is complete in `message_keys`; 0 for none."""
    return new_files.reached_erasure(lake, lake.uri("message_keys"))
