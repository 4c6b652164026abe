"""A store of either format that is damaged in one way has the finding of that damage, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.findings import check_findings
from tests.support.store_damages import DAMAGES, Damages, cut_file, patch
from tests.support.store_reports import report_of


@dataclass(frozen=True)
class Case:
    """A damage, and its findings.

    Attributes:
        damage: function that damages a store's folder.
        expected: number of findings of each class.
        rocketmq: what else is found in a RocketMQ store: its IndexFiles lead there, too.
        jmq: what else is found in a JMQ store: its checkpoint counts entries.
    """

    damage: Callable[[Damages, Path], object]
    expected: dict[str, int]
    rocketmq: dict[str, int] = field(default_factory=dict)
    jmq: dict[str, int] = field(default_factory=dict)


LOG = {
    "a magic that is none": Case(
        lambda d, root: d.patch_field(root, d.record(root), "magic", 7), {"log_bad_magic": 1}),
    "a size that no record has": Case(
        lambda d, root: d.patch_field(root, d.record(root), "total_size", 5), {"log_bad_size": 1}),
    "an offset that is another's": Case(
        lambda d, root: d.patch_offset(root, d.record(root), 5), {"log_bad_offset": 1}),
    "the offset of another segment": Case(
        lambda d, root: d.patch_offset(root, d.record(root), d.offset_of(d.record(root)) + d.segment_bytes),
        {"log_reused_file": 1}),
    "a flipped bit in a body": Case(
        lambda d, root: d.patch_field(root, d.record(root), "body_crc", 1), {"log_bad_crc": 1}),
    "zeros where a record was": Case(
        lambda d, root: d.clear_record(root, d.record(root)), {"log_hole": 1}),
    "a record's changed number": Case(
        lambda d, root: d.patch_field(root, d.of_queue(root)[5], "queue_offset", 77), {"log_wrong_number": 1}),
    "a topic that leads elsewhere": Case(
        lambda d, root: d.patch_topic(root, d.of_queue(root)[5], b"/"),
        {"log_bad_topic": 1, "log_lost_messages": 1, "queue_dangling_entry": 1}, rocketmq={"index_wrong_hash": 4}),
    "a number twice": Case(
        Damages.repeat_record, {"log_repeated_number": 1, "queue_wrong_offset": 1}, jmq={"checkpoint_disagrees": 1}),
    "a filler that ends elsewhere": Case(
        lambda d, root: d.patch_log(root, d.filler(root), (9).to_bytes(4)), {"log_bad_filler": 1}),
    "a segment gone": Case(
        lambda d, root: d.segment(root, 2 * d.segment_bytes)[0].unlink(), {"log_missing_segment": 1}),
    "a segment of another size": Case(
        lambda d, root: patch(d.segment(root, d.offset_of(d.record(root, -1)))[0], d.segment_bytes, bytes(9)),
        {"log_file_size": 1}),
    "a segment cut within a record": Case(
        Damages.cut_segment, {"log_file_size": 1, "log_cut": 1}),
    "another segment's bytes": Case(
        Damages.reuse_segment, {"log_reused_file": 1}),
    "a record of another queue": Case(
        lambda d, root: d.patch_field(root, d.of_queue(root)[5], "queue_id", 9),
        {"log_lost_messages": 1, "queue_dangling_entry": 1, "queue_missing": 1}, jmq={"checkpoint_disagrees": 1}),
    "a file that is no segment": Case(
        lambda d, root: (root / d.log / "notes.txt").touch(), {"log_stray_file": 1}),
}  # fmt: skip
QUEUES = {
    "an empty entry": Case(
        lambda d, root: d.clear_entry(root, 5), {"queue_missing_entry": 1}),
    "another's offset": Case(
        lambda d, root: d.change_entry(root, 5, **{d.offset_name: 0}), {"queue_wrong_offset": 1}),
    "entries swapped": Case(
        Damages.swap_entries, {"queue_wrong_offset": 2}),
    "an entry doubled": Case(
        lambda d, root: d.put_entry(root, 5, d.entry(root, 4)), {"queue_wrong_offset": 1}),
    "another size": Case(
        lambda d, root: d.change_entry(root, 5, size=9), {"queue_wrong_size": 1}),
    "an entry too many": Case(
        lambda d, root: d.put_entry(root, d.queue_end(root), d.entry(root, 0)),
        {"queue_dangling_entry": 1}, jmq={"checkpoint_disagrees": 1}),
    "a queue gone": Case(
        lambda d, root: shutil.rmtree(d.queue_folder(root)), {"queue_missing": 1}),
    "the first file gone": Case(
        lambda d, root: d.queue_file(root, 0)[0].unlink(), {"queue_missing_file": 1}),
    "a file in the middle gone": Case(
        lambda d, root: d.queue_file(root, d.queue_file_entries)[0].unlink(), {"queue_missing_file": 1}),
    "a file too long": Case(
        lambda d, root: patch(d.queue_file(root, 0)[0], d.queue_file_bytes, bytes(d.entry_layout.size)),
        {"queue_file_size": 1}),
    "a file whose name is no entry's place": Case(
        lambda d, root: shutil.copy(d.queue_file(root, 0)[0], d.queue_folder(root) / f"{7:020d}"),
        {"queue_file_name": 1}),
    "a file whose name is a place within another": Case(
        lambda d, root: shutil.copy(d.queue_file(root, 0)[0], d.queue_folder(root) / f"{2 * d.entry_layout.size:020d}"),
        {"queue_file_name": 1}),
    "a second file of one number, in other digits": Case(
        lambda d, root: shutil.copy(d.queue_file(root, 0)[0], d.queue_folder(root) / ("\u0660" * 20)),
        {"queue_file_name": 1}),
    "names in other digits": Case(
        lambda d, root: d.queue_file(root, 0)[0].rename(d.queue_folder(root) / ("\u0660" * 20)),
        {}),
}  # fmt: skip
SMALL = {
    "no checkpoint": Case(
        lambda _, root: (root / "checkpoint").unlink(), {"checkpoint_missing": 1}),
    "a checkpoint cut": Case(
        lambda _, root: cut_file(root / "checkpoint", 10), {"checkpoint_unreadable": 1}),
    "a crash": Case(
        lambda _, root: (root / "abort").touch(), {"abort_present": 1}),
}  # fmt: skip
TABLE = {
    f"{kind}: {title}": case
    for kind, cases in {"log": LOG, "queue": QUEUES, "small": SMALL}.items()
    for title, case in cases.items()
}
each_format = pytest.mark.parametrize("name", DAMAGES)


@pytest.fixture
def original(name: str, intact: Path, intact_jmq: Path) -> Path:
    """The intact store of the format that a test names."""
    return {"rocketmq": intact, "jmq": intact_jmq}[name]


@each_format
def test_an_intact_store_has_no_finding(name: str, original: Path) -> None:
    report = report_of(original)
    assert report.findings.counts == {}
    assert report.records == 600
    assert report.queues == len({(each.topic, each.queue_id) for each in DAMAGES[name].messages(original)})
    assert report.index_files == (len(list((original / "index").iterdir())) if name == "rocketmq" else 0)
    assert report.groups == 2


@pytest.mark.some_cases(4)
@each_format
@pytest.mark.parametrize("title", TABLE)
def test_a_damage_is_found_and_named(name: str, original: Path, tmp_path: Path, title: str) -> None:
    root, case = Path(shutil.copytree(original, tmp_path / "store")), TABLE[title]
    case.damage(DAMAGES[name], root)
    check_findings(report_of(root).findings, case.expected | (case.rocketmq if name == "rocketmq" else case.jmq))
