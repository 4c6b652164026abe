"""Changes messages before they are sent again: first by a function over a DataFrame, then by masks.

Both get messages as their producers sent them, with decompressed bodies and with keys and tags in columns. The result
is compressed again if the message was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.reading.decoding.bodies import decompress_by_sys_flag
from commitlake.connectors.reading.errors import BodyError
from commitlake.connectors.rocketmq.producers.compression import DEFAULT_THRESHOLD_BYTES, compress
from commitlake.pipelines.masking.masks import Mask, MaskableMessage, MaskError, apply_masks
from commitlake.pipelines.replay.plan_part_rows import StoredBodies
from commitlake.pipelines.replay.sending.batches import OWN_COLUMNS, split_properties
from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED, COMPRESSION_MASK, BodyCodec, body_codec
from commitlake.schemas.tables.replays import IDENTITY, TRANSFORMED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
SCHEMA = arrow_schema(TRANSFORMED)
_CODEC_BITS = COMPRESSED | COMPRESSION_MASK


@dataclass(frozen=True, slots=True)
class MessageChanges:
    """Changes to make to messages before they are sent again: masks and a function of the user.

    Attributes:
        transform: takes and returns a DataFrame with the columns of `TRANSFORMED`, one row for each message; it may
            leave rows out.
        masks: masks that are applied afterwards.
        key: key for hashes of the masks.
    """

    transform: Transform | None = None
    masks: Sequence[Mask] = ()
    key: bytes = b""

    def __bool__(self) -> bool:
        """Return whether there is any change to make."""
        return self.transform is not None or bool(self.masks)


def decode_messages(rows: pa.Table, bodies: StoredBodies) -> tuple[pa.Table, list[str | None]]:
    """Decode messages for user functions and masks, and return an error for each message that cannot be decoded.

    Args:
        rows: rows of `messages`, see `plan_part_rows.COLUMNS`, and `size`.
        bodies: body of each row, as the broker stored it.

    Returns:
        The columns of `TRANSFORMED`, and for each row an error or None.
    """
    errors: list[str | None] = [bodies.errors.get(row) for row in range(rows.num_rows)]
    found: list[bytes | None] = []
    flags = rows.column("sys_flag").to_pylist()
    for row, (body, flag) in enumerate(zip(bodies.values, flags, strict=True)):
        try:
            found.append(decompress_by_sys_flag(body.as_py(), flag))
        except BodyError as error:
            found.append(b"")
            errors[row] = errors[row] or str(error)
    columns = {name: rows.column(name) for name in SCHEMA.names if name in rows.column_names}
    columns["properties"] = pa.chunked_array([_drop_column_properties(rows.column("properties").combine_chunks())])
    columns["body"] = pa.chunked_array([pa.array(found, pa.binary())])
    return pa.table({name: columns[name] for name in SCHEMA.names}).cast(SCHEMA), errors


def _drop_column_properties(properties: pa.MapArray) -> pa.MapArray:
    """Return properties without those that are also stored in columns of their own, such as keys and tags."""
    lengths, names, values = split_properties(properties)
    is_kept = np.asarray(pc.invert(pc.is_in(names, value_set=OWN_COLUMNS)))
    owners = np.repeat(np.arange(len(lengths)), lengths)[is_kept]
    starts = np.searchsorted(owners, np.arange(len(lengths) + 1))
    kept = pa.array(is_kept)
    return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), names.filter(kept), values.filter(kept))


def mask_and_encode_messages(rows: pa.Table, changes: MessageChanges) -> tuple[pa.Table, list[str | None]]:
    """Mask messages and encode them for sending.

    Args:
        rows: rows of `TRANSFORMED`.
        changes: masks to apply.

    Returns:
        The same columns, and for each row the reason why it cannot be sent, or None.
    """
    errors: list[str | None] = []
    changed: list[dict[str, object]] = []
    columns = (rows.column(name).to_pylist() for name in ("body", "keys", "tags", "properties", "sys_flag"))
    for body, keys, tags, properties, flag in zip(*columns, strict=True):
        message, error = MaskableMessage(body or b"", keys or (), tags, dict(properties or ())), None
        try:
            message = apply_masks(message, changes.masks, changes.key)
        except MaskError as reason:
            # A message that could not be masked must not be kept.
            message, error = MaskableMessage(b"", (), None, {}), str(reason)
        else:
            error = _reason_not_sendable(message)
        sent, bits = _compress_body(message.body, flag)
        errors.append(error)
        changed.append(
            {
                "body": sent,
                "keys": list(message.keys) or None,
                "tags": message.tags,
                "properties": list(message.properties.items()),
                "sys_flag": (flag & ~_CODEC_BITS) | bits,
            }
        )
    for name in ("body", "keys", "tags", "properties", "sys_flag"):
        values = pa.array([row[name] for row in changed], SCHEMA.field(name).type)
        rows = rows.set_column(rows.column_names.index(name), SCHEMA.field(name), values)
    return rows, errors


def _reason_not_sendable(message: MaskableMessage) -> str | None:
    """Return why a message cannot be sent exactly as it is, such as a space in a key; None if it can."""
    if not message.body:
        return "the body is empty"
    if any(" " in key or not key for key in message.keys):
        return "keys: expected keys without blanks"
    texts: Iterable[str | None] = (*message.keys, message.tags, *message.properties, *message.properties.values())
    if any(mark in text for text in texts if text for mark in ("\x01", "\x02")):
        return "expected keys, tags and properties without the characters 0x01 and 0x02, which separate properties"
    return None


def _compress_body(body: bytes, sys_flag: int) -> tuple[bytes, int]:
    codec = body_codec(sys_flag)
    if codec in (BodyCodec.NONE, BodyCodec.UNKNOWN) or len(body) < DEFAULT_THRESHOLD_BYTES:
        return body, 0
    return compress(body, codec)


def find_changed_fields(
    before: pa.Table, after: pa.Table, errors: Sequence[str | None]
) -> list[tuple[str, str, object, object]]:
    """Return the fields in which messages differ before and after they were changed, with both values.

    Args:
        before: rows of `TRANSFORMED`, from `decode_messages`.
        after: the same messages, or some of them, from `mask_and_encode_messages`.
        errors: for each row of `after`, the reason why it cannot be sent, or None.

    Returns:
        Message id, field, and the values before and after. For a message that is not sent, the field is `message`.
    """
    names = [name for name in SCHEMA.names if name not in IDENTITY]
    rows = zip(after.to_pylist(), errors, strict=True)
    kept = {(row["broker"], row["physical_offset"]): (row, error) for row, error in rows}
    found: list[tuple[str, str, object, object]] = []
    for row in before.to_pylist():
        other, error = kept.get((row["broker"], row["physical_offset"]), (None, "left out"))
        if other is None or error is not None:
            found.append((row["msg_id"], "message", "is there", error))
            continue
        for name in names:
            values = (row[name], other[name])
            was, becomes = (dict(value or ()) for value in values) if name == "properties" else values
            if was != becomes:
                found.append((row["msg_id"], name, was, becomes))
    return found
