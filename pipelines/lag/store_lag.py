"""Lag of a lake's stores at a time, or of a store that is not archived."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from commitlake.connectors.lake.archive_commits import StoreProgress, read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.lost_ranges import LostRange, describe_lost_ranges, lost_ranges
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, open_snapshots, snapshot_brokers
from commitlake.connectors.lake.store_config import SETTING, TOPIC, StoreConfig, read_store_config
from commitlake.connectors.reading.errors import IndexMismatchError
from commitlake.connectors.reading.stores import Store
from commitlake.pipelines.archive.store_config import read_broker_settings, read_store_topics
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.group_lag import (
    GroupLag,
    LagRow,
    is_selected_offset_owner,
    is_selected_topic,
    missing_messages_note,
)
from commitlake.pipelines.lag.group_summaries import GroupSummary, summarize_by_group
from commitlake.pipelines.lag.half_messages import HalfLag
from commitlake.pipelines.lag.held_back_messages import (
    DelayLag,
    DelayLevels,
    TimerLag,
    read_lake_retry_entries,
    read_store_retry_entries,
    retry_store_lag_rows,
)
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable, MessagesTable
from commitlake.pipelines.lag.offsets import WATCH, OffsetAt, OffsetState, offsets_at
from commitlake.pipelines.lag.queue_offset_spans import CountLimits, QueueSpan, StoredMessages
from commitlake.pipelines.lag.store_messages import StoreMessages
from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
from commitlake.pipelines.lag.subscriptions import BROADCASTING, SubscribedAt, Subscriptions, subscriptions_at
from commitlake.pipelines.lag.verdicts import LagVerdict
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind, OffsetOwner, StoreSnapshot
from commitlake.pipelines.snapshot.store_file_reader import read_store_snapshot
from commitlake.pipelines.verify.observed_delays import complete_delay_levels, parse_archived_delays
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, int_in_range
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import has_batch_queues
from commitlake.schemas.layouts.rocketmq.topics import LIGHT_PREFIX, needs_topic_config, strip_broadcast_suffix
from commitlake.schemas.selection import ALL_MESSAGES, Selection

MAX_IMPOSSIBLE = 1_000
"""Largest number of offsets in queues that do not exist which have rows."""
DELETED_TOPIC = "the topic was deleted, but the group still has an offset in it"
"""Note of a row whose topic has no queues any more."""
BATCHES = (
    "the topic has queue.type=BatchCQ, and a record may hold several messages: records are counted, and the end of the "
    "queue is not known"
)
"""Note of a row whose records may be inner batches."""
_LOGGER = logging.getLogger(__name__)
_Part: TypeAlias = GroupLag | DelayLag | TimerLag | HalfLag


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings from the user, which override those of the lake or the store.

    Attributes:
        filters: Subscriptions. They replace those in the lake.
        delay_levels_ms: By store, delays of levels 1, 2, 3, …. They replace those in the lake.
        watch: Time over which the movement of groups is watched.
    """

    filters: Mapping[GroupTopic, SubscriptionFilter] = field(default_factory=dict)
    delay_levels_ms: Mapping[str, Sequence[int]] = field(default_factory=dict)
    watch: datetime.timedelta = WATCH


class Broadcasting(NamedTuple):
    """A consumer group that broadcasts a topic to all its clients, which alone have the offsets."""

    broker: str
    group: str
    topic: str

    def __str__(self) -> str:
        clients = "each of its clients keeps its own offsets, so how far they are behind is not known"
        return f"{self.broker}: {self.group} broadcasts {self.topic}: {clients}"


@dataclass(frozen=True)
class LagAnswer:
    """Rows of lag of one or several stores, with notes on stores without rows.

    Attributes:
        rows: One row for each group and queue, and for the messages that brokers hold back.
        missing: Sentences on stores that have no data at the time.
        known: Positions of all groups, including groups that were not requested.
        broadcasting: Groups without a row: each of their clients keeps its own offsets.
        times: By store, the times at which the queues of these rows were measured.
    """

    rows: Sequence[LagRow]
    missing: Sequence[str]
    known: Collection[OffsetOwner] = ()
    broadcasting: Sequence[Broadcasting] = ()
    times: Mapping[str, CountLimits] = field(default_factory=dict)

    @cached_property
    def groups(self) -> Sequence[GroupSummary]:
        """The rows of lag summed up by consumer group, the worst group first."""
        return summarize_by_group(self.rows)


