"""The rows of `consumequeue`."""

from __future__ import annotations

import datetime
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.formats.index_entries import partitions
from commitlake.connectors.formats.jmq.queue_files import walk_queue_files
from commitlake.connectors.formats.rocketmq.indexes import walk_consume_queues
from commitlake.connectors.reading.errors import CommitLogError, StoreError
from commitlake.connectors.reading.files.store_files import open_store_files
from commitlake.schemas.layouts.jmq import queue_file as jmq_queue
from commitlake.schemas.layouts.rocketmq import batchconsumequeue, consumequeue
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.index_entries import Read
from tests.support.index_entry_rows import Rows, with_places_of
from tests.support.indexed_stores import QUEUE_FILE_ENTRIES, RARE

_COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code")


def tuples(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in _COLUMNS) for row in rows)


def ranges(rows: Rows) -> list[tuple[int, int, str]]:
    found = [row["_corrupt_record"] for row in rows if row["_corrupt_record"]]
    return [(each["start"], each["end"], each["reason"]) for each in found]


def first_file(store: Path, topic: str, queue_id: int = 0, folder: str = "consumequeue") -> Path:
    return store / folder / topic / str(queue_id) / segment_name(0)


def fullest_queue(jmq_store: Path) -> int:
    """Return the queue of the rare topic that has the most entries."""
    found = Counter(each.queue_id for each in walk_queue_files(open_store_files(str(jmq_store)), pytest.fail, RARE))
    ((queue_id, count),) = found.most_common(1)
    assert count > 2
    return queue_id


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_rows_equal_the_entries_of_the_plain_reader(plain_store: Path, read_queues: Read) -> None:
    rows = read_queues(plain_store)
    assert tuples(rows) == sorted(
        (each.topic, each.queue_id, each.queue_offset, *each.entry)
        for each in walk_consume_queues(open_store_files(str(plain_store)))
    )
    assert len(rows) == 330
    assert {(row["broker"], row["batch_size"], row["store_timestamp"]) for row in rows} == {
        (plain_store.parent.name, None, None)
    }


def test_rows_of_a_jmq_store_equal_those_of_the_plain_reader(plain_jmq_store: Path, read_queues: Read) -> None:
    assert tuples(read_queues(plain_jmq_store)) == sorted(
        (each.topic, each.queue_id, each.queue_offset, each.entry.journal_offset, each.entry.size, None)
        for each in walk_queue_files(open_store_files(str(plain_jmq_store)), pytest.fail)
    )


def test_a_second_file_of_one_number_is_refused_by_the_plain_readers(store: Path, jmq_store: Path) -> None:
    for root, folder in ((store, "consumequeue"), (jmq_store, "queue")):
        path = first_file(root, RARE, folder=folder)
        shutil.copy(path, path.with_name("\u0660" * 20))
    with pytest.raises(StoreError, match=r"expected one file that begins at 0, found another, 0+: move away the one"):
        list(walk_consume_queues(open_store_files(str(store))))
    with pytest.raises(StoreError, match="whose name has non-ASCII digits"):
        list(walk_queue_files(open_store_files(str(jmq_store)), pytest.fail))


def write_batch_queue(store: Path) -> None:
    """Write a queue with two batches."""
    folder = store / "batchconsumequeue" / "%RETRY%group" / "3"
    folder.mkdir(parents=True)
    entries = [
        batchconsumequeue.BatchQueueEntry(100, 90, 7, 1_700_000_000_123, 0, 5),
        batchconsumequeue.BatchQueueEntry(190, 80, 8, 1_700_000_001_000, 5, 2),
    ]
    data = b"".join(map(batchconsumequeue.serialize_entry, entries))
    (folder / segment_name(0)).write_bytes(data.ljust(46 * 10, b"\0"))


def test_entries_of_batches_have_count_and_time(store: Path, read_queues: Read) -> None:
    write_batch_queue(store)
    rows = read_queues(store, topics="%RETRY%group")
    assert tuples(rows) == [("%RETRY%group", 3, 0, 100, 90, 7), ("%RETRY%group", 3, 5, 190, 80, 8)]
    assert [row["batch_size"] for row in rows] == [5, 2]
    assert rows[0]["store_timestamp"] == datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, datetime.UTC)


