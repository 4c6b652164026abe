"""BatchConsumeQueues compared with the log: faults in them are found and named."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.schemas.layouts.rocketmq.batchconsumequeue import ENTRY, BatchQueueEntry, parse_entry, serialize_entry
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, parse_message, serialize_message
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.logs import BROKER_HOST, START_MS, new_message, write_store
from tests.support.store_damages import patch
from tests.support.store_reports import report_of

RECORDS = 60
FILE_ENTRIES = 8
FILE_BYTES = FILE_ENTRIES * ENTRY.size
SEGMENT_BYTES = 1 << 15
TOPIC = "batches"
Damage = Callable[[Path], object]


def batch(queue_id: int, count: int, tag: str) -> NewMessage:
    """A record that holds several messages; a single one, which such queues take, too, for a count of 1."""
    properties = (("TAGS", tag), *((("INNER_NUM", str(count)),) if count > 1 else ()))
    return new_message(0, TOPIC, queue_id=queue_id, sys_flag=INNER_BATCH if count > 1 else 0, properties=properties)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two queues of such records, and the queues that a broker makes of them."""
    chance = random.Random(4711)
    log, following, entries = b"", [0, 0], ([], [])  # type: tuple[bytes, list[int], tuple[list[BatchQueueEntry], list[BatchQueueEntry]]]
    for number in range(RECORDS):
        queue_id, count, tag = number % 2, chance.choice([1, 3, 7]), chance.choice(["TagA", "TagB"])
        base, stored = following[queue_id], START_MS + number
        record = serialize_message(
            batch(queue_id, count, tag), queue_offset=base, physical_offset=len(log), store_timestamp=stored,
            store_host=BROKER_HOST,
        )  # fmt: skip
        entries[queue_id].append(BatchQueueEntry(len(log), len(record), java_hash(tag), stored, base, count))
        following[queue_id] += count
        log += record
    root = write_store(tmp_path / "store", [(0, log.ljust(SEGMENT_BYTES, b"\0"))])
    for queue_id, of_queue in enumerate(entries):
        folder = root / "batchconsumequeue" / TOPIC / str(queue_id)
        folder.mkdir(parents=True)
        data = b"".join(map(serialize_entry, of_queue))
        for start in range(0, len(data), FILE_BYTES):
            (folder / segment_name(start)).write_bytes(data[start : start + FILE_BYTES].ljust(FILE_BYTES, b"\0"))
    write_topics(root, {"queue.type": "BatchCQ"})
    return root


def write_topics(root: Path, attributes: dict[str, str]) -> None:
    """Write a topics.json with the topic."""
    path = root / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"topicConfigTable": {TOPIC: {"topicName": TOPIC, "attributes": attributes}}}))


def findings_of(root: Path, **options: int) -> dict[str, int]:
    """Return the findings on log and queues; the store has no other files."""
    counts = report_of(root, **options).findings.counts
    return {code: count for code, count in counts.items() if code.startswith(("queue_", "log_"))}


def file_of(root: Path, place: int, queue_id: int = 1) -> tuple[Path, int]:
    """The file with an entry, and the byte there."""
    start = place * ENTRY.size // FILE_BYTES * FILE_BYTES
    return root / "batchconsumequeue" / TOPIC / str(queue_id) / segment_name(start), place * ENTRY.size - start


def entry_at(root: Path, place: int) -> BatchQueueEntry:
    path, position = file_of(root, place)
    return parse_entry(path.read_bytes(), position)


def change(root: Path, place: int, **fields: int) -> None:
    """Write an entry with other values."""
    path, position = file_of(root, place)
    patch(path, position, serialize_entry(entry_at(root, place)._replace(**fields)))


def clear(root: Path, place: int) -> None:
    path, position = file_of(root, place)
    patch(path, position, bytes(ENTRY.size))


