"""Tests of fetching: the folder equals the store that was shipped, also if it is fetched while the copy grows."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.shipping.ship_target import ShipError
from commitlake.pipelines.ship import shipped_store_fetch
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.shipped_store_fetch import Fetcher
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, parse_manifest, serialize_manifest
from tests.support.exit_codes import exits
from tests.support.ship_targets import MemoryTarget, copied_files, folder_target
from tests.support.store_formats import JMQ, ROCKETMQ, StoreFormat

SETTINGS = ShipSettings("b", part_bytes=1500, full_part_bytes=1000, merged_count=3)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch in small parts, and do not wait for the disk."""
    monkeypatch.setattr(shipped_store_fetch, "_PART_BYTES", 700)
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def fetch_to(folder: Path, source: MemoryTarget) -> int:
    """Fetch a copy, and return the number of new bytes."""
    with closing(folder_target(folder)) as target:
        fetcher = Fetcher(source, target)
        left = fetcher.count_missing_bytes()
        fetcher.fetch_missing_files()
    assert fetcher.new_bytes >= left
    return fetcher.new_bytes


@pytest.mark.parametrize("layout", [ROCKETMQ, JMQ], ids=lambda layout: layout.name)
def test_folder_follows_a_copy_that_grows(tmp_path: Path, layout: StoreFormat) -> None:
    source, store = MemoryTarget(), layout.open(tmp_path / "store")
    agent = ShipAgent(SourceStore(str(tmp_path / "store")), source, SETTINGS)
    for number in range(8):
        layout.fill(store, 9, 9 * number)
        layout.note_progress(store)
        agent.ship_round()
        fetch_to(tmp_path / "folder", source)
        folder = folder_target(tmp_path / "folder")
        assert copied_files(folder) == copied_files(source)
        folder.close()
    assert fetch_to(tmp_path / "folder", source) == 0
    store.close()


def test_changed_copy_and_other_folder_are_refused(tmp_path: Path) -> None:
    ROCKETMQ.write(tmp_path / "store", 60)
    source = MemoryTarget()
    with pytest.raises(ShipError, match=r"no manifest shipped/log.json"):
        fetch_to(tmp_path / "folder", source)
    ShipAgent(SourceStore(str(tmp_path / "store")), source, SETTINGS).ship_round()
    with pytest.raises(ShipError, match="not fetched", check=exits(ExitCode.REFUSED)):
        fetch_to(tmp_path / "store", source)
    first = min(parse_manifest(source.objects[LOG_MANIFEST], "").files)
    data = source.objects[first]
    source.objects[first] = data[:-1] + b"\1"
    with pytest.raises(ShipError, match="CRC-32"):
        fetch_to(tmp_path / "folder", source)
    source.objects[first] = data[:-1]
    with pytest.raises(ShipError, match="found fewer"):
        fetch_to(tmp_path / "folder", source)
    del source.objects[first]
    with pytest.raises(ShipError, match="missing"):
        fetch_to(tmp_path / "folder", source)
    source.objects[first] = data
    fetch_to(tmp_path / "folder", source)
    assert (tmp_path / "folder" / first).read_bytes() == data


def test_the_copy_of_another_store_and_one_that_changed_after_it_was_complete_are_refused(tmp_path: Path) -> None:
    source, other = MemoryTarget(), MemoryTarget()
    for name, target in (("b", source), ("c", other)):
        ROCKETMQ.write(tmp_path / name, 60)
        ShipAgent(SourceStore(str(tmp_path / name)), target, replace(SETTINGS, broker=name)).ship_round()
    fetch_to(tmp_path / "folder", source)
    with pytest.raises(
        ShipError, match="contains the copy of 'b', expected that of 'c'", check=exits(ExitCode.REFUSED)
    ):
        fetch_to(tmp_path / "folder", other)
    manifest = parse_manifest(source.objects[LOG_MANIFEST], "")
    sealed = next(entry for entry in manifest.files.values() if entry.is_sealed)
    changed = replace(sealed, crc=(sealed.crc or 0) ^ 1)
    source.objects[LOG_MANIFEST] = serialize_manifest(manifest.with_file(changed))
    with pytest.raises(ShipError, match=f"{sealed.name} differs from the copy's file", check=exits(ExitCode.REFUSED)):
        fetch_to(tmp_path / "folder", source)
