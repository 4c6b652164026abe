"""Orphaned packs when a range has more dates than packs."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.packs.names import parse_pack_name
from commitlake.connectors.lake.packs.stores import LocalPackStore
from commitlake.pipelines.maintenance.orphans import find_orphans
from tests.support.lakes import GrowingLake, shop_messages

DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize("days", [3, 30])
def test_a_pack_without_a_date_is_referenced_by_rows_of_any_date(tmp_path: Path, days: int) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(60, days=days))
    growing.archive()
    packs = list(LocalPackStore(growing.lake.bodies).list_packs())
    assert (None in {parse_pack_name(pack.name).store_date for pack in packs}) == (days > 16)
    last = read_last_commit(growing.lake.uri("messages"))
    assert last is not None
    later = datetime.datetime.now(datetime.UTC) + 10 * DAY
    assert (
        find_orphans(
            LocalPackStore(growing.lake.bodies), growing.lake.uri("messages"), packs, last.stores, later, 7 * DAY
        )
        == []
    )
