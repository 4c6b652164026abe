"""Whether a repair counts `topic_minutes` again from `messages`."""

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
    """Return whether `topic_minutes` is counted again from `messages`.

    It is where it was damaged, and where a backfill may have counted messages that `messages` has lost: its rows do
    not name the archive run that they are of. It is not where `messages` has dropped old rows, which `topic_minutes`
    still counts.

    Args:
        lake: where the tables lie; `messages` is repaired already.
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
