"""Copies of erased messages are recognised by hashes of their ids and keys, in any form of the columns."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from commitlake.pipelines.masking.copies_of_erased import CopyTexts, LaterCopies, TextKind, ensure_hash_key

TEXTS = CopyTexts(ids={"7F00ab", "0A0000012A9F"}, keys={"order-4711", "Schlüssel"})
ROWS = [
    {"unique_key": "7f00AB", "msg_id": "1", "keys": None, "properties": []},  # ids in any case
    {"unique_key": None, "msg_id": "2", "keys": ["a", "order-4711"], "properties": None},
    {"unique_key": "x", "msg_id": "3", "keys": ["Schlüssel", "b"], "properties": [("KEYS", "Schlüssel b")]},
    {"unique_key": "x", "msg_id": "4", "keys": ["ORDER-4711"], "properties": []},  # another key
    {"unique_key": "order-4711", "msg_id": "5", "keys": [], "properties": []},  # a key is no id
    {"unique_key": "x", "msg_id": "6", "keys": None, "properties": [("a", "b"), ("ORIGIN_MSG_ID", "0A0000012A9F")]},
    {"unique_key": "x", "msg_id": "7", "keys": None, "properties": [("other", "0A0000012A9F")]},
    {"unique_key": "x", "msg_id": "0a0000012a9f", "keys": ["c"], "properties": []},
]
EXPECTED = [3, 3, 3, 0, 0, 3, 0, 3]
SCHEMA = pa.schema([
    ("unique_key", pa.string()), ("msg_id", pa.string()), ("keys", pa.list_(pa.string())),
    ("properties", pa.map_(pa.string(), pa.string())),
])  # fmt: skip


@pytest.fixture(scope="module")
def copies() -> LaterCopies:
    """The hashes of `TEXTS`, of an erasure with the number 3."""
    empty = ensure_hash_key(LaterCopies())
    details = [json.loads(text) for text in empty.iterate_detail_json(TEXTS, are_copies_kept=False)]
    of_kind = {kind: [one for one in details if one["kind"] == kind] for kind in TextKind}
    known = {kind: {bytes.fromhex(one["hash"]): 3 for one in found} for kind, found in of_kind.items()}
    buckets = {kind: np.unique([one["bucket"] for one in found]) for kind, found in of_kind.items()}
    return LaterCopies(empty.key, known, buckets, {3: "id"})


@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_row_with_a_known_id_or_key_is_a_copy(copies: LaterCopies, first: int) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS, SCHEMA).slice(first)
    assert copies.find_copied_erasures(rows.num_rows, rows.column).tolist() == EXPECTED[first:]


def test_copies_are_recognised_in_columns_with_dictionaries(copies: LaterCopies) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    columns = {name: rows.column(name) for name in SCHEMA.names}
    columns["unique_key"] = columns["unique_key"].dictionary_encode()
    maps = columns["properties"]
    names, items = maps.keys.dictionary_encode(), maps.items
    columns["properties"] = pa.MapArray.from_arrays(maps.offsets, names, items)
    assert copies.find_copied_erasures(rows.num_rows, columns.__getitem__).tolist() == EXPECTED


def test_only_known_texts_can_be_kept_again(copies: LaterCopies) -> None:
    assert len(list(copies.iterate_detail_json(TEXTS, are_copies_kept=True))) == 4
    assert not list(copies.iterate_detail_json(CopyTexts(keys={"another"}), are_copies_kept=True))
    assert not list(ensure_hash_key(LaterCopies()).iterate_detail_json(TEXTS, are_copies_kept=True))
