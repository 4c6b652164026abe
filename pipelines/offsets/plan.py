"""Combines all data on each offset: its bounds, the queue at the broker, and the resulting lag."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence

from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.offsets.group_offsets import GroupOffset, LiveQueue, PlannedOffset, ResultingLag
from commitlake.pipelines.offsets.live_queues import LiveQueues
from commitlake.pipelines.offsets.needed import offsets_needed
from commitlake.pipelines.offsets.resulting_lag import resulting_lags
from commitlake.pipelines.offsets.sources import OffsetSource
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner


def plan_had(
    sources: Sequence[OffsetSource], group: str, offsets: Iterable[GroupOffset], live: LiveQueues | None
) -> list[PlannedOffset]:
    """Return the offsets that a group had, in the form in which they can be set now.

    Args:
        sources: The stores.
        group: The consumer group.
        offsets: From `read_past_offsets`.
        live: The brokers; None if they are not queried.

    Raises:
        QueryError: A table cannot be read.
        RocketMQError: A broker does not answer.
    """
    return _planned(sources, group, _checked(offsets, live, None), live)


def plan_needed(
    sources: Sequence[OffsetSource],
    group: str,
    topics: Collection[str],
    since: datetime.datetime,
    live: LiveQueues | None,
) -> list[PlannedOffset]:
    """Return the offsets that a group needs to consume topics since a time.

    Args:
        sources: The stores.
        group: The consumer group.
        since: The time.
        live: The brokers, which are queried for data that the sources lack; None if they are not queried.

    Raises:
        QueryError: A table cannot be read.
        CommitLogError: A log cannot be read.
        RocketMQError: A broker does not answer.
    """
    asked = [offset for source in sources for offset in offsets_needed(source, topics, since)]
    checked = _checked(asked, live, since)
    if live is not None:
        known = {offset.queue for offset in asked}
        brokers = [source.broker for source in sources]
        checked += list(live.unknown_to_source(brokers, topics, known, since))
    return _planned(sources, group, checked, live)


_Checked = list[tuple[GroupOffset, LiveQueue | None]]


def _checked(offsets: Iterable[GroupOffset], live: LiveQueues | None, since: datetime.datetime | None) -> _Checked:
    return [(offset, None) for offset in offsets] if live is None else list(live.checked(offsets, since))


def _planned(
    sources: Sequence[OffsetSource], group: str, checked: _Checked, live: LiveQueues | None
) -> list[PlannedOffset]:
    lags: dict[Queue, ResultingLag] = {}
    current: dict[Queue, int] = {}
    for source in sources:
        here = [(offset, at_broker) for offset, at_broker in checked if offset.queue.broker == source.broker]
        known = {offset.queue: at_broker for offset, at_broker in here if at_broker is not None}
        lags |= resulting_lags(source, group, [offset for offset, _ in here if not offset.problem], known)
        for offset, _ in here:
            position = OffsetOwner(OffsetKind.GROUP, group, offset.queue.topic, offset.queue.queue_id)
            if position in source.newest:
                current[offset.queue] = source.newest[position]
    planned = [
        PlannedOffset(
            offset,
            at_broker,
            current.get(offset.queue) if at_broker is None else at_broker.current,
            lags.get(offset.queue),
        )
        for offset, at_broker in sorted(checked, key=lambda pair: pair[0].queue)
    ]
    return planned if live is None else live.check_messages(planned)
