"""Tests of appending to the log: ends of segments, and the bytes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageRefusedError, MessageStore, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK
from tests.support.message_stores import log_records, message
from tests.support.small_stores import Clock

SEGMENT = 1024
OPTIONS = StoreOptions(segment_size_bytes=SEGMENT, keep_index=False)


def size_of(body: bytes) -> int:
    """Return the size of the record of `sized`, for an IPv4 host and the topic `orders`."""
    return 91 + len(body) + len("orders")


def sized(size: int) -> bytes:
    """Return a body that makes a record of this size."""
    return b"x" * (size - size_of(b""))


def put_sizes(root: Path, *sizes: int) -> list[int]:
    """Put records of these sizes, and return their physical offsets."""
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        return [store.put(message(body=sized(size), properties=())).physical_offset for size in sizes]


def tail(root: Path, position: int) -> tuple[int, int]:
    """Return the first two fields at a position of the first segment."""
    found: tuple[int, int] = BLANK.unpack((root / "commitlog" / f"{0:020d}").read_bytes(), position)
    return found


def test_record_may_end_8_bytes_before_the_segment_does(root: Path) -> None:
    assert put_sizes(root, 500, SEGMENT - 8 - 500, 200) == [0, 500, SEGMENT]
    assert tail(root, SEGMENT - 8) == (8, Magic.BLANK)


def test_record_that_would_leave_7_bytes_is_written_to_the_next_segment(root: Path) -> None:
    assert put_sizes(root, 500, SEGMENT - 7 - 500) == [0, SEGMENT]
    assert tail(root, 500) == (SEGMENT - 500, Magic.BLANK)


def test_only_8_bytes_of_a_blank_are_written(root: Path) -> None:
    put_sizes(root, 500, 600)
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    assert data[508:] == bytes(SEGMENT - 508)


def test_segments_have_their_full_size_and_their_offset_as_name(root: Path) -> None:
    put_sizes(root, 600, 600, 600)
    assert {path.name: path.stat().st_size for path in (root / "commitlog").iterdir()} == {
        f"{number * SEGMENT:020d}": SEGMENT for number in range(3)
    }


def test_record_as_large_as_a_segment_allows_is_accepted(root: Path) -> None:
    assert put_sizes(root, SEGMENT - 8, SEGMENT - 8) == [0, SEGMENT]


def test_record_that_fits_into_no_segment_is_refused_and_changes_nothing(root: Path) -> None:
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        store.put(message(body=sized(600), properties=()))
        with pytest.raises(
            MessageRefusedError, match="expected a record of at most 1016 bytes for a message, found 1017"
        ):
            store.put(message(body=sized(SEGMENT - 7), properties=()))
        assert store.max_physical_offset == 600
        assert store.max_offset("orders", 0) == 1


def test_batch_that_does_not_fit_is_written_whole_to_the_next_segment(root: Path) -> None:
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        store.put(message(body=sized(700), properties=()))
        results = store.put_batch([message(body=sized(200), properties=()) for _ in range(3)])
    assert [result.physical_offset for result in results] == [1024, 1224, 1424]
    # Its first record alone would have fitted.
    assert tail(root, 700) == (SEGMENT - 700, Magic.BLANK)


def test_batch_that_fits_exactly_is_written_to_the_same_segment(root: Path) -> None:
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        store.put(message(body=sized(400), properties=()))
        results = store.put_batch([message(body=sized(308), properties=()) for _ in range(2)])
    assert [result.physical_offset for result in results] == [400, 708]


def test_batch_that_fits_into_no_segment_is_refused(root: Path) -> None:
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        with pytest.raises(MessageRefusedError, match="1200 bytes, expected at most 1016, which fit in a file of 1024"):
            store.put_batch([message(body=sized(600), properties=()) for _ in range(2)])
        assert store.max_physical_offset == 0


def test_messages_of_a_batch_have_consecutive_queue_offsets_and_one_store_time(root: Path, store: MessageStore) -> None:
    store.put(message(0))
    results = store.put_batch([message(number) for number in (1, 2, 3)])
    assert [result.queue_offset for result in results] == [1, 2, 3]
    assert len({result.store_timestamp for result in results}) == 1
    assert [record.queue_offset for record in log_records(root)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("transaction_type", "queue_offset"), [(0x0, 1), (0x4, 0), (0x8, 1), (0xC, 0)])
def test_prepared_and_rolled_back_records_are_in_no_queue(
    root: Path, store: MessageStore, transaction_type: int, queue_offset: int
) -> None:
    store.put(message(0))
    store.put(message(1, sys_flag=transaction_type))
    store.put(message(2))
    first, second, third = log_records(root)
    assert (first.queue_offset, second.queue_offset, third.queue_offset) == (0, queue_offset, queue_offset + 1)
    assert store.max_offset("orders", 0) == queue_offset + 2
