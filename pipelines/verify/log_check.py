"""Checks of a range of the log: damage, order of store times, and each record against its index entries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.index_data.log_range_reader import read_index_data
from commitlake.connectors.reading.index_data.queue_entries import group_entries_by_queue
from commitlake.connectors.reading.index_data.topic_kinds import collect_batch_evidence, is_valid_folder_name
from commitlake.connectors.reading.single_records import scan_at_offset
from commitlake.connectors.reading.splits import Split
from commitlake.pipelines.verify.batch_queues import BatchChecker
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.index_check import IndexChecker
from commitlake.pipelines.verify.queue_check import OffsetRun, QueueChecker
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, Fault

_CODES = {
    Fault.MAGIC: "log_bad_magic",
    Fault.SIZE: "log_bad_size",
    Fault.PHYSICAL_OFFSET: "log_bad_offset",
    Fault.PART_LENGTHS: "log_bad_lengths",
    Fault.BODY_CRC: "log_bad_crc",
    Fault.BLANK_SIZE: "log_bad_filler",
    Fault.HOLE: "log_hole",
    Fault.CUT: "log_cut",
    Fault.MISSING_SEGMENT: "log_missing_segment",
}
_EXPECTED_QUEUE = "a topic in UTF-8 that a folder can have as its name, and a queue from 0 on"
_MAX_SHOWN_CHARS = 100


@dataclass
class LogReport:
    """Result of checking one range of the log: findings and counts, and the runs of queue offsets in it.

    Attributes:
        findings: the findings that this range alone shows.
        runs: the runs of all queues, in the order of the log.
        bad: ranges without an intact record.
        records: number of records.
        with_keys: number of records with keys.
        bytes: bytes of the log that were read.
        first_time: store time of the first record, ms; None without one.
        last_time: store time of the last record, ms; None without one.
        newest_time: the latest store time, ms; 0 without a record.
        batch_topics: topics with BatchConsumeQueues that have records in this range.
        not_copied: number of records with keys that only the newest IndexFile has, which a copy lacks.
        first_not_copied: physical offset of the first of them; None without one.
    """

    findings: Findings
    runs: list[OffsetRun] = field(default_factory=list)
    bad: list[BadRange] = field(default_factory=list)
    records: int = 0
    with_keys: int = 0
    bytes: int = 0
    first_time: int | None = None
    last_time: int | None = None
    newest_time: int = 0
    batch_topics: set[str] = field(default_factory=set)
    not_copied: int = 0
    first_not_copied: int | None = None


def check_log_range(view: StoreView, split: Split) -> LogReport:
    """Read a range of the log, and compare every record with its queue and index entries."""
    report = LogReport(Findings(view.limit))
    with closing(IndexChecker(view, report.findings)) as index:
        _check_log_chunks(view, split, report, index)
    report.not_copied, report.first_not_copied = index.not_copied, index.first_not_copied
    _report_bad_ranges(report.bad, split, report.findings, view)
    return report


def _check_log_chunks(view: StoreView, split: Split, report: LogReport, index: IndexChecker) -> None:
    queues, batches = QueueChecker(view, report.findings), BatchChecker(view, report.findings)
    for facts in read_index_data(split, delay_levels_ms=view.delay_levels_ms):
        report.records += facts.record_count
        report.bytes += facts.end - facts.start
        report.with_keys += int(np.count_nonzero(np.diff(facts.key_ends, prepend=0)))
        report.bad += facts.bad
        _check_store_times(facts, split, report, view.limit)
        _check_receive_times(facts, split, report, view.limit)
        flagged = facts.physical_offset[facts.batch_mask]
        for entries in group_entries_by_queue(facts, includes_light_queues=view.may_have_light_queues):
            if not _is_valid_queue(view, entries):
                _report_bad_topic(entries, split, report.findings)
            elif _has_batches(view, entries, flagged):
                report.batch_topics.add(entries.topic)
                report.runs += batches.check_entries(entries)
            else:
                report.runs += queues.check_entries(entries)
        index.check_chunk(facts)


def _has_batches(view: StoreView, entries: QueueEntries, flagged_offsets: Array) -> bool:
    if entries.topic in view.kinds.batch:
        return True
    if not len(flagged_offsets) or not view.kinds.is_unknown(entries.topic):
        return False
    return collect_batch_evidence(entries, flagged_offsets).shows_batch_queues(len(entries))


def _check_store_times(index_data: IndexData, split: Split, report: LogReport, max_findings: int) -> None:
    if index_data.record_count:
        # Of all records; the order below is checked only where times are exact.
        report.newest_time = max(report.newest_time, int(index_data.store_timestamp.max()))
    times, offsets = index_data.store_timestamp, index_data.physical_offset
    if index_data.is_dated is not None:
        times, offsets = times[index_data.is_dated], offsets[index_data.is_dated]
    if not len(times):
        return
    # Compared, not subtracted: the difference of two times may need more than 64 bits.
    before = np.insert(times[:-1], 0, times[0] if report.last_time is None else report.last_time)
    back = np.flatnonzero(times < before)
    report.findings.add_many(
        "log_time_back",
        len(back),
        (
            time_back_finding(split, int(offsets[row]), int(times[row]), int(before[row]))
            for row in back[:max_findings].tolist()
        ),
    )
    if report.first_time is None:
        report.first_time = int(times[0])
    report.last_time = int(times[-1])


def _is_valid_queue(view: StoreView, entries: QueueEntries) -> bool:
    """Return whether a topic and queue id, which no checksum covers, can be those of a queue."""
    return entries.queue_id >= 0 and is_valid_folder_name(entries.topic) and view.queue_layout.has_queues(entries.topic)


def _report_bad_topic(entries: QueueEntries, split: Split, findings: Findings) -> None:
    findings.add_many(
        "log_bad_topic",
        len(entries),
        (
            Finding("log_bad_topic", segment_path(split), offset - split.base_offset, offset, number=number,
                    found=f"topic {_topic_text(entries.topic)}, queue {entries.queue_id}", expected=_EXPECTED_QUEUE)
            for offset, number in zip(entries.physical_offset[: findings.limit].tolist(),
                                      entries.queue_offset[: findings.limit].tolist(), strict=True)
        ),
    )  # fmt: skip


def _topic_text(topic: str) -> str:
    return repr(topic if len(topic) <= _MAX_SHOWN_CHARS else f"{topic[:_MAX_SHOWN_CHARS]}...")


def _check_receive_times(index_data: IndexData, split: Split, report: LogReport, max_findings: int) -> None:
    if index_data.receive_timestamp is None:
        return
    rows = np.flatnonzero(index_data.receive_timestamp > index_data.store_timestamp)
    report.findings.add_many(
        "log_received_late",
        len(rows),
        (
            Finding("log_received_late", segment_path(split), int(index_data.physical_offset[row]) - split.base_offset,
                    int(index_data.physical_offset[row]), found=f"received at {index_data.receive_timestamp[row]} ms",
                    expected=f"{index_data.store_timestamp[row]} ms, when it was stored, or earlier")
            for row in rows[:max_findings].tolist()
        ),
    )  # fmt: skip


def time_back_finding(split: Split, offset: int, store_time: int, previous_store_time: int) -> Finding:
    """Return a finding for a store time that is earlier than that of the previous record."""
    return Finding(
        "log_time_back", segment_path(split), offset - split.base_offset, offset,
        found=f"{store_time} ms", expected=f"{previous_store_time} ms, as before, or later",
    )  # fmt: skip


def segment_path(split: Split) -> str:
    """Return the path of a segment, relative to the store's folder."""
    return f"{split.format.folder}/{split.path.rsplit('/', 1)[-1]}"