def append(root: Path, physical_offset: int) -> None:
    """Append an entry after the last."""
    last = entry_at(root, RECORDS // 2 - 1)
    following = last._replace(
        physical_offset=physical_offset, message_base_offset=last.message_base_offset + last.batch_size
    )
    path, position = file_of(root, RECORDS // 2)
    patch(path, position, serialize_entry(following))


def lose_record(root: Path) -> None:
    """Zeros in the log where the record of an entry was."""
    entry = entry_at(root, 10)
    patch(root / "commitlog" / segment_name(0), entry.physical_offset, bytes(entry.size))


DAMAGES: dict[str, tuple[Damage, dict[str, int]]] = {
    "another size": (lambda root: change(root, 9, size=7), {"queue_wrong_size": 1}),
    "another code": (lambda root: change(root, 9, tags_code=7), {"queue_wrong_tags": 1}),
    "another base": (lambda root: change(root, 9, message_base_offset=7), {"queue_wrong_batch": 1}),
    "another count": (lambda root: change(root, 9, batch_size=5), {"queue_wrong_batch": 1}),
    "another time": (lambda root: change(root, 9, store_timestamp=5), {"queue_wrong_batch": 1}),
    "an offset where no record begins": (
        lambda root: change(root, 9, physical_offset=entry_at(root, 9).physical_offset + 1),
        {"queue_missing_entry": 1, "queue_dangling_entry": 1}),
    "an offset behind the log": (
        lambda root: change(root, 9, physical_offset=1 << 40), {"queue_missing_entry": 1, "queue_beyond_log": 1}),
    "an empty entry": (lambda root: clear(root, 9), {"queue_missing_entry": 1}),
    "the first entry empty": (lambda root: clear(root, 0), {"queue_missing_entry": 1}),
    "an entry behind the log's end": (lambda root: append(root, SEGMENT_BYTES + 5), {"queue_beyond_log": 1}),
    "an entry too many": (lambda root: append(root, 17), {"queue_dangling_entry": 1}),
    "a file gone": (
        lambda root: file_of(root, 9)[0].unlink(), {"queue_missing_file": 1, "queue_missing_entry": FILE_ENTRIES}),
    "a file cut": (
        lambda root: file_of(root, 29)[0].write_bytes(file_of(root, 29)[0].read_bytes()[:300]), {"queue_file_size": 1}),
    "a record gone": (lose_record, {"log_hole": 1, "log_lost_messages": 7}),
}  # fmt: skip


@pytest.mark.parametrize("partition_bytes", [1 << 30, 1500])
def test_an_intact_queue_has_no_finding(store: Path, partition_bytes: int) -> None:
    report = report_of(store, partition_bytes=partition_bytes)
    assert not [code for code in report.findings.counts if code.startswith(("queue_", "log_"))]
    assert (report.records, report.queues) == (RECORDS, 2)


@pytest.mark.parametrize("partition_bytes", [1 << 30, 1500])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found_and_named(store: Path, name: str, partition_bytes: int) -> None:
    do_damage, expected = DAMAGES[name]
    do_damage(store)
    assert findings_of(store, partition_bytes=partition_bytes) == expected


def test_a_missing_queue_is_one_finding(store: Path) -> None:
    for path in (store / "batchconsumequeue" / TOPIC / "1").iterdir():
        path.unlink()
    assert findings_of(store) == {"queue_missing": 1}


@pytest.mark.parametrize("has_topics", [True, False])
def test_queues_of_another_kind_than_in_topics_json_are_a_finding(store: Path, has_topics: bool) -> None:
    if has_topics:
        write_topics(store, {})
        shutil.copytree(store / "batchconsumequeue", store / "consumequeue")
        shutil.rmtree(store / "batchconsumequeue" / TOPIC / "1")
    else:
        (store / "config" / "topics.json").unlink()
    assert findings_of(store)["queue_wrong_kind"] == 1


def test_simple_queues_of_a_topic_of_batches_are_a_finding(store: Path) -> None:
    (store / "consumequeue" / TOPIC / "0").mkdir(parents=True)
    (store / "consumequeue" / TOPIC / "0" / segment_name(0)).write_bytes(bytes(20))
    assert findings_of(store) == {"queue_wrong_kind": 1}


@pytest.mark.parametrize("partition_bytes", [1 << 30, 1500])
def test_offsets_of_batches_known_only_from_the_log_are_not_a_loss(store: Path, partition_bytes: int) -> None:
    shutil.rmtree(store / "batchconsumequeue")
    (store / "config" / "topics.json").unlink()
    assert findings_of(store, partition_bytes=partition_bytes) == {"queue_missing": 2}


def test_a_forged_flag_does_not_make_a_topic_one_of_batches(tmp_path: Path) -> None:
    log, entries = b"", b""
    for number in range(6):
        message = batch(0, 3 if number == 2 else 1, "TagA")
        record = serialize_message(
            message, queue_offset=number, physical_offset=len(log), store_timestamp=START_MS, store_host=BROKER_HOST
        )
        entries += struct.pack(">qiq", len(log), len(record), java_hash("TagA"))
        log += record
    root = write_store(tmp_path / "forged", [(0, log.ljust(SEGMENT_BYTES, b"\0"))])
    assert findings_of(root) == {"queue_missing": 1}
    write_topics(root, {})
    folder = root / "consumequeue" / TOPIC / "0"
    folder.mkdir(parents=True)
    (folder / segment_name(0)).write_bytes(entries)
    assert findings_of(root) == {}


def test_records_that_are_not_dispatched_yet_are_not_damage(store: Path) -> None:
    (store / "abort").touch()
    for queue_id in (0, 1):
        path, position = file_of(store, RECORDS // 2 - 1, queue_id)
        patch(path, position, bytes(ENTRY.size))
    assert findings_of(store) == {"queue_not_dispatched": 2}


def test_entries_of_the_fixture_point_to_their_records(store: Path) -> None:
    data = (store / "commitlog" / segment_name(0)).read_bytes()
    entry = entry_at(store, 3)
    parsed = parse_message(data, entry.physical_offset)
    assert parsed is not None
    assert (parsed[0].queue_id, parsed[0].queue_offset, parsed[1]) == (1, entry.message_base_offset, entry.size)
