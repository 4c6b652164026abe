"""Lag of groups over time, from the snapshots of `consumer_offsets` and the times of messages.

The time range is divided into windows. The figure of a window is that of its last snapshot. It is exact: the snapshot
has the offsets, and the messages show what was stored by then. A window without a snapshot uses the last offsets before
it, if the snapshots before and after it (or the last snapshot and the end of the range) are at most `MAX_DISTANCE`
apart. (A snapshot in which nothing changed is stored only once in ten minutes.) Other windows have no figure; nor has a
window whose snapshot refers to a part of the log that is not archived yet.

Messages that the broker deletes during this time, before a group has consumed them, still count as behind: a group that
loses messages does not catch up.

A group consumes all queues of its topics; in a queue in which it had no offset, all messages count, as in
`measure_queues`. Messages count if the group wanted them at the time of the figure, as far as its subscription at that
time is known.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.archive_commits import StoreProgress, read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, open_snapshots, snapshot_brokers
from commitlake.connectors.lake.sql import date_literal, text_literal, timestamp_literal
from commitlake.pipelines.lag.backlog_counting import OffsetRangeCounter, Queue
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable, MessagesTable
from commitlake.pipelines.lag.queue_offset_spans import CountLimits
from commitlake.pipelines.lag.subscription_filter import ALL, SubscriptionFilter
from commitlake.pipelines.lag.subscriptions import PastSubscriptions, read_subscriptions_over_time
from commitlake.pipelines.snapshot.progress import GroupTopic
from commitlake.pipelines.snapshot.table_append import HEARTBEAT
from commitlake.schemas.layouts.rocketmq.topics import BROADCAST_SUFFIX, RETRY_PREFIX, strip_broadcast_suffix
from commitlake.schemas.times import TimeWindows

MAX_WINDOWS = 72
"""Largest number of windows in a history."""
MAX_DISTANCE = 2 * HEARTBEAT
"""Largest distance of two snapshots between which offsets are assumed to be those of the first."""
MIN_SNAPSHOTS = 24
"""A history covers the last day if that has so many snapshots, else a longer time."""
_LENGTHS = tuple(datetime.timedelta(days=days) for days in (1, 7, 30, 365))
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LagHistory:
    """Lag of consumer groups by time window.

    Attributes:
        windows: The windows.
        messages: By group, the messages behind in each window; None if not known.
    """

    windows: TimeWindows
    messages: Mapping[str, Sequence[int | None]]


@dataclass(frozen=True, slots=True)
class _Window:
    """Time window of a lag history, and the time of the snapshot that its lag is computed from.

    Attributes:
        number: Number of the window.
        at: Time of the figures.
        log_start: Physical offset at which the broker's log began.
    """

    number: int
    at: datetime.datetime
    log_start: int


def lag_history(
    lake: Lake,
    groups: Collection[str],
    until: datetime.datetime,
    brokers: Collection[str] = (),
    subscription_overrides: Mapping[GroupTopic, SubscriptionFilter] | None = None,
    topics: Collection[str] = (),
    messages: MessagesTable | None = None,
) -> LagHistory | None:
    """Return the lag of groups by time window up to `until`; None if there are no snapshots.

    Args:
        until: End of the history.
        brokers: Stores to read; all if empty.
        subscription_overrides: Subscriptions that the user gives.
        topics: Topics to count; all if empty.
        messages: The lake's messages; None to read them in this process.
    """
    offsets = open_snapshots(lake, OFFSETS)
    if offsets is None or not groups:
        return None
    table = messages or ArrowMessagesTable(lake.table("messages"))
    stores = sorted(brokers or snapshot_brokers(offsets, OFFSETS))
    windows = _find_windows(offsets, stores, until)
    if windows is None:
        return None
    subscribed = open_snapshots(lake, SUBSCRIBED)
    last = read_last_commit(lake)
    archived = {} if last is None else last.stores
    known: dict[str, list[int | None]] = {group: [None] * windows.count for group in groups}
    missing: set[tuple[str, int]] = set()
    for broker in stores:
        store = _StoreHistory(table, offsets, broker, until)
        progress = archived.get(broker, StoreProgress(0))
        is_known = progress.pulled_topics is None or (topics and set(topics) <= set(progress.pulled_topics))
        places = list(store.find_known_windows(windows, progress.end)) if is_known else []
        store.set_subscriptions(subscribed, places, subscription_overrides or {})
        untold = set(range(windows.count)) - {window.number for window in places}
        for group, figures in store.count_messages_behind(windows, places, groups, topics).items():
            missing |= {(group, number) for number in untold}
            for number, figure in figures.items():
                if figure is None:
                    missing.add((group, number))
                else:
                    known[group][number] = (known[group][number] or 0) + figure
    for group, number in missing:
        known[group][number] = None
    return LagHistory(windows, known)


def _find_windows(table: DeltaTable, brokers: Sequence[str], until: datetime.datetime) -> TimeWindows | None:
    """Return time windows over the last day, or over a longer time if there are few snapshots."""
    counts = ", ".join(
        f"count(CASE WHEN as_of >= {timestamp_literal(until - length)} THEN 1 END) AS count_{number}, "
        f"min(CASE WHEN as_of >= {timestamp_literal(until - length)} THEN as_of END) AS first_{number}"
        for number, length in enumerate(_LENGTHS)
    )
    where = f"kind = 'group' AND topic IS NULL AND as_of <= {timestamp_literal(until)} AND {_broker_condition(brokers)}"
    (row,) = rows_to_dicts(run_sql(table, OFFSETS, f"SELECT {counts} FROM {OFFSETS} WHERE {where}").read_all())
    last = len(_LENGTHS) - 1
    if not row[f"count_{last}"]:
        return None
    number = next((number for number in range(last) if row[f"count_{number}"] >= MIN_SNAPSHOTS * len(brokers)), last)
    first = row[f"first_{number}"]
    sql = (
        "SELECT median(distance) AS distance FROM (SELECT arrow_cast(as_of, 'Int64') - "
        "arrow_cast(lag(as_of) OVER (PARTITION BY broker ORDER BY as_of), 'Int64') AS distance "
        f"FROM {OFFSETS} WHERE {where} AND as_of >= {timestamp_literal(first)})"
    )
    (middle,) = rows_to_dicts(run_sql(table, OFFSETS, sql).read_all())
    distance = datetime.timedelta(microseconds=int(middle["distance"] or 0))
    # One window for each snapshot if snapshots are regular. The factor allows for small variations.
    return TimeWindows.covering(first, until + datetime.timedelta(seconds=1), MAX_WINDOWS, min_length=distance * 0.95)


def _broker_condition(brokers: Sequence[str]) -> str:
    return f"broker IN ({', '.join(map(text_literal, brokers))})"


class _StoreHistory:
    """Computes the lag of one store's groups by time window.

    Args:
        messages: The table `messages`.
        offsets: The table `consumer_offsets`.
        broker: The store's name.
        until: End of the history.
    """

    def __init__(self, messages: MessagesTable, offsets: DeltaTable, broker: str, until: datetime.datetime) -> None:
        self._messages, self._store = messages, LakeMessages(messages, broker)
        self._offsets, self._broker, self._until = offsets, broker, until
        self._subscribed_in: dict[int, PastSubscriptions] = {}
        self._broadcast: Collection[tuple[str, str]] = ()

    def set_subscriptions(
        self,
        subscriptions_table: DeltaTable | None,
        known_windows: Sequence[_Window],
        overrides: Mapping[GroupTopic, SubscriptionFilter],
    ) -> None:
        """Read the subscriptions of the groups at the time of each window.

        Args:
            subscriptions_table: The table `subscriptions`; None if there is none.
            known_windows: The windows that have figures.
            overrides: Subscriptions that the user gives, for all windows.
        """
        known = [PastSubscriptions()] * len(known_windows)
        if subscriptions_table is not None:
            known = read_subscriptions_over_time(
                subscriptions_table, self._broker, [window.at for window in known_windows]
            )
        self._subscribed_in = {
            window.number: then._replace(wanted={**then.wanted, **overrides})
            for window, then in zip(known_windows, known, strict=True)
        }

    def find_known_windows(self, windows: TimeWindows, archived_end: int) -> Iterator[_Window]:
        """Yield the time windows whose lag can be computed, because there is a snapshot of offsets for them.

        Args:
            windows: All windows.
            archived_end: Physical offset up to which the log is archived.
        """
        rows = self._query_offset_rows(
            f"SELECT {_window_number_sql(windows)} AS number, min(as_of) AS first, max(as_of) AS last, "
            "last_value(log_end ORDER BY as_of) AS log_end, last_value(log_start ORDER BY as_of) AS log_start "
            f"FROM {OFFSETS} WHERE {self._snapshot_conditions()} AND topic IS NULL AND as_of >= "
            f"{timestamp_literal(windows.start)} "
            f"AND as_of <= {timestamp_literal(self._until)} GROUP BY 1 ORDER BY 1"
        )
        following = [(row["first"], row["number"]) for row in rows[1:]] + [(self._until, windows.count)]
        for row, (next_at, next_number) in zip(rows, following, strict=True):
            if (row["log_end"] or 0) > archived_end:
                continue
            start = row["log_start"] or 0
            yield _Window(row["number"], row["last"], start)
            if next_at - row["last"] <= MAX_DISTANCE:
                for number in range(row["number"] + 1, next_number):
                    end = windows.start + (number + 1) * windows.length
                    yield _Window(number, min(end, self._until), start)

    def count_messages_behind(
        self, windows: TimeWindows, known_windows: Sequence[_Window], groups: Collection[str], topics: Collection[str]
    ) -> dict[str, dict[int, int | None]]:
        """Return how many messages each group is behind in each window, for groups that consume from this store.

        A figure is None if the queue's topic was created again after that time.
        """
        offsets = self._group_offsets_by_window(windows, groups, topics)
        clustering = {key: figures for key, figures in offsets.items() if (key[0], key[1].topic) not in self._broadcast}
        consumers = self._consumed_topics_by_window(clustering, windows.count, groups, topics)
        names = {queue.topic for _, queue in offsets}.union(consumers)
        known = self._store.measure_queues(CountLimits(until=self._until), names, [])
        floors = {queue: span.floor for queue, span in known.items() if span.floor is not None}
        ends = self._queue_ends_by_window(known_windows, names, floors)
        # Queues without a message since their topic was created again: other queues of the topic show when that was.
        deleted = {queue for queue in floors if not known[queue].end}
        spans: dict[tuple[str, Queue], dict[int, tuple[int, int] | None]] = defaultdict(dict)
        for key, found in offsets.items():
            queue = key[1]
            if queue in deleted:
                continue
            of_queue = ends.get(queue, [(0, 0)] * len(known_windows))
            first = _smallest_first_offset(of_queue)
            for place, window in enumerate(known_windows):
                offset = found[window.number]
                end = of_queue[place][1]
                if offset is not None and queue in floors and not end:
                    spans[key][window.number] = None
                elif offset is not None:
                    start = max(offset, first)
                    spans[key][window.number] = (start, max(start, end))
        for queue, of_queue in ends.items():
            if queue in deleted:
                continue
            for group, is_consumed in consumers.get(queue.topic, {}).items():
                of_group = offsets.get((group, queue))
                if of_group is not None and None not in of_group:
                    continue
                first = _smallest_first_offset(of_queue)
                for window, (_, end) in zip(known_windows, of_queue, strict=True):
                    number = window.number
                    if is_consumed[number] and (of_group is None or of_group[number] is None):
                        is_known = end or queue not in floors
                        spans[group, queue][number] = (first, max(first, end)) if is_known else None
        return self._count_in_offset_ranges(spans, floors)

    def _consumed_topics_by_window(
        self,
        offsets: Mapping[tuple[str, Queue], Sequence[int | None]],
        window_count: int,
        groups: Collection[str],
        topics: Collection[str],
    ) -> dict[str, dict[str, list[bool]]]:
        """Return, by topic and group, a flag for each window: whether the group consumes the topic in it.

        Args:
            offsets: From `_group_offsets_by_window`.
            window_count: Number of windows.
            topics: Topics to count; all if empty.
        """
        found: dict[str, dict[str, list[bool]]] = defaultdict(dict)
        for (group, queue), figures in offsets.items():
            known = found[queue.topic].get(group)
            if known is None or not all(known):
                found[queue.topic][group] = _combine_with_or(known, [figure is not None for figure in figures])
        of_groups: dict[str, list[bool]] = {}
        for by_group in found.values():
            for group, is_consumed in by_group.items():
                of_groups[group] = _combine_with_or(of_groups.get(group), is_consumed)
        for group, is_known in of_groups.items():
            retry = RETRY_PREFIX + group
            if not topics or retry in topics:
                found[retry][group] = _combine_with_or(found[retry].get(group), is_known)
        for number, then in self._subscribed_in.items():
            for key in then.consumed:
                if key.group in groups and (not topics or key.topic in topics):
                    found[key.topic].setdefault(key.group, [False] * window_count)[number] = True
            for key in then.broadcast:
                if key.group in found.get(key.topic, {}):
                    found[key.topic][key.group][number] = False
        return found

    def _count_in_offset_ranges(
        self,
        offset_ranges: Mapping[tuple[str, Queue], Mapping[int, tuple[int, int] | None]],
        restart_offsets: Mapping[Queue, int],
    ) -> dict[str, dict[int, int | None]]:
        """Count the messages that groups want in given ranges of queue offsets, by group and window number.

        A count is None if it is not known.
        """
        places: dict[tuple[Queue, SubscriptionFilter], list[int]] = defaultdict(list)
        for (group, queue), of_windows in offset_ranges.items():
            for number, span in of_windows.items():
                wanted = self._subscription_filter(group, queue.topic, number)
                if span is not None and not wanted.selects_all:
                    places[queue, wanted] += span
        counter = OffsetRangeCounter(places, restart_offsets)
        if places:
            self._store.measure_queues(CountLimits(until=self._until), (), [counter])
        figures: dict[str, dict[int, int | None]] = {group: {} for group, _ in offset_ranges}
        for (group, queue), of_windows in offset_ranges.items():
            mine = figures[group]
            for number, span in of_windows.items():
                wanted = self._subscription_filter(group, queue.topic, number)
                before = mine.get(number, 0)
                if span is None or before is None:
                    mine[number] = None
                else:
                    start, end = span
                    behind = end - start if wanted.selects_all else counter.count_between(queue, wanted, start, end)
                    mine[number] = before + behind
        return figures

    def _subscription_filter(self, group: str, topic: str, window_number: int) -> SubscriptionFilter:
        wanted = self._subscribed_in[window_number].wanted
        return ALL if topic.startswith(RETRY_PREFIX) else wanted.get(GroupTopic(group, topic), ALL)

    def _group_offsets_by_window(
        self, windows: TimeWindows, groups: Collection[str], topics: Collection[str]
    ) -> dict[tuple[str, Queue], list[int | None]]:
        """Return each group's offset in each queue at the end of each window; None where it has none."""
        names = sorted(group + suffix for group in groups for suffix in ("", BROADCAST_SUFFIX))
        chosen = f' AND "group" IN ({", ".join(map(text_literal, names))})'
        if topics:
            chosen += f" AND topic IN ({', '.join(map(text_literal, sorted(topics)))})"
        rows = self._query_offset_rows(
            f'SELECT "group", topic, queue_id, {_window_number_sql(windows)} AS number, '
            'last_value("offset" ORDER BY as_of) AS "offset" '
            f"FROM {OFFSETS} WHERE {self._snapshot_conditions()} AND topic IS NOT NULL{chosen} "
            f"AND as_of <= {timestamp_literal(self._until)} GROUP BY 1, 2, 3, 4 ORDER BY 4"
        )
        found: dict[tuple[str, Queue], list[int | None]] = {}
        self._broadcast = {
            (strip_broadcast_suffix(row["group"]), row["topic"]) for row in rows if _is_broadcast_row(row)
        }
        for row in rows:
            group = strip_broadcast_suffix(row["group"])
            if (group, row["topic"]) in self._broadcast and not _is_broadcast_row(row):
                continue  # these offsets are older than the first one as a broadcasting group
            key = group, Queue(self._broker, row["topic"], row["queue_id"])
            number = max(0, row["number"])
            figures = found.setdefault(key, [None] * windows.count)
            if number < windows.count:
                figures[number:] = [row["offset"]] * (windows.count - number)
        return found

    def _queue_ends_by_window(
        self, known_windows: Sequence[_Window], topics: Collection[str], restart_offsets: Mapping[Queue, int]
    ) -> dict[Queue, list[tuple[int, int]]]:
        """Return each queue's first and end offset at the time of each window whose lag is known."""
        if not known_windows or not topics:
            return {}
        times = " ".join(
            f"WHEN store_timestamp <= {timestamp_literal(window.at)} THEN {place}"
            for place, window in enumerate(known_windows)
        )
        starts = sorted({window.log_start for window in known_windows})
        # The largest first, because a CASE takes the first condition that holds.
        offsets = " ".join(f"WHEN physical_offset >= {start} THEN {start}" for start in reversed(starts))
        last = known_windows[-1].at
        since = " ".join(
            f"WHEN topic = {text_literal(queue.topic)} AND queue_id = {queue.queue_id} THEN {floor}"
            for queue, floor in restart_offsets.items()
        )
        names = ", ".join(text_literal(topic) for topic in sorted(topics))
        made_again = f" AND physical_offset >= CASE {since} ELSE 0 END" if since else ""
        sql = (
            f"SELECT topic, queue_id, CASE {times} END AS place, CASE {offsets} ELSE -1 END AS log_start, "
            "min(queue_offset) AS first, max(queue_offset) AS last FROM messages "
            f"WHERE broker = {text_literal(self._broker)} AND topic IN ({names})"
            # The date adds nothing to the time, but lets the engine skip whole partitions.
            f" AND store_timestamp <= {timestamp_literal(last)} AND store_date <= {date_literal(last)}"
            f"{made_again} GROUP BY 1, 2, 3, 4"
        )
        rows: dict[Queue, list[Row]] = defaultdict(list)
        for row in rows_to_dicts(self._messages.query(sql)):
            rows[Queue(self._broker, row["topic"], row["queue_id"])].append(row)
        return {queue: _queue_bounds_by_window(found, known_windows) for queue, found in rows.items()}

    def _snapshot_conditions(self) -> str:
        return f"broker = {text_literal(self._broker)} AND kind = 'group'"

    def _query_offset_rows(self, sql: str) -> list[Row]:
        return list(rows_to_dicts(run_sql(self._offsets, OFFSETS, sql).read_all()))


