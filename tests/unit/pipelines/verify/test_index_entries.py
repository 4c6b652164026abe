"""Entries of an index compared with the keys of a record, as columns."""

from __future__ import annotations

import numpy as np
import pytest

from commitlake.pipelines.verify import index_chains


@pytest.mark.parametrize(
    ("hashes", "kinds"),
    [
        ([7, 8, 9], []),
        ([7, 7, 8, 9], [index_chains.REPEATED]),  # the last record of a file whose broker crashed, and entered it again
        ([7, 8, 9, 7, 8, 9], [index_chains.REPEATED] * 3),
        ([7, 8, 9, 5], [index_chains.WRONG_HASH]),
    ],
)
def test_a_repeated_key_and_an_unknown_key_are_different_problems(hashes: list[int], kinds: list[int]) -> None:
    count = len(hashes)
    problems = np.zeros((3, 20), np.int64)
    found = index_chains.compare_entries(
        np.array([100], np.int64), np.array([5000], np.int64), np.array([2], np.int32), np.array([7, 8], np.int32),
        np.array([9], np.int32), np.full(count, 100, np.int64), np.array(hashes, np.int32), np.zeros(count, np.int32),
        np.full(count, -1, np.int64), problems,
    )  # fmt: skip
    assert problems[0, :found].tolist() == kinds
