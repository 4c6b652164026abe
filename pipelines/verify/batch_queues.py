"""Checks of BatchConsumeQueues: records against their entries, then entries and files without records in the log.

Entries are found by physical offset. They have the order of their records in the log, so a range of the log corresponds
to a range of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.rocketmq.batch_queues import message_counts
from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.queue_check import BadRanges, Restarts, Run, find_runs, recorded_ranges
from commitlake.pipelines.verify.queue_ends import QueueBounds, QueueFolders
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.counts import format_count

_BATCH_FIELDS = ("message_base_offset", "batch_size", "store_timestamp")


class BatchChecker:
    """Compares records of the log with their entries in BatchConsumeQueues, chunk by chunk."""

    def __init__(self, view: StoreView, findings: Findings) -> None:
        self._view = view
        self._findings = findings

    def check(self, entries: QueueEntries) -> list[Run]:
        """Compare a queue's records of a chunk with their entries.

        Returns:
            The runs of the records.
        """
        files = self._view.batch_queue(entries.topic, entries.queue_id)
        runs = [run for run, _ in find_runs(entries, message_counts(entries))]
        if files.starts:
            expected = files.layout.to_entries(entries)
            offsets = expected["physical_offset"]
            places, found = files.entries_between(int(offsets[0]), int(offsets[-1]))
            if len(found) == len(expected) and (found["physical_offset"] == offsets).all():
                self._compare_entries(files, places, found, expected)
            else:
                self._match_entries(files, expected, runs)
        return runs

    def _match_entries(self, files: QueueFiles, expected: Array, runs: list[Run]) -> None:
        """Compare records with the entries that have their physical offset, and report those without a counterpart.

        All entries of the queue are read, because damaged ones may be anywhere.
        """
        offsets = expected["physical_offset"]
        places, found = files.entries_between(int(offsets[0]), int(offsets[-1]), by_search=False)
        _, in_found, in_expected = np.intersect1d(found["physical_offset"], offsets, return_indices=True)
        self._compare_entries(files, places[in_found], found[in_found], expected[in_expected])
        without = np.setdiff1d(np.arange(len(expected)), in_expected)
        lags = offsets[without] >= self._view.dispatched_end
        for code, rows in (("queue_missing_entry", without[~lags]), ("queue_not_dispatched", without[lags])):
            self._findings.add_many(
                code,
                len(rows),
                (self._absent_entry_finding(code, files, expected[row]) for row in rows[: self._view.limit].tolist()),
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
                self._queue_dangling_finding(files, int(places[row]), found[row])
                for row in rows[: self._view.limit].tolist()
            ),
        )

    def _compare_entries(self, files: QueueFiles, places: Array, found: Array, expected: Array) -> None:
        same_size = found["size"] == expected["size"]
        same_code = found["tags_code"] == expected["tags_code"]
        same_batch = np.logical_and.reduce([found[name] == expected[name] for name in _BATCH_FIELDS])
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
                    self._wrong_entry_finding(code, files, int(places[row]), found[row], expected[row])
                    for row in rows[: self._view.limit].tolist()
                ),
            )

    def _wrong_entry_finding(self, code: str, files: QueueFiles, place: int, found: Array, expected: Array) -> Finding:
        file, position = files.entry_place(place)
        words, base = files.layout.words, int(expected["message_base_offset"])
        offset = int(expected["physical_offset"])
        return Finding(code, file, position, offset, files.name, base, words(found), words(expected))

    def _absent_entry_finding(self, code: str, files: QueueFiles, expected: Array) -> Finding:
        return Finding(
            code, files.folder, None, int(expected["physical_offset"]), files.name,
            int(expected["message_base_offset"]), "no entry", files.layout.words(expected),
        )  # fmt: skip

    def _queue_dangling_finding(self, files: QueueFiles, place: int, found: Array) -> Finding:
        return dangling_entry_finding("queue_dangling_entry", files, place, found, "a record there, or no entry")


def dangling_entry_finding(code: str, files: QueueFiles, place: int, found: Array, expected: str) -> Finding:
    """Return a finding for an entry that points to no record."""
    file, position = files.entry_place(place)
    offset, base = int(found["physical_offset"]), int(found["message_base_offset"])
    return Finding(code, file, position, offset, files.name, base, files.layout.words(found), expected)


class BatchEnds:
    """Checks of the BatchConsumeQueues of a store, after its whole log was read.

    Attributes:
        awaits_record: whether a copy has an entry of the newest record, but not the record itself.
    """

    def __init__(self, view: StoreView, bad: BadRanges, findings: Findings, restarts: Restarts) -> None:
        self._view = view
        self._bad = bad
        self._findings = findings
        self._folders = QueueFolders(view, findings, restarts)
        self.awaits_record = False

    def check(self, topic: str, queue_id: int, runs: Sequence[Run]) -> QueueBounds:
        """Check one queue: its files, entries outside of all runs, and queue offsets without records.

        Returns:
            The queue offsets that a consumer may ask for.
        """
        files = self._view.batch_queue(topic, queue_id)
        ranges = recorded_ranges(runs)
        if not files.starts:
            self._folders.check_absent(files, runs)
            return QueueBounds(ranges[0][0] if ranges else 0, ranges[-1][1] if ranges else 0)
        self._folders.check(files, None)
        for (_, first), (end, _) in pairwise(ranges):
            self._findings.add_many(
                "log_lost_messages",
                end - first,
                [
                    Finding("log_lost_messages", self._view.log, queue=files.name, number=first,
                            found=f"no record of numbers {first} to {end - 1}",
                            expected=format_count(end - first, "message"))
                ],
            )  # fmt: skip
        begins = np.array([run.first_offset for run in runs], np.int64)
        ends = np.array([run.last_offset for run in runs], np.int64)
        begins.sort()
        ends.sort()
        queue_end = 0
        for first_place, entries in files.read_blocks():
            written = files.layout.is_written(entries)
            offsets = entries["physical_offset"].astype(np.int64)
            if written.any():
                last = entries[np.flatnonzero(written)[-1]]
                queue_end = int(last["message_base_offset"]) + int(last["batch_size"])
            in_a_run = np.searchsorted(begins, offsets, "right") > np.searchsorted(ends, offsets, "left")
            for row in np.flatnonzero(written & ~in_a_run & (offsets >= self._view.start)).tolist():
                self._note_dangling(files, first_place + row, entries[row])
        first = ranges[0][0] if ranges else queue_end
        return QueueBounds(first, max(queue_end, ranges[-1][1] if ranges else 0))

    def _note_dangling(self, files: QueueFiles, place: int, entry: Array) -> None:
        offset = int(entry["physical_offset"])
        if self._bad.contains_offset(offset) or (offset >= self._view.end and self._view.is_live):
            return  # damage of the log is reported once; entries newer than the log's end were not compared
        if self._view.is_awaited(offset):
            self.awaits_record = True
            return
        code, expected = "queue_dangling_entry", "a record there, or no entry"
        if offset >= self._view.end:
            code, expected = (
                self._view.code_beyond("queue_beyond_log"),
                f"an offset before the log's end, {self._view.end}",
            )
        self._findings.add(dangling_entry_finding(code, files, place, entry, expected))
