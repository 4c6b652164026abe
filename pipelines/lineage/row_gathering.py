"""Gathers the rows for a story: records of a question, edges of their messages, and records at the ends of edges.

A message has a node in the table `edges`, under which all its steps are stored. The search goes from records to nodes,
to edges, and to the records at their ends, which may belong to other messages (an op record, a replay), until it finds
nothing new. If it stops at a limit, a caution says so.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from commitlake.pipelines.lineage.message_history import MAX_STEPS, Question
from commitlake.pipelines.lineage.table_lookups import LineageTables, Place, Row
from commitlake.pipelines.lineage.value_texts import relative_time_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.edges import EdgeKind

NO_EDGES = (
    "the lake has no table edges, so the records are in time order without links; 'commitlake archive --lake LAKE "
    "--backfill edges' builds it"
)
MAX_ROUNDS = 20
"""Number of rounds in which the search continues from messages to others, as from a dead letter to its redrive."""
_RELATED_DAYS = datetime.timedelta(days=1)
_MAX_DEAD = 50
"""Number of dead letters of which other records are looked up."""
HUBS = frozenset({Kind.OP})
"""Kinds of records that belong to many messages; the search does not continue from them."""


@dataclass
class GatheredRows:
    """Rows of `messages` and `edges` from which a message history is built.

    Attributes:
        records: Rows of `messages` by place.
        matched: Places of the question's records.
        related: Places of records that were added for `related_by`.
        related_by: Property that they share with matching records.
        edges: Rows of `edges`, each step once.
        has_edges: True if the lake has the table.
        not_shown: Number of matching records that are left out.
        cautions: Sentences on what was not searched, or left out.
    """

    records: dict[Place, Row] = field(default_factory=dict)
    matched: set[Place] = field(default_factory=set)
    related: set[Place] = field(default_factory=set)
    related_by: str | None = None
    edges: list[Row] = field(default_factory=list)
    has_edges: bool = False
    not_shown: int = 0
    cautions: list[str] = field(default_factory=list)


def gather_rows(tables: LineageTables, question: Question) -> GatheredRows:
    """Read the rows of `messages` and `edges` from which the history for a query is built.

    Raises:
        VersionsError: `message_keys` cannot be read.
    """
    found = GatheredRows(has_edges=tables.edges is not None, related_by=question.related_by)
    matches = tables.find_matches(question)
    found.not_shown = matches.left_out
    found.matched = _add_records(found, matches.rows)
    if matches.rows and question.related_by is not None:
        _add_related_records(found, tables, question)
    if not found.has_edges:
        if found.records:
            found.cautions.append(NO_EDGES)
        if matches.traces:
            told = format_count(matches.traces, "trace record")
            found.cautions.append(f"{told} of clients name it; they are only used in the table edges")
        return found
    _follow_edges(found, tables)
    _add_copies_of_dead_letters(found, tables, question)
    return found


def _add_copies_of_dead_letters(gathered: GatheredRows, tables: LineageTables, question: Question) -> None:
    """Add all records with a dead letter's unique key, as no edge leads to copies sent by applications."""
    keys = {row["unique_key"] for row in gathered.records.values() if row["kind"] == Kind.DLQ and row["unique_key"]}
    for key in sorted(keys)[:_MAX_DEAD]:
        _add_records(gathered, tables.find_copies(key, question))


def _add_records(gathered: GatheredRows, rows: Iterable[Row]) -> set[Place]:
    places = set()
    for row in rows:
        place = row["broker"], row["physical_offset"]
        gathered.records.setdefault(place, row)
        places.add(place)
    return places


def node_id_of(row: Row) -> str:
    """Return the id of a record's node in the table `edges`: its unique key, or else its broker and offset."""
    return row["unique_key"] or f"{row['broker']}@{row['physical_offset']}"


