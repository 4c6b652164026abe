"""Builds the steps and edges of a story from rows of `messages` and `edges`."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from commitlake.pipelines.lineage.gathering import WITHOUT_FROM, WITHOUT_TO, GatheredRows, place_of_end
from commitlake.pipelines.lineage.lookups import Place, Row
from commitlake.pipelines.lineage.phrases import (
    GONE,
    consumption_text,
    consumption_title,
    edge_text,
    is_in_retry_store,
    joining_value,
    missing_record_name,
    missing_record_text,
    missing_record_title,
    outcome_words,
    record_text,
    record_title,
)
from commitlake.pipelines.lineage.story import Consumption, Edge, Missing, Record, Step, StepKind
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.edges import EdgeKind, StepOutcome

NONE: Sequence[Row] = ()
RETRY_STORE = "retry store"
"""Lane of entries in a broker's retry store; no topic has a space in its name."""


@dataclass
class Graph:
    """Graph of a message history: its steps and edges, and the rows of `edges` that they are built from.

    Attributes:
        steps: By id.
        edges: Edges, in no order.
        rows_from: Rows of `edges` by the place of their start.
        rows_to: Rows of `edges` by the place of their end.
        step_of: The id of the step at the other end of a row, by the row's number.
    """

    steps: dict[str, Step] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    rows_from: dict[Place, list[Row]] = field(default_factory=lambda: defaultdict(list))
    rows_to: dict[Place, list[Row]] = field(default_factory=lambda: defaultdict(list))


def step_id(place: Place) -> str:
    """Return the id of a record's step."""
    return f"{place[0]}:{place[1]}"


def consumption_id(edge: Row) -> str:
    """Return the id of a consumption's step: the location of its trace entry."""
    told = [edge["evidence_broker"], edge["evidence_physical_offset"], edge["evidence_entry"]]
    return "consumption:" + ":".join("" if part is None else str(part) for part in told)


def build_graph(found: GatheredRows, now: datetime.datetime | None) -> Graph:
    """Build the graph of a message history from the gathered rows.

    Args:
        found: The gathered rows.
        now: Store time of the newest archived record.
    """
    graph = Graph()
    for row in found.edges:
        for end, rows in (("from", graph.rows_from), ("to", graph.rows_to)):
            if (place := place_of_end(row, end)) is not None:
                rows[place].append(row)
    for place, row in found.records.items():
        graph.steps[step_id(place)] = _make_record_step(place, row, found, graph, now)
    for row in found.edges:
        _add_edge(graph, row, now)
    return graph


def order_graph(graph: Graph) -> tuple[list[Step], list[Edge]]:
    """Return the steps in time order, those without a time next to a neighbour, and the edges ordered by target."""
    sources = {edge.target: edge.source for edge in graph.edges}
    targets = {edge.source: edge.target for edge in graph.edges}

    def key(step: Step) -> tuple[datetime.datetime, int, int, str]:
        rank = 0 if step.record is not None else 1
        at, place = step.at, step.record.physical_offset if step.record is not None else 0
        if at is None:
            beside, rank = (sources[step.id], 2) if step.id in sources else (targets.get(step.id, ""), -1)
            other = graph.steps.get(beside)
            at = other.at if other is not None else None
        return at or _LAST, rank, place, step.id

    steps = sorted(graph.steps.values(), key=key)
    order = {step.id: number for number, step in enumerate(steps)}
    return steps, sorted(graph.edges, key=lambda edge: (order[edge.target], order[edge.source], edge.kind))


_LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)


def _make_record_step(place: Place, row: Row, found: GatheredRows, graph: Graph, now: datetime.datetime | None) -> Step:
    incoming, outgoing = graph.rows_to.get(place, NONE), graph.rows_from.get(place, NONE)
    title = record_title(row, incoming)
    text = record_text(row, incoming, outgoing, now)
    record = to_story_record(row, found)
    produced = next((edge for edge in incoming if edge["kind"] == EdgeKind.PRODUCED), None)
    if record.producer_group is None and produced is not None:
        record = replace(record, producer_group=produced["producer_group"])
    kind = StepKind(row["kind"]) if row["kind"] in set(Kind) else StepKind.SYSTEM
    return Step(
        step_id(place), kind, record.stored_at or record.born_at, row["topic"] or "", title, text, record=record
    )


