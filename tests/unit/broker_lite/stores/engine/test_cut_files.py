"""Tests of files truncated by another process while the store is open: an error, and not a SIGBUS."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from commitlake.broker_lite.errors import StoreUnusableError
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError
from tests.support.message_stores import SMALL, fill, message


def newest(folder: Path) -> Path:
    """Return the last file of a folder, by its name."""
    return max(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/orders/0", "index"])
def test_a_truncated_file_fails_the_next_send(root: Path, folder: str) -> None:
    store = MessageStore.open(root, SMALL)
    fill(store, 4)
    path = newest(root / folder)
    size = path.stat().st_size
    os.truncate(path, 0)
    with pytest.raises(
        StoreError, match=f"{path.name}: expected {size} bytes, found 0: another process has truncated it"
    ):
        store.put(message(4))
    with suppress(StoreError):
        store.close()


def test_a_truncated_segment_fails_reads(root: Path) -> None:
    store = MessageStore.open(root, SMALL)
    fill(store, 4)
    os.truncate(newest(root / "commitlog"), 0)
    with pytest.raises(StoreUnusableError):
        store.get("orders", 0, 0)
    with suppress(StoreError):
        store.close()


def test_a_truncated_file_that_is_not_mapped_yet_is_an_error(root: Path) -> None:
    with MessageStore.open(root, SMALL) as store:
        fill(store, 4)
        store._files.mappings.unmap_all()
        path = newest(root / "consumequeue")
        size = path.stat().st_size
        os.truncate(path, 10)
        with pytest.raises(StoreUnusableError, match="found 10"):
            store.get("orders", 1, 0)
        os.truncate(path, size)
