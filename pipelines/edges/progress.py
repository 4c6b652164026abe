"""Progress of `edges` in following `messages`; imports little, so that queries start quickly."""

from __future__ import annotations

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.new_files import reached_erasure, reached_version

APPLICATION_ID = "commitlake.edges"
CONSUMPTIONS_ID = "commitlake.edges.consumptions"
"""Application whose transaction number is the followed version of `consumptions`, plus one."""
OPEN_PREFIX = "open-"
"""Prefix of the names of data files with open steps, which the next run replaces."""


def followed_version(lake: Lake) -> int:
    """Return the version of `messages` that `edges` has reached; -1 before the first."""
    return reached_version(lake, lake.uri("edges"), APPLICATION_ID)


def followed_consumptions(lake: Lake) -> int:
    """Return the version of `consumptions` that `edges` has reached; -1 before the first."""
    return max(reached_version(lake, lake.uri("edges"), CONSUMPTIONS_ID), 0) - 1


def followed_erasure(lake: Lake) -> int:
    """Return the number of the newest erasure that is complete in `edges`; 0 for none."""
    return reached_erasure(lake, lake.uri("edges"))


def is_ahead(lake: Lake) -> bool:
    """Return whether `edges` has a later version than the newest of `messages`, as after a restored version."""
    return followed_version(lake) > lake.table("messages").version()


def is_open_file(path: str) -> bool:
    """Return whether a data file has open steps, which the next run replaces."""
    return path.rpartition("/")[2].startswith(OPEN_PREFIX)
