"""Small logs for tests: records, segments, stores on disk, and ways to damage them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from commitlake.schemas.layouts.boltmq.dialect import DIALECT_BY_MAGIC, ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_blank, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import segment_name

BROKER_HOST = Host.of("10.0.0.1", 10911)
PRODUCER_HOST = Host.of("192.168.1.10", 50123)
START_MS = 1_700_000_000_000
KEYS = (("KEYS", "order-1 order-2"), ("UNIQ_KEY", "C0A8010A1F9018B4AAC2000000010000"), ("TAGS", "TagA"))
MAGICS = [magic.to_bytes(4, "big", signed=True) for magic in DIALECT_BY_MAGIC]


def new_message(number: int = 0, topic: str = "orders", body: bytes = b"body", **changes: object) -> NewMessage:
    """Return a message that differs by its number."""
    values: dict[str, object] = {
        "topic": topic,
        "body": body,
        "born_timestamp": START_MS + number,
        "born_host": PRODUCER_HOST,
        "queue_id": number % 4,
        "properties": (("KEYS", f"order-{number}"), ("TAGS", f"Tag{number % 3}")),
    }
    return NewMessage(**{**values, **changes})  # type: ignore[arg-type]


def records(
    messages: Iterable[NewMessage],
    base_offset: int = 0,
    store_host: Host = BROKER_HOST,
    dialect: Dialect = ROCKETMQ,
) -> list[bytes]:
    """Return consecutive records from a physical offset on."""
    offset, out = base_offset, []
    for number, message in enumerate(messages):
        record = serialize_message(
            message,
            queue_offset=number // 4,
            physical_offset=offset,
            store_timestamp=START_MS + 1000 + number,
            store_host=store_host,
            dialect=dialect,
        )
        out.append(record)
        offset += len(record)
    return out


def closed_segment(
    messages: Iterable[NewMessage], size: int, base_offset: int = 0, dialect: Dialect = ROCKETMQ
) -> bytes:
    """Return a segment that the broker has finished: records, BLANK, zeros."""
    data = b"".join(records(messages, base_offset, dialect=dialect))
    assert len(data) + 8 <= size
    return (data + serialize_blank(size - len(data), dialect)).ljust(size, b"\0")


def open_segment(messages: Iterable[NewMessage], size: int, base_offset: int = 0, dialect: Dialect = ROCKETMQ) -> bytes:
    """Return a segment that the broker is still writing: records, zeros."""
    data = b"".join(records(messages, base_offset, dialect=dialect))
    assert len(data) + 8 <= size
    return data.ljust(size, b"\0")


def messages(count: int, seed: int = 1, max_body: int = 200) -> list[NewMessage]:
    """Return messages with bodies of many sizes."""
    chance = random.Random(seed)
    return [
        new_message(number, topic=f"topic-{number % 3}", body=chance.randbytes(chance.randrange(max_body)))
        for number in range(count)
    ]


def write_store(root: Path, segments: Sequence[tuple[int, bytes]]) -> Path:
    """Create a store folder with these segments, by base offset."""
    folder = root / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    for base_offset, data in segments:
        (folder / segment_name(base_offset)).write_bytes(data)
    return root


def damage(data: bytes, chance: random.Random) -> bytes:
    """Return data with one random fault: a flipped bit, a cut, zeros, a wrong size, a copied range, a foreign magic."""
    out = bytearray(data)
    at = chance.randrange(max(1, len(out)))
    match chance.randrange(6):
        case 0 if out:
            out[at] ^= 1 << chance.randrange(8)
        case 1:
            del out[at:]
        case 2:
            end = min(len(out), at + chance.randrange(300))
            out[at:end] = bytes(end - at)
        case 3:
            out[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"])[: len(out) - at]
        case 4:
            source = chance.randrange(max(1, len(out)))
            piece = bytes(out[source : source + chance.randrange(400)])[: len(out) - at]
            out[at : at + len(piece)] = piece
        case _:
            out[at : at + 4] = chance.choice(MAGICS)[: len(out) - at]
    return bytes(out)
