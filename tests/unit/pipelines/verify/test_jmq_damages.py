"""Damages that only a JMQ store can have, and the details of its findings."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.schemas.layouts.jmq.journal import BODY_START
from commitlake.schemas.layouts.jmq.queue_file import JmqQueueEntry
from tests.support.findings import check_findings
from tests.support.indexed_stores import STORED_MS
from tests.support.jmq_damages import add_queue, put_offset, set_checkpoint
from tests.support.store_damages import JMQ, patch
from tests.support.store_reports import report_of

Damage = Callable[[Path], object]


@pytest.fixture
def store(intact_jmq: Path, tmp_path: Path) -> Path:
    """A copy of the intact store to damage."""
    return Path(shutil.copytree(intact_jmq, tmp_path / "store"))


LOG: dict[str, tuple[Damage, dict[str, int]]] = {
    "lengths that do not add up": (
        lambda root: JMQ.patch_log(root, JMQ.record(root).journal_offset + BODY_START - 2, b"\xff"),
        {"log_bad_lengths": 1}),
    "a topic that is no text": (
        lambda root: JMQ.patch_topic(root, JMQ.of_queue(root)[5], b"\xff"),
        {"log_bad_topic": 1, "log_lost_messages": 1, "queue_dangling_entry": 1}),
    "a clock that went back": (
        lambda root: JMQ.patch_field(root, JMQ.record(root), "send_timestamp", STORED_MS - 10**6),
        {"log_time_back": 1}),
    "a message that was received after it was stored": (
        lambda root: JMQ.patch_field(root, JMQ.record(root), "receive_delay", 10**6), {"log_received_late": 1}),
}  # fmt: skip


QUEUES: dict[str, tuple[Damage, dict[str, int]]] = {
    "an entry that says that its message is lost": (
        lambda root: JMQ.put_entry(root, 5, JMQ.entry(root, 6)._replace(size=0)), {"queue_missing_entry": 1}),
    "a wrong CRC": (
        lambda root: patch(JMQ.queue_file(root, 5)[0], JMQ.queue_file(root, 5)[1] + 20, b"\xff"),
        {"queue_invalid_entry": 1}),
    "a flipped bit": (
        lambda root: patch(JMQ.queue_file(root, 5)[0], JMQ.queue_file(root, 5)[1], b"\x80"),
        {"queue_invalid_entry": 1}),
    "an offset that no file has": (
        lambda root: JMQ.change_entry(root, 5, journal_offset=(1 << 64) - 1),
        {"queue_wrong_offset": 1}),
    "an entry behind the journal": (
        lambda root: JMQ.put_entry(root, JMQ.queue_end(root), JmqQueueEntry(1 << 63, 100)), {"queue_beyond_log": 1}),
    "a queue of which the journal has nothing": (
        lambda root: add_queue(root, JmqQueueEntry(1 << 40, 100)), {"queue_beyond_log": 1}),
}  # fmt: skip

SMALL: dict[str, tuple[Damage, dict[str, int]]] = {
    "a checkpoint with a flipped bit": (
        lambda root: patch(root / "checkpoint", 3, b"\x01"), {"checkpoint_unreadable": 1}),
    "a checkpoint ahead of the journal": (
        lambda root: set_checkpoint(root, journal_end=1 << 40), {"checkpoint_ahead": 1}),
    "a checkpoint of a later time": (
        lambda root: set_checkpoint(root, store_timestamp=STORED_MS * 2), {"checkpoint_ahead": 1}),
    "a checkpoint with another last record": (
        lambda root: set_checkpoint(root, last_record=0), {"checkpoint_disagrees": 1}),
    "a checkpoint with a last record where none begins": (
        lambda root: set_checkpoint(root, last_record=7), {"checkpoint_disagrees": 1}),
    "a checkpoint that counts other entries": (
        lambda root: set_checkpoint(root, entries=599), {"checkpoint_disagrees": 1}),
    "offsets that are no JSON": (
        lambda root: (root / "offset" / "offset.json").write_text('{"version":1,'), {"offsets_unreadable": 1}),
    "a negative offset": (
        lambda root: put_offset(root, "rare", -1), {"offsets_unreadable": 1}),
    "an application ahead of its queue": (
        lambda root: put_offset(root, "rare", 1000), {"offset_beyond_queue": 1}),
    "an application in a queue that is not there": (
        lambda root: put_offset(root, "gone", 7), {"offset_without_queue": 1}),
    "dead letters, which are in no queue's files": (
        lambda root: put_offset(root, "%DLQ%shipping", 7), {}),
}  # fmt: skip
TABLE = {**{f"journal: {name}": each for name, each in LOG.items()},
         **{f"queue: {name}": each for name, each in QUEUES.items()},
         **{f"small: {name}": each for name, each in SMALL.items()}}  # fmt: skip


@pytest.mark.parametrize("partition", [1, 5000, 1 << 30])
def test_a_store_read_in_parts_has_no_finding(intact_jmq: Path, partition: int) -> None:
    report = report_of(intact_jmq, partition_bytes=partition)
    assert (dict(report.findings.counts), report.records) == ({}, 600)


@pytest.mark.some_cases(7)
@pytest.mark.parametrize("name", TABLE)
def test_a_damage_is_found_and_named(store: Path, name: str) -> None:
    do_damage, expected = TABLE[name]
    do_damage(store)
    check_findings(report_of(store).findings, expected)


def test_a_finding_names_the_place_expected_and_found(store: Path) -> None:
    whole, damaged = JMQ.of_queue(store)[5], JMQ.record(store)
    JMQ.change_entry(store, 5, size=9)
    JMQ.patch_field(store, damaged, "body_crc", 1)
    crc, entry = report_of(store).findings
    path, position = JMQ.segment(store, damaged.journal_offset)
    assert (crc.file, crc.position, crc.physical_offset) == (f"journal/{path.name}", position, damaged.journal_offset)
    assert crc.expected == "1"
    assert f"{damaged.body_crc} for these" in crc.found
    assert (entry.file, entry.position) == (f"queue/topic-1/1/{0:020d}", 5 * 22)
    assert (entry.queue, entry.number, entry.physical_offset) == ("topic-1/1", 5, whole.journal_offset)
    assert f"offset {whole.journal_offset}, 9 bytes" in entry.found
    assert f"offset {whole.journal_offset}, {whole.size} bytes" in entry.expected
