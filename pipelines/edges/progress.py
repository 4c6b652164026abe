"""How far `edges` has followed `messages`; also for questions, which start at once."""

from __future__ import annotations

from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.erasures import erasure_number
from commitlake.connectors.lake.paths import LakePaths

APPLICATION_ID = "commitlake.edges"
OPEN_PREFIX = "open-"
"""Begins the names of data files whose rows the next run replaces: of steps that it may complete."""


def followed_version(lake: LakePaths) -> int:
    """The version of `messages` to which `edges` has come; -1 before the first."""
    try:
        version = delta_table(lake.edges, lake.s3).transaction_version(APPLICATION_ID)
    except TableNotFoundError:
        return -1
    return -1 if version is None else version


def followed_erasure(lake: LakePaths) -> int:
    """The number of the newest erasure that `edges` is done with; 0 for none."""
    try:
        return erasure_number(delta_table(lake.edges, lake.s3))
    except TableNotFoundError:
        return 0


def is_ahead(lake: LakePaths) -> bool:
    """Return whether `edges` has followed `messages` beyond its newest version, as after that was set back."""
    return followed_version(lake) > delta_table(lake.messages, lake.s3).version()


def is_open_file(path: str) -> bool:
    """Return whether the next run replaces a data file."""
    return path.rpartition("/")[2].startswith(OPEN_PREFIX)
