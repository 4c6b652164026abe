"""Checks of BatchConsumeQueues: records against their entries, then entries and files without records in the log.

Entries are found by physical offset. They have the order of their records in the log, so a range of the log corresponds
to a range of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from commitlake.connectors.formats.rocketmq.batch_queues import message_counts
from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.queue_check import (
    BadRanges,
    OffsetRun,
    Restarts,
    find_offset_runs,
    recorded_number_ranges,
)
from commitlake.pipelines.verify.queue_ends import QueueBounds, QueueFolders
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.formatted_counts import format_count

_BATCH_FIELDS = ("message_base_offset", "batch_size", "store_timestamp")


class BatchChecker:
    """Compares records of the log with their entries in BatchConsumeQueues, chunk by chunk."""

    def __init__(self, view: StoreView, findings: Findings) -> None:
        self._view = view
        self._findings = findings

    def check_entries(self, entries: QueueEntries) -> list[OffsetRun]:
        """Compare a chunk's records of one queue with their entries in its BatchConsumeQueue.

        Returns:
            The runs of the records.
        """
        files = self._view.open_batch_queue_files(entries.topic, entries.queue_id)
        runs = [run for run, _ in find_offset_runs(entries, message_counts(entries))]
        if files.starts:
            expected = files.layout.to_entries(entries)
            offsets = expected["physical_offset"]
            places, found = files.entries_between(int(offsets[0]), int(offsets[-1]))
            # The usual case; only otherwise are all entries of the queue read.
            if len(found) == len(expected) and (found["physical_offset"] == offsets).all():
                self._compare_entries(files, places, found, expected)
            else:
                self._match_entries_by_offset(files, expected, runs)
        return runs

    def _match_entries_by_offset(self, files: QueueFiles, expected_entries: Array, runs: list[OffsetRun]) -> None:
        """Compare records with the queue entries that have their physical offset, and report records without one.

        All entries of the queue are read, because damaged ones may be anywhere.
        """
        offsets = expected_entries["physical_offset"]
        places, found = files.entries_between(int(offsets[0]), int(offsets[-1]), by_search=False)
        _, in_found, in_expected = np.intersect1d(found["physical_offset"], offsets, return_indices=True)
        self._compare_entries(files, places[in_found], found[in_found], expected_entries[in_expected])
        without = np.setdiff1d(np.arange(len(expected_entries)), in_expected)
        lags = offsets[without] >= self._view.dispatched_end
        for code, rows in (("queue_missing_entry", without[~lags]), ("queue_not_dispatched", without[lags])):
            self._findings.add_many(
                code,
                len(rows),
                (
                    self._absent_entry_finding(code, files, expected_entries[row])
                    for row in rows[: self._view.limit].tolist()
                ),
            )
        loose = np.setdiff1d(np.arange(len(found)), in_found)
        within = np.zeros(len(loose), np.bool_)
        for run in runs:  # `BatchEnds` checks what lies between two runs, once the whole log is read
            within |= (found["physical_offset"][loose] > run.first_offset) & (
                found["physical_offset"][loose] < run.last_offset
            )
        rows = loose[within]
        self._findings.add_many(
            "queue_dangling_entry",
            len(rows),
            (
                self._dangling_queue_entry_finding(files, int(places[row]), found[row])
                for row in rows[: self._view.limit].tolist()
            ),
        )

    def _compare_entries(
        self, files: QueueFiles, entry_numbers: Array, actual_entries: Array, expected_entries: Array
    ) -> None:
        same_size = actual_entries["size"] == expected_entries["size"]
        same_code = actual_entries["tags_code"] == expected_entries["tags_code"]
        same_batch = np.logical_and.reduce([actual_entries[name] == expected_entries[name] for name in _BATCH_FIELDS])
        for code, wrong in (
            ("queue_wrong_size", ~same_size),
            ("queue_wrong_tags", same_size & ~same_code),
            ("queue_wrong_batch", same_size & same_code & ~same_batch),
        ):
            rows = np.flatnonzero(wrong)
            self._findings.add_many(
                code,
                len(rows),
                (
                    self._wrong_entry_finding(
                        code, files, int(entry_numbers[row]), actual_entries[row], expected_entries[row]
                    )
                    for row in rows[: self._view.limit].tolist()
                ),
            )

    def _wrong_entry_finding(
        self, code: str, files: QueueFiles, entry_number: int, actual_entry: Array, expected_entry: Array
    ) -> Finding:
        file, position = files.entry_place(entry_number)
        words, base = files.layout.words, int(expected_entry["message_base_offset"])
        offset = int(expected_entry["physical_offset"])
        return Finding(code, file, position, offset, files.name, base, words(actual_entry), words(expected_entry))

    def _absent_entry_finding(self, code: str, files: QueueFiles, expected_entry: Array) -> Finding:
        return Finding(
            code, files.folder, None, int(expected_entry["physical_offset"]), files.name,
            int(expected_entry["message_base_offset"]), "no entry", files.layout.words(expected_entry),
        )  # fmt: skip

    def _dangling_queue_entry_finding(self, files: QueueFiles, entry_number: int, dangling_entry: Array) -> Finding:
        return dangling_entry_finding(
            "queue_dangling_entry", files, entry_number, dangling_entry, "a record there, or no entry"
        )


def dangling_entry_finding(
    code: str, files: QueueFiles, entry_number: int, dangling_entry: Array, expected_text: str
) -> Finding:
    """Return a finding for a queue entry that points to no record."""
    file, position = files.entry_place(entry_number)
    offset, base = int(dangling_entry["physical_offset"]), int(dangling_entry["message_base_offset"])
    return Finding(code, file, position, offset, files.name, base, files.layout.words(dangling_entry), expected_text)


class BatchEnds:
    """Checks BatchConsumeQueues for missing files and entries without records, after the whole log was read.

    Attributes:
        awaits_record: whether a copy has an entry of the newest record, but not the record itself.
    """

    def __init__(self, view: StoreView, bad: BadRanges, findings: Findings, restarts: Restarts) -> None:
        self._view = view
        self._bad = bad
        self._findings = findings
        self._folders = QueueFolders(view, findings, restarts)
        self.awaits_record = False

    def check_queue(self, topic: str, queue_id: int, runs: Sequence[OffsetRun]) -> QueueBounds:
        """Check one queue's files, and report entries without a record and queue offsets without a record.

        Returns:
            The queue offsets that a consumer may ask for.
        """
        files = self._view.open_batch_queue_files(topic, queue_id)
        ranges = recorded_number_ranges(runs)
        if not files.starts:
            self._folders.check_absent_queue(files, runs)
            return QueueBounds(ranges[0][0] if ranges else 0, ranges[-1][1] if ranges else 0)
        self._folders.check_files(files, None)
        for (_, first), (end, _) in pairwise(ranges):
            self._findings.add_many(
                "log_lost_messages",
                end - first,
                [
                    Finding("log_lost_messages", self._view.log_folder_name, queue=files.name, number=first,
                            found=f"no record of numbers {first} to {end - 1}",
                            expected=format_count(end - first, "message"))
                ],
            )  # fmt: skip
        begins = np.array([run.first_offset for run in runs], np.int64)
        ends = np.array([run.last_offset for run in runs], np.int64)
        begins.sort()
        ends.sort()
        queue_end = 0
        for first_place, entries in files.read_entry_blocks():
            written = files.layout.is_written(entries)
            offsets = entries["physical_offset"].astype(np.int64)
            if written.any():
                last = entries[np.flatnonzero(written)[-1]]
                queue_end = int(last["message_base_offset"]) + int(last["batch_size"])
            # More runs have begun at or before the offset than have ended before it, so it is inside one.
            in_a_run = np.searchsorted(begins, offsets, "right") > np.searchsorted(ends, offsets, "left")
            for row in np.flatnonzero(written & ~in_a_run & (offsets >= self._view.start)).tolist():
                self._report_dangling_entry(files, first_place + row, entries[row])
        first = ranges[0][0] if ranges else queue_end
        return QueueBounds(first, max(queue_end, ranges[-1][1] if ranges else 0))

    def _report_dangling_entry(self, files: QueueFiles, entry_number: int, entry: Array) -> None:
        offset = int(entry["physical_offset"])
        if self._bad.contains_offset(offset) or (offset >= self._view.end and self._view.is_live):
            return  # damage of the log is reported once; entries newer than the log's end were not compared
        if self._view.is_end_of_copied_log(offset):
            self.awaits_record = True
            return
        code, expected = "queue_dangling_entry", "a record there, or no entry"
        if offset >= self._view.end:
            code, expected = (
                self._view.finding_code_after_log_end("queue_beyond_log"),
                f"an offset before the log's end, {self._view.end}",
            )
        self._findings.add(dangling_entry_finding(code, files, entry_number, entry, expected))
