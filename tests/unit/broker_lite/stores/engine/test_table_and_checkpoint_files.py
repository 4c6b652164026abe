"""Tests of tables in one small file: JMQ's positions and RocketMQ's config files."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.stores.engine.table_and_checkpoint_files import FileWithBackup, SavedTable
from commitlake.broker_lite.stores.jmq.offset_file import OffsetFile
from commitlake.broker_lite.stores.rocketmq.config_files import ConsumerOffsets
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from tests.support.small_stores import Clock

PLACE = ConsumedQueue("orders", "mail", 0)


@dataclass(frozen=True)
class Kind:
    """A kind of table, with functions to set and read an offset."""

    table: Callable[[Path, Clock], SavedTable]
    put: Callable[[Any, int], None]
    get: Callable[[Any], int | None]


@pytest.fixture(
    params=[
        Kind(
            ConsumerOffsets,
            lambda table, offset: table.commit("orders", "mail", 0, offset),
            lambda table: table.get("orders", "mail", 0),
        ),
        Kind(
            OffsetFile,
            lambda table, offset: table.acknowledge(PLACE, offset),
            lambda table: found.ack if (found := table.find(PLACE)) else None,
        ),
    ],
    ids=["consumerOffset.json", "offset.json"],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return each table."""
    found: Kind = request.param
    return found


def saved(kind: Kind, root: Path, *offsets: int) -> SavedTable:
    """Return a table that was saved with each of these offsets, one after another."""
    table = kind.table(root, Clock())
    for offset in offsets:
        kind.put(table, offset)
        table.save_if_changed()
    return table


def test_a_table_without_a_file_is_empty(kind: Kind, root: Path) -> None:
    assert kind.get(kind.table(root, Clock())) is None


def test_a_save_keeps_the_previous_version(kind: Kind, root: Path) -> None:
    path = saved(kind, root, 2, 3).path
    assert kind.get(kind.table(root, Clock())) == 3
    path.unlink()
    assert kind.get(kind.table(root, Clock())) == 2


def test_an_unchanged_table_is_not_written(kind: Kind, root: Path) -> None:
    table = saved(kind, root, 2, 3)
    table.path.unlink()
    table.save_if_changed()
    assert not table.path.exists()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
def test_a_broken_file_is_replaced_by_its_backup(
    kind: Kind, root: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(kind, root, 2, 3).path
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert kind.get(kind.table(root, Clock())) == 2
    assert f"using {path.name}.bak instead" in caplog.text


def test_a_broken_file_with_a_broken_backup_is_an_error(kind: Kind, root: Path) -> None:
    table = saved(kind, root, 2, 3)
    table.path.write_bytes(b"{")
    table.backup.write_bytes(b"[]")
    with pytest.raises(StoreError, match=rf"{table.path}.*expected.*{table.backup}.*expected"):
        kind.table(root, Clock())


def test_a_failed_save_is_retried(kind: Kind, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = saved(kind, root, 2)
    kind.put(table, 3)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(FileWithBackup, "write", fail)
        with pytest.raises(OSError, match="No space"):
            table.save_if_changed()
    assert kind.get(kind.table(root, Clock())) == 2
    table.save_if_changed()
    assert kind.get(kind.table(root, Clock())) == 3


def test_threads_that_save_simultaneously_take_turns(kind: Kind, tmp_path: Path) -> None:
    table = saved(kind, tmp_path, 1)

    def save_often(_: int) -> None:
        for _ in range(100):
            table.save()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(save_often, range(4)))
    assert kind.get(kind.table(tmp_path, Clock())) == 1
    assert sorted(path.name for path in table.path.parent.iterdir()) == sorted([table.path.name, table.backup.name])


def test_a_file_that_is_kept_as_it_is_is_neither_written_nor_dated(kind: Kind, root: Path) -> None:
    table = saved(kind, root, 1)
    kind.put(table, 2)
    with ThreadPoolExecutor(1) as threads:
        with table.saved():
            kept = table.path.read_bytes()
            os.utime(table.path, ns=(0, 0))
            later = threads.submit(table.save_if_changed)
            with pytest.raises(TimeoutError):
                later.result(timeout=0.05)
            assert table.path.stat().st_mtime_ns == 0
        later.result()
    assert table.path.read_bytes() == kept
    assert kind.get(kind.table(root, Clock())) == 2
    assert table.path.stat().st_mtime_ns > 0
