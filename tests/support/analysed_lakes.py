"""A lake for questions of analysts, and the rows of their answers, from either engine."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BODIES = {
    "json": b'{"amount": 12.5, "currency": "EUR"}',
    "text": "bezahlt: 5 €".encode(),
    "not-utf8": b"\xff\xfe",
    "nan": b'{"amount": NaN}',
    "nested": b"[" * 100_000,
    "empty": b"",
    "zlib": zlib.compress(b'{"amount": 1}'),
    "broken-zlib": b'{"amount": 1}',
    "long-number": b"1" * 5000,  # more digits than Python converts
}
"""Bodies, by the tags of their messages."""


def analysed_lake(folder: Path) -> GrowingLake:
    """Return a lake of two runs: a message with each of `BODIES`, one each 50 seconds, in two topics."""
    growing = GrowingLake(folder)
    messages = [
        new_message(
            number,
            topic=("orders", "payments")[number % 2],
            queue_id=number % 3,
            body=body,
            sys_flag=COMPRESSED | 0x300 if tag.endswith("zlib") else 0,
            properties=(("TAGS", tag), ("KEYS", f"order-{number % 4}"), ("UNIQ_KEY", f"U{number}"), ("PGROUP", "shop")),
            born_timestamp=MIDNIGHT_MS + 50_000 * number,
        )
        for number, (tag, body) in enumerate(BODIES.items())
    ]
    for part in (messages[:5], messages[5:]):
        growing.write(part, lambda _: 17)
        growing.archive()
    return growing


def rows_of(frame: pa.Table | DataFrame) -> list[dict[str, Any]]:
    """Return the rows of an answer, sorted."""
    table = frame if isinstance(frame, pa.Table) else frame.toArrow()
    return sorted(table.to_pylist(), key=repr)
