"""A lake of messages for look-ups."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.topics import kind_of
from commitlake.schemas.tables.columns import Columns

ROOT = Path(__file__).parents[2]
UTC = datetime.UTC
FIRST_DAY = datetime.datetime(2026, 11, 19, tzinfo=UTC)
TOPICS = ("orders", "payments", "%RETRY%g", "it's \\odd")
BROKERS = ("broker-a", "broker-b")
Row = dict[str, Any]


def message(number: int, **changes: object) -> Row:
    """Return a row of `messages` that differs by its number: twelve per day, ten minutes apart, from noon on."""
    stored = FIRST_DAY + datetime.timedelta(days=number // 12, hours=12, minutes=10 * (number % 12))
    topic, broker = TOPICS[number % len(TOPICS)], BROKERS[number // 6 % 2]
    offset = 1000 * number
    host = Host.of("10.0.0.1" if broker == "broker-a" else "2001:db8::2", 10911)
    row: Row = {
        "broker": broker,
        "physical_offset": offset,
        "size": 300 + number,
        "topic": topic,
        "queue_id": number % 3,
        "queue_offset": number // 3,
        "msg_id": serialize_message_id(host, offset),
        "unique_key": f"C0A8010A1F9018B4AAC20000{number:08X}" if number % 5 else None,
        "keys": [f"order-{number}", f"user-{number % 4}"] if number % 3 else None,
        "tags": f"Tag{number % 2}" if number % 4 else None,
        "kind": str(kind_of(topic)),
        "born_timestamp": stored - datetime.timedelta(milliseconds=7),
        "store_timestamp": stored,
        "born_host": "192.168.1.10:50123",
        "store_host": str(host),
        "sys_flag": 0,
        "flag": -number,
        "reconsume_times": number % 2,
        "priority": None,
        "prepared_transaction_offset": 0,
        "body_size": 100,
        "body_crc": 12345,
        "body_codec": "none",
        "properties": {"city": "Berlin" if number % 2 else "北京", "n": str(number)} if number != 4 else {},
        "format": "rocketmq" if number % 11 else None,
        "origin_topic": topic if number % 11 else None,
        "producer_group": "shop" if number % 5 == 1 else None,
        "body_ref": body_ref(number) if number % 7 else None,
    }
    row |= changes
    moment = row["store_timestamp"]
    return row | {"store_date": None if moment is None else moment.date()}


def body_ref(number: int) -> Row:
    """Return a valid position of a body."""
    pack = "store_date=2026-11-19/broker=a/00000000000000000000-00000000000000100000-5f0c3a9e77d2b164.zst"
    return {"pack": pack, "frame_offset": number << 33, "frame_length": 400, "offset": number, "length": 100}


def table_of(rows: Sequence[Row], schema: Columns) -> pa.Table:
    """Return rows as Spark would write them."""
    return pa.Table.from_pylist(
        [
            {name: list(v.items()) if isinstance(v, dict) and name == "properties" else v for name, v in row.items()}
            for row in rows
        ],
        schema=arrow_schema(schema),
    )
