"""Damages that only a RocketMQ store can have, and forged stores that must not stop or mislead verify."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.schemas.layouts.rocketmq import indexfile
from commitlake.schemas.layouts.rocketmq.checkpoint import Checkpoint, serialize_checkpoint
from commitlake.schemas.layouts.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueEntry, serialize_entry
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.findings import check_findings
from tests.support.index_damages import (
    chained,
    index_entry,
    index_header,
    index_paths,
    put_index_entry,
    put_index_header,
    swap_slots,
)
from tests.support.indexed_stores import SEGMENT_BYTES, STORED_MS
from tests.support.logs import new_message, open_segment, write_store
from tests.support.store_damages import ROCKETMQ, cut_file, patch
from tests.support.store_reports import report_of

Damage = Callable[[Path], object]


def stale_record(root: Path) -> None:
    """Put a record with a repeated queue offset, and without an entry, after a damaged one."""
    last, found = ROCKETMQ.of_queue(root)[-1], ROCKETMQ.messages(root)
    before = found[found.index(last) - 1]
    ROCKETMQ.patch_field(root, before, "magic", 7)
    ROCKETMQ.patch_field(root, last, "queue_offset", 0)
    ROCKETMQ.clear_entry(root, last.queue_offset)


LOG: dict[str, tuple[Damage, dict[str, int]]] = {
    "lengths that do not add up": (
        lambda root: ROCKETMQ.patch_field(root, ROCKETMQ.record(root), "sys_flag", 0x10), {"log_bad_lengths": 1}),
    "a topic with a byte that no folder's name has": (
        lambda root: ROCKETMQ.patch_topic(root, ROCKETMQ.of_queue(root)[5], b"\0"),
        {"log_bad_topic": 1, "log_lost_messages": 1, "queue_dangling_entry": 1, "index_wrong_hash": 4}),
    "a queue below 0": (
        lambda root: ROCKETMQ.patch_field(root, ROCKETMQ.of_queue(root)[5], "queue_id", -1),
        {"log_bad_topic": 1, "log_lost_messages": 1, "queue_dangling_entry": 1}),
    "a clock that went back": (
        lambda root: ROCKETMQ.patch_log(root, ROCKETMQ.record(root).physical_offset + 56, (STORED_MS).to_bytes(8)),
        {"log_time_back": 1, "index_wrong_time": 4}),
    "older records behind a damage": (
        stale_record, {"log_bad_magic": 1, "log_stale_records": 1, "queue_wrong_offset": 1}),
}  # fmt: skip


def put_stray(root: Path, name: str) -> None:
    path = root / "consumequeue" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")


QUEUES: dict[str, tuple[Damage, dict[str, int]]] = {
    "filler in the middle": (
        lambda root: ROCKETMQ.put_entry(root, 5, PRE_BLANK), {"queue_missing_entry": 1}),
    "a negative offset": (
        lambda root: ROCKETMQ.change_entry(root, 5, physical_offset=-1), {"queue_invalid_entry": 1}),
    "no size": (
        lambda root: ROCKETMQ.change_entry(root, 5, size=0), {"queue_invalid_entry": 1}),
    "another code": (
        lambda root: ROCKETMQ.change_entry(root, 5, tags_code=9), {"queue_wrong_tags": 1}),
    "a code that would be an address, in a store without a ConsumeQueueExt": (
        lambda root: ROCKETMQ.change_entry(root, 5, tags_code=-(1 << 62)), {"queue_wrong_tags": 1}),
    "an entry behind the log": (
        lambda root: ROCKETMQ.put_entry(root, ROCKETMQ.queue_end(root), ConsumeQueueEntry(1 << 30, 100, 0)),
        {"queue_beyond_log": 1}),
    "a file that is none of a queue's": (
        lambda root: put_stray(root, "topic-1/1/copy of a file"), {"queue_file_name": 1}),
    "a folder with nothing but such a file": (
        lambda root: put_stray(root, "topic-1/7/.swp"), {"queue_file_name": 1}),
}  # fmt: skip


def path_of(root: Path, number: int = 1) -> Path:
    return index_paths(root)[number]


def change_entry(root: Path, number: int, **changes: int) -> None:
    put_index_entry(path_of(root), number, index_entry(path_of(root), number)._replace(**changes))


def change_header(root: Path, **changes: int) -> None:
    put_index_header(path_of(root), index_header(path_of(root))._replace(**changes))


def clear_slot(root: Path, value: int) -> None:
    """Clear the slot of the newest entry, whose chain has no other."""
    path = path_of(root)
    geometry = indexfile.geometry_of(path.stat().st_size)
    alone = next(
        number
        for number in range(1, geometry.entries)
        if index_entry(path, number).previous_entry == 0
        and int.from_bytes(
            path.read_bytes()[geometry.slot_position(index_entry(path, number).key_hash % geometry.slots) :][:4]
        )
        == number
    )
    patch(path, geometry.slot_position(index_entry(path, alone).key_hash % geometry.slots), value.to_bytes(4))


INDEX: dict[str, tuple[Damage, dict[str, int]]] = {
    "another hash of the same slot": (
        lambda root: change_entry(root, 50, key_hash=index_entry(path_of(root), 50).key_hash % 50 + 50),
        {"index_wrong_hash": 1}),
    "an entry that leads back": (
        lambda root: change_entry(root, 50, physical_offset=index_entry(path_of(root), 20).physical_offset + 1),
        {"index_disorder": 1, "index_dangling_entry": 1, "index_missing_entry": 1}),
    "a chain that ends in a loop": (
        lambda root: change_entry(
            root, chained(path_of(root), at_end=True), previous_entry=chained(path_of(root), at_end=True)),
        {"index_chain_loop": 1}),
    "a chain that is cut": (
        lambda root: change_entry(root, chained(path_of(root), at_end=False), previous_entry=0),
        {"index_unreachable": 1}),
    "slots swapped": (
        swap_slots, {"index_wrong_chain": 2}),
    "a slot that leads to no entry": (
        lambda root: clear_slot(root, 9999), {"index_bad_slot": 1, "index_unreachable": 1}),
    "another time": (
        lambda root: change_entry(root, 50, time_diff=9999), {"index_wrong_time": 1}),
    "an empty entry in the middle": (
        lambda root: put_index_entry(
            path_of(root), chained(path_of(root), at_end=True), indexfile.IndexFileEntry(0, 0, 0, 0)),
        {"index_empty_entry": 1, "index_missing_entry": 1}),
    "the last entry lost": (
        lambda root: put_index_entry(path_of(root), 199, indexfile.IndexFileEntry(0, 0, 0, 0)),
        {"index_header_count": 1, "index_missing_entry": 1, "index_bad_slot": 1, "index_unreachable": 1}),
    "a header that counts too few": (
        lambda root: change_header(root, index_count=100), {"index_header_count": 1}),
    "a header with another number of slots": (
        lambda root: change_header(root, used_slots=1), {"index_header_slots": 1}),
    "a header with another begin": (
        lambda root: change_header(root, begin_timestamp=5), {"index_header_span": 1}),
    "a header with another end": (
        lambda root: change_header(root, end_physical_offset=5), {"index_header_span": 1}),
    "a file cut short": (
        lambda root: cut_file(index_paths(root)[0], 999), {"index_file_size": 1, "index_missing_range": 49}),
    "the oldest file gone": (
        lambda root: index_paths(root)[0].unlink(), {"index_missing_range": 49}),
    "no index at all": (
        lambda root: shutil.rmtree(root / "index"), {"index_absent": 1}),
    "a file twice": (
        lambda root: shutil.copy(path_of(root), path_of(root).with_name("29990101000000000")),
        {"index_overlap": 1}),
}  # fmt: skip

OFFSETS = '{"offsetTable":{"rare@shipping":{0:%d}}}'


def put_offsets(root: Path, text: str, name: str = "consumerOffset.json") -> None:
    (root / "config" / name).write_text(text)
    (root / "config" / f"{name}.bak").unlink(missing_ok=True)


def replace_by_backup(path: Path, text: str) -> None:
    """Let the `.bak` alone have a file's content."""
    path.replace(f"{path}.bak")
    path.write_text(text)


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def set_checkpoint(root: Path, **changes: int) -> None:
    """Write a checkpoint."""
    (root / "checkpoint").write_bytes(serialize_checkpoint(Checkpoint(**changes)))


