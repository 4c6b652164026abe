"""Outcomes of a story: the state of each message in each group that is known to want it, in words.

A message in its own topic has an outcome for each group. A delayed copy, a half message and a copy for one group have
their own outcomes. The state in a group follows from these sources, the strongest first:

    dead letters, waiting retries    records of the broker
    a trace of the consumption       records of the client, or of the broker's consume log
    the group's offset               shows that a message was passed, not what the group did with it

A group is known to want a message if it has an offset in its queue, a copy of it, or a trace that names it.
"""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from commitlake.pipelines.lineage.graph_building import NONE, Graph, consumption_id, step_id
from commitlake.pipelines.lineage.group_offsets import GroupOffsetsByTopic, NewestOffset
from commitlake.pipelines.lineage.message_history import Evidence, OutcomeState
from commitlake.pipelines.lineage.message_history import Outcome as Result
from commitlake.pipelines.lineage.row_gathering import GatheredRows, place_of_edge_end
from commitlake.pipelines.lineage.step_texts import (
    is_for_dead_letters,
    is_in_retry_store,
    missing_record_text,
    outcome_text,
    retry_entry_text,
)
from commitlake.pipelines.lineage.table_lookups import Place, Row
from commitlake.pipelines.lineage.value_texts import (
    approximate_duration_text,
    consumer_group_of,
    ordinal_text,
    relative_time_text,
)
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.topics import GIVEN_UP_TOPIC, Kind, is_system_group
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome

_SENT_AGAIN = frozenset({EdgeKind.REDRIVEN, EdgeKind.REPLAYED})
_COPIES = frozenset({EdgeKind.RETRIED, EdgeKind.DEAD, EdgeKind.DELAYED, EdgeKind.TIMER})
_BEFORE = frozenset({EdgeKind.DELAYED, EdgeKind.TIMER, EdgeKind.COMMITTED, EdgeKind.RECHECKED})
_LATE = datetime.timedelta(minutes=1)
"""Delay after its due time at which a delivery is called overdue."""


@dataclass(frozen=True, slots=True)
class _RetryChain:
    """A message with its retry copies for one group, and the group's attempts to consume them.

    Attributes:
        head: The record in the message's own topic, or the first copy that exists.
        group: The group.
        records: Places of its copies in order of time, starting with the head.
        consumptions: Edges of the group's attempts.
    """

    head: Place
    group: str
    records: Sequence[Place]
    consumptions: Sequence[Row]


