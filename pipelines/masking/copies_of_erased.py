"""Recognises messages that are copies of erased ones, when they are archived later.

A timer delivers its message, a consumer's failure sends it back, an application sends it again, a restored store is
archived again: the copy has the contents of a message that was erased. An erasure therefore keeps hashes of what its
copies have: in rows `later` of `erasures`, as JSON in `detail`.

    kind    hashed texts                                     a later message is a copy if
    id      unique keys and message ids of the messages      this is its id, one of its keys, or the id of its origin
    key     keys that the user has given                     it has this key, in any topic

A hash is an HMAC-SHA-256, shortened to 128 bits. Its key is in the row `begun` of the erasure. Whoever can read the
lake can read it, too, and can confirm a guess of a key, but cannot compute a key from its hash. `bucket`, 24 bits of
an unkeyed hash, lets an archive run skip nearly all texts without an HMAC.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import string_bytes_and_offsets
from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.erasures import open_erasures
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.hashing import hash_texts
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.properties import ORIGIN_MESSAGE_ID
from commitlake.schemas.tables.erasures import ErasureEvent

COLUMNS = ("unique_key", "msg_id", "keys", "properties")
"""Columns of `messages` by which copies are recognised."""
_ORIGINS = pa.array([ORIGIN_MESSAGE_ID, "DLQ_ORIGIN_MESSAGE_ID", "ORIGIN_MSG_ID"])
"""Properties with the id of the message that a record is a copy of: of brokers, of other programs, and of a replay."""
_HASH_BYTES = 16
_KEY_BYTES = 32
_BUCKET_SHIFT = 40
Known = Mapping[bytes, int]
"""Number of the erasure, by hash."""


class TextKind(StrEnum):
    """Kind of an erased text whose hash recognises later copies: an id or a key."""

    ID = "id"
    KEY = "key"


@dataclass(frozen=True)
class CopyTexts:
    """Ids and keys of erased messages, by whose hashes later copies of these messages are recognised.

    Attributes:
        ids: unique keys and message ids.
        keys: business keys.
    """

    ids: Collection[str] = ()
    keys: Collection[str] = ()

    def hashable_texts(self) -> Iterator[tuple[TextKind, bytes]]:
        """Yield each id and key with its kind, as the bytes that are hashed."""
        yield from ((TextKind.ID, _bytes_to_hash(TextKind.ID, text)) for text in sorted(self.ids))
        yield from ((TextKind.KEY, _bytes_to_hash(TextKind.KEY, text)) for text in sorted(self.keys))


NO_TEXTS = CopyTexts()


@dataclass(frozen=True)
class LaterCopies:
    """Hashes of ids and keys by which copies of erased messages are recognised; can be pickled.

    Attributes:
        key: key of the hashes.
        known: by kind, the number of the erasure of each hash.
        buckets: by kind, the sorted buckets of these hashes.
        ids: ids of the erasures, by number.
    """

    key: bytes = b""
    known: Mapping[TextKind, Known] = field(default_factory=dict)
    buckets: Mapping[TextKind, Array] = field(default_factory=dict)
    ids: Mapping[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.known.values())

    def iterate_detail_json(self, texts: CopyTexts, *, are_copies_kept: bool) -> Iterator[str]:
        """Yield the JSON text with the hash of each id and key, by which later copies are recognised.

        Args:
            texts: texts of an erasure.
            are_copies_kept: True if later copies with these texts are not erased any more; only known texts have rows
                then.
        """
        for kind, text in texts.hashable_texts():
            digest = self._hash_text(text)
            if are_copies_kept and digest not in self.known.get(kind, {}):
                continue
            bucket = int(_text_hash_buckets(pa.array([text], pa.binary()))[0])
            values = {"kind": str(kind), "hash": digest.hex(), "bucket": bucket, "kept": are_copies_kept}
            yield json.dumps(values, sort_keys=True)

    def find_copied_erasures(self, row_count: int, get_column: Callable[[str], pa.Array]) -> Array:
        """Return, for each row, the number of the erasure of the message that it copies; 0 if it is no copy.

        Args:
            row_count: number of rows.
            get_column: returns a column of `COLUMNS`.
        """
        found = np.zeros(row_count, np.int64)
        lists = _decode_dictionary(get_column("keys"))
        keys, rows = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists), np.int64)
        self._mark_copies(TextKind.KEY, keys, rows, found)
        if self.known.get(TextKind.ID):
            for name in ("unique_key", "msg_id"):
                self._mark_copies(TextKind.ID, _decode_dictionary(get_column(name)), np.arange(row_count), found)
            self._mark_copies(TextKind.ID, keys, rows, found)
            self._mark_copies(TextKind.ID, *_original_message_ids(get_column("properties")), found)
        return found

    def _mark_copies(self, kind: TextKind, texts: pa.Array, rows: Array, erasure_numbers: Array) -> None:
        known = self.known.get(kind)
        if not known or not len(texts):
            return
        values = pc.fill_null(_decode_dictionary(texts).cast(pa.string()), "")
        if kind is TextKind.ID:
            values = pc.ascii_upper(values)
        for place in np.flatnonzero(np.isin(_text_hash_buckets(values), self.buckets[kind])).tolist():
            number = known.get(self._hash_text(values[place].as_py().encode()))
            if number is not None:
                erasure_numbers[rows[place]] = number

    def _hash_text(self, text: bytes) -> bytes:
        return hmac.digest(self.key, text, "sha256")[:_HASH_BYTES]


NO_COPIES = LaterCopies()


def read_later_copies(lake: Lake) -> LaterCopies:
    """Read the hashes of ids and keys of erased messages from the table `erasures`.

    Raises:
        LogDamagedError: if the table `erasures` is damaged.
    """
    table = open_erasures(lake)
    return NO_COPIES if table is None else _read_copies(lake, table.metadata().id, table.version())


@lru_cache(maxsize=1)
def _read_copies(lake: Lake, table_id: str, version: int) -> LaterCopies:
    table = open_erasures(lake)
    assert table is not None, (table_id, version)
    rows = table.to_pyarrow_table(columns=["number", "erasure_id", "event", "detail"]).sort_by("number")
    wanted = pa.array([str(ErasureEvent.BEGUN), str(ErasureEvent.LATER)])
    rows = rows.filter(pc.is_in(rows.column("event"), wanted))
    key, ids = b"", {}
    known: dict[TextKind, dict[bytes, int]] = {kind: {} for kind in TextKind}
    buckets: dict[bytes, int] = {}
    try:
        for row in rows.to_pylist():
            detail = json.loads(row["detail"])
            ids[int(row["number"])] = str(row["erasure_id"])
            if row["event"] == ErasureEvent.BEGUN:
                # All erasures of a lake share the key of the first one.
                key = key or bytes.fromhex(detail.get("copies_key", ""))
                continue
            digest = bytes.fromhex(detail["hash"])
            # Rows are in the order of erasures: a later one replaces what an earlier one said about a text.
            known[TextKind(detail["kind"])].pop(digest, None)
            if not detail["kept"]:
                known[TextKind(detail["kind"])][digest] = int(row["number"])
                buckets[digest] = int(detail["bucket"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LogDamagedError(
            f"{lake.uri('erasures')}: the hashes by which later copies of erased messages are found are not as 'erase' "
            f"writes them: {error!r}. {WAY_OUT}"
        ) from None
    of_kinds = {
        kind: np.unique(np.array([buckets[digest] for digest in found], np.int64)) for kind, found in known.items()
    }
    return LaterCopies(key, known, of_kinds, ids)


def ensure_hash_key(copies: LaterCopies) -> LaterCopies:
    """Return `copies` with a new secret hash key, or unchanged if it has one."""
    return (
        copies if copies.key else LaterCopies(secrets.token_bytes(_KEY_BYTES), copies.known, copies.buckets, copies.ids)
    )


def _bytes_to_hash(kind: TextKind, text: str) -> bytes:
    value = text.encode("utf-8", "surrogatepass")
    return value.upper() if kind is TextKind.ID else value


def _text_hash_buckets(texts: pa.Array) -> Array:
    hashes = np.empty(len(texts), np.int64)
    data, offsets = string_bytes_and_offsets(texts)
    hash_texts(data, offsets, hashes)
    return (hashes.view(np.uint64) >> np.uint64(_BUCKET_SHIFT)).astype(np.int64)


def _decode_dictionary(column: pa.Array) -> pa.Array:
    """Return a column, or a list column, with plain values instead of dictionary codes."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_list(column.type) and pa.types.is_dictionary(column.type.value_type):
        return column.cast(pa.list_(pa.string()))
    return column


def _original_message_ids(maps: pa.MapArray) -> tuple[pa.Array, Array]:
    """Return the ids of original messages in the properties of copies, and for each id the index of its row."""
    offsets = maps.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    is_origin = pc.is_in(_decode_dictionary(maps.keys.slice(first, count)), _ORIGINS)
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    return maps.items.slice(first, count).filter(is_origin), rows[np.asarray(is_origin)]
