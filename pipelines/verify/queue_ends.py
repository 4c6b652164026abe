"""Checks of ConsumeQueues after the whole log was read: their files, and entries without a record in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.log_format.queues import QueueLayout
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.queue_check import MAX_NUMBER, BadRanges, OffsetRun, Restarts, recorded_number_ranges
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BATCH_QUEUE_TYPE, SIMPLE_QUEUE_TYPE
from commitlake.schemas.layouts.segment_names import is_segment_name, parse_segment_name, segment_name

_ENTRIES_AT_ONCE = 4096
"""Number of entries that are read at once, and of expired entries that are checked."""


class QueueFolders:
    """Checks names and sizes of queue files without reading their content."""

    def __init__(self, view: StoreView, findings: Findings, restarts: Restarts) -> None:
        self._view = view
        self._findings = findings
        self._restarts = restarts

    def check_absent_queue(self, files: QueueFiles, runs: Sequence[OffsetRun]) -> None:
        """Check a queue without files; if the log has records of it, report their entries as missing."""
        self._check_file_names(files)
        if not runs:
            return
        dispatched = [run for run in runs if run.first_offset < self._view.dispatched_end]
        code = "queue_missing" if dispatched else "queue_not_dispatched"
        new = max((new for _, new in self._restarts.get(files.topic, ())), default=0)
        is_deleted = self._view.is_topic_deleted(files.topic) or runs[-1].last_offset < new
        if code == "queue_missing" and is_deleted:
            code = "queue_deleted"
        count = sum(run.end - run.first for run in runs)
        first = (dispatched or runs)[0]
        self._findings.add(
            Finding(code, files.folder, None, first.first_offset, files.name, first.first,
                    "no file", f"entries of {format_count(count, 'record')}")
        )  # fmt: skip

    def check_files(self, files: QueueFiles, first_number: int | None) -> None:
        """Check names and sizes of one queue's files, and report missing files between them.

        Args:
            files: the files of a queue that has some.
            first_number: number of the entry of the log's first record of this queue; None if that does not show it
                which file should exist.
        """
        self._check_file_names(files)
        wanted = files.starts[0]
        if first_number is not None:
            wanted = min(wanted, files.file_start(first_number))
        # An imagined file before the first wanted one lets the loop find missing files at the begin, too.
        for before, after in pairwise([wanted - files.file_size, *files.starts]):
            start, missing = max(0, before + files.file_size), (after - before) // files.file_size - 1
            name, number = f"{files.folder}/{segment_name(start)}", start // files.layout.entry_size
            expected = f"{format_count(missing, 'file')} before {segment_name(after)}"
            finding = Finding("queue_missing_file", name, None, None, files.name, number, "no such file", expected)
            self._findings.add_many(finding.code, missing, [finding])

    def _check_file_names(self, files: QueueFiles) -> None:
        starts: dict[int, str] = {}
        with suppress(FileNotFoundError):
            for found in self._view.files.files_in(files.folder):
                name, start = f"{files.folder}/{found}", parse_segment_name(found)
                if start is not None and start in starts:
                    expected = f"one file that begins at {start}: {starts[start]}"
                    self._findings.add(
                        Finding("queue_file_name", name, queue=files.name, found=found, expected=expected)
                    )
                elif start is not None:
                    starts[start] = found
                    self._check_file(files, name, start, self._view.files.size_of(name))
                elif files.layout.refuses_other_names:
                    expected = "20 digits as a name"
                    self._findings.add(
                        Finding("queue_file_name", name, queue=files.name, found=found, expected=expected)
                    )

    def _check_file(self, files: QueueFiles, name: str, start: int, size: int) -> None:
        if not files.may_be_file_start(start):
            first = f"{files.origin} and " if files.origin else ""
            found, expected = segment_name(start), f"{first}a multiple of {files.file_size}"
            self._findings.add(Finding("queue_file_name", name, queue=files.name, found=found, expected=expected))
        elif size != files.file_size:
            found, expected = f"{size} bytes", f"{files.file_size} bytes"
            self._findings.add(Finding("queue_file_size", name, queue=files.name, found=found, expected=expected))


def check_queue_kinds(
    files: StoreFiles,
    has_batches_by_topic: Mapping[str, bool],
    queues: Sequence[tuple[str, int]],
    layout: QueueLayout,
    findings: Findings,
    *,
    are_batches: bool,
) -> None:
    """Check that each topic's queues are in the folder for the queue type that topics.json gives.

    Args:
        has_batches_by_topic: The topics in topics.json, each with whether it has batches.
        queues: Those that have a folder of this layout.
        layout: ConsumeQueues or BatchConsumeQueues.
        findings: Gets those topics whose queues would keep a broker from starting.
        are_batches: Whether the layout is that of BatchConsumeQueues.
    """
    wrong = [queue for queue in queues if has_batches_by_topic.get(queue[0], False) is not are_batches]
    for topic in dict.fromkeys(
        topic for topic, queue_id in wrong if files.files_in(f"{layout.folder}/{topic}/{queue_id}", is_segment_name)
    ):
        kind = SIMPLE_QUEUE_TYPE if are_batches else BATCH_QUEUE_TYPE
        states = "says" if topic in has_batches_by_topic else "does not have the topic, which means"
        expected = f"none, as topics.json {states} {kind}"
        findings.add(
            Finding("queue_wrong_kind", f"{layout.folder}/{topic}", queue=topic, found="queues", expected=expected)
        )


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Queue offsets that a consumer can read: from `first` to before `end`."""

    first: int
    end: int


