"""Tables of messages as an archive run writes them, generated from a seed, with rare cases."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.tables.messages import MESSAGES

START = datetime.datetime(2026, 11, 20, 20, tzinfo=datetime.UTC)
SCHEMA: pa.Schema = arrow_schema(MESSAGES)
TOPICS = ("orders", "payments", "shipments", "orders-eu", "%RETRY%billing", "Bestellungen-ä")
BROKERS = ("broker-a", "broker-b")


def message_rows(count: int, seed: int = 1, first: int = 0) -> list[dict[str, Any]]:
    """Return rows of `messages` with two brokers, several topics and dates, and shared keys."""
    chance = random.Random(seed * 1_000_003 + first)
    return [_row(number, chance) for number in range(first, first + count)]


def _row(number: int, chance: random.Random) -> dict[str, Any]:
    broker, offset = BROKERS[number % 2], 1000 * (number // 2)
    # Several messages share a time, and the clock sometimes steps back.
    time = START + datetime.timedelta(milliseconds=number // 3 * 40 - (5000 if chance.random() < 0.01 else 0))
    keys = [f"order-{chance.randrange(1 + number // 4)}"] if chance.random() < 0.9 else None
    properties = {
        "WAIT": "true",
        "city": chance.choice(("Berlin", "Łódź", "東京")),
        "note": 'a "quote" \\ and\nlines\x01',
    }
    host = Host.of("10.0.0.1" if broker == "broker-a" else "10.0.0.2", 10911)
    return {
        "broker": broker,
        "physical_offset": offset,
        "size": 1000,
        "topic": chance.choice(TOPICS),
        "queue_id": number % 4,
        "queue_offset": number // 4,
        "msg_id": serialize_message_id(host, offset),
        "unique_key": f"0A0000010000{chance.randrange(1 + number):020X}" if chance.random() < 0.95 else None,
        "keys": keys,
        "tags": chance.choice((None, "new", "paid")),
        "kind": "normal",
        "born_timestamp": time - datetime.timedelta(milliseconds=3),
        "store_timestamp": time,
        "born_host": "[fe80::1]:50123",
        "store_host": str(host),
        "sys_flag": 0,
        "flag": -1,
        "reconsume_times": 0,
        "priority": None,
        "prepared_transaction_offset": 0,
        "body_size": 700,
        "body_crc": chance.getrandbits(31),
        "body_codec": "none",
        "properties": properties,
        "format": "rocketmq",
        "origin_topic": "orders",
        "producer_group": "shop" if number % 3 else None,
        "body_ref": {"pack": f"store_date={time.date()}/broker={broker}/{number // 1000}.zst", "frame_offset": number,
                     "frame_length": 100, "offset": 5, "length": 700},
        "store_date": time.date(),
    }  # fmt: skip


def rare_rows() -> list[dict[str, Any]]:
    """Return rows that brokers rarely write."""
    plain = message_rows(8, seed=99, first=10_000_000)
    plain[0] |= {"store_timestamp": None, "store_date": None, "topic": "orders"}
    plain[1] |= dict.fromkeys(("queue_id", "unique_key", "keys", "tags", "properties", "body_ref", "msg_id"))
    plain[2] |= {"keys": ["a", "a", "b", ""], "properties": {}}
    plain[3] |= {"keys": ["k" * 40_000], "topic": "t" * 255, "unique_key": "ü" * 300}
    early = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
    plain[4] |= {"store_timestamp": early, "store_date": early.date()}
    late = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
    plain[5] |= {"store_timestamp": late, "store_date": late.date()}
    plain[6] |= {"physical_offset": (1 << 63) - 1, "properties": {"big": "x" * 32_000}}
    plain[7] |= {"physical_offset": 0, "broker": "Broker 中"}
    return plain


def append(uri: Path | str, rows: list[dict[str, Any]]) -> None:
    """Write a version with these rows; the first one creates the table."""
    table = pa.Table.from_pylist([{**row, "properties": _pairs(row["properties"])} for row in rows], SCHEMA)
    write_deltalake(str(uri), table, mode="append", partition_by=["store_date"])


def _pairs(properties: dict[str, str] | None) -> list[tuple[str, str]] | None:
    return None if properties is None else list(properties.items())


def delta_rows(uri: Path | str) -> list[dict[str, Any]]:
    """Return all rows of a table, by primary key."""
    table = DeltaTable(str(uri)).to_pyarrow_table()
    return by_place(table.to_pylist())


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows in the order of their primary key, with maps as dicts and columns by name."""
    plain = ({name: _plain(name, row[name]) for name in sorted(row)} for row in rows)
    return sorted(plain, key=lambda row: (row["broker"], row["physical_offset"]))


def _plain(name: str, value: Any) -> Any:
    return dict(value) if name == "properties" and value is not None else value


def chunks(count: int, size: int, seed: int = 1) -> Iterator[list[dict[str, Any]]]:
    """Yield `message_rows` in parts."""
    for first in range(0, count, size):
        yield message_rows(min(size, count - first), seed, first)
