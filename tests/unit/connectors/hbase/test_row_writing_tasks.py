"""Pieces of work: every row group of every file is in exactly one of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.hbase import row_writing_tasks as work_module
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.row_writing_tasks import (
    PIECE_ROWS,
    KeptRows,
    RowWritingTask,
    divide_into_file_shares,
    find_kept_rows,
)
from commitlake.connectors.lake.delta_log import versions
from commitlake.connectors.lake.delta_log.versions import AddedFile, AddedVersion
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.storage.s3_options import S3Options


def _file(lake: Lake, name: str, offsets: range, rows_in_group: int) -> AddedFile:
    table = pa.table({"broker": ["a" if n % 2 else "b" for n in offsets], "physical_offset": list(offsets)})
    table = table.append_column("unique_key", pa.array([f"U{n}" for n in offsets]))
    table = table.append_column("keys", pa.nulls(len(offsets), pa.list_(pa.string())))
    path = Path(lake.uri("messages"), name)
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=rows_in_group)
    return AddedFile(str(path), name, "2026-11-20", 1, len(offsets))


@pytest.mark.parametrize(
    ("rows", "parts"), [(None, 1), (0, 1), (1, 1), (PIECE_ROWS, 1), (PIECE_ROWS + 1, 2), (5 * PIECE_ROWS, 5)]
)
def test_a_large_file_is_divided_into_pieces(rows: int | None, parts: int) -> None:
    pieces = divide_into_file_shares([AddedFile("/t/f", "f", None, 1, rows)])
    assert [(piece.part, piece.parts) for piece in pieces] == [(part, parts) for part in range(parts)]


def test_pieces_have_every_row_once_with_its_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "PIECE_ROWS", 300)
    lake = Lake(str(tmp_path))
    files = [_file(lake, "one", range(1000), 70), _file(lake, "two", range(1000, 1010), 70)]
    taken: list[Any] = []

    def keep(_client: object, batches: Any, _salts: int) -> int:
        taken.extend(row for batch in batches for row in batch.to_pylist())
        return len(taken)

    monkeypatch.setattr(work_module, "write_messages", keep)
    pieces = divide_into_file_shares(files)
    assert len(pieces) == 5
    for piece in pieces:
        RowWritingTask(HBaseOptions(batch_rows=50), 4, lake).process_file_shares([piece])
    assert sorted(row["physical_offset"] for row in taken) == list(range(1010))
    assert {str(row["store_date"]) for row in taken} == {"2026-11-20"}


def test_each_task_finds_current_credentials_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def open_files(uri: str, options: dict[str, str]) -> None:
        seen.append((uri, options["aws_secret_access_key"]))

    monkeypatch.setattr(versions, "table_filesystem", open_files)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "first")
    sent = pickle.dumps(RowWritingTask(HBaseOptions(), 4, Lake("s3://bucket/lake", S3Options())))
    assert b"first" not in sent
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "second")
    pickle.loads(sent).open_filesystem()
    assert seen == [("s3://bucket/lake/messages", "second")]


def test_rows_that_a_version_added_again_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path))
    removed = _file(lake, "old", range(100), 30)
    added = [_file(lake, "new", range(40), 30), _file(lake, "other", range(60, 90), 30)]
    work = RowWritingTask(HBaseOptions(), 4, lake)
    kept = find_kept_rows(work, AddedVersion(1, tuple(added), (removed,)))
    assert {broker: len(offsets) for broker, offsets in kept.all.items()} == {"a": 35, "b": 35}
    assert all(bool(np.all(np.diff(offsets) > 0)) for offsets in kept.all.values())
    gone: list[int] = []

    def delete(_client: object, batches: Any, _salts: int) -> int:
        gone.extend(offset for batch in batches for offset in batch.column("physical_offset").to_pylist())
        return len(gone)

    monkeypatch.setattr(work_module, "delete_messages", delete)
    assert work.to_deletion_except(kept).process_file_shares(divide_into_file_shares([removed])) == 30
    assert sorted(gone) == [*range(40, 60), *range(90, 100)]


def test_a_version_that_only_adds_has_no_kept_places(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    added = _file(lake, "new", range(10), 30)
    assert find_kept_rows(RowWritingTask(HBaseOptions(), 4, lake), AddedVersion(1, (added,))) == KeptRows({}, {})
