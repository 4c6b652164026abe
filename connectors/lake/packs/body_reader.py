"""Reading of one message's body: one ranged read, a check of its CRC, and decompression within limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import BodyRef
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.reader import read_body
from commitlake.connectors.reading.decoding.bodies import DEFAULT_MAX_BYTES, DEFAULT_MAX_RATIO, decompress_as
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec

COLUMNS = ("body_ref", "body_crc", "body_codec")


def fetch_body(
    store: PackStore,
    row: Mapping[str, Any],
    *,
    as_stored: bool = False,
    max_bytes: int = DEFAULT_MAX_BYTES,
    max_ratio: int = DEFAULT_MAX_RATIO,
) -> bytes | None:
    """Fetch the body of a message with at most one ranged read.

    Args:
        store: the store of the lake's bodies, from `open_pack_store`.
        row: row with `COLUMNS` as in `messages`, `body_ref` as a mapping.
        as_stored: whether to return the body as the broker stored it, or as the producer sent it.
        max_bytes: largest allowed size of the body, both compressed and decompressed.
        max_ratio: see `decompress_as`.

    Returns:
        The body, or None if the lake has none for this message.

    Raises:
        PackError: if the body is not available or does not match.
        BodyError: if it is not in the format of `body_codec`, or exceeds a limit.
    """
    place = row["body_ref"]
    if place is None:
        return None
    for name, value in place.items():
        if value is None:
            advice = "The table's body_ref was not written by 'archive', or is damaged"
            raise PackError(str(place["pack"]), None, f"a body_ref with a {name}", "null", advice)
    body = read_body(store, BodyRef(**place), row["body_crc"], max_bytes)
    codec = str(row["body_codec"])
    if as_stored:
        return body
    return decompress_as(body, BodyCodec(codec) if codec in set(BodyCodec) else BodyCodec.UNKNOWN, max_bytes, max_ratio)
