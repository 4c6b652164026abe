"""A JMQ store that is damaged in one way has the finding of that damage, and no other that does not follow from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.schemas.layouts.jmq.journal import BODY_START
from commitlake.schemas.layouts.jmq.queue import Entry
from tests.support import jmq_damages as d
from tests.support.findings import check_findings
from tests.support.indexed_stores import STORED_MS
from tests.support.jmq_reports import report_of
from tests.support.jmq_stores import FILE_BYTES
from tests.support.journal_stores import journal_records
from tests.support.store_damages import patch

Damage = Callable[[Path], object]


@pytest.fixture
def store(intact_jmq: Path, tmp_path: Path) -> Path:
    """A copy of the intact store to damage."""
    return Path(shutil.copytree(intact_jmq, tmp_path / "store"))


def cut_file(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def reuse_file(root: Path) -> None:
    """The bytes of one file under another's name."""
    shutil.copy(d.journal_file(root, FILE_BYTES)[0], d.journal_file(root, 2 * FILE_BYTES)[0])


LOG: dict[str, tuple[Damage, dict[str, int]]] = {
    "a magic that is none": (
        lambda root: d.patch_field(root, d.record(root), "magic", 7), {"log_bad_magic": 1}),
    "a size that no record has": (
        lambda root: d.patch_field(root, d.record(root), "total_size", 5), {"log_bad_size": 1}),
    "an offset that is another's": (
        lambda root: d.patch_field(root, d.record(root), "journal_offset", 5), {"log_bad_offset": 1}),
    "the offset of another file": (
        lambda root: d.patch_field(root, d.record(root), "journal_offset", d.record(root).journal_offset + FILE_BYTES),
        {"log_reused_file": 1}),
    "lengths that do not add up": (
        lambda root: d.patch_journal(root, d.record(root).journal_offset + BODY_START - 2, b"\xff"),
        {"log_bad_lengths": 1}),
    "a flipped bit in a body": (
        lambda root: d.patch_field(root, d.record(root), "body_crc", 1), {"log_bad_crc": 1}),
    "zeros where a record was": (
        lambda root: d.patch_journal(root, d.record(root).journal_offset, bytes(d.record(root).size)), {"log_hole": 1}),
    "a record's changed number": (
        lambda root: d.patch_field(root, d.of_queue(root), "queue_offset", 77), {"log_wrong_number": 1}),
    "a topic that is no text": (
        lambda root: d.patch_topic(root, b"\xff"),
        {"log_bad_topic": 1, "log_lost_messages": 1, "queue_dangling_entry": 1}),
    "a topic that leads elsewhere": (
        lambda root: d.patch_topic(root, b"/"),
        {"log_bad_topic": 1, "log_lost_messages": 1, "queue_dangling_entry": 1}),
    "a clock that went back": (
        lambda root: d.patch_field(root, d.record(root), "send_timestamp", STORED_MS - 10**6), {"log_time_back": 1}),
    "a message that was received after it was stored": (
        lambda root: d.patch_field(root, d.record(root), "receive_delay", 10**6), {"log_received_late": 1}),
    "a number twice": (
        d.repeat_record, {"log_repeated_number": 1, "queue_wrong_offset": 1, "checkpoint_disagrees": 1}),
    "a filler that ends elsewhere": (
        lambda root: d.patch_journal(root, d.filler(root), (9).to_bytes(4)), {"log_bad_filler": 1}),
    "a file gone": (
        lambda root: d.journal_file(root, 2 * FILE_BYTES)[0].unlink(), {"log_missing_segment": 1}),
    "a file of another size": (
        lambda root: patch(d.journal_file(root, d.record(root, -1).journal_offset)[0], FILE_BYTES, bytes(9)),
        {"log_file_size": 1}),
    "a file cut within a record": (
        lambda root: cut_file(*in_second_half(root)), {"log_file_size": 1, "log_cut": 1}),
    "another file's bytes": (
        reuse_file, {"log_reused_file": 1}),
    "a record of another queue": (
        lambda root: d.patch_field(root, d.of_queue(root), "queue_id", 9),
        {"log_lost_messages": 1, "queue_dangling_entry": 1, "queue_missing": 1, "checkpoint_disagrees": 1}),
    "a file that is none of the journal's": (
        lambda root: (root / "journal" / "notes.txt").touch(), {"log_stray_file": 1}),
}  # fmt: skip