SMALL: dict[str, tuple[Damage, dict[str, int]]] = {
    "a checkpoint ahead of the log": (
        lambda root: set_checkpoint(root, physic_msg_timestamp=STORED_MS * 2), {"checkpoint_ahead": 1}),
    "offsets that are no JSON": (
        lambda root: put_offsets(root, '{"offsetTable":'), {"offsets_unreadable": 1}),
    "offsets that are no JSON, with a backup": (
        lambda root: replace_by_backup(root / "config" / "consumerOffset.json", "{"), {"config_from_backup": 1}),
    "offsets that are no numbers": (
        lambda root: put_offsets(root, '{"offsetTable":{"a@b":3}}'), {"offsets_unreadable": 1}),
    "offsets of a queue that no broker numbers": (
        lambda root: put_offsets(root, '{"offsetTable":{"a@b":{"' + "9" * 5000 + '":3}}}'), {"offsets_unreadable": 1}),
    "a folder where offsets should be": (
        lambda root: put_folder(root / "config" / "consumerOffset.json"), {"offsets_unreadable": 1}),
    "a folder where the checkpoint should be": (
        lambda root: put_folder(root / "checkpoint"), {"checkpoint_unreadable": 1}),
    "a delay level that is no number": (
        lambda root: put_offsets(root, '{"offsetTable":{"x":7}}', "delayOffset.json"), {"offsets_unreadable": 1}),
    "a group ahead of its queue": (
        lambda root: put_offsets(root, OFFSETS % 1000), {"offset_beyond_queue": 1}),
    "a negative offset": (
        lambda root: put_offsets(root, OFFSETS % -1), {"offset_invalid": 1}),
    "a group of a queue that is not there": (
        lambda root: put_offsets(root, '{"offsetTable":{"gone@shipping":{0:7}}}'), {"offset_without_queue": 1}),
    "a delay level ahead of its queue": (
        lambda root: put_offsets(root, '{"offsetTable":{3:7}}', "delayOffset.json"), {"delay_offset_beyond_queue": 1}),
}  # fmt: skip
TABLE = {**{f"log: {name}": each for name, each in LOG.items()},
         **{f"queue: {name}": each for name, each in QUEUES.items()},
         **{f"index: {name}": each for name, each in INDEX.items()},
         **{f"small: {name}": each for name, each in SMALL.items()}}  # fmt: skip


