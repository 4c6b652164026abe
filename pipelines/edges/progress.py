"""Progress of `edges` in following `messages`, and a check that it is complete. It imports little.

The check is that `edges` has a step for each record whose kind alone implies one. Such records are dead letters,
delayed records in schedule topics, and half messages. Records that are not erased are counted, and compared with the
records at that end of steps of these kinds. No body is read. A record whose store time fits no timestamp is not
counted: the end of its step looks like one that is not in the lake.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.added_files import processed_erasure_number, processed_version
from commitlake.connectors.lake.erasures import MARKER
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.edges import EdgeKind

APPLICATION_ID = "commitlake.edges"
CONSUMPTIONS_ID = "commitlake.edges.consumptions"
"""Application whose transaction number is the followed version of `consumptions`, plus one."""
OPEN_PREFIX = "open-"
"""Prefix of the names of data files with open steps, which the next run replaces."""
_EXPECTED: tuple[tuple[Kind, str, tuple[EdgeKind, ...]], ...] = (
    (Kind.DLQ, "to", (EdgeKind.DEAD,)),
    (Kind.DELAY, "from", (EdgeKind.DELAYED,)),
    (Kind.HALF, "from", (EdgeKind.FINISHED, EdgeKind.RECHECKED, EdgeKind.GIVEN_UP)),
)
"""A kind of record, the end of the step at which it is, and the kinds of steps of which it has at least one."""


def followed_messages_version(lake: Lake) -> int:
    """Return the version of `messages` up to which the table `edges` is filled; -1 if it is not filled yet."""
    return processed_version(lake, "edges", APPLICATION_ID)


def followed_consumptions_version(lake: Lake) -> int:
    """Return the version of `consumptions` up to which the table `edges` is filled; -1 if it is not filled yet."""
    return max(processed_version(lake, "edges", CONSUMPTIONS_ID), 0) - 1


def followed_erasure_number(lake: Lake) -> int:
    """Return the number of the newest erasure that was applied to `edges`; 0 for none."""
    return processed_erasure_number(lake, "edges")


def is_ahead_of_messages(lake: Lake) -> bool:
    """Return whether `edges` was built from a later version of `messages` than the newest one, as after a restore."""
    return followed_messages_version(lake) > lake.table("messages").version()


def is_open_steps_file(path: str) -> bool:
    """Return whether a data file has edges without a record at one end, which the next run replaces."""
    return path.rpartition("/")[2].startswith(OPEN_PREFIX)


@dataclass(frozen=True, slots=True)
class KindCount:
    """Numbers of records of one kind, such as delayed messages, in `messages` and in `edges`.

    Attributes:
        kind: the kind.
        expected: number of records in `messages`.
        found: number of records with a step in `edges`.
    """

    kind: Kind
    expected: int
    found: int


def count_records_by_kind(messages: DeltaTable, edges: DeltaTable) -> list[KindCount]:
    """Count the records of each kind that leads to an edge, in `messages` and in `edges`.

    Args:
        messages: the table, at the version that `edges` follows.
    """
    kinds = ", ".join(text_literal(str(kind)) for kind, _, _ in _EXPECTED)
    erased = f"(properties[{text_literal(MARKER)}] IS NOT NULL AND body_ref IS NULL AND unique_key IS NULL)"
    counted = f"store_timestamp IS NOT NULL AND NOT {erased}"
    sql = f"SELECT kind, count(*) AS rows FROM messages WHERE kind IN ({kinds}) AND {counted} GROUP BY kind"
    there = {row["kind"]: row["rows"] for row in rows_to_dicts(run_sql(messages, "messages", sql).read_all())}
    return [
        KindCount(kind, there.get(str(kind), 0), _count_records_with_edges(edges, end, steps))
        for kind, end, steps in _EXPECTED
    ]


def _count_records_with_edges(edges: DeltaTable, edge_end: str, kinds: tuple[EdgeKind, ...]) -> int:
    names = ", ".join(text_literal(str(kind)) for kind in kinds)
    places = f"SELECT DISTINCT {edge_end}_broker, {edge_end}_physical_offset FROM edges WHERE kind IN ({names})"
    sql = f"SELECT count(*) AS places FROM ({places} AND {edge_end}_timestamp IS NOT NULL)"
    return int(run_sql(edges, "edges", sql).read_all().column("places")[0].as_py())
