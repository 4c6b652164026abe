"""Lag of consumer groups at given moments, from snapshots of their offsets and from messages.

The rules are those of `pipelines.lag.measure`, and so are the figures: a group that has an offset in a queue of a topic
consumes all queues of the topic, and its own retry topic. Where it has no offset, messages count from the first one on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.columns import to_columns
from commitlake.pipelines.transforms.group_offsets import (
    drop_impossible_offsets,
    offsets_at,
    snapshots_at,
    store_topics_at,
)
from commitlake.pipelines.transforms.group_subscriptions import (
    BROADCASTING,
    Subscriptions,
    subscriptions_at,
    with_subscription,
    with_unknown_subscription,
)
from commitlake.pipelines.transforms.moments import AT, SampleTimes
from commitlake.pipelines.transforms.queue_spans import QUEUE, queue_spans_at, with_queue_runs
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from commitlake.schemas.tables.lag import GROUP_LAG, QUEUE_LAG

_GROUP = ("broker", AT, "owner", "group", "topic")
_SPAN = ("first", "end", "run", "run_first", "log_start")
_COUNTED = ("messages", "bytes", "next_time")
_PLACE = "struct<queue_id: int, low: bigint, high: bigint>"
_BOUNDS = "struct<queue_id: int, low: bigint, high: bigint, is_committed: boolean>"
_DAY_US = 86_400_000_000
_BIN = 256
"""Offsets of a queue that are joined together, so that a group is not compared with all messages of a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTables:
    """Tables from which lag is computed, with the columns of the lake's tables.

    Attributes:
        offsets: `consumer_offsets`.
        messages: `messages`.
        progress: one row for each store that is archived: `broker`, `end` (long, physical offset up to which the log is
            in the lake) and `topics` (array of the archived topics; null for all).
        subscriptions: `subscriptions`; None if the lake has none.
        store_config: `store_config`; None if the lake has none.
    """

    offsets: DataFrame
    messages: DataFrame
    progress: DataFrame
    subscriptions: DataFrame | None = None
    store_config: DataFrame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRules:
    """Selection of the groups to measure, and limits for the computation of their lag.

    Attributes:
        brokers: stores; all if empty.
        groups: consumer groups; all if empty.
        topics: topics; all if empty.
        log_starts: physical offsets, by store: messages before them are known to be deleted at all moments, and need
            not be read to count what waits. Stores may be left out.
        max_age_us: age up to which clients of a group count as known.
        max_impossible: largest number of offsets in queues that do not exist which have rows.
        sql92: the valid SQL92 expressions of `subscriptions`.
        match_sql92: adds the column `matches`: whether the `properties` of a row match its expression `sql92`; needed
            if there are expressions.
    """

    brokers: Sequence[str] = ()
    groups: Sequence[str] = ()
    topics: Sequence[str] = ()
    log_starts: Mapping[str, int] = field(default_factory=dict)
    max_age_us: int
    max_impossible: int
    sql92: Collection[str] = ()
    match_sql92: Callable[[DataFrame], DataFrame] | None = None

    def is_measured_owner(self, owner: Column, group: Column) -> Column:
        """Return a condition that a group is to be measured, which excludes the broker's own groups."""
        is_chosen = owner.isin(*self.groups) | group.isin(*self.groups) if self.groups else F.lit(True)
        return ~owner.startswith(SYSTEM_GROUP_PREFIX) & is_chosen

    def is_measured_topic(self, topic: Column) -> Column:
        """Return a condition that a topic is to be measured: it is selected and archived."""
        is_archived = F.col("topics").isNull() | F.array_contains("topics", topic)
        return is_archived & (topic.isin(*self.topics) if self.topics else F.lit(True))

    def may_be_live(self) -> Column:
        """Return a condition that the broker may still have a message, by which Delta can skip data files."""
        broker, offset = F.col("broker"), F.col("physical_offset")
        live = [(broker == store) & (offset >= start) for store, start in self.log_starts.items()]
        return reduce(or_, live, ~broker.isin(*self.log_starts))


