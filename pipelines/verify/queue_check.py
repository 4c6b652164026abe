"""Checks of records: each against its ConsumeQueue entry, and the order of queue offsets over the whole log.

A queue's records have consecutive queue offsets, as long as none was lost, repeated, or written by a broker that had
lost its queues. Records are therefore compared in runs of consecutive offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.observed_delays import are_plausible_delays
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import StoreView

_EXTENDED = -(1 << 31) - 1
"""Codes up to this value are addresses in a ConsumeQueueExt file, not hashes."""
MAX_NUMBER = (1 << 63) // 40
"""Largest queue offset whose entry has a valid file position; only a damaged or forged record has a larger one."""
_MAX_WRONG_RECORDS = 16
"""A longer run with unexpected queue offsets is not taken for records with wrong numbers."""


class OffsetRun(NamedTuple):
    """Records of one queue that have consecutive queue offsets, in log order.

    Attributes:
        topic: the queue's topic.
        queue_id: the queue's number in its topic.
        first: queue offset of the first record.
        end: queue offset after the last record.
        first_offset: physical offset of the first record.
        last_offset: physical offset of the last record.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    first_offset: int
    last_offset: int


def find_offset_runs(entries: QueueEntries, counts: Array | int = 1) -> Iterator[tuple[OffsetRun, slice]]:
    """Yield the runs of consecutive queue offsets in a chunk, each with a slice of the chunk's entries.

    Args:
        entries: expected entries of one queue.
        counts: number of messages in each record.
    """
    numbers, offsets = entries.queue_offset, entries.physical_offset
    each = np.broadcast_to(counts, numbers.shape)
    following = numbers + each
    # Two conditions, because numbers that overflow may happen to look consecutive.
    overflows = following < numbers  # in a forged record: the number after it is larger than 64 bits
    breaks = np.flatnonzero((numbers[1:] != following[:-1]) | overflows[:-1]) + 1
    for begin, end in pairwise([0, *breaks.tolist(), len(numbers)]):
        yield (
            OffsetRun(
                entries.topic, entries.queue_id, int(numbers[begin]), int(numbers[end - 1]) + int(each[end - 1]),
                int(offsets[begin]), int(offsets[end - 1]),
            ),
            slice(begin, end),
        )  # fmt: skip


