"""Builds the steps and edges of a story from rows of `messages` and `edges`."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from commitlake.pipelines.lineage.message_history import Consumption, Edge, MissingRecord, Record, Step, StepKind
from commitlake.pipelines.lineage.row_gathering import WITHOUT_FROM, WITHOUT_TO, GatheredRows, place_of_edge_end
from commitlake.pipelines.lineage.step_texts import (
    GONE,
    consumption_text,
    consumption_title,
    edge_text,
    is_in_retry_store,
    missing_record_name,
    missing_record_text,
    missing_record_title,
    outcome_text,
    record_text,
    record_title,
    shared_edge_value,
)
from commitlake.pipelines.lineage.table_lookups import Place, Row
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.edges import EdgeKind, StepOutcome

NONE: Sequence[Row] = ()
RETRY_STORE = "retry store"
"""Lane of entries in a broker's retry store; no topic has a space in its name."""


@dataclass
class Graph:
    """Graph of a message history: its steps, the edges between them, and the rows of `edges` that show these.

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
    """Return the id of a record's step in a message history: `broker:physical_offset`."""
    return f"{place[0]}:{place[1]}"


def consumption_id(edge: Row) -> str:
    """Return the id of a consumption's step in a message history: the location of its trace entry."""
    told = [edge["evidence_broker"], edge["evidence_physical_offset"], edge["evidence_entry"]]
    return "consumption:" + ":".join("" if part is None else str(part) for part in told)


def build_graph(gathered: GatheredRows, now: datetime.datetime | None) -> Graph:
    """Build the graph of a message history from rows of `messages` and `edges`.

    Args:
        gathered: The gathered rows.
        now: Store time of the newest archived record.
    """
    graph = Graph()
    for row in gathered.edges:
        for end, rows in (("from", graph.rows_from), ("to", graph.rows_to)):
            if (place := place_of_edge_end(row, end)) is not None:
                rows[place].append(row)
    for place, row in gathered.records.items():
        graph.steps[step_id(place)] = _make_record_step(place, row, gathered, graph, now)
    for row in gathered.edges:
        _add_edge(graph, row, now)
    return graph


def order_graph(graph: Graph) -> tuple[list[Step], list[Edge]]:
    """Return the steps in time order, and the edges by target; a step without a time is next to a neighbour."""
    sources = {edge.target: edge.source for edge in graph.edges}
    targets = {edge.source: edge.target for edge in graph.edges}

    def step_sort_key(step: Step) -> tuple[datetime.datetime, int, int, str]:
        rank = 0 if step.record is not None else 1
        at, place = step.at, step.record.physical_offset if step.record is not None else 0
        if at is None:
            beside, rank = (sources[step.id], 2) if step.id in sources else (targets.get(step.id, ""), -1)
            other = graph.steps.get(beside)
            at = other.at if other is not None else None
        return at or _LAST, rank, place, step.id

    steps = sorted(graph.steps.values(), key=step_sort_key)
    order = {step.id: number for number, step in enumerate(steps)}
    return steps, sorted(graph.edges, key=lambda edge: (order[edge.target], order[edge.source], edge.kind))


_LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)


def _make_record_step(
    place: Place, row: Row, gathered: GatheredRows, graph: Graph, now: datetime.datetime | None
) -> Step:
    incoming, outgoing = graph.rows_to.get(place, NONE), graph.rows_from.get(place, NONE)
    title = record_title(row, incoming)
    text = record_text(row, incoming, outgoing, now)
    record = to_story_record(row, gathered)
    produced = next((edge for edge in incoming if edge["kind"] == EdgeKind.PRODUCED), None)
    if record.producer_group is None and produced is not None:
        record = replace(record, producer_group=produced["producer_group"])
    kind = StepKind(row["kind"]) if row["kind"] in set(Kind) else StepKind.SYSTEM
    return Step(
        step_id(place), kind, record.stored_at or record.born_at, row["topic"] or "", title, text, record=record
    )


