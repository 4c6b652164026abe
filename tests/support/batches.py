"""Batches that the compiled reader returns for the log of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.tables.messages import SOURCE
from tests.support.logs import open_segment, write_store

SIZE = 8192


def source_schema(*columns: str) -> pa.Schema:
    """Return the given columns of the source, by default all."""
    return arrow_schema(SOURCE.select_columns(columns) if columns else SOURCE)


def splits_of(root: Path, data: bytes) -> list[Split]:
    """Return the splits of a store with one open segment."""
    (store,) = find_stores(str(write_store(root, [(0, data)])), "b", formats=COMMITLOGS)
    return plan_splits(store, take_snapshot([store]).ranges["b"], 1 << 20)


def rows_of(
    splits: Sequence[Split], mode: Mode = Mode.PERMISSIVE, *columns: str, **request: object
) -> list[dict[str, object]]:
    """Return all rows of a read."""
    wanted = Request(source_schema(*columns), mode, **request)  # type: ignore[arg-type]
    return [row for split in splits for batch in read_split(split, wanted) for row in batch.to_pylist()]


def log_of(sent: Sequence[NewMessage]) -> bytes:
    """Return an open segment."""
    return open_segment(sent, SIZE)