def lag_at(tables: LagTables, moments: SampleTimes, rules: LagRules) -> DataFrame:
    """Return the lag of each group in each queue at each moment.

    A group whose offset is 3 in a queue of five messages, which the broker stored at seconds 1 to 5, at a snapshot:

        +-----+------+-----+----------+---+------------+------------+--------------+
        |group| topic|as_of|offset_min|end|messages_min|messages_max|time_lag_s_max|
        +-----+------+-----+----------+---+------------+------------+--------------+
        | mail|orders|   60|         3|  5|           2|           2|          56.0|
        +-----+------+-----+----------+---+------------+------------+--------------+

    Args:
        tables: the tables.
        moments: the moments.
        rules: groups to measure, and limits.

    Returns:
        One row for each moment, store, group, topic and queue, with the columns `QUEUE_LAG`. Times are UTC.
    """
    # A plan holds each input as often as it is used: an intermediate result is joined with itself only if it is small.
    offsets = _filter_brokers(tables.offsets, rules)
    snapshots = snapshots_at(offsets, moments)
    positions = offsets_at(offsets, snapshots, moments)
    topics = None
    if tables.store_config is not None:
        topics = store_topics_at(_filter_brokers(tables.store_config, rules), moments)
        positions = drop_impossible_offsets(positions, topics, rules.max_impossible)
    subscriptions = None
    if tables.subscriptions is not None:
        rows = _filter_brokers(tables.subscriptions, rules)
        subscriptions = subscriptions_at(rows, moments, max_age_us=rules.max_age_us, sql92_expressions=rules.sql92)
    archived = tables.progress.withColumnRenamed("end", "archived")
    groups = _find_consuming_groups(positions, subscriptions).join(F.broadcast(archived), ["broker"], "left")
    groups = groups.where(
        rules.is_measured_owner(F.col("owner"), F.col("group")) & rules.is_measured_topic(F.col("topic"))
    )
    groups = groups.drop("topics").join(snapshots.drop("log_start"), ["broker", AT])
    if topics is None:
        groups = groups.withColumn("has_batches", F.lit(False))
    else:
        groups = groups.join(topics.select("broker", "topic", AT, "has_batches"), ["broker", "topic", AT], "left")
    runs = with_queue_runs(_filter_by_last_moment(_filter_brokers(tables.messages, rules), moments, rules), moments)
    queues = _join_group_queues(groups, queue_spans_at(runs, snapshots, moments))
    return _lag_columns(_with_waiting_message_counts(queues, runs.where(rules.may_be_live()), rules))


def lag_of_groups(lag: DataFrame, times: Sequence[str]) -> DataFrame:
    """Sum up the lag of each group over its queues.

        +-----+--------+------------+------------+        +-----+------+------------+------------+
        |group|queue_id|messages_min|messages_max|        |group|queues|messages_min|messages_max|
        +-----+--------+------------+------------+        +-----+------+------------+------------+
        | mail|       0|           2|           2|   ->   | mail|     2|           2|           7|
        | mail|       1|           0|           5|        +-----+------+------------+------------+
        +-----+--------+------------+------------+

    Args:
        lag: from `lag_at`.
        times: `as_of`, for a row for each moment; empty if each store has a moment of its own.

    Returns:
        One row for each group, or for each group and moment, with the columns `GROUP_LAG`. An upper bound is null if
        that of any queue is.
    """

    def null_unless_all_known(name: str, largest: Column) -> Column:
        return F.when(F.count(name) == F.count("*"), largest).alias(name)

    is_behind = F.col("messages_max").isNull() | (F.col("messages_max") > 0)
    figures = [
        F.count("*").alias("queues"),
        F.count_if(is_behind).alias("queues_behind"),
        F.sum("messages_min").alias("messages_min"),
        null_unless_all_known("messages_max", F.sum("messages_max")),
        F.sum("bytes_min").alias("bytes_min"),
        null_unless_all_known("bytes_max", F.sum("bytes_max")),
        F.max("time_lag_s_min").alias("time_lag_s_min"),
        null_unless_all_known("time_lag_s_max", F.max("time_lag_s_max")),
        F.min("next_message_time").alias("next_message_time"),
    ]
    if not times:
        figures.append(F.min("as_of").alias("as_of"))
    return to_columns(lag.groupBy("group", *times).agg(*figures), GROUP_LAG)