class QueueEnds:
    """Checks ConsumeQueues for missing files and entries without records, after the whole log was read.

    Attributes:
        awaits_record: whether a copy has an entry of the newest record, but not the record itself.
    """

    def __init__(self, view: StoreView, bad: BadRanges, findings: Findings, restarts: Restarts) -> None:
        self._view = view
        self._queues = view.queue_layout
        self._bad = bad
        self._findings = findings
        self._folders = QueueFolders(view, findings, restarts)
        self.awaits_record = False

    def check_queue(self, topic: str, queue_id: int, runs: Sequence[OffsetRun]) -> QueueBounds:
        """Check one queue's files, and report its entries that have no record.

        Returns:
            The queue offsets that can be consumed.
        """
        files = self._view.open_queue_files(topic, queue_id)
        ranges = recorded_number_ranges(runs)
        if self._view.lacks_queues:
            self._findings.add(
                Finding("queue_not_compared", self._queues.folder, queue=files.name, found=self._view.lacks_queues,
                        expected="a ConsumeQueue, to be compared with the log")
            )  # fmt: skip
            return QueueBounds(0, MAX_NUMBER)
        if not files.starts:
            self._folders.check_absent_queue(files, runs)
            return QueueBounds(ranges[0][0] if ranges else 0, ranges[-1][1] if ranges else 0)
        self._folders.check_files(files, ranges[0][0] if ranges else None)
        written = files.find_written_end()
        if not ranges:
            self._check_entries_before_records(files, written)
            return QueueBounds(written, written)
        if self._queues.fills_gaps and self._view.start == 0:
            self._check_entries_between_records(files, 0, ranges[0][0])  # the log begins at 0, so nothing has expired
        else:
            self._check_entries_before_records(files, ranges[0][0])
        for (_, first), (end, _) in pairwise(ranges):
            self._check_entries_between_records(files, first, end)
        end = self._check_entries_after_records(files, ranges[-1][1])
        return QueueBounds(ranges[0][0], max(end, written))

    def _check_entries_before_records(self, files: QueueFiles, end_number: int) -> None:
        """Report entries before a queue's first record that point to a position still in the log."""
        first = max(files.first_number, end_number - _ENTRIES_AT_ONCE)
        for number, entries in _read_entry_blocks(files, first, end_number):
            leads = self._queues.is_written(entries) & ~self._queues.is_filler(entries)
            loose = leads & (entries["physical_offset"] >= self._view.start)
            self._report_dangling_entries(files, number, entries, loose)

    def _check_entries_between_records(self, files: QueueFiles, first_number: int, end_number: int) -> None:
        """Check entries for queue offsets without a record, and report lost messages where the log is intact."""
        explained = 0
        for number, entries in _read_entry_blocks(
            files, max(first_number, files.first_number), min(end_number, files.end_number)
        ):
            explained += self._report_dangling_entries(
                files, number, entries, self._queues.dangling_entry_mask(entries)
            )
        lost = end_number - first_number - explained
        self._findings.add_many(
            "log_lost_messages",
            lost,
            [
                Finding("log_lost_messages", self._view.log_folder_name, queue=files.name, number=first_number,
                        found=f"no record of numbers {first_number} to {end_number - 1}",
                        expected=format_count(end_number - first_number, "record"))
            ],
        )  # fmt: skip

    def _check_entries_after_records(self, files: QueueFiles, first_number: int) -> int:
        """Check entries after a queue's last record, and return the end offset that a broker would compute."""
        end = first_number
        for number, entries in _read_entry_blocks(files, max(first_number, files.first_number), files.end_number):
            valid = self._queues.is_written(entries)
            if not valid.any():
                break
            stop = len(entries) if valid.all() else int(np.argmin(valid))
            self._report_dangling_entries(files, number, entries[:stop], valid[:stop])
            end = number + stop
            if stop < len(entries):
                break
        return end

    def _report_dangling_entries(self, files: QueueFiles, first_number: int, entries: Array, is_dangling: Array) -> int:
        """Report the queue entries that point to no record.

        Return the number of those that point to damage, which are not reported.
        """
        places = np.flatnonzero(is_dangling)
        explained = 0
        for place in places.tolist():
            offset = int(entries["physical_offset"][place])
            if self._bad.contains_offset(offset):
                explained += 1
                continue
            if offset >= self._view.end and self._view.is_live:
                continue  # written after the log's end was fixed
            if self._view.is_end_of_copied_log(offset):
                self.awaits_record = True
                continue
            code = (
                self._view.finding_code_after_log_end("queue_beyond_log")
                if offset >= self._view.end
                else "queue_dangling_entry"
            )
            file, position = files.entry_place(first_number + place)
            expected = (
                f"an offset before the log's end, {self._view.end}"
                if offset >= self._view.end
                else f"a record with the number {first_number + place} there, or no entry"
            )
            found = self._queues.words(entries[place])
            self._findings.add(Finding(code, file, position, offset, files.name, first_number + place, found, expected))
        return explained


def _read_entry_blocks(files: QueueFiles, first: int, end: int) -> Iterator[tuple[int, Array]]:
    for begin, stop, is_there in files.split_by_file(first, end):
        for number in range(begin, stop, _ENTRIES_AT_ONCE) if is_there else ():
            yield number, files.read_entries(number, min(stop, number + _ENTRIES_AT_ONCE))