def lag_of_lake(
    lake: Lake,
    as_of: datetime.datetime | None,
    selection: Selection = ALL_MESSAGES,
    overrides: Overrides | None = None,
    messages: MessagesTable | None = None,
) -> LagAnswer:
    """Return the lag of all consumer groups in a lake's stores, at one time.

    Args:
        as_of: The time; None for each store's last snapshot.
        selection: Stores, groups and topics to measure.
        messages: The lake's messages; None to read them in this process.
    """
    overrides = overrides or Overrides()
    table = messages or ArrowMessagesTable(lake.table("messages"), lake.packs)
    offsets, subscribed = open_snapshots(lake, OFFSETS), open_snapshots(lake, SUBSCRIBED)
    last = read_last_commit(lake)
    archived = {} if last is None else last.stores
    known = [] if offsets is None else snapshot_brokers(offsets, OFFSETS)
    rows: list[LagRow] = []
    missing: list[str] = []
    broadcasting: list[Broadcasting] = []
    positions: set[OffsetOwner] = set()
    times: dict[str, CountLimits] = {}
    for broker in sorted(selection.brokers or {*known, *archived}):
        moments = {} if offsets is None else offsets_at(offsets, broker, as_of, overrides.watch)
        if OffsetKind.GROUP not in moments:
            missing.append(_no_snapshot_note(broker, as_of))
            continue
        when = moments[OffsetKind.GROUP].at
        positions |= _all_group_owners(moments[OffsetKind.GROUP])
        times[broker] = _times_of_moment(moments[OffsetKind.GROUP])
        subscriptions = (
            Subscriptions() if subscribed is None else subscriptions_at(subscribed, broker, as_of).at_later_time(when)
        )
        broadcasting += _broadcasting_groups(broker, subscriptions, moments[OffsetKind.GROUP], selection)
        config = read_store_config(lake, broker, None if as_of is None else when)
        moments[OffsetKind.GROUP], left_out = _drop_impossible_offsets(
            moments[OffsetKind.GROUP], config.values_of_kind(TOPIC)
        )
        missing += left_out
        levels = _delay_levels(overrides.delay_levels_ms.get(broker), config.values_of_kind(SETTING))
        store = LakeMessages(table, broker)
        progress = archived.get(broker, StoreProgress(0))
        subscriptions = subscriptions.with_overrides(overrides.filters)
        if progress.pulled_topics is not None and (
            not selection.topics or not set(selection.topics) <= set(progress.pulled_topics)
        ):
            missing.append(_partly_archived_note(broker, progress.pulled_topics))
        archived_only = _limit_to_archived_topics(selection, progress)
        if archived_only is None:
            continue
        measured = _measure_store(moments, store, subscriptions, archived_only, levels, progress.end)
        rows += _apply_store_config(measured, config)
        # A retry store has its present content only, which says nothing of an earlier time.
        if as_of is None:
            rows += retry_store_lag_rows(
                moments[OffsetKind.GROUP], read_lake_retry_entries(lake, broker), archived_only
            )
    missing += describe_lost_ranges(list(_find_lost_unconsumed_ranges(lake, rows)))
    return LagAnswer(rows, missing, positions, broadcasting, times)


def lag_of_groups(
    moment: OffsetState,
    messages: LakeMessages,
    subscriptions: Subscriptions,
    config: StoreConfig,
    progress: StoreProgress,
) -> list[LagRow]:
    """Return the lag of the groups of one store in a lake at one time, one row for each group and queue.

    Args:
        moment: Offsets of the groups at the time.
        messages: Messages of the store.
        subscriptions: Subscriptions of the groups, from `Subscriptions.at_later_time`.
        config: Configuration of the store at the time.
        progress: How far the store is archived.
    """
    moment, _ = _drop_impossible_offsets(moment, config.values_of_kind(TOPIC))
    wanted = _limit_to_archived_topics(ALL_MESSAGES, progress)
    if wanted is None:
        return []
    groups = GroupLag(moment, subscriptions, wanted, missing_messages_note(moment, progress.end))
    return _apply_store_config(_measure_lags(moment, messages, groups, [groups]), config)