def _follow_edges(gathered: GatheredRows, tables: LineageTables) -> None:
    seen: set[str] = set()
    steps: set[tuple[object, ...]] = set()
    wanted = {node_id_of(row) for row in gathered.records.values()}
    for _ in range(MAX_ROUNDS):
        room = MAX_STEPS - len(gathered.edges)
        rows = tables.read_edges_of(wanted, 2 * room)
        seen |= wanted
        for row in rows:
            if (identity := _edge_identity(row)) not in steps:
                steps.add(identity)
                gathered.edges.append(row)
        if len(rows) > 2 * room or len(gathered.edges) > MAX_STEPS:
            gathered.edges = gathered.edges[:MAX_STEPS]
            gathered.cautions.append(f"the story has more than {MAX_STEPS:,} steps; the others are left out")
            _add_records(gathered, tables.read_message_rows(_unread_end_places(gathered)))
            return
        new = _add_records(gathered, tables.read_message_rows(_unread_end_places(gathered)))
        wanted = {
            node_id_of(gathered.records[place]) for place in new if gathered.records[place]["kind"] not in HUBS
        } - seen
        if not wanted:
            return
    gathered.cautions.append(f"the search stopped after {MAX_ROUNDS} rounds of linked messages")


def _edge_identity(row: Row) -> tuple[object, ...]:
    """Return a key that identifies an edge, which is equal in the two rows that the table `edges` has for it."""
    names = (
        "kind", "from_broker", "from_physical_offset", "from_queue_offset", "to_broker", "to_physical_offset",
        "evidence_broker", "evidence_physical_offset", "evidence_entry", "request_id", "consumer_group", "attempt",
        "unique_key" if row["evidence_broker"] is not None else "kind",
    )  # fmt: skip
    return tuple(row[name] for name in names)


def _unread_end_places(gathered: GatheredRows) -> dict[Place, datetime.datetime | None]:
    """Return the locations and times of records at ends of edges that have not been read from the lake yet."""
    places: dict[Place, datetime.datetime | None] = {}
    for row in gathered.edges:
        for end in ("from", "to"):
            place = place_of_edge_end(row, end)
            if place is not None and place not in gathered.records and row["absent_end"] != end:
                places[place] = row[f"{end}_timestamp"]
    return places


def place_of_edge_end(edge_row: Row, edge_end: str) -> Place | None:
    """Return the broker and physical offset of the record at one end of an edge; None if not known."""
    broker, offset = edge_row[f"{edge_end}_broker"], edge_row[f"{edge_end}_physical_offset"]
    return None if broker is None or offset is None else (broker, offset)


def _add_related_records(gathered: GatheredRows, tables: LineageTables, question: Question) -> None:
    name = question.related_by or ""
    rows = [gathered.records[place] for place in gathered.matched]
    if name == props.KEYS:
        values = {key for row in rows for key in row["keys"] or ()}
        others: Sequence[Row] = [
            row
            for value in sorted(values)
            for row in tables.find_matches(replace(question, key=value, message_id=None, place=None)).rows
        ]
        _add_related_rows(gathered, others, question)
        return
    values = {value for row in rows if (value := row["properties"].get(name)) is not None}
    if not values:
        gathered.cautions.append(f"none of the records has the property {name}")
        return
    times = [row["store_timestamp"] for row in rows if row["store_timestamp"] is not None]
    if not times:
        return
    start = question.start or min(times) - _RELATED_DAYS
    end = question.end or max(times) + _RELATED_DAYS
    others = tables.read_rows_with_property(name, values, start, end, question.limit)
    gathered.cautions.append(
        f"records of the same {name} were searched from {relative_time_text(start, None)} to "
        f"{relative_time_text(end, None)}"
    )
    _add_related_rows(gathered, others, question)


def _add_related_rows(gathered: GatheredRows, rows: Sequence[Row], question: Question) -> None:
    new = [row for row in rows if (row["broker"], row["physical_offset"]) not in gathered.matched]
    if len(new) > question.limit:
        gathered.cautions.append(
            f"more than {question.limit:,} records have the same {question.related_by}; the others are left out"
        )
        new = new[: question.limit]
    gathered.related = _add_records(gathered, new)


WITHOUT_FROM = frozenset({EdgeKind.PRODUCED})
"""Kinds of steps without a record at the start."""
WITHOUT_TO = frozenset({EdgeKind.CONSUMED, EdgeKind.ENDED, EdgeKind.RECALLED})
"""Kinds of steps without a record at the end."""