def _filter_brokers(rows: DataFrame, rules: LagRules) -> DataFrame:
    return rows.where(F.col("broker").isin(*rules.brokers)) if rules.brokers else rows


def _filter_by_last_moment(messages: DataFrame, moments: SampleTimes, rules: LagRules) -> DataFrame:
    """Return the messages stored up to the last moment, by a condition with which Delta can skip data files."""
    if rules.topics:
        messages = messages.where(F.col("topic").isin(*rules.topics))
    if moments.last_us is None:
        return messages
    day = F.date_from_unix_date(F.lit(moments.last_us // _DAY_US))
    is_stored = F.col("store_timestamp") <= F.timestamp_micros(F.lit(moments.last_us))
    return messages.where(is_stored & (F.col("store_date") <= day))


def _find_consuming_groups(positions: DataFrame, subscriptions: Subscriptions | None) -> DataFrame:
    """Return the groups that may consume each topic, and its retry topics: those with an offset or clients.

    Returns:
        One row for each `_GROUP`: `positions` (array of the queues with an offset: `queue_id`, `low` and `high`), the
        filter and the clients, and `is_consumer`, which is true if the group consumes all queues of the topic. Offsets
        of a message model that a group no longer uses are left out.
    """
    retry = F.concat(F.lit(RETRY_PREFIX), F.col("owner"))
    topics = F.explode(F.array_distinct(F.array("topic", retry))).alias("of_topic")
    place = F.when(F.col("of_topic") == F.col("topic"), F.struct("queue_id", "low", "high"))
    each = positions.select("broker", AT, "owner", "group", "topic", "queue_id", "low", "high", topics)
    keys = each.select(
        "broker",
        AT,
        "owner",
        "group",
        F.col("of_topic").alias("topic"),
        place.alias("place"),
        F.lit(True).alias("has_offset"),
    )
    if subscriptions is not None:
        clients = subscriptions.known.where(F.col("clients") > 0)
        owner, none = F.col("group").alias("owner"), F.lit(None).cast(_PLACE).alias("place")
        with_clients = clients.select("broker", AT, owner, "group", "topic", none, F.lit(False).alias("has_offset"))
        keys = keys.union(with_clients)
    places = F.collect_list("place").alias("positions")  # without nulls
    found = keys.groupBy(*_GROUP).agg(places, F.max("has_offset").alias("has_offset"))
    found = with_unknown_subscription(found) if subscriptions is None else with_subscription(found, subscriptions)
    is_suffixed, has_places = F.col("owner") != F.col("group"), F.size("positions") > 0
    of_group = Window.partitionBy("broker", AT, "group", "topic")
    broadcasts = F.coalesce(F.col("model") == BROADCASTING, F.lit(False))
    has_clients = F.coalesce(F.col("members") > 0, F.lit(False))
    found = found.withColumns(
        {
            "has_suffixed": F.max(is_suffixed & has_places).over(of_group),
            "has_plain": F.max(~is_suffixed & has_places).over(of_group),
            "is_consumer": ~is_suffixed & ~broadcasts & (F.col("has_offset") | has_clients),
        }
    )
    has_other = F.when(is_suffixed, F.col("has_plain")).otherwise(F.col("has_suffixed"))
    is_outdated = F.col("model").isNotNull() & (broadcasts != is_suffixed) & has_other
    return found.where(~is_outdated).drop("has_suffixed", "has_plain", "has_offset", "model")


def _join_group_queues(groups: DataFrame, spans: DataFrame) -> DataFrame:
    """Return the queues whose lag is measured for each group: those with an offset or, for a full consumer, all.

    Args:
        groups: from `_find_consuming_groups`, with the columns of `snapshots_at`.
        spans: from `queue_spans_at`.

    Returns:
        One row for each group and queue: the columns of `groups`, `queue_id`, the columns of spans (null if no message
        is known), and the bounds of the offset: `low` and `high` for counting, `offset_min` and `offset_max` to show.
    """
    entry = F.struct("queue_id", F.struct(*_SPAN).alias("span"))
    of_topics = spans.groupBy("broker", "topic", AT).agg(F.map_from_entries(F.collect_list(entry)).alias("spans"))
    found = groups.join(of_topics, ["broker", "topic", AT], "left")
    committed = F.transform("positions", lambda each: each["queue_id"])
    known = F.coalesce(F.map_keys("spans"), F.array().cast("array<int>"))
    others = F.when(F.col("is_consumer"), F.array_except(known, committed)).otherwise(F.array().cast("array<int>"))
    is_last = (F.col(AT) != F.col("taken")) & F.col("next").isNull()
    is_open = F.forall("positions", lambda each: each["high"].isNull())
    is_open = F.when(F.size("positions") == 0, is_last).otherwise(is_open)
    found = found.withColumns({"is_open": is_open, "others": others})
    zero = F.lit(0).cast("long")
    uncommitted = F.transform(
        "others", lambda queue: F.struct(queue, zero, F.when(~F.col("is_open"), zero), F.lit(False)).cast(_BOUNDS)
    )
    places = F.transform(
        "positions", lambda each: F.struct(each["queue_id"], each["low"], each["high"], F.lit(True)).cast(_BOUNDS)
    )
    found = found.withColumn("place", F.explode(F.concat(places, uncommitted)))
    found = found.withColumns({"queue_id": F.col("place.queue_id"), "span": F.col("spans")[F.col("place.queue_id")]})
    first, is_committed = F.coalesce("span.first", zero), F.col("place.is_committed")
    has_messages = F.coalesce((F.col("queue_id") >= 0) & (first < F.col("span.end")), F.lit(False))
    high = F.col("place.high")
    bounds = {
        "low": F.col("place.low"),
        "high": high,
        "offset_min": F.when(is_committed, F.col("place.low")).otherwise(first),
        "offset_max": F.when(is_committed | high.isNull(), high).otherwise(first),
    }
    found = found.where(is_committed | has_messages).withColumns(bounds)
    return found.withColumns({name: F.col(f"span.{name}") for name in _SPAN}).drop(
        "positions", "spans", "span", "others", "place", "is_open", "is_consumer"
    )


def _with_waiting_message_counts(queues: DataFrame, messages: DataFrame, rules: LagRules) -> DataFrame:
    """Add the number and size of the waiting messages, and the time of the first, for both bounds of the offset.

    Args:
        queues: from `_join_group_queues`.
        messages: from `with_queue_runs`.
        rules: for the SQL92 expressions.

    Returns:
        The rows of `queues` with `most_messages`, `most_bytes` and `most_next_time` from the lower bound on, and
        likewise `least_…` from the upper bound on. Sums and times are null without a message.
    """
    start = F.greatest("low", F.coalesce("first", "run_first"))
    last = F.col("end") - F.lit(1)
    bins = F.sequence(_offset_bin(start), _offset_bin(last), F.lit(_BIN).cast("long"))
    # A queue in which nothing waits is in no bin, but keeps its row.
    waiting = queues.withColumns({"start": start, "bin": F.explode_outer(F.when(start <= last, bins))})
    rows = messages.select(
        *QUEUE,
        _offset_bin(F.col("queue_offset")).alias("bin"),
        "queue_offset",
        "physical_offset",
        "size",
        "store_timestamp",
        "seen_at",
        F.col("run").alias("message_run"),
        F.col("tags").alias("message_tags"),
        "properties",
    )

    def join_messages(queue_bins: DataFrame, message_rows: DataFrame) -> DataFrame:
        return queue_bins.join(message_rows, [*QUEUE, "bin"], "left")

    has_tag = F.col("tags").isNull() | F.array_contains("tags", F.col("message_tags"))
    found = join_messages(waiting, rows.drop("properties")).withColumn("matches", has_tag)
    if rules.match_sql92 is not None:
        has_none = F.col("sql92").isNull()
        found = join_messages(waiting.where(has_none), rows.drop("properties")).withColumn("matches", has_tag)
        by_sql92 = rules.match_sql92(join_messages(waiting.where(~has_none), rows))
        found = found.unionByName(by_sql92.drop("properties"))
    offset = F.col("queue_offset")
    is_stored = (F.col("seen_at") <= F.col(AT)) & (F.col("message_run") == F.col("run"))
    is_live = F.col("log_start").isNull() | (F.col("physical_offset") >= F.col("log_start"))
    is_behind = is_stored & is_live & (offset >= F.col("start")) & F.col("matches")
    counts = []
    for name, counted in (("most", is_behind), ("least", is_behind & (offset >= F.col("high")))):
        counts += [
            F.count_if(counted).alias(f"{name}_messages"),
            F.sum(F.when(counted, F.col("size"))).alias(f"{name}_bytes"),
            F.min_by("store_timestamp", F.when(counted, offset)).alias(f"{name}_next_time"),
        ]
    return found.groupBy(*queues.columns).agg(*counts)


def _offset_bin(offset: Column) -> Column:
    return offset - F.pmod(offset, F.lit(_BIN))


def _lag_columns(counted_rows: DataFrame) -> DataFrame:
    """Return the lag of each row, computed from its offset, queue range and message counts."""
    none = F.lit(0).cast("long")
    most = {name: F.col(f"most_{name}") for name in _COUNTED}
    is_exact = F.coalesce(F.col("high") == F.col("low"), F.lit(False))
    has_least = F.col("filter").isNotNull() & F.col("high").isNotNull()
    least = {
        name: F.when(has_least, F.when(is_exact, most[name]).otherwise(F.col(f"least_{name}"))) for name in _COUNTED
    }
    is_snapshot = F.col(AT) == F.col("taken")
    log_end = F.when(is_snapshot, F.col("log_end")).otherwise(F.col("next_log_end"))
    is_complete = F.coalesce(log_end <= F.coalesce("archived", none), F.lit(False))
    messages = most["messages"]
    is_retry = F.col("topic").startswith(RETRY_PREFIX)
    has_batches = F.coalesce("has_batches", F.lit(False)) & ~is_retry
    columns = {
        "kind": F.when(is_retry, "retry").otherwise("group"),
        "as_of": F.timestamp_micros(AT),
        "end": F.when(~has_batches, F.col("end")),
        "messages_min": F.coalesce(least["messages"], none),
        "messages_max": F.when(is_complete & ~(has_batches & (messages > 0)), messages),
        "bytes_min": F.coalesce(least["bytes"], none),
        "bytes_max": F.when(is_complete, F.coalesce(most["bytes"], none)),
        "time_lag_s_min": _waited_seconds(least["next_time"]),
        "time_lag_s_max": F.when(is_complete | (messages > 0), _waited_seconds(most["next_time"])),
        "next_message_time": most["next_time"],
    }
    return to_columns(counted_rows.withColumns(columns), QUEUE_LAG)


def _waited_seconds(next_time: Column) -> Column:
    """Return the seconds that a message has waited at the row's moment, in milliseconds precision; 0 for null."""
    at_ms = (F.col(AT) - F.pmod(F.col(AT), F.lit(1000))) / F.lit(1000)
    waited = (at_ms - F.unix_millis(next_time)) / F.lit(1000)
    return F.greatest(F.coalesce(waited, F.lit(0.0)), F.lit(0.0))
