"""Reads the extent of a lake for each broker from the log of `messages`, without opening data files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.pipelines.edges.spans import LakeSpan, Spans
from commitlake.schemas.times import epoch_us

_EXPIRED = "commitlake.expiredBefore.messages"


class LinkedExtents:
    """Extent of each broker's rows, by the statistics of the data files, while new files are linked.

    Args:
        messages: the table.
        new: names of the files that are not linked yet.
    """

    def __init__(self, messages: DeltaTable, new: Collection[str]) -> None:
        whole: dict[str, LakeSpan] = {}
        self._linked: dict[str, int] = {}
        self._left: dict[str, tuple[frozenset[str], int]] = {}
        for action in file_actions(messages).to_pylist():
            least, greatest = action.get("min") or {}, action.get("max") or {}
            span = _span(least, greatest)
            brokers = frozenset(each for each in (least.get("broker"), greatest.get("broker")) if each is not None)
            if span is None or not brokers:
                continue
            name = unquote(action["path"])
            if name in new:
                self._left[name] = brokers, span.first_us
            for broker in brokers:
                whole[broker] = _joined(whole[broker], span) if broker in whole else span
                if name not in new:
                    self._linked[broker] = max(self._linked.get(broker, 0), span.last_us)
        newest = newest_commit(messages)
        stores = {} if newest is None else newest[1].stores
        pulled = frozenset(broker for broker, store in stores.items() if store.pulled is not None)
        self._spans = Spans(whole, _EXPIRED in messages.metadata().configuration, pulled)

    def after(self, names: Iterable[str]) -> Spans:
        """Return the extents once further files are linked."""
        for name in names:
            self._left.pop(name, None)
        complete: dict[str, int] = {}
        for brokers, first_us in self._left.values():
            for broker in brokers:
                complete[broker] = min(complete.get(broker, first_us), first_us)
        spans = replace(self._spans, linked_us=self._linked, complete_us=complete)
        self._linked = {broker: spans.complete_of(broker) for broker in spans.brokers}
        return spans


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