def _limit_to_archived_topics(selection: Selection, progress: StoreProgress) -> Selection | None:
    """Return a selection with only those topics of a store that are archived; None if none is left."""
    if progress.pulled_topics is None:
        return selection
    topics = [topic for topic in progress.pulled_topics if is_selected_topic(selection, topic)]
    return replace(selection, topics=topics) if topics else None


def _apply_store_config(rows: Sequence[LagRow], config: StoreConfig) -> list[LagRow]:
    """Mark rows of topics that the store's configuration says are deleted, or whose records may be batches."""
    deleted = {name for kind, name in config.removed if kind == TOPIC}
    marked = _mark_batch_topics(rows, config.values_of_kind(TOPIC))
    return [_mark_deleted_topic(row) if row.topic in deleted else row for row in marked]


def _find_lost_unconsumed_ranges(lake: Lake, rows: Sequence[LagRow]) -> Iterator[LostRange]:
    """Yield the log ranges that the lake has lost and that may have messages not yet consumed by a group."""
    for lost in lost_ranges(lake) if rows else ():
        of_broker = (row for row in rows if lost.belongs_to([row.broker]))
        if any(lost.may_overlap_time(row.last_consumed_time, row.as_of) for row in of_broker):
            yield lost


def read_other_queue_ends(lake: Lake, lag_answer: LagAnswer) -> dict[Queue, QueueSpan]:
    """Return the end offsets of queues whose topics have no row of lag, at the times at which lag was measured.

    Args:
        lag_answer: The lag of this lake.
    """
    table = ArrowMessagesTable(lake.table("messages"))
    found: dict[Queue, QueueSpan] = {}
    for broker, times in lag_answer.times.items():
        known = {row.topic for row in lag_answer.rows if row.broker == broker}
        found |= LakeMessages(table, broker).read_queue_ends(times, known)
    return found


def _times_of_moment(moment: OffsetState) -> CountLimits:
    return CountLimits(moment.at, moment.compared_at, moment.log_start)


def _partly_archived_note(broker: str, topics: Sequence[str]) -> str:
    return (
        f"{broker}: only the topics {', '.join(topics)} of this broker are archived, so the lag of others is not "
        "known, nor what the broker holds back"
    )


def _broadcasting_groups(
    broker: str, subscriptions: Subscriptions, moment: OffsetState, selection: Selection
) -> Iterator[Broadcasting]:
    """Yield each group that broadcasts a topic, so that the broker does not have its offsets."""
    known = {GroupTopic(strip_broadcast_suffix(position.group), position.topic) for position in moment.offsets}
    for key, subscribed in sorted(subscriptions.found.items()):
        is_wanted = is_selected_offset_owner(selection, OffsetOwner(OffsetKind.GROUP, key.group, key.topic, 0))
        if subscribed.message_model == BROADCASTING and is_wanted and key not in known:
            yield Broadcasting(broker, *key)


def _drop_impossible_offsets(moment: OffsetState, topics: Mapping[str, Any]) -> tuple[OffsetState, list[str]]:
    """Leave out offsets in queues that do not exist, if there are more than `MAX_IMPOSSIBLE` of them.

    Args:
        moment: Offsets of the groups.
        topics: The topics in the store's own settings; empty if they are not known.

    Returns:
        The offsets that are left, and a sentence on the others.
    """
    counts = {topic: _topic_queue_count(settings) for topic, settings in topics.items()}
    # A broker stores whatever offset a client commits, so a single client can make any number of these.
    impossible = [
        position
        for position in moment.offsets
        if position.kind == OffsetKind.GROUP
        and position.queue_id >= counts.get(position.topic, 0)
        and not position.topic.startswith(LIGHT_PREFIX)
    ]
    if not topics or len(impossible) <= MAX_IMPOSSIBLE:
        return moment, []
    first, leaves_out = impossible[0], set(impossible)
    sentence = (
        f"{moment.broker}: {len(impossible):,} offsets of groups are in queues that their topics do not have, such as "
        f"that of {first.group} in queue {first.queue_id} of {first.topic}: they are left out"
    )
    left = {position: offset for position, offset in moment.offsets.items() if position not in leaves_out}
    return replace(moment, offsets=left), [sentence]