def test_filters_select_topics_queues_and_offsets(plain_store: Path, read_queues: Read) -> None:
    every = read_queues(plain_store)
    low, high = (sorted(row["physical_offset"] for row in every)[place] for place in (50, 150))
    assert tuples(read_queues(plain_store, topics=f"{RARE},topic-1", queueIds="0,2")) == tuples(
        [row for row in every if row["topic"] in (RARE, "topic-1") and row["queue_id"] in (0, 2)]
    )
    assert tuples(read_queues(plain_store, startingOffset=low, endingOffset=high)) == tuples(
        [row for row in every if low <= row["physical_offset"] < high]
    )


def test_fillers_give_no_rows(store: Path, read_queues: Read) -> None:
    filler = consumequeue.serialize_entry(consumequeue.PRE_BLANK)
    write(first_file(store, RARE), 0, filler * 2)
    assert [row["queue_offset"] for row in read_queues(store, topics=RARE, queueIds="0")] == [2, 3, 4, 5]


def test_lost_messages_of_a_journal_are_rows_of_size_0(jmq_store: Path, read_queues: Read) -> None:
    queue_id = fullest_queue(jmq_store)
    write(first_file(jmq_store, RARE, queue_id, "queue"), 22, jmq_queue.serialize_entry(jmq_queue.JmqQueueEntry(0, 0)))
    assert read_queues(jmq_store, topics=RARE, queueIds=queue_id)[1]["size"] == 0


@pytest.mark.parametrize("data", [bytes(20), b"\xff" * 20], ids=["zeros", "ones"])
def test_a_bad_entry_before_others_is_handled_according_to_the_mode(
    store: Path, read_queues: Read, data: bytes
) -> None:
    write(first_file(store, RARE), 20, data)
    chosen = {"topics": RARE, "queueIds": "0"}
    with pytest.raises(CommitLogError, match=r"rare/0/0{20}, bytes 20 to 40: entry: expected an entry of 20 bytes"):
        read_queues(store, **chosen)
    assert [row["queue_offset"] for row in read_queues(store, mode="DROPMALFORMED", **chosen)] == [0, 2, 3, 4, 5]
    rows = read_queues(store, mode="PERMISSIVE", **chosen)
    assert ranges(rows) == [(20, 40, "entry")]
    (bad,) = [row for row in rows if row["_corrupt_record"]]
    assert (bad["topic"], bad["queue_id"], bad["size"], len(rows)) == (RARE, 0, None, 6)


def test_an_entry_of_a_journal_without_its_crc_is_bad(jmq_store: Path, read_queues: Read) -> None:
    queue_id = fullest_queue(jmq_store)
    write(first_file(jmq_store, RARE, queue_id, "queue"), 22, b"\1")
    rows = read_queues(jmq_store, topics=RARE, mode="PERMISSIVE")
    assert ranges(rows) == [(22, 44, "entry")]


def test_impossible_numbers_are_bad_despite_a_valid_crc(jmq_store: Path, read_queues: Read) -> None:
    queue_id = fullest_queue(jmq_store)
    impossible = jmq_queue.JmqQueueEntry(1 << 63, (1 << 32) - 1)
    write(first_file(jmq_store, RARE, queue_id, "queue"), 22, jmq_queue.serialize_entry(impossible))
    assert ranges(read_queues(jmq_store, topics=RARE, mode="PERMISSIVE")) == [(22, 44, "entry")]


def test_zeros_at_the_end_of_a_file_with_a_later_one_are_bad(store: Path, read_queues: Read) -> None:
    size = 20 * QUEUE_FILE_ENTRIES
    write(first_file(store, "topic-0"), size - 40, bytes(40))
    assert ranges(read_queues(store, topics="topic-0", queueIds="0", mode="PERMISSIVE")) == [(size - 40, size, "entry")]


def test_bad_names_are_rows_without_a_topic_that_is_not_text(store: Path, read_queues: Read) -> None:
    (store / "consumequeue" / RARE).rename(store / "consumequeue" / "rare\udcff")
    rows = [row for row in read_queues(store, mode="PERMISSIVE") if row["_corrupt_record"]]
    assert {row["topic"] for row in rows} == {"rare?"}


