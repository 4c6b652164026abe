"""Sketches of groups: the library reads all of them, and small ones equal the library's byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from datasketches import kll_doubles_sketch

from commitlake.connectors.arrays import Array
from commitlake.pipelines.topic_minutes.sketches import merge_sketches, quantiles, sketch_groups
from commitlake.schemas.tables.topic_minutes import SKETCH_K


def grouped(*counts: int) -> tuple[Array, Array]:
    """Return values of some groups, and where each group begins."""
    values = np.random.default_rng(7).integers(0, 10_000, sum(counts)).astype(float)
    return values, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@pytest.mark.parametrize("count", [1, 2, 3, SKETCH_K - 1, SKETCH_K])
def test_a_small_sketch_equals_the_librarys(count: int) -> None:
    values, starts = grouped(5, count, 2)
    expected = kll_doubles_sketch(SKETCH_K)
    expected.update(values[starts[1] : starts[2]])
    assert sketch_groups(values, starts)[1].as_py() == expected.serialize()


def test_groups_of_all_sizes_are_sketched_together() -> None:
    counts = (0, 1, SKETCH_K + 1, 2, 3 * SKETCH_K, 0, 1, SKETCH_K, 4 * SKETCH_K + 3)
    values, starts = grouped(*counts)
    sketches = sketch_groups(values, starts)
    sketches.validate(full=True)
    for group, data in enumerate(sketches.to_pylist()):
        if not counts[group]:
            assert data is None
            continue
        sketch = kll_doubles_sketch.deserialize(data)
        mine = values[starts[group] : starts[group + 1]]
        assert (sketch.n, sketch.get_min_value(), sketch.get_max_value()) == (len(mine), mine.min(), mine.max())


def test_no_group_gives_no_sketch() -> None:
    values, starts = grouped()
    assert len(sketch_groups(values, starts)) == 0


def test_merged_sketches_have_the_quantiles_of_all_values() -> None:
    values, starts = grouped(10, 5000, 1, 300, 20_000)
    sketches = sketch_groups(values, starts).to_pylist()
    assert merge_sketches(sketches).n == len(values)
    for rank, found in zip((0.5, 0.99), quantiles(sketches, (0.5, 0.99)), strict=True):
        assert found is not None
        assert abs((values <= found).mean() - rank) < 0.02


def test_the_quantiles_of_up_to_k_values_are_exact() -> None:
    values = np.arange(100, 0, -1).astype(float)
    sketches = sketch_groups(values, np.array([0, 40, 100])).to_pylist()
    assert quantiles(sketches, (0.01, 0.5, 1.0)) == [1.0, 50.0, 100.0]


def test_an_empty_sketch_has_no_quantile() -> None:
    assert quantiles([None], (0.5,)) == [None]
