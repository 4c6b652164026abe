"""A lake with readable, damaged and missing bodies."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from deltalake import write_deltalake

from commitlake.connectors.lake.packs.writer import open_pack_writer
from commitlake.schemas.layouts.rocketmq.commitlog import body_crc
from commitlake.schemas.tables.messages import MESSAGES, PARTITION_COLUMNS
from tests.support.packs import NAME, TOKEN, append, folder_store
from tests.support.query_lakes import Row, message, table_of

TEXT = '{"order": "4711", "city": "北京"}'
BODIES: list[tuple[str, bytes, str]] = [  # key, stored body, codec
    ("text", TEXT.encode(), "none"),
    ("packed", zlib.compress(TEXT.encode() * 500), "zlib"),
    ("binary", bytes(range(256)), "none"),
    ("empty", b"", "none"),
    ("escape", b"\x1b[2J", "none"),
    ("broken", b"not zlib", "zlib"),
    ("bomb", zlib.compress(bytes(65 << 20), 9), "zlib"),
    ("twice", b"first", "none"),
    ("twice", b"second", "none"),
]


def write_lake_of_bodies(root: Path) -> Path:
    """Write a lake with a message for each of `BODIES`, and four messages whose body is absent, expired or different.

    Args:
        root: its folder.
    """
    with open_pack_writer(folder_store(root / "bodies"), NAME) as writer:
        append(writer, [body for _, body, _ in BODIES])
    refs = writer.finish()
    rows: list[Row] = []
    for number, (key, body, codec) in enumerate(BODIES):
        names = ("frame_offset", "frame_length", "offset", "length")
        place: dict[str, Any] = {name: int(getattr(refs, f"{name}s")[number]) for name in names}
        ref = {"pack": NAME, **place}
        rows.append(message(number, keys=[key], body_ref=ref, body_crc=body_crc(body), body_codec=codec))
    rows.append(message(50, keys=["none"], body_ref=None, body_crc=1))
    rows.append(rows[0] | {"keys": ["changed"], "body_crc": 1})
    expired = {**rows[0]["body_ref"], "pack": NAME.replace(TOKEN, TOKEN[::-1])}
    rows.append(rows[0] | {"keys": ["expired"], "body_ref": expired})
    write_deltalake(str(root / "messages"), table_of(rows, MESSAGES), partition_by=list(PARTITION_COLUMNS))
    return root
