"""Tests of short reads on several threads."""

from __future__ import annotations

import threading

import pytest

from commitlake.connectors.reading.files.concurrent_reads import map_concurrently


def test_reads_wait_together_and_results_are_in_order() -> None:
    met = threading.Barrier(3, timeout=20)

    def read(number: int) -> int:
        met.wait()  # passes only if three calls run at a time
        return 10 * number

    assert map_concurrently(read, [3, 1, 2], 3) == [30, 10, 20]


def test_one_value_or_one_thread_stays_on_this_thread() -> None:
    here = threading.get_ident()
    assert map_concurrently(lambda _: threading.get_ident(), ["a"], 8) == [here]
    assert map_concurrently(lambda _: threading.get_ident(), ["a", "b"], 1) == [here, here]
    assert map_concurrently(str, [], 8) == []


def test_first_error_in_the_order_of_the_values_is_raised() -> None:
    def read(number: int) -> int:
        if number % 2:
            raise ValueError(f"number {number}")
        return number

    with pytest.raises(ValueError, match="number 1"):
        map_concurrently(read, [0, 1, 2, 3], 4)
