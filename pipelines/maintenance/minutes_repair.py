"""Decides whether a repair counts `topic_minutes` again from `messages`."""

from __future__ import annotations

from collections.abc import Collection

from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.maintenance.progress_repair import lost_runs
from commitlake.pipelines.topic_minutes.progress import covered_sequence

MINUTES = "topic_minutes"


def must_recount(lake: LakePaths, damaged: Collection[str]) -> bool:
    """Return whether `topic_minutes` must be counted again from `messages`.

    It must if it was damaged, or if a backfill may have counted messages that `messages` has lost: rows of a backfill
    do not name an archive run. It must not if `messages` has dropped old rows, which `topic_minutes` still counts.

    Args:
        lake: locations of the tables; `messages` is repaired already.
        damaged: the tables that were damaged.
    """
    messages = delta_table(lake.messages, lake.s3)
    if "messages" in read_expiries(messages):
        return False
    if MINUTES in damaged:
        return True
    try:
        return bool("messages" in damaged or lost_runs(lake.messages)) and covered_sequence(lake) > 0
    except TableNotFoundError:
        return False
