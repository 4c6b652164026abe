"""Reads the extent of a lake for each broker from the log of `messages`, without opening data files."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.pipelines.edges.spans import LakeSpan, Spans
from commitlake.schemas.times import epoch_us

_EXPIRED = "commitlake.expiredBefore.messages"


def read_spans(messages: DeltaTable) -> Spans:
    """Return the extent of each broker's rows, by the statistics of the data files."""
    found: dict[str, LakeSpan] = {}
    for action in file_actions(messages).to_pylist():
        least, greatest = action.get("min") or {}, action.get("max") or {}
        span = _span(least, greatest)
        for broker in {least.get("broker"), greatest.get("broker")}:
            if broker is not None and span is not None:
                found[broker] = _joined(found[broker], span) if broker in found else span
    newest = newest_commit(messages)
    stores = {} if newest is None else newest[1].stores
    pulled = frozenset(broker for broker, store in stores.items() if store.pulled is not None)
    return Spans(found, _EXPIRED in messages.metadata().configuration, pulled)


def _span(least: dict[str, Any], greatest: dict[str, Any]) -> LakeSpan | None:
    first, last = least.get("physical_offset"), greatest.get("physical_offset")
    begin, end = least.get("store_timestamp"), greatest.get("store_timestamp")
    if first is None or last is None or begin is None or end is None:
        return None
    return LakeSpan(first, last + 1, epoch_us(begin), epoch_us(end))


def _joined(one: LakeSpan, other: LakeSpan) -> LakeSpan:
    return LakeSpan(
        min(one.first_offset, other.first_offset),
        max(one.end_offset, other.end_offset),
        min(one.first_us, other.first_us),
        max(one.last_us, other.last_us),
    )
