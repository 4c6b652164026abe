"""Recovery of a store of either format on opening: after a clean end, after a crash, and with missing files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.small_stores import queue_bytes
from tests.support.store_formats import STORE_FORMATS, StoreFormat, bodies_of

COUNT = 60
"""Messages that fill two or three files of the log, and some of the queues."""
each_end = pytest.mark.parametrize("end", ["closed", "crashed"])


@pytest.fixture(params=STORE_FORMATS)
def known(request: pytest.FixtureRequest) -> StoreFormat:
    """Return each format of stores."""
    return STORE_FORMATS[request.param]


@each_end
def test_all_messages_are_recovered(known: StoreFormat, root: Path, end: str) -> None:
    assert known.bodies(known.write(root, COUNT, end)) == bodies_of(range(COUNT))


@each_end
def test_queue_offsets_and_log_positions_continue(known: StoreFormat, root: Path, end: str) -> None:
    known.write(root, COUNT, end)
    with known.open(root) as store:
        log_end = store.log_end
        results = known.fill(store, 4, COUNT)
    assert [result.queue_offset for result in results] == [30, 30, 31, 31]
    assert known.offset_of(results[0]) == log_end
    assert known.bodies(root) == bodies_of(range(COUNT + 4))


def test_missing_queues_are_rebuilt_with_the_same_bytes(known: StoreFormat, root: Path) -> None:
    known.write(root, COUNT)
    before = {path: path.read_bytes() for path in (root / known.queues).rglob("0000*")}
    shutil.rmtree(root / known.queues)
    assert known.bodies(root) == bodies_of(range(COUNT))
    assert {path: path.read_bytes() for path in (root / known.queues).rglob("0000*")} == before


@each_end
def test_one_missing_queue_is_rebuilt(known: StoreFormat, root: Path, end: str) -> None:
    known.write(root, COUNT, end)
    shutil.rmtree(root / known.queues / "orders" / "1")
    assert known.bodies(root) == bodies_of(range(COUNT))


@pytest.mark.parametrize("is_there", [True, False])
def test_queue_that_lost_its_tail_is_completed_after_a_crash(known: StoreFormat, root: Path, is_there: bool) -> None:
    known.write(root, COUNT, "crashed")
    before = queue_bytes(root / known.queues, "orders", 0)
    last = max((root / known.queues / "orders" / "0").iterdir())
    if is_there:
        last.write_bytes(bytes(last.stat().st_size))
    else:
        last.unlink()
    assert known.bodies(root) == bodies_of(range(COUNT))
    assert queue_bytes(root / known.queues, "orders", 0) == before


def test_torn_last_record_is_cut_and_its_queue_offset_reused(known: StoreFormat, root: Path) -> None:
    known.write(root, COUNT, "crashed")
    *_, last = known.read_log(root)
    file = max((root / known.log).iterdir())
    data = bytearray(file.read_bytes())
    end = known.offset_of(last) + last.size - int(file.name)
    data[end - last.size // 2 : end] = bytes(last.size // 2)
    file.write_bytes(data)
    assert known.bodies(root) == bodies_of(range(COUNT - 1))
    with known.open(root) as store:
        assert store.log_end == known.offset_of(last)
        result = known.put(store, COUNT - 1, last.queue_id)
    assert (result.queue_offset, known.offset_of(result)) == (last.queue_offset, known.offset_of(last))
    assert known.bodies(root) == bodies_of(range(COUNT))
