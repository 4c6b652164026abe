"""A checkpoint that another program has written cannot fill the memory of a reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.lake.delta import open_delta_table, seal_log_after_commit
from commitlake.connectors.lake.delta_log import checkpoint_check
from commitlake.connectors.lake.delta_log.check import LogDamagedError, check_log_sizes, find_log_damage
from commitlake.connectors.lake.delta_log.checkpoint_check import find_checkpoint_fault
from commitlake.connectors.lake.delta_log.files import LogFolder

VERSIONS = 3
APP = pa.struct([("appId", pa.string()), ("version", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A sealed table, with a checkpoint that is not sealed."""
    path = tmp_path / "table"
    for number in range(VERSIONS):
        write_deltalake(path, pa.table({"number": [number]}), mode="append")
    seal_log_after_commit(str(path))
    DeltaTable(path).create_checkpoint()
    return path


def checkpoint_of(table: Path) -> Path:
    (file,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    return file


def applications(count: int, name: str) -> pa.Table:
    """Return rows with the name of one application, which Parquet stores once."""
    values = [pa.repeat(name, count), pa.repeat(1, count)]
    return pa.table({"txn": pa.StructArray.from_arrays(values, fields=list(APP))})


def test_a_checkpoint_of_another_program_is_read(table: Path) -> None:
    assert open_delta_table(str(table)).version() == VERSIONS - 1
    assert find_checkpoint_fault(checkpoint_of(table).read_bytes()) == ""


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (applications(60_000, ""), "expected at most 100,000 values, found 120,000: another program has written it"),
        (applications(2_000, "x" * 1000), "expected at most 1,000,000 bytes of decoded rows, found more"),
        (pa.table({"sidecar": pa.array([{"path": "more"}])}), "found names of others that have them"),
    ],
)
def test_a_checkpoint_that_would_fill_the_memory_is_refused_before_a_reader_decodes_it(
    table: Path, rows: pa.Table, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_check, "MAX_CHECKPOINT_VALUES", 100_000)
    monkeypatch.setattr(checkpoint_check, "MAX_CHECKPOINT_BYTES", 1_000_000)
    pq.write_table(rows, checkpoint_of(table))
    assert checkpoint_of(table).stat().st_size < 100_000
    with pytest.raises(LogDamagedError, match=reason):
        check_log_sizes(str(table), None, LogFolder(str(table)).list_entry_files())
    damages = [*find_log_damage(LogFolder(str(table)))]
    assert [damage.name for damage in damages] == [checkpoint_of(table).name]


def test_a_sealed_checkpoint_may_have_any_size(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_check, "MAX_CHECKPOINT_VALUES", 1)
    write_deltalake(table, pa.table({"number": [9]}), mode="append")
    seal_log_after_commit(str(table))
    assert open_delta_table(str(table)).version() == VERSIONS
