"""Files divided among partitions."""

from __future__ import annotations

import pytest

from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.formats.index_entries.partitions import divide_range, local_root
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ


def test_ranges_are_divided_between_entries() -> None:
    ranges = list(divide_range(40, 40 + 20 * 10_000_000, 20))
    assert ranges[0][0] == 40
    assert ranges[-1][1] == 40 + 20 * 10_000_000
    assert all((end - start) % 20 == 0 and 0 < end - start <= 64 << 20 for start, end in ranges)
    assert list(divide_range(40, 40, 20)) == []


def test_stores_that_are_not_local_are_refused() -> None:
    with pytest.raises(StoreError, match="s3://b/store/commitlog: expected a store on a local disk"):
        local_root(Store("b", "s3://b/store/commitlog", (), ROCKETMQ))