def test_a_link_planted_after_planning_is_refused(store: Path, read_queues: Read, tmp_path: Path) -> None:
    from commitlake.connectors.formats.index_entries.entry_options import QueueOptions
    from commitlake.connectors.formats.index_entries.queue_file_parts import plan_queues
    from commitlake.connectors.formats.index_entries.queue_rows import read_queue_parts
    from commitlake.connectors.reading.options import Mode
    from commitlake.connectors.reading.read_request import Filters

    options = QueueOptions.parse({"path": str(store), "topics": RARE})
    (parts,) = plan_queues(options, options.to_read_filters)
    (store / "consumequeue" / RARE).rename(tmp_path / "moved")
    (store / "consumequeue" / RARE).symlink_to(tmp_path / "moved")
    with pytest.raises(StoreError, match="found a symbolic link"):
        list(read_queue_parts(parts, None, Filters(), Mode.PERMISSIVE))


def test_rows_of_a_copy_equal_those_of_the_store(store: Path, ship: Callable[[Path], str], read_queues: Read) -> None:
    write_batch_queue(store)
    copy = ship(store)
    rows = read_queues(store, broker="b")
    assert read_queues(copy, broker="b") == rows
    assert {row["batch_size"] for row in rows} == {None, 5, 2}
    assert read_queues(copy)[0]["broker"] == "broker-a"  # by the manifest
    assert tuples(read_queues(copy, topics=RARE, queueIds="0")) == tuples(read_queues(store, topics=RARE, queueIds="0"))


def test_rows_of_a_copy_of_a_jmq_store_equal_those_of_the_store(
    plain_jmq_store: Path, ship: Callable[[Path], str], read_queues: Read
) -> None:
    rows = read_queues(plain_jmq_store, broker="b")
    assert read_queues(ship(plain_jmq_store), broker="b") == rows
    assert len(rows) == 330


def overwrite_with_zeros(store: Path) -> None:
    write(first_file(store, RARE), 20, bytes(40))


def overwrite_with_ones(store: Path) -> None:
    write(first_file(store, RARE), 20, b"\xff" * 20)


def overwrite_the_end_of_a_full_file(store: Path) -> None:
    write(first_file(store, "topic-0"), 20 * (QUEUE_FILE_ENTRIES - 2), bytes(40))


def delete_a_full_file(store: Path) -> None:
    first_file(store, "topic-0").with_name(segment_name(20 * QUEUE_FILE_ENTRIES)).unlink()


def cut_a_full_file(store: Path) -> None:
    os.truncate(first_file(store, "topic-0"), 47)


def cut_an_entry(store: Path) -> None:
    os.truncate(first_file(store, RARE), 33)


def rename_a_file(store: Path) -> None:
    path = first_file(store, RARE)
    path.rename(path.with_name(segment_name(7)))


def add_an_empty_file(store: Path) -> None:
    path = first_file(store, RARE)
    path.with_name(segment_name(20 * QUEUE_FILE_ENTRIES)).write_bytes(bytes(20 * QUEUE_FILE_ENTRIES))


@pytest.mark.parametrize(
    ("damage", "reasons"),
    [
        (overwrite_with_zeros, {"entry"}),
        (overwrite_with_ones, {"entry"}),
        (overwrite_the_end_of_a_full_file, {"entry"}),
        (delete_a_full_file, {"missing"}),
        (cut_a_full_file, {"missing"}),
        (cut_an_entry, {"cut"}),
        (rename_a_file, {"name"}),
        (add_an_empty_file, set()),
    ],
)
def test_damage_is_found_alike_in_a_copy(
    store: Path,
    ship: Callable[[Path], str],
    read_queues: Read,
    damage: Callable[[Path], None],
    reasons: set[str],
) -> None:
    damage(store)
    copy = ship(store)
    rows = with_places_of(store, read_queues(store, broker="b", mode="PERMISSIVE"))
    assert with_places_of(copy, read_queues(copy, broker="b", mode="PERMISSIVE")) == rows
    assert {reason for _, _, reason in ranges(rows)} == reasons


