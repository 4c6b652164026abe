"""Tests of the common behaviour of open stores of both layouts: ownership, queue offsets, and failures."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.broker_lite.errors import StoreFilesError, StoreLockedError, StoreUnusableError
from commitlake.broker_lite.stores.engine.options import FlushMode
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.message_stores import BORN_MS
from tests.support.small_stores import Clock, crash
from tests.support.store_formats import FILE_SIZE, STORE_FORMATS, StoreFormat, bodies_of

QUEUE_CLASSES = {"rocketmq": "rocketmq.consume_queue.ConsumeQueue", "jmq": "jmq.queues.JournalQueue"}


@pytest.fixture(params=STORE_FORMATS)
def layout(request: pytest.FixtureRequest) -> StoreFormat:
    """Return each format of stores."""
    return STORE_FORMATS[request.param]


def test_second_store_in_this_process_is_refused(layout: StoreFormat, root: Path) -> None:
    with layout.open(root) as store:
        with pytest.raises(StoreLockedError, match="the store is open in this"):
            layout.open(root)
        with pytest.raises(StoreLockedError):
            layout.open(root / ".." / root.name)
        store.put(layout.build.message())
    layout.open(root).close()


def test_lock_is_released_when_opening_fails(layout: StoreFormat, root: Path) -> None:
    layout.open(root).close()
    wrong = root / layout.log / segment_name(0)
    wrong.write_bytes(b"short")
    for _ in range(2):
        with pytest.raises(StoreFilesError, match="found 5"):
            layout.open(root)
    wrong.unlink()
    layout.open(root).close()


def test_abort_holds_the_process_id_while_the_store_is_open(layout: StoreFormat, root: Path) -> None:
    with layout.open(root):
        assert (root / "abort").read_text() == str(os.getpid())
    assert not (root / "abort").exists()


def test_abort_stays_after_a_crash_and_is_detected(layout: StoreFormat, root: Path) -> None:
    crash(layout.open(root))
    assert (root / "abort").exists()
    with layout.open(root) as store:
        assert store.recovery.crashed
    with layout.open(root) as store:
        assert not store.recovery.crashed


def test_closed_store_refuses_every_use_but_can_be_closed_again(layout: StoreFormat, root: Path) -> None:
    store, message = layout.open(root), layout.build.message()
    store.put(message)
    store.close()
    store.close()
    uses: list[Callable[[], object]] = [
        lambda: store.put(message),
        lambda: store.put_batch([message]),
        lambda: store.get("orders", 0, 0),
        lambda: store.get_at(0),
        lambda: store.max_offset("orders", 0),
        lambda: store.queues,
    ]
    for use in uses:
        with pytest.raises(StoreUnusableError, match="the store is closed"):
            use()


def test_files_of_another_size_are_refused_with_the_option_to_open_them(layout: StoreFormat, root: Path) -> None:
    with layout.open(root) as store:
        layout.fill(store, 60)
    before = sorted(root.rglob("*"))
    for option in (layout.log_option, layout.queue_option):
        size = getattr(layout.options, option)
        with pytest.raises(
            StoreFilesError, match=f"expected a size of {2 * size} .*open the store with {option}={size}"
        ):
            layout.open(root, **{option: 2 * size})
    assert set(before) <= set(root.rglob("*"))
    assert layout.bodies(root) == bodies_of(range(60))


def test_missing_file_between_two_is_an_error(layout: StoreFormat, root: Path) -> None:
    with layout.open(root) as store:
        layout.fill(store, 90)
    (root / layout.log / segment_name(FILE_SIZE)).unlink()
    with pytest.raises(
        StoreFilesError, match=f"the file {segment_name(FILE_SIZE)}, which belongs before it, is missing"
    ):
        layout.open(root)


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_empty_last_file_is_removed(layout: StoreFormat, root: Path, end: str) -> None:
    layout.write(root, 20, end)
    following = int(max((root / layout.log).iterdir()).name) + FILE_SIZE
    (root / layout.log / segment_name(following)).touch()
    assert layout.bodies(root) == bodies_of(range(20))


def test_queues_find_messages_by_number_and_by_time(layout: StoreFormat, root: Path) -> None:
    clock = Clock(BORN_MS)
    with layout.open(root, clock) as store:
        for number in range(0, 40, 2):
            clock.now_ms = BORN_MS + number
            layout.fill(store, 2, number)
        assert store.queues == [("orders", 0), ("orders", 1)]
        assert store.queue_offset_range("orders", 1) == range(20)
        assert store.queue_offset_range("unknown", 0) == range(0)
        for after_ms, offset in ((-1, 0), (0, 0), (1, 1), (7, 4), (8, 4), (38, 19), (39, 20)):
            assert store.offset_by_time("orders", 1, BORN_MS + after_ms) == offset
        assert store.offset_by_time("unknown", 0, 0) == 0


def test_arrivals_are_reported_once(layout: StoreFormat, root: Path) -> None:
    with layout.open(root) as store:
        layout.fill(store, 3)
        assert store.take_queues_with_new_messages() == {("orders", 0), ("orders", 1)}
        assert store.take_queues_with_new_messages() == set()


def test_an_arrival_that_a_writer_adds_while_they_are_taken_is_reported_next_time(
    layout: StoreFormat, root: Path
) -> None:
    with layout.open(root) as store:
        layout.fill(store, 1)
        arrived = store._writer.arrived  # a writer has the set, and will add to it
        taken = store.take_queues_with_new_messages()
        arrived.add(("late", 0))
        assert ("late", 0) not in taken
        assert store.take_queues_with_new_messages() == {("late", 0)}


def test_failed_sync_makes_the_store_unusable_and_keeps_abort(
    layout: StoreFormat, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = layout.open(root, flush_mode=FlushMode.SYNC)
    layout.fill(store, 2)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreUnusableError, match=r"cannot write .* to disk: .*Input/output error"):
            layout.fill(store, 1, 2)
    # A later successful sync would not prove that the lost pages were written.
    with pytest.raises(StoreUnusableError, match=r"cannot be used until it is opened again, .*Input/output error"):
        layout.fill(store, 1, 3)
    store.close()
    assert (root / "abort").exists()
    with layout.open(root) as again:
        assert again.recovery.crashed
        assert again.max_offset("orders", 0) + again.max_offset("orders", 1) == 3


def test_failed_queue_write_makes_the_store_unusable_until_recovery(
    layout: StoreFormat, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = layout.open(root)
    layout.fill(store, 2)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(f"commitlake.broker_lite.stores.{QUEUE_CLASSES[layout.name]}.append", fail)
        with pytest.raises(StoreUnusableError, match=r"the message at \d+ is in the \w+, but not in its queue"):
            layout.fill(store, 1, 2)
    with pytest.raises(StoreUnusableError, match="No space left on device"):
        layout.fill(store, 1, 3)
    store.close()
    with layout.open(root) as again:
        assert [got.body for got in again.get("orders", 0, 0).messages] == [b"body 0", b"body 2"]
        assert layout.put(again, 3).queue_offset == 2