def to_story_record(row: Row, found: GatheredRows) -> Record:
    """Return a row of `messages` as a record of a story."""
    place = row["broker"], row["physical_offset"]
    related = place in found.related and place not in found.matched
    return Record(
        broker=row["broker"],
        physical_offset=row["physical_offset"],
        msg_id=row["msg_id"],
        unique_key=row["unique_key"],
        keys=tuple(row["keys"] or ()),
        tags=row["tags"],
        kind=row["kind"],
        topic=row["topic"] or "",
        origin_topic=row["origin_topic"],
        queue_id=row["queue_id"],
        queue_offset=row["queue_offset"],
        born_at=row["born_timestamp"],
        stored_at=row["store_timestamp"],
        born_host=row["born_host"],
        store_host=row["store_host"],
        reconsume_times=row["reconsume_times"],
        producer_group=row["producer_group"],
        body_size=row["body_size"],
        properties=row["properties"],
        matched=place in found.matched,
        related_by=found.related_by if related else None,
    )


def _add_edge(graph: Graph, row: Row, now: datetime.datetime | None) -> None:
    if row["kind"] in WITHOUT_TO and row["kind"] != EdgeKind.CONSUMED:
        return  # a producer's decision is part of the text of the half message
    if row["kind"] in WITHOUT_FROM:
        if row["absent_end"] is not None:
            _add_missing_step(graph, row, "to", now)
        return
    source = _find_step_at_end(graph, row, "from", now)
    target = (
        _consumption_step(graph, row) if row["kind"] == EdgeKind.CONSUMED else _find_step_at_end(graph, row, "to", now)
    )
    gap = None if source.at is None or target.at is None else target.at - source.at
    graph.edges.append(Edge(row["kind"], source.id, target.id, gap, edge_text(row), joining_value(row)))


def _find_step_at_end(graph: Graph, row: Row, end: str, now: datetime.datetime | None) -> Step:
    place = place_of_end(row, end)
    if place is not None and (step := graph.steps.get(step_id(place))) is not None:
        return step
    return _add_missing_step(graph, row, end, now)


def _add_missing_step(graph: Graph, row: Row, end: str, now: datetime.datetime | None) -> Step:
    """Return the step for the end of an edge that is not in the lake; add the step to the graph if it is new."""
    told = row if row["absent_end"] == end else {**row, "absent_reason": GONE, "due_timestamp": None}
    place = place_of_end(row, end)
    other = place_of_end(row, "to" if end == "from" else "from")
    beside = step_id(other) if other is not None else consumption_id(row)
    is_stored = is_in_retry_store(row) and end == "to"
    beside = f"{row['consumer_group']}:{beside}" if is_stored else beside  # groups have their own entries
    name = f"missing:{step_id(place)}" if place is not None else f"missing:{end}:{row['kind']}:{beside}"
    if (known := graph.steps.get(name)) is not None:
        return known
    reason = str(told["absent_reason"])
    missing = Missing(reason, missing_record_text(told, end, now), missing_record_name(row, end))
    lane = RETRY_STORE if is_stored else row[f"{end}_topic"] or ""
    is_past = row["absent_end"] != end or end == "from"
    at = row[f"{end}_timestamp"] if is_past else row["event_timestamp"] if is_stored else None
    kind = StepKind.MISSING if not is_stored else StepKind.DLQ if row["kind"] == EdgeKind.DEAD else StepKind.RETRY
    step = Step(name, kind, at, lane, missing_record_title(told, end), missing.text, missing=missing)
    graph.steps[name] = step
    return step


def _consumption_step(graph: Graph, row: Row) -> Step:
    name = consumption_id(row)
    outcome = row["outcome"]
    consumption = Consumption(
        group=row["consumer_group"] or "",
        host=row["client_host"],
        attempt=None if row["attempt"] is None else row["attempt"] + 1,
        cost_ms=row["cost_ms"],
        succeeded=None if outcome is None else outcome == StepOutcome.SUCCESS,
        outcome=outcome_words(outcome),
    )
    step = Step(
        name, StepKind.CONSUMPTION, row["event_timestamp"], consumption.group, consumption_title(row),
        consumption_text(row), consumption=consumption,
    )  # fmt: skip
    graph.steps[name] = step
    return step