def test_files_that_were_deleted_in_a_copy_are_bad(
    store: Path, ship: Callable[[Path], str], read_queues: Read, remote: Path
) -> None:
    copy = ship(store)
    before = read_queues(copy)
    path = first_file(remote, "topic-0")
    path.unlink()
    with pytest.raises(
        CommitLogError,
        match=f"{copy}/consumequeue/topic-0/0/0+, bytes 0 to 320: missing: expected a file, found none, though",
    ):
        read_queues(copy)
    rows = read_queues(copy, mode="PERMISSIVE")
    assert ranges(rows) == [(0, 320, "missing")]
    assert len(rows) == len(before) - QUEUE_FILE_ENTRIES + 1


def test_files_that_were_cut_in_a_copy_are_an_error(
    store: Path, ship: Callable[[Path], str], read_queues: Read, remote: Path
) -> None:
    copy = ship(store)
    os.truncate(first_file(remote, "topic-0"), 300)
    with pytest.raises(StoreError, match=r"topic-0/0/0+: expected 320 bytes, found 300: the copy was changed"):
        read_queues(copy, mode="PERMISSIVE")


def test_parts_of_a_growing_file_that_are_missing_in_a_copy_are_an_error(
    store: Path, ship: Callable[[Path], str], read_queues: Read, remote: Path
) -> None:
    copy = ship(store)
    shutil.rmtree(remote / "shipped" / "parts" / "of-consumequeue" / RARE / "0")
    with pytest.raises(StoreError, match=f"{RARE}/0/0+: a part that the manifest lists is missing"):
        read_queues(copy, mode="PERMISSIVE")


def test_what_is_shipped_after_planning_is_not_read(
    store: Path, ship: Callable[[Path], str], read_queues: Read
) -> None:
    from commitlake.connectors.arrow_schemas import arrow_schema
    from commitlake.connectors.formats.index_entries.entry_options import QueueOptions
    from commitlake.connectors.formats.index_entries.queue_file_parts import plan_queues
    from commitlake.connectors.formats.index_entries.queue_rows import read_queue_parts
    from commitlake.connectors.reading.options import Mode
    from commitlake.connectors.reading.read_request import Filters
    from commitlake.schemas.tables.index_entries import QUEUE_ENTRIES

    options = QueueOptions.parse({"path": ship(store), "topics": RARE, "queueIds": "0"})
    before = read_queues(options.path, topics=RARE, queueIds="0")
    (parts,) = plan_queues(options, options.to_read_filters)
    entry = consumequeue.serialize_entry(consumequeue.ConsumeQueueEntry(1 << 20, 100, 7))
    write(first_file(store, RARE), 20 * len(before), entry)
    ship(store)
    partitions._open_files_once.cache_clear()  # as in a worker, which reads the newer manifest
    schema = arrow_schema(QUEUE_ENTRIES)
    (batch,) = read_queue_parts(parts, schema, Filters(), Mode.FAILFAST)
    assert batch.to_pylist() == before
    assert len(read_queues(options.path, topics=RARE, queueIds="0")) == len(before) + 1


def test_queue_that_was_cut_after_planning_is_an_error(store: Path, ship: Callable[[Path], str]) -> None:
    from commitlake.connectors.arrow_schemas import arrow_schema
    from commitlake.connectors.formats.index_entries.entry_options import QueueOptions
    from commitlake.connectors.formats.index_entries.queue_file_parts import plan_queues
    from commitlake.connectors.formats.index_entries.queue_rows import read_queue_parts
    from commitlake.connectors.reading.options import Mode
    from commitlake.connectors.reading.read_request import Filters
    from commitlake.schemas.tables.index_entries import QUEUE_ENTRIES

    options = QueueOptions.parse({"path": ship(store), "topics": RARE, "queueIds": "0"})
    (parts,) = plan_queues(options, options.to_read_filters)
    path = first_file(store, RARE)
    write(path, consumequeue.ENTRY.size, bytes(path.stat().st_size - consumequeue.ENTRY.size))
    ship(store)
    partitions._open_files_once.cache_clear()  # as in a worker, which reads the newer manifest
    with pytest.raises(StoreError, match=f"{RARE}/0/0+: expected {parts[-1].end} bytes, found 20: the copy was"):
        list(read_queue_parts(parts, arrow_schema(QUEUE_ENTRIES), Filters(), Mode.PERMISSIVE))
