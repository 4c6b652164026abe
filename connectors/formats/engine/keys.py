"""Filters on decoded columns: keys, and topics in displayed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.formats.engine.decoded import DecodedBatch

KEY_COLUMNS = frozenset({"unique_key", "keys"})
"""Columns that must be decoded so that records can be compared with keys."""


def rows_with_keys(decoded: DecodedBatch, wanted: frozenset[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a boolean for each record of a batch that has `KEY_COLUMNS`; see `have_keys`.

    Properties that are not UTF-8 have no columns yet; their repaired text is compared.
    """
    found = have_keys(decoded.column("unique_key"), decoded.column("keys"), wanted)
    for row in decoded.rows_with_invalid_text().tolist():
        found[row] = not wanted.isdisjoint(decoded.keys_after_repair(row))
    return found


def rows_with_topics(decoded: DecodedBatch, wanted: frozenset[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each record of a batch, from its column topic, whether the displayed topic is wanted."""
    topics = _plain(decoded.column("topic"))
    found: np.ndarray[Any, np.dtype[np.bool_]] = pc.is_in(
        topics, value_set=pa.array(sorted(map(str, wanted)), pa.string())
    ).to_numpy(zero_copy_only=False)
    return found


def have_keys(unique_keys: pa.Array, keys: pa.Array, wanted: frozenset[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a boolean for each record: whether its unique key or one of its business keys is wanted.

        unique_keys  keys         wanted {"a"}
        "a"          null         True
        null         ["b", "a"]   True
        "b"          ["b"]        False

    Args:
        unique_keys: strings, null if a record has none.
        keys: lists of strings, null if a record has none.
        wanted: keys; one match is sufficient.
    """
    chosen = pa.array(sorted(wanted), pa.string())
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(len(keys), bool)
    found |= pc.is_in(_plain(unique_keys), value_set=chosen).to_numpy(zero_copy_only=False)
    hits = pc.is_in(_plain(keys.flatten()), value_set=chosen)
    found[pc.list_parent_indices(keys).filter(hits).to_numpy(zero_copy_only=False)] = True
    return found


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
