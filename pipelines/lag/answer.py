"""The lag of all stores of a lake at a time, or of stores of which nothing is archived."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.reader import open_table
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, open_snapshots, snapshot_brokers
from commitlake.connectors.lake.store_config import SETTING, read_store_config
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.measure import Choice, Lag, measure_groups
from commitlake.pipelines.lag.offsets import Moment, OffsetAt, offsets_at
from commitlake.pipelines.lag.store_messages import StoreMessages
from commitlake.pipelines.lag.subscriptions import SubscribedAt, Subscriptions, subscriptions_at
from commitlake.pipelines.lag.waiting import measure_waiting
from commitlake.pipelines.lag.wanted import Wanted
from commitlake.pipelines.snapshot.files import read_store_progress
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind, Position
from commitlake.pipelines.verify.observed_delays import archived_levels
from commitlake.schemas.layouts.rocketmq.delay_levels import DEFAULT_DELAY_LEVELS_MS


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows, and what is missing.

    Attributes:
        rows: A row for each group and queue, and for what brokers hold back.
        missing: Sentences on stores of which nothing is known at the time.
        known: Positions of all groups, whether or not they were asked for.
    """

    rows: Sequence[Lag]
    missing: Sequence[str]
    known: Collection[Position] = ()


def lag_of_lake(
    lake: LakePaths,
    at: datetime.datetime | None,
    choice: Choice,
    brokers: Collection[str] = (),
    given: Mapping[GroupTopic, Wanted] | None = None,
) -> Answer:
    """Return the lag of a lake's stores.

    Args:
        lake: Where the tables lie.
        at: The time; None for each store's last snapshot.
        choice: Which groups and topics.
        brokers: Which stores; all where empty.
        given: Subscriptions that the user states.

    Raises:
        LakeError: There is no lake.
        QueryError: A table cannot be read.
    """
    messages = open_table(lake, "messages")
    offsets, subscribed = open_snapshots(lake, OFFSETS), open_snapshots(lake, SUBSCRIBED)
    last = read_last_commit(lake.messages)
    archived = {} if last is None else {broker: progress.end for broker, progress in last.stores.items()}
    known = [] if offsets is None else snapshot_brokers(offsets, OFFSETS)
    rows: list[Lag] = []
    missing: list[str] = []
    positions: set[Position] = set()
    for broker in sorted(brokers or {*known, *archived}):
        moments = {} if offsets is None else offsets_at(offsets, broker, at)
        if OffsetKind.GROUP not in moments:
            missing.append(_no_snapshot(broker, at))
            continue
        when = moments[OffsetKind.GROUP].at
        positions |= _all_groups(moments[OffsetKind.GROUP])
        subscriptions = Subscriptions() if subscribed is None else subscriptions_at(subscribed, broker, when)
        subscriptions = subscriptions.with_given(given or {})
        store = LakeMessages(messages, broker)
        rows += measure_groups(moments[OffsetKind.GROUP], store, subscriptions, choice, archived.get(broker, 0))
        if not choice.groups and not choice.topics:
            levels = archived_levels(read_store_config(lake, broker, when).of_kind(SETTING))
            rows += measure_waiting(moments, store, levels or DEFAULT_DELAY_LEVELS_MS)
    return Answer(rows, missing, positions)


def _all_groups(moment: Moment) -> set[Position]:
    everything = Choice()
    return {position for position in moment.offsets if everything.takes(position)}


def _no_snapshot(broker: str, at: datetime.datetime | None) -> str:
    when = "" if at is None else f" at or before {at:%Y-%m-%dT%H:%M:%SZ}"
    return f"{broker}: the lake has no snapshot of its groups{when}, so their lag is not known"


def lag_of_store(
    store: Store,
    now: datetime.datetime,
    choice: Choice,
    given: Mapping[GroupTopic, Wanted] | None = None,
    delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
) -> Answer:
    """Return the lag of a store's groups, as its own files tell.

    Args:
        store: In a folder of this machine.
        now: The time.
        choice: Which groups and topics.
        given: Subscriptions that the user states.
        delay_levels_ms: Delays of levels 1, 2, 3, …
    """
    progress = read_store_progress(store, now)
    if progress is None or OffsetKind.GROUP not in progress.taken:
        why = (
            "its offsets lie in an object store"
            if progress is None
            else "; ".join(progress.unreadable) or progress.note
        )
        return Answer([], [f"{store.broker}: {why}"])
    moments = {
        kind: Moment(
            broker=store.broker,
            at=as_of,
            taken=as_of,
            log_start=progress.log_start,
            offsets={
                position: OffsetAt(offset, offset)
                for position, offset in progress.offsets.items()
                if position.kind == kind
            },
        )
        for kind, as_of in progress.taken.items()
    }
    found = {
        key: SubscribedAt(Wanted.of(one.expression_type or "", one.expression or ""))
        for key, one in progress.subscriptions.items()
    }
    subscriptions = Subscriptions(found).with_given(given or {})
    messages = StoreMessages(store)
    rows = measure_groups(moments[OffsetKind.GROUP], messages, subscriptions, choice)
    if not choice.groups and not choice.topics:
        rows += measure_waiting(moments, messages, delay_levels_ms)
    return Answer(rows, [], _all_groups(moments[OffsetKind.GROUP]))
