"""The bodies that a search must read, by pack, and the tasks that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal

TASK_BYTES = 128 << 20
"""Size of the bodies of one task, unless a single pack has more."""
MAX_TASK_PACKS = 64
_PACK = "body_ref['pack']"


@dataclass(frozen=True, slots=True)
class PackPart:
    """Bodies in one pack that a search must read.

    Attributes:
        pack: name of the pack.
        broker: broker of the messages.
        start: smallest physical offset of the messages.
        end: largest physical offset of the messages.
        messages: number of messages.
        bytes: size of the bodies, as stored by the broker.
    """

    pack: str
    broker: str
    start: int
    end: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class SearchPlan:
    """The packs, and the bodies in them, that a search must read.

    Attributes:
        tasks: packs of each task, in the order of their oldest message.
        without_body: number of messages without a body in the lake.
    """

    tasks: Sequence[Sequence[PackPart]]
    without_body: int

    @property
    def message_count(self) -> int:
        """Number of messages with a body."""
        return sum(part.messages for task in self.tasks for part in task)

    @property
    def body_bytes(self) -> int:
        """Total size of the bodies."""
        return sum(part.bytes for task in self.tasks for part in task)


def plan_search(table: DeltaTable, conditions: Sequence[str]) -> SearchPlan:
    """Find the packs with the bodies of the messages that meet SQL conditions.

    Args:
        conditions: SQL conditions that a message must match.

    Raises:
        QueryError: if a condition is invalid, or the engine fails.
    """
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = (
        f"SELECT {_PACK} AS pack, broker, count(*) AS messages, sum(body_ref['length']) AS bytes, "
        "min(physical_offset) AS first, max(physical_offset) AS last, min(store_timestamp) AS oldest "
        f"FROM messages{where} GROUP BY 1, 2"
    )
    rows = rows_to_dicts(run_sql(table, "messages", sql).read_all())
    with_body = [row for row in rows if row["pack"] is not None]
    with_body.sort(key=lambda row: (row["oldest"] is None, row["oldest"] or 0, str(row["broker"]), row["first"]))
    parts = [_to_pack_part(row) for row in with_body]
    return SearchPlan(list(_group_into_tasks(parts)), sum(row["messages"] for row in rows if row["pack"] is None))


def _to_pack_part(row: dict[str, Any]) -> PackPart:
    size = max(0, row["bytes"] or 0)
    return PackPart(row["pack"], row["broker"], row["first"], row["last"], row["messages"], size)


def _group_into_tasks(parts: Sequence[PackPart]) -> Iterator[Sequence[PackPart]]:
    task: list[PackPart] = []
    size = 0
    for part in parts:
        if task and (size + part.bytes > TASK_BYTES or len(task) == MAX_TASK_PACKS):
            yield task
            task, size = [], 0
        task.append(part)
        size += part.bytes
    if task:
        yield task


def pack_conditions_sql(parts: Sequence[PackPart]) -> list[str]:
    """Return SQL conditions for the rows of `messages` whose bodies are in the packs of the given parts.

    The conditions include offsets, so that the engine skips most data files.
    """
    packs = ", ".join(text_literal(part.pack) for part in parts)
    ranges = []
    if any(None in (part.broker, part.start, part.end) for part in parts):  # rows that no archive wrote
        return [f"{_PACK} IN ({packs})"]
    for broker in sorted({part.broker for part in parts}):
        own = [part for part in parts if part.broker == broker]
        first, last = min(part.start for part in own), max(part.end for part in own)
        ranges.append(f"(broker = {text_literal(broker)} AND physical_offset BETWEEN {first} AND {last})")
    return [f"({' OR '.join(ranges)})", f"{_PACK} IN ({packs})"]
