"""Keys counted by a sketch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from commitlake.pipelines.tps import hot_keys
from commitlake.pipelines.tps.hot_keys import count_keys


def test_few_keys_are_counted_exactly() -> None:
    found = count_keys([pa.array(["a", "b", None, "a"]), pa.array(["a"])])
    assert [(row["key"], row["at_least"], row["at_most"]) for row in found.rows] == [("a", 3, 3), ("b", 1, 1)]
    assert (found.total, found.error) == (4, 0)


def test_a_frequent_one_of_many_keys_is_found_within_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_keys, "LOG_MAX_KEYS", 6)
    arrays = [pa.array([f"key-{number}-{part}" for number in range(100)] + ["hot"] * 20) for part in range(100)]
    found = count_keys(arrays)
    assert found.rows[0]["key"] == "hot"
    assert found.rows[0]["at_least"] <= 2000 <= found.rows[0]["at_most"]
    assert 0 < found.error <= 3.5 / 64 * found.total
    assert found.total == 12_000


def test_no_keys_give_no_rows() -> None:
    assert count_keys([]).rows == []
