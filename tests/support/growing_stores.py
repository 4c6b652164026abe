"""A store that grows and is damaged between archives, and a comparison of its lake with an undisturbed one."""

from __future__ import annotations

import os
import random
from pathlib import Path

from deltalake import DeltaTable

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.broker_lite.stores.rocketmq.message_writer import PutResult
from commitlake.connectors.lake.lake import Lake
from tests.support.archive_processes import archive
from tests.support.corpus import json_bodies, shop_batches
from tests.support.lake_contents import check_bodies, content

SEGMENT = 4 << 20
OPTIONS = StoreOptions(segment_size_bytes=SEGMENT, index_slots=1000, index_entries=4000, keep_index=False)
GROWTH = 1500
"""Number of messages before each run: some MiB."""


class GrowingStore:
    """A store to which a producer writes, and which a disk damages."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self._chance = random.Random(seed)
        self._batches = shop_batches(json_bodies(1024, count=200, seed=seed))
        self.damaged = 0

    def grow(self, count: int = GROWTH) -> None:
        """Write more messages, and damage the body of one of them."""
        written: list[PutResult] = []
        with MessageStore.open(self.root, OPTIONS) as store:
            while len(written) < count:
                written += store.put_batch(next(self._batches))
        victim = self._chance.choice(written[: len(written) // 2])
        base = victim.physical_offset - victim.physical_offset % SEGMENT
        with (self.root / "commitlog" / f"{base:020d}").open("r+b") as segment:
            segment.seek(victim.physical_offset - base + 200)
            byte = segment.read(1)[0]
            segment.seek(-1, os.SEEK_CUR)
            segment.write(bytes([byte ^ 0x55]))
        self.damaged += 1


def check_same(where: str, store: GrowingStore, lake: Path, peaceful: Path) -> None:
    """Compare a lake, row by row, with one that was made from the whole log in a single commit."""
    archive(where, store.root, peaceful, "one commit")
    found, expected = content(lake), content(peaceful)
    for name, table in expected.items():
        assert found[name].num_rows == table.num_rows, (
            f"{name}: expected {table.num_rows}, found {found[name].num_rows}"
        )
        assert found[name].equals(table), name
    assert found["quarantine"].num_rows == store.damaged
    check_bodies(store.root, SEGMENT, lake)
    runs = DeltaTable(Lake(str(lake)).uri("archive_runs")).to_pyarrow_table().to_pylist()
    assert sorted(run["sequence"] for run in runs) == list(range(1, len(runs) + 1))
    assert sum(run["messages"] for run in runs) == expected["messages"].num_rows
    assert sum(run["quarantined"] for run in runs) == store.damaged
