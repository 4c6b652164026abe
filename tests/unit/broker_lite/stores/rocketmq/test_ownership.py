"""Tests of the ownership of a store: `lock`, `abort`, and errors of a closed store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import (
    MessageStore,
    StoreOptions,
    StoreUnusableError,
)
from tests.support.message_stores import SMALL, message

OTHER_PROCESS = """
import sys
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreLockedError, StoreOptions
try:
    MessageStore.open(sys.argv[1], StoreOptions(segment_size_bytes=4096, keep_index=False)).close()
except StoreLockedError as error:
    print("locked:", error)
else:
    print("opened")
"""


def opened_elsewhere(root: Path) -> str:
    """Return the output of another process that opens the store."""
    command = [sys.executable, "-c", OTHER_PROCESS, str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_second_store_in_another_process_is_refused(root: Path) -> None:
    options = StoreOptions(segment_size_bytes=4096, keep_index=False)
    with MessageStore.open(root, options) as store:
        store.put(message())
        assert opened_elsewhere(root).startswith("locked: ")
        # The attempt did not affect the owner.
        assert opened_elsewhere(root).startswith("locked: ")
        assert (root / "abort").read_text() == str(os.getpid())
    assert opened_elsewhere(root) == "opened\n"


def test_lock_file_contains_lock_and_is_kept(root: Path) -> None:
    MessageStore.open(root, SMALL).close()
    assert (root / "lock").read_bytes() == b"lock"


def test_lookups_in_a_closed_store_are_an_error(root: Path) -> None:
    store = MessageStore.open(root, SMALL)
    store.put(message())
    store.close()
    for use in (lambda: store.get_by_key("orders", "order-0"), lambda: store.max_physical_offset):
        with pytest.raises(StoreUnusableError, match="the store is closed"):
            use()


def test_new_store_has_the_folders_of_a_broker(root: Path) -> None:
    MessageStore.open(root, SMALL).close()
    assert sorted(path.name for path in root.iterdir()) == [
        "checkpoint",
        "commitlog",
        "config",
        "consumequeue",
        "index",
        "lock",
    ]