class QueueChecker:
    """Compares records of the log with their entries in ConsumeQueues, chunk by chunk."""

    def __init__(self, view: StoreView, findings: Findings) -> None:
        self._view = view
        self._findings = findings
        self._records = LogRecords(view.segments, view.format)
        self._begins: dict[str, int] = {}

    def check_entries(self, entries: QueueEntries) -> list[OffsetRun]:
        """Compare a chunk's records of one queue with their entries in its ConsumeQueue.

        Returns:
            The runs of the records, wrong queue offsets corrected.
        """
        found = list(find_offset_runs(entries))
        files = self._view.open_queue_files(entries.topic, entries.queue_id)
        # A queue without files is reported once, by `QueueFolders`.
        if files.starts and not self._view.lacks_queues:
            if len(found) > 1:
                found = self._correct_queue_offsets(files, found)
            begun_at = self._first_entry_offset(files)
            for run, rows in found:
                # Records before the first entry's record are not compared, see `_first_entry_offset`.
                if run.last_offset >= begun_at or run.first < files.first_number:
                    self._check_run_entries(files, run, entries, rows)
        return [run for run, _ in found]

    def _first_entry_offset(self, files: QueueFiles) -> int:
        """Return the physical offset in a queue's first entry if the log has that record there; else 0.

        Earlier records with the same or later queue offsets belong to a deleted topic of the same name. Their entries
        were deleted, and the entries under their numbers belong to other records, so they are not compared.
        """
        if files.name not in self._begins:
            number = files.first_number
            offset = int(files.read_entries(number, number + 1)[0]["physical_offset"])
            message = self._records.get_record(offset)
            is_its = message is not None and (message.topic, message.queue_id, message.queue_offset) == (
                files.topic,
                files.queue_id,
                number,
            )
            self._begins[files.name] = offset if is_its else 0
        return self._begins[files.name]

    def _correct_queue_offsets(
        self, files: QueueFiles, runs_with_rows: list[tuple[OffsetRun, slice]]
    ) -> list[tuple[OffsetRun, slice]]:
        """Return a queue's runs of offsets, after reporting wrong offsets and correcting them by the entries."""
        right: list[tuple[OffsetRun, slice]] = []
        for place, (run, rows) in enumerate(runs_with_rows):
            # For the first run, the number that would lead to the second one.
            expected = right[-1][0].end if right else runs_with_rows[place + 1][0].first - (run.end - run.first)
            if run.first != expected and run.end - run.first <= _MAX_WRONG_RECORDS and 0 <= expected <= MAX_NUMBER:
                entry = files.read_entries(expected, expected + 1)[0]
                if int(entry["physical_offset"]) == run.first_offset:
                    self._findings.add_many(
                        "log_wrong_number", run.end - run.first, [self._wrong_number_finding(run, expected)]
                    )
                    run = run._replace(first=expected, end=expected + run.end - run.first)  # noqa: PLW2901
            right.append((run, rows))
        return right

    def _check_run_entries(self, files: QueueFiles, run: OffsetRun, entries: QueueEntries, rows: slice) -> None:
        if not 0 <= run.first <= MAX_NUMBER:
            return
        for first, end, is_there in files.split_by_file(run.first, run.end):
            # A missing file before or between others is one finding. After the last one, entries are not written yet.
            if is_there or first >= files.end_number:
                begin = rows.start + first - run.first
                self._compare_entries(
                    files, first, files.read_entries(first, end), entries, slice(begin, begin + end - first)
                )

    def _compare_entries(
        self, files: QueueFiles, first_number: int, actual_entries: Array, entries: QueueEntries, rows: slice
    ) -> None:
        layout, offsets = self._view.queue_layout, entries.physical_offset[rows]
        same_offset, same_size = (
            actual_entries["physical_offset"] == offsets,
            actual_entries["size"] == entries.size[rows],
        )
        same_code = np.ones(len(actual_entries), np.bool_)
        extended = np.zeros(len(actual_entries), np.bool_)
        if layout.code_field is not None:
            codes = actual_entries[layout.code_field]
            same_code = codes == entries.tags_code[rows]
            if files.has_extension:  # otherwise such a code is damage, or one of BoltMQ's 64-bit hashes
                extended = codes <= _EXTENDED
        valid = layout.is_written(actual_entries)
        wrong = ~(same_offset & same_size & same_code & valid)
        if not wrong.any():
            return
        empty = layout.empty_entry_mask(actual_entries)
        # Empty entries of the newest records: the broker had not dispatched them yet.
        lags = empty & (offsets >= self._view.dispatched_end)
        wrong_code = wrong & ~empty & valid & same_offset & same_size & ~same_code & ~extended
        other_delay = np.zeros(len(actual_entries), np.bool_)
        if wrong_code.any() and files.topic == self._view.dialect.schedule_topic:
            other_delay = wrong_code & are_plausible_delays(
                actual_entries[layout.code_field] - entries.store_timestamp[rows]
            )
        for code, rows_of_class in (
            ("queue_not_dispatched", wrong & lags),
            ("queue_missing_entry", wrong & empty & ~lags),
            ("queue_invalid_entry", wrong & ~empty & ~valid),
            ("queue_wrong_offset", wrong & ~empty & valid & ~same_offset),
            ("queue_wrong_size", wrong & ~empty & valid & same_offset & ~same_size),
            ("queue_wrong_tags", wrong_code & ~other_delay),
            ("queue_other_delay", other_delay),
        ):
            places = np.flatnonzero(rows_of_class)
            self._findings.add_many(
                code,
                len(places),
                (
                    self._entry_finding(
                        code, files, first_number + place, actual_entries[place], entries, rows.start + place
                    )
                    for place in places[: self._view.limit].tolist()
                ),
            )

    def _entry_finding(
        self, code: str, files: QueueFiles, number: int, actual_entry: Array, entries: QueueEntries, row: int
    ) -> Finding:
        file, position = files.entry_place(number)
        words = self._view.queue_layout.words
        expected = self._view.queue_layout.to_entries(entries.select_rows(slice(row, row + 1)))[0]
        offset = int(entries.physical_offset[row])
        return Finding(code, file, position, offset, files.name, number, words(actual_entry), words(expected))

    def _wrong_number_finding(self, run: OffsetRun, expected: int) -> Finding:
        return Finding(
            "log_wrong_number", self._view.log_folder_name, None, run.first_offset, f"{run.topic}/{run.queue_id}",
            expected,
            f"number {run.first}", f"{expected}, by its entry and the records around it",
        )  # fmt: skip


