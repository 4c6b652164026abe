"""Finds out whether a repair must count `topic_minutes` again from `messages`."""

from __future__ import annotations

from collections.abc import Collection

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.plain_arrays import dict_rows
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.maintenance.progress_repair import lost_runs
from commitlake.pipelines.maintenance.refill import archived_counts, recorded_losses
from commitlake.pipelines.topic_minutes.progress import covered_sequence
from commitlake.schemas.counts import count_text

MINUTES = "topic_minutes"


def wrong_minutes(lake: Lake) -> str:
    """Return a sentence if `topic_minutes` counts other messages than `messages` has, as after a killed repair.

    Expired messages, and those that a repair has recorded as lost, are in `topic_minutes` only. Then nothing is
    compared.

    Args:
        lake: the lake, whose logs and data files are intact.
    """
    messages = lake.table("messages")
    counted = archived_counts(lake)
    if not counted or MINUTES in read_expiries(messages) or recorded_losses(lake):
        return ""
    sql = "SELECT broker, count(*) AS messages FROM messages WHERE broker IS NOT NULL GROUP BY broker"
    there = {row["broker"]: row["messages"] for row in dict_rows(run_sql(messages, "messages", sql).read_all())}
    for broker in sorted({*counted, *there}):
        expected, found = there.get(broker, 0), counted[broker].messages if broker in counted else 0
        if expected != found:
            return f"expected {count_text(expected, 'message')} of {broker}, as messages has them, found {found:,}"
    return ""


def must_recount(lake: Lake, damaged: Collection[str]) -> bool:
    """Return whether `topic_minutes` must be counted again from `messages`.

    It must if it was damaged, or if a backfill may have counted messages that `messages` has lost: rows of a backfill
    do not name an archive run. It must not if `messages` has dropped old rows, which `topic_minutes` still counts.

    Args:
        lake: the lake; `messages` is repaired already.
        damaged: the tables that were damaged.
    """
    messages = lake.table("messages")
    if "messages" in read_expiries(messages):
        return False
    if MINUTES in damaged:
        return True
    is_wrong = "messages" in damaged or lost_runs(lake.uri("messages"))
    return bool(is_wrong) and lake.find(MINUTES) is not None and covered_sequence(lake) > 0
