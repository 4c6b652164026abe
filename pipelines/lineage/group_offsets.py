"""Offsets of groups in the queues of records, from the snapshots of `consumer_offsets`.

A group's offset shows that it has passed a record, but not whether it consumed the record or skipped it. A snapshot
from before a record was stored shows nothing about it.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import in_condition, text_literal, timestamp_literal
from commitlake.pipelines.lineage.table_lookups import Place, Row
from commitlake.pipelines.tps.result_rows import to_row_dicts
from commitlake.schemas.layouts.rocketmq.topics import is_system_group, strip_broadcast_suffix

OFFSETS = "consumer_offsets"
Queue = tuple[str, str, int]
"""Broker, topic and queue id."""
_MAX_PASSED = 200
"""Largest number of records of a story for which the time is looked up at which a group had passed them."""
_MAX_VALUES = 2_000
"""Number of records in one SQL query, whose planning time grows with them."""


@dataclass(frozen=True, slots=True)
class NewestOffset:
    """A group's newest offset in a queue, and since when it has not changed.

    Attributes:
        offset: The next message that it consumes.
        since: Time of the first snapshot with this offset.
        taken: Time of the newest snapshot of the broker's groups, until which the offset was unchanged.
    """

    offset: int
    since: datetime.datetime
    taken: datetime.datetime


@dataclass(frozen=True, slots=True)
class GroupOffsetsByTopic:
    """Consumer groups' offsets in the queues of one message history.

    Attributes:
        groups: Offsets by queue and group.
        passed: By record and group, the time of the first snapshot with an offset beyond the record; only if there are
            few records.
        taken: By broker, the time of its newest snapshot.
    """

    groups: Mapping[Queue, Mapping[str, NewestOffset]] = field(default_factory=dict)
    passed: Mapping[tuple[Place, str], datetime.datetime] = field(default_factory=dict)
    taken: Mapping[str, datetime.datetime] = field(default_factory=dict)

    def offsets_of_groups(self, record_row: Row) -> Mapping[str, NewestOffset]:
        """Return each group's newest offset in the queue of a record."""
        return self.groups.get((record_row["broker"], record_row["topic"], record_row["queue_id"]), {})

    def groups_by_topic(self) -> dict[tuple[str, str], set[str]]:
        """Return the groups with an offset in any queue of a topic, by broker and topic.

        They are taken to consume all its queues.
        """
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for (broker, topic, _), groups in self.groups.items():
            found[broker, topic].update(groups)
        return found


def read_offsets(lake: Lake, rows_of_stories: Sequence[Collection[Row]]) -> list[GroupOffsetsByTopic]:
    """Return, for each message history, the offsets of groups in the queues of its records.

    Args:
        rows_of_stories: For each story, rows of `messages`.
    """
    rows = list({(row["broker"], row["physical_offset"]): row for own in rows_of_stories for row in own}.values())
    if not rows:
        return [GroupOffsetsByTopic()] * len(rows_of_stories)
    try:
        table = lake.table(OFFSETS)
    except NoTableError:
        return [GroupOffsetsByTopic()] * len(rows_of_stories)
    brokers = in_condition("broker", map(text_literal, sorted({row["broker"] for row in rows})))
    topics = in_condition("topic", map(text_literal, sorted({row["topic"] for row in rows})))
    sql = (
        f'SELECT broker, "group", topic, queue_id, last_value("offset" ORDER BY as_of) AS "offset", '
        f"max(as_of) AS as_of FROM {OFFSETS} WHERE kind = 'group' AND {brokers} AND (topic IS NULL OR {topics}) "
        'GROUP BY broker, "group", topic, queue_id'
    )
    found = list(to_row_dicts(run_sql(table, OFFSETS, sql)))
    taken = {row["broker"]: row["as_of"] for row in found if row["topic"] is None}
    groups: dict[Queue, dict[str, NewestOffset]] = {}
    for row in found:
        group, broker = row["group"], row["broker"]
        if row["topic"] is None or group is None or row["offset"] is None or is_system_group(group):
            continue
        until = max(taken.get(broker, row["as_of"]), row["as_of"])
        known = groups.setdefault((broker, row["topic"], row["queue_id"]), {})
        name = strip_broadcast_suffix(group)
        if name not in known or known[name].since < row["as_of"]:  # a group may have changed its message model
            known[name] = NewestOffset(row["offset"], row["as_of"], until)
    timed = [_rows_with_passed_times(own) for own in rows_of_stories]
    passed = _first_passed_times(table, {place: row for own in timed for place, row in own.items()})
    return [
        _offsets_of_story(own, groups, taken, {place: passed[place] for place in places if place in passed})
        for own, places in zip(rows_of_stories, timed, strict=True)
    ]


def _offsets_of_story(
    rows: Collection[Row],
    newest_offsets: Mapping[Queue, Mapping[str, NewestOffset]],
    snapshot_times: Mapping[str, datetime.datetime],
    passed_times: Mapping[Place, Mapping[str, datetime.datetime]],
) -> GroupOffsetsByTopic:
    """Select, from the offsets for many message histories, those that concern the records of one."""
    brokers, topics = {row["broker"] for row in rows}, {row["topic"] for row in rows}
    return GroupOffsetsByTopic(
        {queue: known for queue, known in newest_offsets.items() if queue[0] in brokers and queue[1] in topics},
        {(place, group): at for place, times in passed_times.items() for group, at in times.items()},
        {broker: at for broker, at in snapshot_times.items() if broker in brokers},
    )


def _rows_with_passed_times(rows: Collection[Row]) -> dict[Place, Row]:
    """Return the records for which to find out when groups' offsets passed them; none if they are too many."""
    chosen = [row for row in rows if row["queue_offset"] is not None and row["store_timestamp"] is not None]
    return {} if len(chosen) > _MAX_PASSED else {(row["broker"], row["physical_offset"]): row for row in chosen}


def _first_passed_times(table: DeltaTable, rows: Mapping[Place, Row]) -> dict[Place, dict[str, datetime.datetime]]:
    """Return, by record and group, the time of the first snapshot with the group's offset after the record."""
    passed: dict[Place, dict[str, datetime.datetime]] = {}
    listed = list(rows.items())
    for start in range(0, len(listed), _MAX_VALUES):
        part = listed[start : start + _MAX_VALUES]
        found = list(to_row_dicts(run_sql(table, OFFSETS, _first_passed_sql([row for _, row in part]))))
        for row in sorted(found, key=lambda row: row["passed"], reverse=True):
            passed.setdefault(part[row["n"]][0], {})[strip_broadcast_suffix(row["group"])] = row["passed"]
    return passed


def _first_passed_sql(rows: Sequence[Row]) -> str:
    values = ", ".join(_record_values_sql(number, row) for number, row in enumerate(rows))
    return (
        'SELECT p.n AS n, o."group" AS "group", min(o.as_of) AS passed '
        f"FROM (VALUES {values}) AS p(n, broker, topic, queue_id, queue_offset, stored) JOIN {OFFSETS} AS o "
        "ON o.broker = p.broker AND o.topic = p.topic AND o.queue_id = p.queue_id "
        'WHERE o.kind = \'group\' AND o."offset" > p.queue_offset AND o.as_of >= p.stored GROUP BY p.n, o."group"'
    )


def _record_values_sql(number: int, row: Row) -> str:
    cells: Sequence[str] = (
        str(number), text_literal(row["broker"]), text_literal(row["topic"]), str(row["queue_id"]),
        str(row["queue_offset"]), timestamp_literal(row["store_timestamp"]),
    )  # fmt: skip
    return f"({', '.join(cells)})"
