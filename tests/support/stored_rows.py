"""The rows that the commitlog source returns for a store, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import BodyForm
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from tests.support.batches import source_schema
from tests.support.comparing import COLUMNS


def stored_rows(root: Path, broker: str, body: str) -> list[dict[str, Any]]:
    """Return all rows of a store in order, with their bodies."""
    (store,) = find_stores(str(root), broker, formats=COMMITLOGS)
    request = Request(source_schema(*COLUMNS, "body"), body=BodyForm(body))
    splits = plan_splits(store, take_snapshot([store]).ranges[broker], 1 << 20)
    return [row for split in splits for batch in read_split(split, request) for row in batch.to_pylist()]