class Outcomes:
    """Computes the current state of each message of a history, such as consumed or waiting, for each consumer group.

    Args:
        found: Rows of the story.
        graph: Its steps.
        offsets: Offsets of the groups.
        now: Store time of the newest archived record, by broker.
    """

    def __init__(
        self, found: GatheredRows, graph: Graph, offsets: GroupOffsetsByTopic, now: Mapping[str, datetime.datetime]
    ) -> None:
        self._records, self._from, self._to = found.records, graph.rows_from, graph.rows_to
        self._has_edges, self._offsets, self._now = found.has_edges, offsets, now
        self._groups = offsets.groups_by_topic()
        self._by_group: dict[Place, dict[str | None, list[tuple[int, Row]]]] = {}

    def all_outcomes(self) -> list[Result]:
        """Return the outcomes of all messages, such as consumed or waiting, in the order in which they were stored."""
        found: list[Result] = []
        told: set[Place] = set()
        for place, row in sorted(self._records.items(), key=lambda item: _row_time_sort_key(item[1])):
            if place in told:
                continue
            group = consumer_group_of(row["topic"] or "", row["properties"])
            if not self._has_edges and row["kind"] in (Kind.DELAY, Kind.TIMER, Kind.HALF):
                continue  # it is not known whether it still waits
            if row["kind"] == Kind.NORMAL:
                found += self._outcomes_of_groups(place, row, told)
            elif group is not None and row["kind"] in (Kind.DELAY, Kind.TIMER, Kind.RETRY, Kind.DLQ):
                chain = self._follow_chain(place, group)  # for a copy whose original is not in the lake
                told.update(chain.records)
                found.append(self._outcome_of_chain(chain))
            elif row["kind"] in (Kind.DELAY, Kind.TIMER):
                found += self._outcomes_of_waiting_record(place, row)
            elif row["kind"] == Kind.HALF:
                found += self._outcomes_of_half_message(place)
            elif row["topic"] == GIVEN_UP_TOPIC:
                text = "given up by the broker: its producer neither committed nor rolled it back, and no group gets it"
                found.append(
                    Result(step_id(place), OutcomeState.CANCELLED, text, Evidence.RECORDS, at=row["store_timestamp"])
                )
        return found

    def _outcomes_of_groups(self, place: Place, row: Row, reported_places: set[Place]) -> Iterator[Result]:
        groups = {edge["consumer_group"] for edge in self._from.get(place, NONE) if edge["consumer_group"]}
        consumers = self._groups.get((row["broker"], row["topic"]), set())
        groups |= {group for group in consumers if not is_system_group(group)}
        for group in sorted(groups):
            chain = self._follow_chain(place, group)
            reported_places.update(chain.records[1:])
            yield self._outcome_of_chain(chain)
        if not groups:
            yield Result(step_id(place), OutcomeState.UNKNOWN, self._no_known_group_text(row), Evidence.NONE)

    def _no_known_group_text(self, row: Row) -> str:
        seen = "no snapshot of offsets has a group in its topic"
        if row["broker"] not in self._offsets.taken:
            seen = "the lake has no snapshot of the broker's offsets"
        return f"it is not known who consumes {row['topic']}: {seen}, and no trace names the message"

    def _follow_chain(self, first_place: Place, group: str) -> _RetryChain:
        records, consumptions = [first_place], []
        seen = {first_place}
        for place in records:  # grows
            for edge in self._edges_from_record(place, group):
                if edge["kind"] in _SENT_AGAIN:
                    continue
                if edge["kind"] == EdgeKind.CONSUMED:
                    consumptions.append(edge)
                elif (edge["kind"] in _COPIES and edge["consumer_group"] == group) or place != first_place:
                    to = place_of_edge_end(edge, "to")
                    if to is not None and to in self._records and to not in seen:
                        seen.add(to)
                        records.append(to)
        records.sort(key=lambda place: _row_time_sort_key(self._records[place]))
        consumptions.sort(key=lambda edge: (edge["attempt"] or 0, edge["event_timestamp"] or _FIRST))
        return _RetryChain(first_place, group, records, consumptions)

    def _edges_from_record(self, place: Place, group: str) -> Iterator[Row]:
        """Yield, in order, the edges that start at a record, except those of other groups."""
        if place not in self._by_group:  # once for all groups: traces may name very many
            found: dict[str | None, list[tuple[int, Row]]] = {}
            for number, edge in enumerate(self._from.get(place, NONE)):
                found.setdefault(edge["consumer_group"], []).append((number, edge))
            self._by_group[place] = found
        edges = self._by_group[place]
        for _, edge in heapq.merge(edges.get(group, ()), edges.get(None, ()), key=itemgetter(0)):
            yield edge

    def _outcome_of_chain(self, chain: _RetryChain) -> Result:
        last = chain.records[-1]
        row = self._records[last]
        if row["kind"] == Kind.DLQ:
            return self._outcome_of_dead_letter(last, chain)
        succeeded = [edge for edge in chain.consumptions if edge["outcome"] == StepOutcome.SUCCESS]
        stored = self._retry_store_edge(chain)
        if succeeded and (stored is None or _time_of_edge(stored) <= _time_of_edge(succeeded[-1])):
            return self._outcome_of_success(succeeded[-1], chain)
        if stored is not None:
            return self._outcome_in_retry_store(stored, chain)
        if row["kind"] in (Kind.DELAY, Kind.TIMER):
            waiting = list(self._outcomes_of_waiting_record(last, row, chain.group))
            if waiting:
                return waiting[0]
        if chain.consumptions and not _is_before_retry_copy(chain.consumptions[-1], row):
            return self._outcome_of_attempt(chain.consumptions[-1], chain)
        return self._outcome_by_offset(last, chain)

    def _retry_store_edge(self, chain: _RetryChain) -> Row | None:
        """Return the edge from a message to its entry in the broker's retry store; None if there is none."""
        edges = self._edges_from_record(chain.head, chain.group)
        return next((edge for edge in edges if is_in_retry_store(edge) and edge["absent_end"] == "to"), None)

    def _outcome_in_retry_store(self, edge: Row, chain: _RetryChain) -> Result:
        now, at, due = self._now.get(chain.head[0]), edge["event_timestamp"], edge["due_timestamp"]
        if edge["kind"] == EdgeKind.DEAD:
            tries = "" if edge["attempt"] is None else f", after {format_count(edge['attempt'], 'try', 'tries')}"
            since = self._time_text_of_record(at, chain.head)
            text = f"dead letter of {chain.group} since {since}{tries}, in the retry store"
            return Result(step_id(chain.head), OutcomeState.DEAD, text, Evidence.RECORDS, chain.group, at)
        is_late = due is not None and now is not None and due + _LATE < now
        text = f"{'overdue ' if is_late else ''}{retry_entry_text(edge, now)}"
        state = OutcomeState.OVERDUE if is_late else OutcomeState.WAITING
        return Result(step_id(chain.head), state, text, Evidence.RECORDS, chain.group, due)

    def _outcome_of_dead_letter(self, place: Place, chain: _RetryChain) -> Result:
        row = self._records[place]
        since = self._time_text_of_record(row["store_timestamp"], place)
        again = [edge for edge in self._from.get(place, NONE) if edge["kind"] in _SENT_AGAIN]
        if again:
            times = [edge["to_timestamp"] for edge in again if edge["to_timestamp"] is not None]
            after = ""
            if times and row["store_timestamp"] is not None:
                after = f", redriven {approximate_duration_text(min(times) - row['store_timestamp'])} later"
            text = f"dead letter of {chain.group} since {since}{after or ', redriven'}"
            return Result(
                step_id(place), OutcomeState.REDRIVEN, text, Evidence.RECORDS, chain.group, row["store_timestamp"]
            )
        if (later := self._find_application_copy(row)) is not None:
            after = approximate_duration_text(later["store_timestamp"] - row["store_timestamp"])
            where = f"{later['topic']} ({later['broker']}:{later['physical_offset']})"
            text = f"dead letter of {chain.group} since {since}, sent again by an application {after} later, to {where}"
            return Result(
                step_id(place), OutcomeState.REDRIVEN, text, Evidence.RECORDS, chain.group, row["store_timestamp"]
            )
        sent = "not redriven" if self._has_edges else "without the table edges it is not known whether it was redriven"
        text = f"dead letter of {chain.group} since {since}, {sent}"
        return Result(step_id(place), OutcomeState.DEAD, text, Evidence.RECORDS, chain.group, row["store_timestamp"])

    def _find_application_copy(self, dead_letter: Row) -> Row | None:
        """Return the first record with a dead letter's unique key that an application sent after it."""
        if dead_letter["unique_key"] is None or dead_letter["store_timestamp"] is None:
            return None
        later = [
            row
            for row in self._records.values()
            if row["unique_key"] == dead_letter["unique_key"]
            and row["kind"] == Kind.NORMAL
            and row["store_timestamp"] is not None
            and row["store_timestamp"] > dead_letter["store_timestamp"]
        ]
        return min(later, key=_row_time_sort_key, default=None)

    def _outcome_of_success(self, edge: Row, chain: _RetryChain) -> Result:
        at, sent = edge["event_timestamp"], self._first_store_time(chain.head)
        attempt = f" at the {ordinal_text(edge['attempt'] + 1)} try" if edge["attempt"] is not None else ""
        after = ""
        if at is not None and sent is not None:
            after = f", {approximate_duration_text(at - sent)} after it was sent"
        text = f"consumed by {chain.group}{attempt}{after}"
        return Result(consumption_id(edge), OutcomeState.CONSUMED, text, Evidence.TRACE, chain.group, at)

    def _first_store_time(self, place: Place) -> datetime.datetime | None:
        """Return when a message was first stored, which may be before its delay or its commit."""
        seen = {place}
        while True:
            before = [
                came
                for edge in self._to.get(place, NONE)
                if edge["kind"] in _BEFORE
                and (came := place_of_edge_end(edge, "from")) in self._records
                and came not in seen
            ]
            if not before:
                at: datetime.datetime | None = self._records[place]["store_timestamp"]
                return at
            place = before[0]
            seen.add(place)

    def _outcome_of_attempt(self, edge: Row, chain: _RetryChain) -> Result:
        attempt = f" at the {ordinal_text(edge['attempt'] + 1)} try" if edge["attempt"] is not None else ""
        said = outcome_text(edge["outcome"])
        step = consumption_id(edge)
        if edge["outcome"] == StepOutcome.DEAD:
            since = self._time_text_of_record(edge["event_timestamp"], chain.head)
            tries = "" if edge["attempt"] is None else f", after {format_count(edge['attempt'] + 1, 'try', 'tries')}"
            text = f"dead letter of {chain.group} since {since}{tries}"
            return Result(step, OutcomeState.DEAD, text, Evidence.TRACE, chain.group, edge["event_timestamp"])
        if said is None:
            text = f"{chain.group} began to consume it{attempt}; the result is not known"
            return Result(step, OutcomeState.UNKNOWN, text, Evidence.TRACE, chain.group, edge["event_timestamp"])
        text = f"failed in {chain.group}{attempt} ({said}), and no later record of it is in the lake"
        return Result(step, OutcomeState.FAILED, text, Evidence.TRACE, chain.group, edge["event_timestamp"])

    def _outcome_by_offset(self, place: Place, chain: _RetryChain) -> Result:
        row, group = self._records[place], chain.group
        known = self._offsets.offsets_of_groups(row).get(group)
        stored, number = row["store_timestamp"], row["queue_offset"]
        what = "it" if place == chain.head else "its newest copy"

        def result(state: OutcomeState, text: str, proof: Evidence, time: datetime.datetime | None = None) -> Result:
            return Result(step_id(place), state, text, proof, group, time)

        if known is None or number is None:
            return result(
                OutcomeState.UNKNOWN,
                f"it is not known what {group} did with {what}: there is no trace of it, and no offset in its queue",
                Evidence.NONE,
            )
        if stored is not None and known.taken < stored:
            return result(
                OutcomeState.UNKNOWN,
                f"it is not known whether {group} has consumed {what}: the newest snapshot of its offset, from "
                f"{self._time_text_of_record(known.taken, place)}, is older than the record",
                Evidence.NONE,
            )
        if known.offset <= number:
            at = self._time_text_of_record(known.taken, place)
            text = f"not yet consumed by {group}: offset {number:,}, group at {known.offset:,} as of {at}"
            return result(OutcomeState.NOT_CONSUMED, text, Evidence.OFFSETS, known.taken)
        return result(OutcomeState.PASSED, self._offset_passed_text(place, chain, known), Evidence.OFFSETS,
                      self._offsets.passed.get((place, group)))  # fmt: skip

    def _offset_passed_text(self, place: Place, chain: _RetryChain, newest_offset: NewestOffset) -> str:
        by = self._offsets.passed.get((place, chain.group))
        when = f" before {self._time_text_of_record(by, place)}" if by is not None else ""
        copy = "its newest copy was " if place != chain.head else ""
        number = self._records[place]["queue_offset"]
        places = f"offset {number:,}, group at {newest_offset.offset:,}"
        return f"{copy}passed by {chain.group}{when} ({places}): consumed, or skipped"

    def _outcomes_of_waiting_record(self, place: Place, row: Row, group: str | None = None) -> Iterator[Result]:
        """Yield the outcome of a delayed message or timer that waits; nothing if it was delivered."""
        edges = [edge for edge in self._from.get(place, NONE) if edge["kind"] in (EdgeKind.DELAYED, EdgeKind.TIMER)]
        if not edges or any(edge["absent_end"] != "to" and edge["outcome"] is None for edge in edges):
            return
        where = (
            f"level {row['queue_id'] + 1}" if row["kind"] == Kind.DELAY and row["queue_id"] is not None else "the timer"
        )
        what = "" if group is None else f" for the {ordinal_text(row['reconsume_times'] or 0)} retry of {group}"
        if is_for_dead_letters(row):
            what = f" to become a dead letter of {group}"

        def result(state: OutcomeState, text: str, proof: Evidence, time: datetime.datetime | None) -> Result:
            return Result(step_id(place), state, text, proof, group, time)

        edge, now = edges[0], self._now.get(row["broker"])
        due = edge["due_timestamp"]
        if edge["outcome"] == StepOutcome.CANCELLED:
            yield result(
                OutcomeState.CANCELLED,
                "cancelled before it was due: no group gets it",
                Evidence.RECORDS,
                edge["to_timestamp"],
            )
        elif edge["absent_reason"] == AbsentReason.OVERDUE or (
            edge["absent_reason"] == AbsentReason.NOT_YET and due is not None and now is not None and due + _LATE < now
        ):
            told = f", due {self._time_text_of_record(due, place)}" if due is not None else ""
            text = f"overdue in {where}{what}{told}, and not delivered by {self._time_text_of_record(now, place)}"
            yield result(OutcomeState.OVERDUE, text, Evidence.RECORDS, due)
        elif edge["absent_reason"] == AbsentReason.NOT_YET:
            told = f", due {self._time_text_of_record(due, place)}" if due is not None else ""
            yield result(OutcomeState.WAITING, f"waiting in {where}{what}{told}", Evidence.RECORDS, due)
        else:
            text = f"its delivery from {where}{what} is not in the lake: {missing_record_text(edge, 'to', now)}"
            yield result(OutcomeState.UNKNOWN, text, Evidence.NONE, None)

    def _outcomes_of_half_message(self, place: Place) -> Iterator[Result]:
        edges = self._from.get(place, NONE)
        kinds = {edge["kind"] for edge in edges}
        if kinds & {EdgeKind.COMMITTED, EdgeKind.RECHECKED, EdgeKind.GIVEN_UP}:
            return
        finished = [edge for edge in edges if edge["kind"] == EdgeKind.FINISHED]
        if any(edge["outcome"] == StepOutcome.ROLLED_BACK for edge in finished):
            text = "rolled back: no group gets it"
            at = next((edge["to_timestamp"] for edge in finished), None)
            yield Result(step_id(place), OutcomeState.ROLLED_BACK, text, Evidence.RECORDS, at=at)
        elif not any(edge["outcome"] == StepOutcome.COMMITTED for edge in finished):
            sent = self._first_store_time(place)  # each check stores a new half message
            text = f"prepared since {self._time_text_of_record(sent, place)}, neither committed nor rolled back so far"
            yield Result(step_id(place), OutcomeState.PREPARED, text, Evidence.RECORDS, at=sent)

    def _time_text_of_record(self, moment: datetime.datetime | None, place: Place) -> str:
        return "a time that is not known" if moment is None else relative_time_text(moment, self._now.get(place[0]))


_FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def _is_before_retry_copy(consumption: Row, retry_copy: Row) -> bool:
    """Return whether a consumption came before the given retry copy, by their numbers of attempts."""
    attempt = consumption["attempt"]
    return attempt is not None and attempt < (retry_copy["reconsume_times"] or 0)


def _time_of_edge(edge: Row) -> datetime.datetime:
    at: datetime.datetime | None = edge["event_timestamp"]
    return at or _FIRST


def _row_time_sort_key(row: Row) -> tuple[datetime.datetime, str, int]:
    return row["store_timestamp"] or _FIRST, row["broker"], row["physical_offset"]