def _mark_deleted_topic(row: LagRow) -> LagRow:
    """Return a group's row with the verdict UNKNOWN, because its topic is deleted; other rows stay unchanged."""
    if row.kind != "group":
        return row
    notes = [note for note in row.notes if note != row.judged.reason]
    judged = row.judged._replace(verdict=LagVerdict.UNKNOWN, reason=DELETED_TOPIC)
    return row._replace(judged=judged, notes=(DELETED_TOPIC, *notes))


def _mark_batch_topics(rows: Sequence[LagRow], topics: Mapping[str, Any]) -> list[LagRow]:
    """Mark message counts of groups as unknown in topics whose records may be batches of several messages.

    Args:
        topics: Settings of the topics.
    """
    batched = {
        name for name, settings in topics.items()
        if isinstance(settings, dict) and has_batch_queues(settings.get("attributes"))
    }  # fmt: skip
    return [_mark_batch_figures_unknown(row) if row.topic in batched and row.kind == "group" else row for row in rows]


def _mark_batch_figures_unknown(row: LagRow) -> LagRow:
    judged, notes = row.judged, row.notes
    if judged.verdict is LagVerdict.AHEAD:
        notes = tuple(note for note in notes if note != judged.reason)
        judged = judged._replace(verdict=LagVerdict.UNKNOWN, reason=BATCHES)
    messages, lost = (each if each.high == 0 else each._replace(high=None) for each in (row.messages, row.lost))
    return row._replace(judged=judged, notes=(BATCHES, *notes), end=None, messages=messages, lost=lost)


def _topic_queue_count(settings: Any) -> int:
    """Return a topic's number of queues; if its settings do not have it, a number above any queue id."""
    names = ("readQueueNums", "writeQueueNums")
    counts = [int_in_range(settings.get(name), 0, INT32_MAX) for name in names] if isinstance(settings, dict) else []
    return max((count for count in counts if count is not None), default=INT32_MAX + 1)


def _delay_levels(user_delays_ms: Sequence[int] | None, settings: Mapping[str, object]) -> DelayLevels:
    """Return a broker's delay levels: those from the user, or else those from its store."""
    if user_delays_ms:
        return DelayLevels(user_delays_ms, range(1, len(user_delays_ms) + 1))
    known = parse_archived_delays(settings)
    return DelayLevels(complete_delay_levels(known), known)


def _measure_store(
    moments: Mapping[OffsetKind, OffsetState],
    messages: StoredMessages,
    subscriptions: Subscriptions,
    selection: Selection,
    delay_levels: DelayLevels,
    archived_until: int | None = None,
) -> list[LagRow]:
    """Return all rows of lag of one store: groups, and messages that the broker holds back.

    Args:
        moments: Offsets of the store, by kind.
        messages: Messages of the store.
        subscriptions: Subscriptions of its groups.
        selection: Groups and topics to measure. Messages that the broker holds back are measured only if all are
            chosen.
        delay_levels: Delay levels of the store.
        archived_until: Physical offset up to which `messages` has the log; None if it has all of it.
    """
    moment = moments[OffsetKind.GROUP]
    missing = missing_messages_note(moment, archived_until)
    groups = GroupLag(moment, subscriptions, selection, missing)
    parts: list[_Part] = [groups]
    if not selection.groups and not selection.topics:
        if delays := moments.get(OffsetKind.DELAY):
            parts.append(DelayLag(delays, delay_levels, missing_messages_note(delays, archived_until)))
        timers = moments.get(OffsetKind.TIMER_TIME)
        timers_missing = missing_messages_note(timers or moment, archived_until)
        parts.append(TimerLag(moment.broker, timers, moments.get(OffsetKind.TIMER), moment.at, timers_missing))
        parts.append(HalfLag(moment, missing))
    return _measure_lags(moment, messages, groups, parts)


def _measure_lags(
    moment: OffsetState, messages: StoredMessages, group_lag: GroupLag, measured_lags: Sequence[_Part]
) -> list[LagRow]:
    """Pass a store's messages to all counters once, and return the rows of lag.

    Args:
        moment: Offsets of the groups.
        group_lag: Lag of the groups, one of the parts.
        measured_lags: What is measured.
    """
    spans = messages.measure_queues(
        _times_of_moment(moment), group_lag.topics, [count for part in measured_lags for count in part.counts]
    )
    # A second pass, only if a group may have lost messages: it reads rows of the lake that the broker no longer has.
    if messages.has_deleted and (lost := group_lag.deleted_message_counter(spans)) is not None:
        messages.measure_queues(CountLimits(moment.at), (), [lost])
    return [row for part in measured_lags for row in part.lag_rows(spans)]


