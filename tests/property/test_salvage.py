"""Salvage of random damage: after every fault, the next intact records are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.salvage import measure
from tests.support.corpus import make_corpora


@pytest.mark.parametrize("seed", [1, 2])
def test_nearly_every_record_that_no_fault_hit_is_read(tmp_path: Path, seed: int) -> None:
    (corpus,) = make_corpora(tmp_path, 1 / 32, 1024, [1])
    result = measure(corpus.store, tmp_path, 1000 // 32, seed)  # as 1,000 faults a GiB
    assert result.hit > 0
    assert result.share >= 0.9999
    assert result.quarantined > 0
