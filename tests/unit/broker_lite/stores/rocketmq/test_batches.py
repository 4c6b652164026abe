"""Tests of batches written at once: the files are the same as for single messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from tests.support.message_stores import SMALL, message
from tests.support.small_stores import Clock

OPTIONS = replace(SMALL, segment_size_bytes=1 << 16, max_message_size_bytes=1 << 14)
"""A batch stands in one segment; single messages fill the rest of one."""
PER_INDEX_FILE = SMALL.index_geometry.entries - 1


def files_of(root: Path) -> dict[str, bytes]:
    """Return the bytes of log, queues and index."""
    folders = ("commitlog", "consumequeue", "index")
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("keyless", [set(), {3}, {0, 7}, set(range(8))], ids=str)
@pytest.mark.parametrize("together", [2, 7, 8, 30])
def test_a_batch_writes_the_same_files_as_single_messages(tmp_path: Path, together: int, keyless: set[int]) -> None:
    messages = [message(number) for number in range(60)]
    messages = [replace(each, properties=()) if at % 8 in keyless else each for at, each in enumerate(messages)]
    with MessageStore.open(tmp_path / "single", OPTIONS, clock=Clock()) as store:
        single = [store.put(each) for each in messages]
    with MessageStore.open(tmp_path / "batch", OPTIONS, clock=Clock()) as store:
        batches = [store.put_batch(messages[at : at + together]) for at in range(0, len(messages), together)]
    assert [result for batch in batches for result in batch] == single
    assert files_of(tmp_path / "batch") == files_of(tmp_path / "single")


def test_a_batch_that_fills_the_index_and_ends_without_keys_begins_the_next_file(tmp_path: Path) -> None:
    keys = " ".join(f"k{number}" for number in range(PER_INDEX_FILE))
    messages = [message(0, properties=(("KEYS", keys),)), message(1, properties=())]
    with MessageStore.open(tmp_path, OPTIONS, clock=Clock()) as store:
        store.put_batch(messages)
    assert len(list((tmp_path / "index").iterdir())) == 2
