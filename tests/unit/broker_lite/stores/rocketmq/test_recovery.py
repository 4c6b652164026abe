"""Recovery of a RocketMQ store on opening: its index, damage that ends its log, and missing files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.broker_lite.stores.rocketmq.store_files import CheckpointFile
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, serialize_message
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, PRE_BLANK
from commitlake.schemas.layouts.rocketmq.indexfile import HEADER
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.message_stores import BROKER, SMALL, fill, log_records, message, queue_entries
from tests.support.small_stores import STORED_MS, Clock, crash
from tests.support.store_formats import ROCKETMQ, bodies_of

COUNT = 60
"""Messages that fill three segments and some queue and index files."""


def test_clean_store_is_read_from_its_last_record_only(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    with MessageStore.open(root, SMALL) as store:
        assert not store.recovery.crashed
        assert store.recovery.records == 1
        assert store.recovery.log_end == store.max_physical_offset
        assert store.recovery.stopped_by.endswith("found 00000000")


def test_crashed_store_is_read_from_a_segment_covered_by_the_checkpoint(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    (root / "abort").touch()
    checkpoint = CheckpointFile(root)
    last_index = max((root / "index").iterdir()).name
    checkpoint.update(
        physic_msg_timestamp=STORED_MS + 3000, logics_msg_timestamp=STORED_MS + 3000, index_msg_timestamp=STORED_MS
    )
    checkpoint.save()
    with ROCKETMQ.open(root) as store:
        assert store.recovery.crashed
        assert store.recovery.start == max(store._files.log.files.file_starts)
        assert max((root / "index").iterdir()).name == last_index


def test_crashed_store_without_a_usable_checkpoint_is_read_from_the_beginning(root: Path) -> None:
    ROCKETMQ.write(root, COUNT, "crashed")
    assert not (root / "checkpoint").exists()
    with ROCKETMQ.open(root) as store:
        assert (store.recovery.start, store.recovery.records) == (0, COUNT)


def test_index_files_not_covered_by_the_checkpoint_are_deleted_after_a_crash(root: Path) -> None:
    ROCKETMQ.write(root, COUNT, "crashed")
    old = {path.name for path in (root / "index").iterdir()}
    # A later time than that of the old files, so that new names differ.
    with MessageStore.open(root, SMALL, clock=Clock(STORED_MS + 1000)) as store:
        assert old.isdisjoint(path.name for path in (root / "index").iterdir())
        assert len(store.get_by_key("orders", "order-0")) == 1


def test_missing_index_is_rebuilt_with_the_same_bytes(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    before = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    shutil.rmtree(root / "index")
    assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT))
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == before


def test_index_is_completed_after_the_store_was_used_without_it(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    with MessageStore.open(root, replace(SMALL, keep_index=False), clock=Clock()) as store:
        fill(store, 10, start=COUNT)
    assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT + 10))


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_queues_and_index_are_truncated_with_a_log_that_lost_its_tail(root: Path, end: str) -> None:
    ROCKETMQ.write(root, COUNT, end)
    last = max((root / "commitlog").iterdir())
    last.write_bytes(bytes(SMALL.segment_size_bytes))
    kept = len(list(log_records(root)))
    assert kept < COUNT
    assert ROCKETMQ.bodies(root) == bodies_of(range(kept))
    with ROCKETMQ.open(root) as store:
        fill(store, COUNT - kept, start=kept)
    assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT))


def torn(root: Path, cut: Callable[[bytearray, int, int], None]) -> int:
    """Damage the last record of a crashed store; return the number of intact records."""
    ROCKETMQ.write(root, COUNT, "crashed")
    *_, record = log_records(root)
    segment = max((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    position = record.physical_offset - int(segment.name)
    cut(data, position, record.size)
    segment.write_bytes(data)
    return COUNT - 1


def zero_tail(data: bytearray, position: int, size: int) -> None:
    data[position + size // 2 :] = bytes(len(data) - position - size // 2)


def flip_body(data: bytearray, position: int, size: int) -> None:
    data[position + 90] ^= 1


def claim_more(data: bytearray, position: int, size: int) -> None:
    data[position : position + 4] = (1 << 30).to_bytes(4, "big")


def negative_size(data: bytearray, position: int, size: int) -> None:
    data[position : position + 4] = b"\xff\xff\xff\xf0"


def foreign_magic(data: bytearray, position: int, size: int) -> None:
    data[position + 4 : position + 8] = b"\x12\x34\x56\x78"


def other_place(data: bytearray, position: int, size: int) -> None:
    at = position + HEAD.offset_of("physical_offset")
    data[at : at + 8] = (7).to_bytes(8, "big")


@pytest.mark.parametrize("cut", [zero_tail, flip_body, claim_more, negative_size, foreign_magic, other_place])
def test_log_ends_before_a_damaged_record(root: Path, cut: Callable[[bytearray, int, int], None]) -> None:
    whole = torn(root, cut)
    assert ROCKETMQ.bodies(root) == bodies_of(range(whole))
    with ROCKETMQ.open(root) as store:
        assert store.put(message(whole, queue_id=whole % 2)).queue_offset == whole // 2
    assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT))


def test_bytes_after_the_end_of_the_log_are_left_unchanged(root: Path) -> None:
    torn(root, flip_body)
    segment = max((root / "commitlog").iterdir())
    before = segment.read_bytes()
    MessageStore.open(root, SMALL).close()
    assert segment.read_bytes() == before


def test_old_records_do_not_reappear_after_a_new_one_of_the_same_size(root: Path) -> None:
    ROCKETMQ.write(root, COUNT, "crashed")
    segment = min((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    third = list(log_records(root))[2]
    data[third.physical_offset + 90] ^= 1
    segment.write_bytes(data)
    with ROCKETMQ.open(root) as store:
        result = store.put(message(2, queue_id=0))
        assert (result.physical_offset, result.size) == (third.physical_offset, third.size)
    for end in (crash, MessageStore.close):
        end(ROCKETMQ.open(root))
        assert ROCKETMQ.bodies(root) == bodies_of(range(3))


def test_old_queue_entries_do_not_reappear_when_the_log_has_grown(root: Path) -> None:
    ROCKETMQ.write(root, COUNT, "crashed")
    segment = min((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[list(log_records(root))[4].physical_offset + 90] ^= 1
    segment.write_bytes(data)
    with ROCKETMQ.open(root) as store:
        # All for one queue, until the log is longer than before: the other queue keeps its file.
        for number in range(4, 80):
            store.put(message(number, queue_id=0))
    for end in (crash, MessageStore.close):
        end(ROCKETMQ.open(root))
        with ROCKETMQ.open(root) as store:
            assert (store.max_offset("orders", 0), store.max_offset("orders", 1)) == (78, 2)
    assert ROCKETMQ.bodies(root) == bodies_of(range(80))


def test_segments_after_the_end_of_the_log_are_deleted(root: Path) -> None:
    ROCKETMQ.write(root, COUNT, "crashed")
    first = root / "commitlog" / segment_name(0)
    data = bytearray(first.read_bytes())
    data[90] ^= 1
    first.write_bytes(data)
    assert ROCKETMQ.bodies(root) == []
    assert [path.name for path in (root / "commitlog").iterdir()] == []
    with ROCKETMQ.open(root) as store:
        assert store.put(message()).physical_offset == 0


def test_preallocated_empty_segment_is_not_an_error(root: Path) -> None:
    # A broker makes the next segment before it needs it.
    ROCKETMQ.write(root, COUNT)
    following = int(max((root / "commitlog").iterdir()).name) + SMALL.segment_size_bytes
    (root / "commitlog" / segment_name(following)).write_bytes(bytes(SMALL.segment_size_bytes))
    assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT))


def test_log_that_ends_in_a_blank_continues_in_the_next_segment(root: Path) -> None:
    ROCKETMQ.write(root, COUNT, "crashed")
    # Crashed after the BLANK, before the record that it made room for.
    max((root / "commitlog").iterdir()).unlink()
    kept = len(list(log_records(root)))
    with ROCKETMQ.open(root) as store:
        result = store.put(message(kept, queue_id=kept % 2))
    assert result.physical_offset % SMALL.segment_size_bytes == 0
    assert ROCKETMQ.bodies(root) == bodies_of(range(kept + 1))


def test_log_without_its_expired_first_segments_is_read_from_its_start(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    gone = root / "commitlog" / segment_name(0)
    expired = sum(1 for record in log_records(root) if record.physical_offset < SMALL.segment_size_bytes)
    gone.unlink()
    with ROCKETMQ.open(root) as store:
        assert store.min_physical_offset == SMALL.segment_size_bytes
        assert store.min_offset("orders", 0) == (expired + 1) // 2
        assert store.get_by_key("orders", "order-0") == []
    assert ROCKETMQ.bodies(root) == bodies_of(range(expired, COUNT))


def test_queues_of_a_log_that_begins_late_are_rebuilt_with_filler(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    (root / "commitlog" / segment_name(0)).unlink()
    shutil.rmtree(root / "consumequeue")
    expired = COUNT - len(list(log_records(root)))
    assert ROCKETMQ.bodies(root) == bodies_of(range(expired, COUNT))
    first = (expired + 1) // 2
    entries = queue_entries(root, "orders", 0)
    assert entries[: first % 8] == [PRE_BLANK] * (first % 8)
    with ROCKETMQ.open(root) as store:
        assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (first, COUNT // 2)


def test_empty_log_empties_queues_and_index(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    shutil.rmtree(root / "commitlog")
    assert ROCKETMQ.bodies(root) == []
    with ROCKETMQ.open(root) as store:
        assert store.put(message()).queue_offset == 0
        assert len(store.get_by_key("orders", "order-0")) == 1


def test_topics_that_no_broker_accepts_get_no_folder(root: Path, tmp_path: Path) -> None:
    MessageStore.open(root, SMALL).close()
    records, offset = [], 0
    for number, topic in enumerate(("../../escaped", "orders", "a/b", "..")):
        record = serialize_message(
            message(number, topic), queue_offset=0, physical_offset=offset, store_timestamp=STORED_MS, store_host=BROKER
        )
        records.append(record)
        offset += len(record)
    data = b"".join(records).ljust(SMALL.segment_size_bytes, b"\0")
    (root / "commitlog" / segment_name(0)).write_bytes(data)
    with MessageStore.open(root, SMALL) as store:
        assert store.recovery.records == 4
        assert store.queues == [("orders", 0)]
        assert len(store.get_by_key("../../escaped", "order-0")) == 1
    assert sorted(path.name for path in (root / "consumequeue").iterdir()) == ["orders"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_forged_queue_offsets_create_no_huge_files(root: Path) -> None:
    MessageStore.open(root, SMALL).close()
    data, offset = b"", 0
    for queue_offset in ((1 << 62), -5, 3, 1_000_000):
        record = serialize_message(
            message(0), queue_offset=queue_offset, physical_offset=offset, store_timestamp=STORED_MS, store_host=BROKER
        )
        data += record
        offset += len(record)
    (root / "commitlog" / segment_name(0)).write_bytes(data.ljust(SMALL.segment_size_bytes, b"\0"))
    with MessageStore.open(root, SMALL) as store:
        assert store.recovery.records == 4
    assert len(list((root / "consumequeue" / "orders" / "0").iterdir())) < 3


@pytest.mark.parametrize("size", [0, 10, 24, 40])
def test_checkpoint_that_is_too_short_is_ignored(root: Path, size: int) -> None:
    ROCKETMQ.write(root, COUNT)
    (root / "checkpoint").write_bytes((root / "checkpoint").read_bytes()[:size])
    (root / "abort").touch()
    assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT))
    assert (root / "checkpoint").stat().st_size == 4096


def test_crashed_store_is_read_from_the_newest_segment_before_the_checkpoint(root: Path) -> None:
    clock = Clock()
    store = MessageStore.open(root, SMALL, clock=clock)
    for number in range(COUNT):
        store.put(message(number))
        clock.now_ms += 1000
    crash(store)
    starts = [int(path.name) for path in sorted((root / "commitlog").iterdir())]
    times = {record.physical_offset: record.store_timestamp for record in log_records(root)}
    for start, vouched_ms in (
        (0, times[starts[1]] - 1),
        (starts[1], times[starts[1]]),
        (starts[1], times[starts[2]] - 1),
    ):
        (root / "abort").touch()
        checkpoint = CheckpointFile(root)
        checkpoint.update(
            physic_msg_timestamp=vouched_ms + 3000, logics_msg_timestamp=vouched_ms + 9999, index_msg_timestamp=1 << 62
        )
        checkpoint.save()
        with MessageStore.open(root, SMALL, clock=clock) as again:
            assert again.recovery.start == start


def test_index_beyond_the_end_of_the_log_does_not_hide_new_messages(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    last = max((root / "commitlog").iterdir())
    last.write_bytes(bytes(SMALL.segment_size_bytes))
    kept = len(list(log_records(root)))
    store = MessageStore.open(root, SMALL, clock=Clock(STORED_MS + 60_000))
    fill(store, 3, start=1000)
    crash(store)
    with MessageStore.open(root, SMALL, clock=Clock(STORED_MS + 90_000)) as again:
        assert again.recovery.progress.log_end > int(last.name)
        for number in (*range(kept), 1000, 1001, 1002):
            assert len(again.get_by_key("orders", f"order-{number}")) == 1


def test_opening_and_closing_changes_no_file_of_log_queues_and_index(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    files = [path for folder in ("consumequeue", "index", "commitlog") for path in (root / folder).rglob("*")]
    before = {path: path.read_bytes() for path in files if path.is_file()}
    for _ in range(3):
        MessageStore.open(root, SMALL, clock=Clock(STORED_MS + 5)).close()
    after = [path for folder in ("consumequeue", "index", "commitlog") for path in (root / folder).rglob("*")]
    assert {path: path.read_bytes() for path in after if path.is_file()} == before


def test_keys_lost_with_the_last_index_file_are_entered_again(root: Path) -> None:
    with ROCKETMQ.open(root) as store:
        for number in range(22):
            store.put(message(number, properties=(("KEYS", f"k{number}"),)))
        store.put(message(22, properties=(("KEYS", "one two three"),)))
    max((root / "index").iterdir()).unlink()
    with ROCKETMQ.open(root) as store:
        assert [len(store.get_by_key("orders", key)) for key in ("k21", "one", "two", "three")] == [1, 1, 1, 1]


def test_invalid_queue_entry_is_rewritten(root: Path) -> None:
    ROCKETMQ.write(root, COUNT, "crashed")
    last = max((root / "consumequeue" / "orders" / "1").iterdir())
    for wrong in ((1 << 62, 100, 7), (11, 100, 7), (0, 100, 7)):
        data = bytearray(last.read_bytes())
        used = len(queue_entries(root, "orders", 1)) % 8 or 8
        data[(used - 1) * 20 : used * 20] = ENTRY.pack(*wrong)
        last.write_bytes(data)
        assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT))


def test_invalid_index_header_is_not_followed_beyond_the_file(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    for path in (root / "index").iterdir():
        data = bytearray(path.read_bytes())
        data[HEADER.offset_of("used_slots") : HEADER.size] = b"\x7f\xff\xff\xff\x7f\xff\xff\xff"
        data[HEADER.size : HEADER.size + 7 * 4] = b"\x40\0\0\0" * 7
        path.write_bytes(data)
    with ROCKETMQ.open(root) as store:
        assert store.get_by_key("orders", "order-1") == []
        fill(store, 1, start=COUNT)
        assert len(store.get_by_key("orders", f"order-{COUNT}")) == 1


def test_folders_that_are_not_queues_are_ignored(root: Path) -> None:
    ROCKETMQ.write(root, COUNT)
    for name in ("007", "x", "\u0661", "-1"):
        (root / "consumequeue" / "orders" / name).mkdir()
    with ROCKETMQ.open(root) as store:
        assert store.queues == [("orders", 0), ("orders", 1)]
    assert ROCKETMQ.bodies(root) == bodies_of(range(COUNT))
