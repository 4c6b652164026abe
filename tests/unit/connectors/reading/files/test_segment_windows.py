"""Windows of any first size grow until the next record fits, mapped or read."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.files.segment_windows import Windows
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.tables.messages import SOURCE
from tests.support.logs import new_message, open_segment, records, write_store

MIB = 1 << 20
SCHEMA = arrow_schema(SOURCE.select_columns(["size"]))


def sizes_of(root: Path, max_batch_bytes: int) -> list[int]:
    """Return the sizes of a store's records, read undivided."""
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    splits = plan_splits(store, take_snapshot([store]).ranges["b"], 1 << 30)
    request = Request(SCHEMA, max_batch_bytes=max_batch_bytes)
    return [size for split in splits for batch in read_split(split, request) for size in batch.column(0).to_pylist()]


@pytest.mark.parametrize("max_batch_mib", [4, 32, 64])
def test_a_record_larger_than_the_mapping_is_read(tmp_path: Path, max_batch_mib: int) -> None:
    sent = [new_message(0), new_message(1, body=bytes(40 * MIB)), new_message(2)]
    write_store(tmp_path, [(0, open_segment(sent, 42 * MIB))])
    assert sizes_of(tmp_path, max_batch_mib * MIB) == [len(record) for record in records(sent)]


def test_a_window_ends_soon_after_a_hole_begins(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    with path.open("wb") as file:
        file.write(b"x" * 2 * MIB)
        file.truncate(64 * MIB)
    with OpenSegment(str(path)) as opened:
        windows = Windows(opened, 0, 4 * MIB, 64 * MIB)
        with windows.open(0, 64 * MIB) as window:
            assert 2 * MIB < window.length < 3 * MIB
        with windows.open(2 * MIB, 64 * MIB) as window:
            assert 0 < window.length <= MIB


@pytest.mark.parametrize("max_batch_mib", [4, 32, 64])
def test_large_records_at_the_end_of_a_trimmed_file_are_read(tmp_path: Path, max_batch_mib: int) -> None:
    sent = records(new_message(number, body=bytes(2 * MIB)) for number in range(20))
    write_store(tmp_path, [(0, b"".join(sent))])
    assert sizes_of(tmp_path, max_batch_mib * MIB) == [len(record) for record in sent]