def _is_broadcast_row(row: Row) -> bool:
    return bool(strip_broadcast_suffix(row["group"]) != row["group"])


def _combine_with_or(first_flags: Sequence[bool] | None, second_flags: Sequence[bool]) -> list[bool]:
    return (
        list(second_flags)
        if first_flags is None
        else [one or other for one, other in zip(first_flags, second_flags, strict=True)]
    )


def _window_number_sql(windows: TimeWindows) -> str:
    """Return SQL for the number of the window in which a snapshot was taken; negative before the first window."""
    micros = windows.length // datetime.timedelta(microseconds=1)
    start = timestamp_literal(windows.start)
    return (
        f"CAST(floor(CAST(arrow_cast(as_of, 'Int64') - arrow_cast({start}, 'Int64') AS DOUBLE) / {micros}) AS BIGINT)"
    )


def _smallest_first_offset(offset_ranges: Sequence[tuple[int, int]]) -> int:
    """Return the smallest first offset of a queue in the windows in which it has messages; 0 if there is none."""
    return min((first for first, end in offset_ranges if end), default=0)


def _queue_bounds_by_window(rows: Sequence[Row], known_windows: Sequence[_Window]) -> list[tuple[int, int]]:
    """Return the first offset and the end offset of one queue at each window."""
    found = []
    for place, window in enumerate(known_windows):
        stored = [row for row in rows if row["place"] <= place]
        end = max((row["last"] + 1 for row in stored), default=0)
        first = min((row["first"] for row in stored if row["log_start"] >= window.log_start), default=end)
        found.append((first, end))
    return found