def to_story_record(row: Row, gathered: GatheredRows) -> Record:
    """Convert a row of `messages` to a record of a message history."""
    place = row["broker"], row["physical_offset"]
    related = place in gathered.related and place not in gathered.matched
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
        matched=place in gathered.matched,
        related_by=gathered.related_by if related else None,
    )


def _add_edge(graph: Graph, edge_row: Row, now: datetime.datetime | None) -> None:
    if edge_row["kind"] in WITHOUT_TO and edge_row["kind"] != EdgeKind.CONSUMED:
        return  # a producer's decision is part of the text of the half message
    if edge_row["kind"] in WITHOUT_FROM:
        if edge_row["absent_end"] is not None:
            _add_missing_step(graph, edge_row, "to", now)
        return
    source = _find_step_at_edge_end(graph, edge_row, "from", now)
    target = (
        _consumption_step(graph, edge_row)
        if edge_row["kind"] == EdgeKind.CONSUMED
        else _find_step_at_edge_end(graph, edge_row, "to", now)
    )
    gap = None if source.at is None or target.at is None else target.at - source.at
    graph.edges.append(
        Edge(edge_row["kind"], source.id, target.id, gap, edge_text(edge_row), shared_edge_value(edge_row))
    )


def _find_step_at_edge_end(graph: Graph, edge_row: Row, edge_end: str, now: datetime.datetime | None) -> Step:
    place = place_of_edge_end(edge_row, edge_end)
    if place is not None and (step := graph.steps.get(step_id(place))) is not None:
        return step
    return _add_missing_step(graph, edge_row, edge_end, now)


def _add_missing_step(graph: Graph, edge_row: Row, edge_end: str, now: datetime.datetime | None) -> Step:
    """Return the step for a record that an edge names but the lake lacks, after adding it to the graph if it is new."""
    told = (
        edge_row if edge_row["absent_end"] == edge_end else {**edge_row, "absent_reason": GONE, "due_timestamp": None}
    )
    place = place_of_edge_end(edge_row, edge_end)
    other = place_of_edge_end(edge_row, "to" if edge_end == "from" else "from")
    beside = step_id(other) if other is not None else consumption_id(edge_row)
    is_stored = is_in_retry_store(edge_row) and edge_end == "to"
    beside = f"{edge_row['consumer_group']}:{beside}" if is_stored else beside  # groups have their own entries
    name = f"missing:{step_id(place)}" if place is not None else f"missing:{edge_end}:{edge_row['kind']}:{beside}"
    if (known := graph.steps.get(name)) is not None:
        return known
    reason = str(told["absent_reason"])
    missing = MissingRecord(reason, missing_record_text(told, edge_end, now), missing_record_name(edge_row, edge_end))
    lane = RETRY_STORE if is_stored else edge_row[f"{edge_end}_topic"] or ""
    is_past = edge_row["absent_end"] != edge_end or edge_end == "from"
    at = edge_row[f"{edge_end}_timestamp"] if is_past else edge_row["event_timestamp"] if is_stored else None
    kind = StepKind.MISSING if not is_stored else StepKind.DLQ if edge_row["kind"] == EdgeKind.DEAD else StepKind.RETRY
    step = Step(name, kind, at, lane, missing_record_title(told, edge_end), missing.text, missing=missing)
    graph.steps[name] = step
    return step


def _consumption_step(graph: Graph, edge_row: Row) -> Step:
    name = consumption_id(edge_row)
    outcome = edge_row["outcome"]
    consumption = Consumption(
        group=edge_row["consumer_group"] or "",
        host=edge_row["client_host"],
        attempt=None if edge_row["attempt"] is None else edge_row["attempt"] + 1,
        cost_ms=edge_row["cost_ms"],
        succeeded=None if outcome is None else outcome == StepOutcome.SUCCESS,
        outcome=outcome_text(outcome),
    )
    step = Step(
        name, StepKind.CONSUMPTION, edge_row["event_timestamp"], consumption.group, consumption_title(edge_row),
        consumption_text(edge_row), consumption=consumption,
    )  # fmt: skip
    graph.steps[name] = step
    return step
