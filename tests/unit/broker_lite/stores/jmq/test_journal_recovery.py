"""Recovery of a JMQ store on opening: its checkpoint, damage that it skips, and missing files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq.journal_files import JournalCheckpointFile
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.snapshots import LogTailKind, plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.jmq.journal import HEAD, serialize_message
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from commitlake.schemas.layouts.jmq.queue_file import ENTRY, JmqQueueEntry, parse_entry, serialize_entry
from tests.support.batches import rows_of
from tests.support.journal_stores import BROKER, SMALL, fill, journal_records, message, queue_entries
from tests.support.small_stores import STORED_MS, crash
from tests.support.store_formats import JMQ, bodies_of

COUNT = 60
"""Messages that fill two files and some queue files."""


def test_clean_store_is_not_read_again(root: Path) -> None:
    JMQ.write(root, COUNT)
    with JMQ.open(root) as store:
        assert not store.recovery.crashed
        assert (store.recovery.records, store.recovery.start) == (0, store.max_journal_offset)
        assert store.recovery.progress.store_timestamp == STORED_MS


def test_crashed_store_is_read_from_its_checkpoint(root: Path) -> None:
    store = JMQ.open(root)
    fill(store, 30)
    store.flush()
    flushed = store.max_journal_offset
    fill(store, 10, start=30)
    crash(store)
    with JMQ.open(root) as store:
        assert store.recovery.crashed
        assert (store.recovery.start, store.recovery.records) == (flushed, 10)
    assert JMQ.bodies(root) == bodies_of(range(40))


@pytest.mark.parametrize("checkpoint", [None, b"", b"\xff" * 4096, bytes(4096)])
def test_store_without_a_checkpoint_is_read_from_its_start(root: Path, checkpoint: bytes | None) -> None:
    JMQ.write(root, COUNT)
    (root / "checkpoint").unlink()
    if checkpoint is not None:
        (root / "checkpoint").write_bytes(checkpoint)
    with JMQ.open(root) as store:
        assert (store.recovery.start, store.recovery.records) == (0, COUNT)
    assert JMQ.bodies(root) == bodies_of(range(COUNT))


def test_checkpoint_of_another_journal_is_ignored(root: Path, tmp_path: Path) -> None:
    JMQ.write(root, 20)
    other = tmp_path / "other"
    with JMQ.open(other) as store:
        store.put(message(0, body=b"longer " * 9))
        fill(store, 40)
    shutil.copy(root / "checkpoint", other / "checkpoint")
    with JMQ.open(other) as store:
        assert store.recovery.records == 41


@pytest.mark.parametrize("change", [{"last_record": 0}, {"entries": COUNT - 1}, {"journal_end": 1 << 40}])
def test_checkpoint_that_does_not_match_the_journal_is_ignored(root: Path, change: dict[str, int]) -> None:
    JMQ.write(root, COUNT)
    file = JournalCheckpointFile(root)
    assert file.value is not None
    file.save(file.value._replace(**change))
    with JMQ.open(root) as store:
        assert store.recovery.records == COUNT
    assert JMQ.bodies(root) == bodies_of(range(COUNT))


def test_damaged_last_record_loses_only_itself(root: Path) -> None:
    JMQ.write(root, COUNT)
    records = list(journal_records(root))
    file = root / "journal" / f"{4096:020d}"
    data = bytearray(file.read_bytes())
    for victim in (records[-1], records[-5]):
        data[victim.journal_offset - 4096] = 0xFF
    file.write_bytes(data)
    lost = (records[-1].body, records[-5].body)
    assert JMQ.bodies(root) == [body for body in bodies_of(range(COUNT)) if body not in lost]


def test_queue_that_lost_its_tail_is_completed(root: Path) -> None:
    JMQ.write(root, COUNT)
    last = max((root / "queue" / "orders" / "0").iterdir())
    last.write_bytes(bytes(SMALL.queue_file_size_bytes))
    assert JMQ.bodies(root) == bodies_of(range(COUNT))


def test_a_damaged_entry_causes_the_queues_to_be_rebuilt(root: Path) -> None:
    JMQ.write(root, COUNT)
    last = max((root / "queue" / "orders" / "0").iterdir())
    data = bytearray(last.read_bytes())
    data[30] ^= 1
    last.write_bytes(data)
    assert JMQ.bodies(root) == bodies_of(range(COUNT))


def test_entries_after_the_journals_end_are_dropped_and_erased(root: Path) -> None:
    JMQ.write(root, 10, "crashed")
    file = root / "queue" / "orders" / "0" / f"{0:020d}"
    data = file.read_bytes()
    file.write_bytes((data[: 5 * 22] + serialize_entry(JmqQueueEntry(4000, 90))).ljust(len(data), b"\0"))
    assert JMQ.bodies(root) == bodies_of(range(10))
    assert len(queue_entries(root)) == 5


def test_damage_after_the_checkpoint_loses_only_the_damaged_records(root: Path) -> None:
    JMQ.write(root, 10, "crashed")
    victim = list(journal_records(root))[5]
    file = root / "journal" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[victim.journal_offset + HEAD.size + 4] ^= 0xFF
    file.write_bytes(data)
    with JMQ.open(root) as store:
        assert store.recovery.lost_bytes == victim.size
        store.put(message(10), 0)
        crash(store)
    assert JMQ.bodies(root) == [body for body in bodies_of(range(11)) if body != victim.body]


@pytest.mark.parametrize("count", [1, 3])
def test_records_after_zeros_that_a_crash_left_are_found(root: Path, count: int) -> None:
    JMQ.write(root, 10, "crashed")
    records = list(journal_records(root))
    lost, behind = records[4 : 4 + count], records[4 + count]
    file = root / "journal" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[lost[0].journal_offset : behind.journal_offset] = bytes(behind.journal_offset - lost[0].journal_offset)
    file.write_bytes(data)
    gone = [one.body for one in lost]
    assert JMQ.bodies(root) == [body for body in bodies_of(range(10)) if body not in gone]


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_messages_with_nul_in_properties_are_recovered_and_read(root: Path, end: str) -> None:
    values = ("b", "x\0y", "\0", "z\0\0")
    with JMQ.open(root) as store:
        for number, value in enumerate(values):
            store.put(replace(message(number), properties=(("a", value),)), 0)
        if end == "crashed":
            crash(store)
    (log,) = find_stores(str(root), "b", formats=all_formats())
    assert take_snapshot([log]).ranges["b"].tail is LogTailKind.UNWRITTEN
    assert [dict(one.property_pairs)["a"] for one in JMQ.found(root)] == list(values)
    rows = rows_of(plan_splits(log, take_snapshot([log]).ranges["b"], 1 << 20), Mode.FAILFAST, "properties")
    assert [dict(row["properties"])["a"] for row in rows] == list(values)  # type: ignore[call-overload]


def test_damage_before_the_checkpoint_loses_only_the_damaged_record(root: Path) -> None:
    JMQ.write(root, COUNT)
    records = list(journal_records(root))
    victim = records[11]
    file = root / "journal" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[victim.journal_offset] = 0xFF
    file.write_bytes(data)
    shutil.rmtree(root / "queue")
    with JMQ.open(root) as store:
        assert store.recovery.lost_bytes == victim.size
        got = store.get("orders", 1, 0, 100).messages
        assert store.max_offset("orders", 1) == 30
    assert [one.queue_offset for one in got] == [number for number in range(30) if number != victim.queue_offset]
    assert JMQ.bodies(root) == [body for body in bodies_of(range(COUNT)) if body != victim.body]
    assert queue_entries(root, queue_id=1)[victim.queue_offset].is_lost


def test_lost_end_of_a_full_file_does_not_hide_the_next_file(root: Path) -> None:
    JMQ.write(root, COUNT)
    records = list(journal_records(root))
    victim = max((one for one in records if one.journal_offset < 4096), key=lambda one: one.journal_offset)
    file = root / "journal" / f"{0:020d}"
    file.write_bytes(file.read_bytes()[: victim.journal_offset].ljust(4096, b"\0"))
    (root / "checkpoint").unlink()
    assert JMQ.bodies(root) == [one.body for one in records if one != victim]


def test_expired_files_leave_queues_that_begin_later(root: Path) -> None:
    with JMQ.open(root) as store:
        fill(store, 120)
    (root / "journal" / f"{0:020d}").unlink()
    kept = [one.body for one in journal_records(root)]
    assert JMQ.bodies(root) == kept
    with JMQ.open(root) as store:
        low = store.min_offset("orders", 0)
        assert low > 0
        assert store.get("orders", 0, low - 1).next_offset == low
    shutil.rmtree(root / "queue")
    assert JMQ.bodies(root) == kept
    with JMQ.open(root) as store:
        assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (low, 60)
    names = sorted(path.name for path in (root / "queue" / "orders" / "0").iterdir())
    assert names[0] == f"{low * 22:020d}"
    entry = parse_entry((root / "queue" / "orders" / "0" / names[0]).read_bytes()[: ENTRY.size])
    assert entry is not None
    assert entry.journal_offset >= 4096


def test_queue_whose_messages_have_all_expired_keeps_its_numbers(root: Path) -> None:
    with JMQ.open(root) as store:
        fill(store, 10, topic="payments")
        fill(store, 60)
    (root / "journal" / f"{0:020d}").unlink()
    (root / "checkpoint").unlink()
    with JMQ.open(root) as store:
        assert (store.min_offset("payments", 0), store.max_offset("payments", 0)) == (5, 5)
        assert store.put(message(topic="payments"), 0).queue_offset == 5


def forged(queue_offset: int, topic: str = "orders") -> bytes:
    """Return a journal file with one record that was never put."""
    record = serialize_message(
        message(topic=topic),
        queue_id=0,
        queue_offset=queue_offset,
        journal_offset=4096,
        receive_timestamp=STORED_MS,
        store_timestamp=STORED_MS,
        server_address=BROKER,
    )
    return record.ljust(4096, b"\0")


@pytest.mark.parametrize(("number", "topic"), [(1 << 40, "orders"), ((1 << 64) - 1, "orders"), (0, "../../evil")])
def test_forged_record_creates_no_entries_and_no_folders(root: Path, number: int, topic: str) -> None:
    JMQ.write(root, 20)
    (root / "journal" / f"{4096:020d}").write_bytes(forged(number, topic))
    (root / "checkpoint").unlink()
    assert JMQ.bodies(root) == bodies_of(range(20))
    assert [path.name for path in (root / "queue").iterdir()] == ["orders"]
    assert not (root.parent / "evil").exists()
    assert sum(path.stat().st_size for path in (root / "queue").rglob("0000*")) == 4 * SMALL.queue_file_size_bytes


def test_positions_are_restored_without_unacknowledged_messages(root: Path) -> None:
    place = ConsumedQueue("orders", "mail", 0)
    with JMQ.open(root) as store:
        fill(store, 20)
        store.offsets.acknowledge(place, 3)
        store.offsets.mark_delivered(place, 7)
        assert store.offsets.get_or_queue_start(place) == (3, 7, STORED_MS)
    with JMQ.open(root) as store:
        assert store.offsets.get_or_queue_start(place) == (3, 3, STORED_MS)


def test_positions_after_the_end_of_a_truncated_queue_are_reset(root: Path) -> None:
    place = ConsumedQueue("orders", "mail", 0)
    with JMQ.open(root) as store:
        fill(store, 10)
        store.offsets.acknowledge(place, 9)
    with JMQ.open(root) as store:
        assert store.offsets.get_or_queue_start(place)[:2] == (5, 5)
