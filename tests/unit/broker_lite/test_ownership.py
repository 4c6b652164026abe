"""Who has a store open: `lock`, `abort`, and what a closed store answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import (
    MessageStore,
    StoreFilesError,
    StoreLockedError,
    StoreOptions,
    StoreUnusableError,
)
from tests.unit.broker_lite.builders import SMALL, crash, message

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
    """What another process says that opens the store."""
    command = [sys.executable, "-c", OTHER_PROCESS, str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_second_store_in_this_process_is_refused(root: Path) -> None:
    with MessageStore.open(root, SMALL) as store:
        with pytest.raises(StoreLockedError, match="expected to be the only one to open it, found it open in this"):
            MessageStore.open(root, SMALL)
        with pytest.raises(StoreLockedError):
            MessageStore.open(root / ".." / root.name, SMALL)
        store.put(message())
    MessageStore.open(root, SMALL).close()


def test_second_store_in_another_process_is_refused(root: Path) -> None:
    options = StoreOptions(segment_size_bytes=4096, keep_index=False)
    with MessageStore.open(root, options) as store:
        store.put(message())
        assert opened_elsewhere(root).startswith("locked: ")
        # The attempt took nothing from the one who has it.
        assert opened_elsewhere(root).startswith("locked: ")
        assert (root / "abort").read_text() == str(os.getpid())
    assert opened_elsewhere(root) == "opened\n"


def test_lock_file_says_lock_and_stays(root: Path) -> None:
    MessageStore.open(root, SMALL).close()
    assert (root / "lock").read_bytes() == b"lock"


def test_lock_is_given_back_when_opening_fails(root: Path) -> None:
    MessageStore.open(root, SMALL).close()
    wrong = root / "commitlog" / f"{0:020d}"
    wrong.write_bytes(b"short")
    for _ in range(2):
        with pytest.raises(StoreFilesError, match="found 5"):
            MessageStore.open(root, SMALL)
    wrong.unlink()
    MessageStore.open(root, SMALL).close()


def test_abort_holds_the_process_id_while_the_store_is_open(root: Path) -> None:
    with MessageStore.open(root, SMALL):
        assert (root / "abort").read_text() == str(os.getpid())
    assert not (root / "abort").exists()


def test_abort_stays_after_a_crash_and_is_seen(root: Path) -> None:
    crash(MessageStore.open(root, SMALL))
    assert (root / "abort").exists()
    with MessageStore.open(root, SMALL) as store:
        assert store.recovery.crashed
    with MessageStore.open(root, SMALL) as store:
        assert not store.recovery.crashed


def test_closed_store_answers_nothing_and_closes_twice(root: Path) -> None:
    store = MessageStore.open(root, SMALL)
    store.put(message())
    store.close()
    store.close()
    for use in (
        lambda: store.put(message()),
        lambda: store.put_batch([message()]),
        lambda: store.get("orders", 0, 0),
        lambda: store.get_by_key("orders", "order-0"),
        lambda: store.max_physical_offset,
    ):
        with pytest.raises(StoreUnusableError, match="expected an open store, found it closed"):
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
