"""Progress of `edges` in following `messages`; imports little, so that queries start quickly."""

from __future__ import annotations

from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.erasures import erasure_number
from commitlake.connectors.lake.paths import LakePaths

APPLICATION_ID = "commitlake.edges"
OPEN_PREFIX = "open-"
"""Prefix of the names of data files with open steps, which the next run replaces."""


def followed_version(lake: LakePaths) -> int:
    """Return the version of `messages` that `edges` has reached; -1 before the first."""
    try:
        version = delta_table(lake.edges, lake.s3).transaction_version(APPLICATION_ID)
    except TableNotFoundError:
        return -1
    return -1 if version is None else version


def followed_erasure(lake: LakePaths) -> int:
    """Return the number of the newest erasure that is complete in `edges`; 0 for none."""
    try:
        return erasure_number(delta_table(lake.edges, lake.s3))
    except TableNotFoundError:
        return 0


def is_ahead(lake: LakePaths) -> bool:
    """Return whether `edges` has a later version than the newest of `messages`, as after a restored version."""
    return followed_version(lake) > delta_table(lake.messages, lake.s3).version()


def is_open_file(path: str) -> bool:
    """Return whether a data file has open steps, which the next run replaces."""
    return path.rpartition("/")[2].startswith(OPEN_PREFIX)