def in_second_half(root: Path) -> tuple[Path, int]:
    """A place in the middle of a record of the third file."""
    path, position = d.journal_file(root, 2 * FILE_BYTES + FILE_BYTES // 2)
    found = next(each for each in journal_records(root) if each.journal_offset > int(path.name) + position)
    return path, found.journal_offset - int(path.name) + 20


QUEUES: dict[str, tuple[Damage, dict[str, int]]] = {
    "an empty entry": (
        lambda root: d.clear_entry(root, 5), {"queue_missing_entry": 1}),
    "an entry that says that its message is lost": (
        lambda root: d.put_entry(root, 5, d.entry(root, 6)._replace(size=0)), {"queue_missing_entry": 1}),
    "a wrong CRC": (
        lambda root: patch(d.queue_file(root, 5)[0], d.queue_file(root, 5)[1] + 20, b"\xff"),
        {"queue_invalid_entry": 1}),
    "a flipped bit": (
        lambda root: patch(d.queue_file(root, 5)[0], d.queue_file(root, 5)[1], b"\x80"), {"queue_invalid_entry": 1}),
    "another's offset": (
        lambda root: d.put_entry(root, 5, d.entry(root, 5)._replace(journal_offset=0)), {"queue_wrong_offset": 1}),
    "an offset that no file has": (
        lambda root: d.put_entry(root, 5, d.entry(root, 5)._replace(journal_offset=(1 << 64) - 1)),
        {"queue_wrong_offset": 1}),
    "entries swapped": (
        d.swap_entries, {"queue_wrong_offset": 2}),
    "an entry doubled": (
        lambda root: d.put_entry(root, 5, d.entry(root, 4)), {"queue_wrong_offset": 1}),
    "another size": (
        lambda root: d.put_entry(root, 5, d.entry(root, 5)._replace(size=9)), {"queue_wrong_size": 1}),
    "an entry too many": (
        lambda root: d.put_entry(root, d.queue_end(root), d.entry(root, 0)),
        {"queue_dangling_entry": 1, "checkpoint_disagrees": 1}),
    "an entry behind the journal": (
        lambda root: d.put_entry(root, d.queue_end(root), Entry(1 << 63, 100)), {"queue_beyond_log": 1}),
    "a queue of which the journal has nothing": (
        lambda root: d.add_queue(root, Entry(1 << 40, 100)), {"queue_beyond_log": 1}),
    "a queue gone": (
        lambda root: shutil.rmtree(root / "queue" / d.QUEUE[0] / str(d.QUEUE[1])), {"queue_missing": 1}),
    "the first file gone": (
        lambda root: d.queue_file(root, 0)[0].unlink(), {"queue_missing_file": 1}),
    "a file in the middle gone": (
        lambda root: d.queue_file(root, 16)[0].unlink(), {"queue_missing_file": 1}),
    "a file too long": (
        lambda root: patch(d.queue_file(root, 0)[0], d.QUEUE_FILE_BYTES, bytes(22)), {"queue_file_size": 1}),
    "a file of another name": (
        lambda root: shutil.copy(d.queue_file(root, 0)[0], d.queue_file(root, 0)[0].with_name(f"{44:020d}")),
        {"queue_file_name": 1}),
}  # fmt: skip

SMALL: dict[str, tuple[Damage, dict[str, int]]] = {
    "no checkpoint": (
        lambda root: (root / "checkpoint").unlink(), {"checkpoint_missing": 1}),
    "a checkpoint cut": (
        lambda root: cut_file(root / "checkpoint", 10), {"checkpoint_unreadable": 1}),
    "a checkpoint with a flipped bit": (
        lambda root: patch(root / "checkpoint", 3, b"\x01"), {"checkpoint_unreadable": 1}),
    "a checkpoint ahead of the journal": (
        lambda root: d.set_checkpoint(root, journal_end=1 << 40), {"checkpoint_ahead": 1}),
    "a checkpoint of a later time": (
        lambda root: d.set_checkpoint(root, store_timestamp=STORED_MS * 2), {"checkpoint_ahead": 1}),
    "a checkpoint with another last record": (
        lambda root: d.set_checkpoint(root, last_record=0), {"checkpoint_disagrees": 1}),
    "a checkpoint with a last record where none begins": (
        lambda root: d.set_checkpoint(root, last_record=7), {"checkpoint_disagrees": 1}),
    "a checkpoint that counts other entries": (
        lambda root: d.set_checkpoint(root, entries=599), {"checkpoint_disagrees": 1}),
    "a crash": (
        lambda root: (root / "abort").touch(), {"abort_present": 1}),
    "offsets that are no JSON": (
        lambda root: (root / "offset" / "offset.json").write_text('{"version":1,'), {"offsets_unreadable": 1}),
    "a negative offset": (
        lambda root: d.put_offset(root, "rare", -1), {"offsets_unreadable": 1}),
    "an application ahead of its queue": (
        lambda root: d.put_offset(root, "rare", 1000), {"offset_beyond_queue": 1}),
    "an application in a queue that is not there": (
        lambda root: d.put_offset(root, "gone", 7), {"offset_without_queue": 1}),
    "dead letters, which are in no queue's files": (
        lambda root: d.put_offset(root, "%DLQ%shipping", 7), {}),
}  # fmt: skip
TABLE = {**{f"journal: {name}": each for name, each in LOG.items()},
         **{f"queue: {name}": each for name, each in QUEUES.items()},
         **{f"small: {name}": each for name, each in SMALL.items()}}  # fmt: skip


def test_an_intact_store_has_no_finding(intact_jmq: Path) -> None:
    report = report_of(intact_jmq)
    assert report.findings.counts == {}
    assert report.records == 600
    assert report.queues == len({(each.topic, each.queue_id) for each in journal_records(intact_jmq)})
    assert (report.index_files, report.groups) == (0, 2)


@pytest.mark.parametrize("partition", [1, 5000, 1 << 30])
def test_a_store_in_parts_has_no_finding_either(intact_jmq: Path, partition: int) -> None:
    report = report_of(intact_jmq, partition_bytes=partition)
    assert (dict(report.findings.counts), report.records) == ({}, 600)


@pytest.mark.parametrize("name", TABLE)
def test_a_damage_is_found_and_named(store: Path, name: str) -> None:
    do_damage, expected = TABLE[name]
    do_damage(store)
    check_findings(report_of(store).findings, expected)


def test_a_finding_says_what_stands_where(store: Path) -> None:
    whole, damaged = d.of_queue(store), d.record(store)
    d.put_entry(store, 5, d.entry(store, 5)._replace(size=9))
    d.patch_field(store, damaged, "body_crc", 1)
    crc, entry = report_of(store).findings
    path, position = d.journal_file(store, damaged.journal_offset)
    assert (crc.file, crc.position, crc.physical_offset) == (f"journal/{path.name}", position, damaged.journal_offset)
    assert crc.expected == "1"
    assert f"{damaged.body_crc} for these" in crc.found
    assert (entry.file, entry.position) == (f"queue/topic-1/1/{0:020d}", 5 * 22)
    assert (entry.queue, entry.number, entry.physical_offset) == ("topic-1/1", 5, whole.journal_offset)
    assert f"offset {whole.journal_offset}, 9 bytes" in entry.found
    assert f"offset {whole.journal_offset}, {whole.size} bytes" in entry.expected