@pytest.mark.some_cases(14)
@pytest.mark.parametrize("name", TABLE)
def test_a_damage_is_found_and_named(store: Path, name: str) -> None:
    do_damage, expected = TABLE[name]
    do_damage(store)
    check_findings(report_of(store).findings, expected)


@pytest.mark.parametrize("begin_timestamp", [1, STORED_MS - 1_000_000, STORED_MS + 1_000_000_000])
def test_a_wrong_begin_is_one_finding_also_if_the_log_has_lost_the_first_record(
    store: Path, begin_timestamp: int
) -> None:
    segments = sorted((store / "commitlog").iterdir())
    begin, end = (getattr(index_header(path_of(store)), f"{side}_physical_offset") for side in ("begin", "end"))
    gone = [path for path in segments if int(path.name) <= begin]
    assert int(segments[len(gone)].name) < end
    for path in gone:
        path.unlink()
    before = report_of(store).findings.counts
    assert "index_wrong_time" not in before
    change_header(store, begin_timestamp=begin_timestamp)
    assert report_of(store).findings.counts == before | {"index_header_span": 1}


def test_the_truncated_one_of_two_files_is_reported(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment([new_message(0), new_message(1)], SEGMENT_BYTES))])
    for queue, (entry, size) in enumerate(zip(entries_of(root, "orders"), (100, 6_000_000), strict=True)):
        path = root / "consumequeue" / "orders" / str(queue) / segment_name(0)
        path.parent.mkdir(parents=True)
        path.write_bytes(entry.ljust(size, b"\0"))
    (finding,) = report_of(root).findings.kept["queue_file_size"]
    assert (finding.queue, finding.found, finding.expected) == ("orders/0", "100 bytes", "6000000 bytes")


@pytest.mark.parametrize("topic", ["t" * 300, "..", "a\0b", "a/../../b"])
def test_no_topic_name_stops_or_misleads_verify(tmp_path: Path, topic: str) -> None:
    messages = [new_message(0, topic), new_message()]
    root = write_store(tmp_path / "forged", [(0, open_segment(messages, SEGMENT_BYTES))])
    (root / "consumequeue" / "orders" / "0").mkdir(parents=True)
    (root / "consumequeue" / "orders" / "0" / segment_name(0)).write_bytes(b"".join(entries_of(root, "orders")))
    findings = report_of(root).findings
    assert findings.codes == {"log_bad_topic", "index_absent", "checkpoint_missing"}
    (bad,) = findings.kept["log_bad_topic"]
    assert bad.found.startswith(f"topic {topic[:50]!r}"[:-1])
    assert len(bad.found) < 150


def test_no_name_of_a_light_queue_stops_verify(tmp_path: Path) -> None:
    lights = (("INNER_MULTI_DISPATCH", "%LMQ%a\0b"), ("INNER_MULTI_QUEUE_OFFSET", "0"))
    messages = [new_message(properties=lights), new_message()]
    root = write_store(tmp_path / "light", [(0, open_segment(messages, SEGMENT_BYTES))])
    assert report_of(root).findings.counts["log_bad_topic"] == 1


def test_forged_names_of_light_queues_are_ignored_in_a_store_without_such_queues(tmp_path: Path) -> None:
    lights = (("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"), ("INNER_MULTI_QUEUE_OFFSET", "0,7"))
    root = write_store(tmp_path / "forged", [(0, open_segment([new_message(properties=lights)], SEGMENT_BYTES))])
    assert report_of(root).findings.counts["queue_missing"] == 3
    queue = root / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / segment_name(0)).write_bytes(b"".join(entries_of(root, "orders")))
    assert "queue_missing" not in report_of(root).findings.codes
    (root / "config").mkdir()
    (root / "config" / "lmqConsumerOffset.json").write_text("{}")
    assert report_of(root).findings.counts["queue_missing"] == 2


def entries_of(root: Path, topic: str) -> list[bytes]:
    return [
        serialize_entry(ConsumeQueueEntry(each.physical_offset, each.size, java_hash(each.tags or "")))
        for each in ROCKETMQ.messages(root)
        if each.topic == topic
    ]