def _all_group_owners(moment: OffsetState) -> set[OffsetOwner]:
    return {
        position._replace(group=strip_broadcast_suffix(position.group))
        for position in moment.offsets
        if is_selected_offset_owner(ALL_MESSAGES, position)
    }


def _no_snapshot_note(broker: str, as_of: datetime.datetime | None) -> str:
    when = "" if as_of is None else f" at or before {as_of:%Y-%m-%dT%H:%M:%SZ}"
    return f"{broker}: the lake has no snapshot of its groups{when}, so their lag is not known"


def lag_of_store(
    store: Store, now: datetime.datetime, selection: Selection = ALL_MESSAGES, overrides: Overrides | None = None
) -> LagAnswer:
    """Return the lag of a store's groups now, read from the store's own files.

    Args:
        store: The store, in a folder or a copy in an object store.
        now: The time.

    Raises:
        CommitLogError: The log cannot be read.
        UnsafeFileError: A file of the retry store is a link or not regular.
    """
    overrides = overrides or Overrides()
    progress = read_store_snapshot(store, now)
    if progress is None or OffsetKind.GROUP not in progress.taken:
        why = (
            "its offsets are in an object store"
            if progress is None
            else "; ".join(progress.unreadable) or progress.note
        )
        return LagAnswer([], [f"{store.broker}: {why}"])
    moments = offsets_by_kind(progress)
    topics = read_store_topics(store)
    moments[OffsetKind.GROUP], left_out = _drop_impossible_offsets(moments[OffsetKind.GROUP], topics)
    subscriptions = subscriptions_of_snapshot(progress).with_overrides(overrides.filters)
    levels = _delay_levels(overrides.delay_levels_ms.get(store.broker), read_broker_settings(store))
    messages = StoreMessages(store)
    try:
        rows = _measure_store(moments, messages, subscriptions, selection, levels)
    except IndexMismatchError as error:
        # An index that contradicts its log would give wrong counts, and the log is always right.
        _LOGGER.warning("%s; reading the log instead of the indexes", error)
        messages = StoreMessages(store, use_indexes=False)
        rows = _measure_store(moments, messages, subscriptions, selection, levels)
    rows = _mark_batch_topics(rows, topics)
    rows = [
        _mark_deleted_topic(row) if topics and row.topic not in topics and needs_topic_config(row.topic) else row
        for row in rows
    ]
    missing = [*left_out, *([_damage_note(store.broker, messages.damaged)] if messages.damaged else [])]
    entries, problems = read_store_retry_entries(store)
    rows += retry_store_lag_rows(moments[OffsetKind.GROUP], entries, selection)
    return LagAnswer(rows, [*missing, *problems], _all_group_owners(moments[OffsetKind.GROUP]))


def offsets_by_kind(snapshot: StoreSnapshot) -> dict[OffsetKind, OffsetState]:
    """Return the offsets of a snapshot, by kind."""
    return {
        kind: OffsetState(
            broker=snapshot.broker,
            at=as_of,
            taken=as_of,
            log_start=snapshot.log_start,
            offsets={
                position: OffsetAt(offset, offset)
                for position, offset in snapshot.offsets.items()
                if position.kind == kind
            },
        )
        for kind, as_of in snapshot.taken.items()
    }


def subscriptions_of_snapshot(snapshot: StoreSnapshot) -> Subscriptions:
    """Return the groups' subscriptions in a snapshot; one read from files knows no clients."""
    return Subscriptions(
        {
            key: SubscribedAt(
                SubscriptionFilter.of(one.expression_type or "", one.expression or ""),
                None if one.members is None else len(one.members),
                one.message_model,
                as_of=snapshot.subscribed_as_of,
            )
            for key, one in snapshot.subscriptions.items()
        }
    )


def _damage_note(broker: str, count: int) -> str:
    ranges = format_count(count, "range of the log is", "ranges of the log are")
    return f"{broker}: {ranges} damaged; messages there are not counted; 'commitlake verify' shows where"
