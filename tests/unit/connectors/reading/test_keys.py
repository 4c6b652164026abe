"""The exact filter by keys."""

from __future__ import annotations

import pyarrow as pa
import pytest

from commitlake.connectors.reading.batches import match_keys

UNIQUE = ["a", None, "b", None, "c", None]
KEYS = [None, ["b", "a"], ["b"], [], ["x", "y", "x"], None]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [({"a"}, [0, 1]), ({"b"}, [1, 2]), ({"x", "c"}, [4]), ({"z"}, []), (set(), []), ({""}, [])],
)
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_a_key_matches_the_unique_key_or_a_business_key(
    wanted: set[str], expected: list[int], start: int, is_dictionary: bool
) -> None:
    unique_keys = pa.array(UNIQUE, pa.string())
    if is_dictionary:
        unique_keys = unique_keys.dictionary_encode()
    keys = pa.array(KEYS, pa.list_(pa.string()))
    found = match_keys(unique_keys.slice(start), keys.slice(start), frozenset(wanted))
    assert found.nonzero()[0].tolist() == [row - start for row in expected if row >= start]