@dataclass(frozen=True)
class BadRanges:
    """Sorted ranges of the log that have no intact record."""

    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def from_bad_ranges(cls, bad_ranges: Iterable[BadRange]) -> BadRanges:
        """Collect the bad ranges of all checked parts of the log."""
        ordered = sorted(bad_ranges, key=lambda each: each.start)
        return cls([each.start for each in ordered], [each.end for each in ordered])

    def contains_offset(self, offset: int) -> bool:
        """Return whether a physical offset is in a bad range."""
        place = bisect_right(self.starts, offset) - 1
        return place >= 0 and offset < self.ends[place]

    def has_range_between(self, first: int, last: int) -> bool:
        """Return whether a bad range begins between two physical offsets."""
        return bisect_left(self.starts, first) < bisect_left(self.starts, last)


Restarts = Mapping[str, Sequence[tuple[int, int]]]
"""For each topic, the times that it was created again, each as two physical offsets: its last record before that time,
and its first record after it."""


def find_topic_restarts(queues: Mapping[tuple[str, int], Sequence[OffsetRun]]) -> Restarts:
    """Return where in the log topics were created again, as queue offsets that restart at 0 show.

    A queue whose offsets begin at 0 again after a single record is no proof: the record may have been stored twice.

    Args:
        queues: the runs of each topic and queue, in log order.
    """
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (topic, _), runs in queues.items():
        expected = 0
        for before, run in pairwise(runs):
            # The greatest end so far, because records that were repeated go back, too.
            expected = max(expected, before.end)
            if run.first == 0 and expected > 1:
                found[topic].append((before.last_offset, run.first_offset))
                expected = 0
    return found


def check_queue_order(
    runs: Sequence[OffsetRun],
    bad_ranges: BadRanges,
    findings: Findings,
    log: str,
    restarts: Sequence[tuple[int, int]] = (),
) -> Sequence[OffsetRun]:
    """Report queue offsets of one queue that do not increase along the log.

    Args:
        runs: the runs of one queue, in log order.
        bad_ranges: ranges of the log that cannot be read.
        findings: receives offsets that repeat or decrease; missing ones are checked in `queue_ends`.
        log: name of the log's folder.
        restarts: when the topic was created again, as its other queues show it.

    Returns:
        The runs since the queue last began at 0. Earlier runs belong to a deleted topic of the same name.
    """
    expected, last_offset, begin = None, -1, 0
    for place, run in enumerate(runs):
        if expected is not None and run.first < expected:
            is_new_topic = any(old < run.first_offset and last_offset < new for old, new in restarts)
            # After damage, old records may follow, as in a file that was reused.
            is_after_damage = bad_ranges.has_range_between(last_offset, run.first_offset)
            code = _finding_code(run, expected, is_after_damage=is_after_damage, is_new_topic=is_new_topic)
            findings.add(
                Finding(code, log, None, run.first_offset, f"{run.topic}/{run.queue_id}", run.first,
                        f"number {run.first}", f"number {expected}")
            )  # fmt: skip
            is_new = code == "log_queue_restarted"
            # A restarted queue is judged from here on; other faults keep the greatest number as reference.
            expected, begin = (run.end, place) if is_new else (max(expected, run.end), begin)
        else:
            expected = run.end
        last_offset = run.last_offset
    return runs[begin:]


def _finding_code(run: OffsetRun, expected: int, *, is_after_damage: bool, is_new_topic: bool) -> str:
    if is_after_damage:
        return "log_stale_records"
    if run.first == 0 and (expected > 1 or is_new_topic):
        return "log_queue_restarted"
    return "log_repeated_number" if run.first == expected - 1 else "log_number_back"


def recorded_number_ranges(runs: Iterable[OffsetRun]) -> list[tuple[int, int]]:
    """Return the queue offsets for which there is a record, as sorted, disjoint ranges (first, end)."""
    ranges: list[tuple[int, int]] = []
    for first, end in sorted((run.first, run.end) for run in runs):
        if first < 0 or end > MAX_NUMBER:
            continue
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], end)
        else:
            ranges.append((first, end))
    return ranges
