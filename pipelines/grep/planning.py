"""The bodies that a search has to read, by pack, and the tasks that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal

TASK_BYTES = 128 << 20
"""Bodies of one task, unless a pack has more."""
MAX_TASK_PACKS = 64
_PACK = "body_ref['pack']"


@dataclass(frozen=True, slots=True)
class PackPart:
    """The bodies of one pack that are to be read.

    Attributes:
        pack: its name.
        broker: whose messages they are.
        start: smallest offset of the messages.
        end: largest offset of the messages.
        messages: how many.
        bytes: of these bodies, as the broker stored them.
    """

    pack: str
    broker: str
    start: int
    end: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """What a search has to read.

    Attributes:
        tasks: packs of each task, in the order of their oldest message.
        without_body: messages of which the lake holds no body.
    """

    tasks: Sequence[Sequence[PackPart]]
    without_body: int

    @property
    def messages(self) -> int:
        """How many messages have a body."""
        return sum(part.messages for task in self.tasks for part in task)

    @property
    def bytes(self) -> int:
        """Bytes of the bodies."""
        return sum(part.bytes for task in self.tasks for part in task)

    @property
    def packs(self) -> int:
        """How many packs hold them."""
        return len({part.pack for task in self.tasks for part in task})


def plan_search(table: DeltaTable, conditions: Sequence[str]) -> Plan:
    """Find the packs that hold the bodies of messages.

    Args:
        table: `messages`.
        conditions: SQL; all of them must hold for a message.

    Raises:
        QueryError: if the engine cannot understand or answer them.
    """
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = (
        f"SELECT {_PACK} AS pack, broker, count(*) AS messages, sum(body_ref['length']) AS bytes, "
        "min(physical_offset) AS first, max(physical_offset) AS last, min(store_timestamp) AS oldest "
        f"FROM messages{where} GROUP BY 1, 2"
    )
    rows = run_sql(table, "messages", sql).read_all().to_pylist()
    with_body = [row for row in rows if row["pack"] is not None]
    with_body.sort(key=lambda row: (row["oldest"] is None, row["oldest"] or 0, str(row["broker"]), row["first"]))
    parts = [_part(row) for row in with_body]
    return Plan(list(_tasks(parts)), sum(row["messages"] for row in rows if row["pack"] is None))


def _part(row: dict[str, Any]) -> PackPart:
    size = max(0, row["bytes"] or 0)
    return PackPart(row["pack"], row["broker"], row["first"], row["last"], row["messages"], size)


def _tasks(parts: Sequence[PackPart]) -> Iterator[Sequence[PackPart]]:
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


def rows_of(parts: Sequence[PackPart]) -> list[str]:
    """Return the conditions under which a row of `messages` has its body in one of the packs.

    Offsets are among them, by which the engine passes over most data files.
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
