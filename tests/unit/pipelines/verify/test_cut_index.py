"""An index file that is truncated while it is read is a finding or an error, and does not end the process (SIGBUS)."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq import indexes
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.store_files import open_store_files
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.verify import index_chains, index_check
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from tests.support.indexed_stores import OPTIONS, write_indexed_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with index files."""
    return write_indexed_store(tmp_path / "a", 200)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_an_index_truncated_during_verify_is_a_finding(
    store: Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool
) -> None:
    path = sorted((store / "index").iterdir())[1]
    size = path.stat().st_size
    check = index_chains.check_chains
    if is_mapped:

        def cut_and_check(*arguments: Any) -> None:
            os.truncate(path, 0)
            check(*arguments)

        monkeypatch.setattr(index_chains, "check_chains", cut_and_check)
    else:
        monkeypatch.setattr(index_check, "Mapping", SimpleNamespace(map_file=lambda *_: os.truncate(path, 100)))
    (report,) = verify_stores(find_stores(str(store), "a", formats=COMMITLOGS), VerifyOptions())
    found = [
        each for each in report.findings.kept["index_file_size"] if each.place_text.startswith(f"index/{path.name}")
    ]
    assert [(each.found, each.expected) for each in found] == [
        ("0 bytes" if is_mapped else "100 bytes", f"{size} bytes, as when it was opened")
    ]


def test_an_index_truncated_during_dump_is_an_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "CHUNK_ENTRIES", 10)
    entries = indexes.walk_index_files(open_store_files(str(store)), OPTIONS.index_geometry)
    next(entries)
    path = min((store / "index").iterdir())
    os.truncate(path, path.stat().st_size - 100)
    with pytest.raises(StoreError, match=f"{path.name}: expected .* the file was truncated while it was read"):
        list(entries)
