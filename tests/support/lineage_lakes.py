"""Small lakes for lineage with handwritten rows of `messages`, `edges` and `consumer_offsets`."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.topics import kind_of
from commitlake.schemas.tables.edges import EDGES
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.offset_snapshots import CONSUMER_OFFSETS
from tests.support.query_lakes import table_of

START = datetime.datetime(2026, 11, 20, 14, 0, tzinfo=datetime.UTC)
BROKER = "broker-a"
KEY, UNIQUE_KEY = "order-4711", "7F00A1"
Row = dict[str, Any]


def at(seconds: float) -> datetime.datetime:
    """Return the time a number of seconds after the beginning."""
    return START + datetime.timedelta(seconds=seconds)


def record(offset: int, seconds: float, topic: str, **changes: object) -> Row:
    """Return a row of `messages`, by default of order-4711."""
    stored = at(seconds)
    row: Row = {
        "broker": BROKER, "physical_offset": offset, "size": 300, "topic": topic, "queue_id": 0, "queue_offset": offset,
        "msg_id": serialize_message_id(Host.of("10.0.0.1", 10911), offset), "unique_key": UNIQUE_KEY, "keys": [KEY],
        "tags": "created", "kind": str(kind_of(topic)), "born_timestamp": stored, "store_timestamp": stored,
        "born_host": "10.0.0.7:51234", "store_host": "10.0.0.1:10911", "sys_flag": 0, "flag": 0, "reconsume_times": 0,
        "priority": None, "prepared_transaction_offset": 0, "body_size": 4, "body_crc": 0, "body_codec": "none",
        "properties": {"KEYS": KEY, "UNIQ_KEY": UNIQUE_KEY}, "format": "rocketmq", "origin_topic": "orders",
        "producer_group": None, "body_ref": None, **changes,
    }  # fmt: skip
    return row | {"store_date": row["store_timestamp"].date()}


def edge(kind: str, source: Row | None = None, target: Row | None = None, **changes: object) -> list[Row]:
    """Return the rows of `edges` for a step: one, or two if its ends belong to two messages."""
    row: Row = dict.fromkeys(EDGES.names)
    for end, one in (("from", source), ("to", target)):
        if one is not None:
            row |= {
                f"{end}_broker": one["broker"], f"{end}_physical_offset": one["physical_offset"],
                f"{end}_topic": one["topic"], f"{end}_queue_id": one["queue_id"],
                f"{end}_queue_offset": one["queue_offset"], f"{end}_timestamp": one["store_timestamp"],
            }  # fmt: skip
    nodes = [_node(one) for one in (source, target) if one is not None] or [str(changes.get("unique_key", UNIQUE_KEY))]
    key = next((one["unique_key"] for one in (source, target) if one is not None and one["unique_key"]), None)
    row |= {"kind": kind, "unique_key": key, **changes}
    if len(set(nodes)) == 1:
        return [row | _filed(nodes[0], "both")]
    return [row | _filed(nodes[0], "from"), row | _filed(nodes[1], "to")]


def consumption(
    source: Row | None, group: str, attempt: int, seconds: float, outcome: str | None, entry: int = 0
) -> list[Row]:
    """Return the row of a consumption known from a trace."""
    is_absent = source is None
    return edge(
        "consumed", source, consumer_group=group, attempt=attempt, outcome=outcome, event_timestamp=at(seconds),
        cost_ms=None if outcome is None else 36, client_host="10.0.0.9", request_id=f"r{entry}-{attempt}",
        evidence_broker=BROKER, evidence_physical_offset=900_000 + int(seconds), evidence_entry=entry,
        absent_end="from" if is_absent else None, absent_reason="ambiguous" if is_absent else None,
    )  # fmt: skip


def _node(row: Row) -> str:
    return row["unique_key"] or f"{row['broker']}@{row['physical_offset']}"


def _filed(node: str, side: str) -> Row:
    return {"node": node, "node_hash": zlib.crc32(node.encode()), "side": side}


def snapshot(seconds: float, offsets: dict[tuple[str, str, int], int]) -> list[Row]:
    """Return the rows of a snapshot: offsets by group, topic and queue, and the row of the whole snapshot."""
    row: Row = dict.fromkeys(CONSUMER_OFFSETS.names)
    row |= {"broker": BROKER, "as_of": at(seconds), "kind": "group", "source": "file"}
    return [row] + [
        row | {"group": group, "topic": topic, "queue_id": queue, "offset": offset}
        for (group, topic, queue), offset in offsets.items()
    ]


def make_lake(
    folder: Path, records: Sequence[Row], edges: Sequence[Row] | None = (), offsets: Sequence[Row] = ()
) -> Lake:
    """Write a lake, without the table `edges` if it is None."""
    lake = Lake(str(folder / "lake"))
    write_deltalake(lake.uri("messages"), table_of(records, MESSAGES), partition_by=["store_date"])
    if edges is not None:
        rows = sorted(edges, key=lambda row: int(row["node_hash"]))
        write_deltalake(lake.uri("edges"), pa.Table.from_pylist(rows, arrow_schema(EDGES)))
    if offsets:
        schema = arrow_schema(CONSUMER_OFFSETS)
        write_deltalake(lake.uri("consumer_offsets"), pa.Table.from_pylist(list(offsets), schema))
    return lake


def order_lake(folder: Path) -> Lake:
    """Write a lake with an order that billing fails on once and then consumes, and that audit's offset has passed."""
    sent = record(1000, 0, "orders", queue_offset=1203)
    waits = record(2000, 0.5, "SCHEDULE_TOPIC_XXXX", queue_id=2, reconsume_times=1,
                   properties={"KEYS": KEY, "REAL_TOPIC": "%RETRY%billing"})  # fmt: skip
    retry = record(3000, 10.5, "%RETRY%billing", reconsume_times=1, queue_offset=7)
    late = record(9000, 3600, "payments", unique_key="7F00A9", keys=["order-9"], queue_offset=9)
    edges = [
        *edge("produced", None, sent, producer_group="shop", cost_ms=12, evidence_broker=BROKER,
              evidence_physical_offset=1, evidence_entry=0),
        *consumption(sent, "billing", 0, 0.3, "exception"),
        *edge("retried", sent, waits, consumer_group="billing", attempt=1),
        *edge("delayed", waits, retry, consumer_group="billing", attempt=1, due_timestamp=at(10.5)),
        *consumption(retry, "billing", 1, 10.7, "success"),
    ]  # fmt: skip
    offsets = [
        *snapshot(60, {("audit", "orders", 0): 1204, ("billing", "orders", 0): 1204}),
        *snapshot(3500, {("late", "orders", 0): 1190}),
    ]
    return make_lake(folder, [sent, waits, retry, late], edges, offsets)