def _report_bad_ranges(bad_ranges: Sequence[BadRange], split: Split, findings: Findings, view: StoreView) -> None:
    cut_at = -1
    for each in bad_ranges:
        code = _CODES[each.fault]
        if each.fault is Fault.CUT:  # the record that is cut and the missing rest of the file are one finding
            cut_at, before = each.end, cut_at
            if each.start == before:
                continue
        if len(findings.kept.get(code, ())) >= view.limit and each.fault is not Fault.PHYSICAL_OFFSET:
            findings.add_many(code, 1, ())
            continue
        findings.add(_bad_range_finding(each, split))


def _bad_range_finding(bad_range: BadRange, split: Split) -> Finding:
    code, file = _CODES[bad_range.fault], segment_path(split)
    size = format_count(bad_range.end - bad_range.start, "byte")
    if bad_range.fault in (Fault.MISSING_SEGMENT, Fault.HOLE):
        found = "no such file" if bad_range.fault is Fault.MISSING_SEGMENT else f"{size} without a record, zeros first"
        return Finding(
            code, file, bad_range.start - split.base_offset, bad_range.start, found=found, expected=f"{size} of log"
        )
    with OpenSegment(split.path) as opened:
        finding, view = scan_at_offset(opened, split, bad_range.start, DEFAULT_MAX_RECORD_BYTES)
    expected, found = finding.expected, f"{finding.found} (no record for {size})"
    if bad_range.fault is Fault.PHYSICAL_OFFSET:
        own = split.format.record_rules.own_offset(view)
        segment_size = split.segment_end - split.base_offset
        # The record's own offset differs by whole segments: the file was reused, and this is old content.
        if own is not None and own >= 0 and (own - bad_range.start) % segment_size == 0:
            code = "log_reused_file"
    return Finding(code, file, bad_range.start - split.base_offset, bad_range.start, found=found, expected=expected)
