"""The summary of a snapshot."""

from __future__ import annotations

from commitlake.pipelines.snapshot.append import Appended
from commitlake.pipelines.snapshot.progress import StoreSnapshot
from commitlake.schemas.counts import count_text


def summary_lines(progress: StoreSnapshot, appended: Appended) -> list[str]:
    """Return lines about the offsets that a snapshot of one store found and added."""
    if appended.as_of is None:
        return [f"{appended.broker}: {progress.note or 'no offsets were read'}"]
    offsets, groups = count_text(appended.read, "offset"), count_text(appended.groups, "group")
    found = f"{appended.broker}: {offsets} of {groups} as of {appended.as_of:%FT%TZ}"
    if appended.is_old:
        return [f"{found}; the lake already has this snapshot or a newer one, so nothing was added"]
    lines = [f"{found}, {count_text(appended.moved, 'offset')} moved"]
    if progress.subscriptions or appended.subscribed:
        subscriptions = count_text(len(progress.subscriptions), "subscription")
        lines[0] += f"; {subscriptions}, {appended.subscribed:,} changed"
    return lines
