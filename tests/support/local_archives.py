"""A store and its lake, made on this machine, which jobs that run elsewhere must reproduce."""

from __future__ import annotations

from pathlib import Path

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.jobs.archive import command as archive
from tests.support.lake_contents import bodies, content, minutes
from tests.support.logs import messages

SEGMENT_BYTES = 1 << 18
MESSAGES = 3000
OPTIONS = StoreOptions(segment_size_bytes=SEGMENT_BYTES, index_slots=1000, index_entries=4000)


def write_messages(folder: Path, count: int = MESSAGES) -> None:
    """Make a store with a number of messages."""
    with MessageStore.open(folder, OPTIONS) as store:
        for message in messages(count, seed=4):
            store.put(message)


def archive_here(folder: Path, count: int = MESSAGES) -> Path:
    """Make the store `store` of broker `a` with a number of messages, and its lake `here`; return the folder."""
    write_messages(folder / "store", count)
    places = ["--store", str(folder / "store"), "--broker", "a", "--lake", str(folder / "here")]
    assert archive.main([*places, "--local", "--quiet"]) == 0
    return folder


def check_equal(lake: Path, here: Path, count: int = MESSAGES) -> None:
    """Check that a lake has a number of messages, and the same rows, counts and bodies as the one made here."""
    found, wanted = content(lake), content(here)
    assert found.keys() == wanted.keys()
    for name, table in wanted.items():
        assert found[name].equals(table), name
    assert minutes(lake).equals(minutes(here))
    assert bodies(lake) == bodies(here)
    assert found["messages"].num_rows == count
