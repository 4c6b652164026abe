"""What a queue has besides the entries of the log's records: files, and entries that no record claims."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from connectors.facts.kernel import Array
from connectors.verify.findings import Finding, Findings
from connectors.verify.queue_check import MAX_NUMBER, Run
from connectors.verify.queue_files import QueueFiles
from connectors.verify.runs import BadRanges, claimed
from connectors.verify.store_view import BATCH_QUEUES, StoreView
from schemas.layouts.segments import parse_segment_name, segment_name

_AT_ONCE = 4096
"""Entries that are read at once; and how many of expired ones are looked at, as the others are older still."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The numbers of a queue's first message that can be consumed, and behind the last."""

    first: int
    end: int


class QueueEnds:
    """Looks at the queues of a store, once all of its log is read."""

    def __init__(self, view: StoreView, bad: BadRanges, findings: Findings) -> None:
        self._view = view
        self._queues = view.queues
        self._bad = bad
        self._findings = findings

    def check(self, topic: str, queue_id: int, runs: Sequence[Run]) -> QueueBounds:
        """One queue's files, and its entries that no record claims."""
        files = self._view.queue(topic, queue_id)
        ranges = claimed(runs)
        if not self._view.is_compared(topic):
            where = BATCH_QUEUES if topic in self._view.batch_topics else self._queues.folder
            found = "a BatchConsumeQueue" if topic in self._view.batch_topics else "queues in RocksDB"
            expected = "a ConsumeQueue, to be compared with the log"
            self._findings.add(Finding("queue_not_compared", where, queue=files.name, found=found, expected=expected))
            return QueueBounds(0, MAX_NUMBER)
        if not files.starts:
            self._no_files(files, runs)
            return QueueBounds(ranges[0][0] if ranges else 0, ranges[-1][1] if ranges else 0)
        self._check_files(files, ranges)
        written = files.written_end()
        if not ranges:
            self._check_head(files, written)
            return QueueBounds(written, written)
        if self._queues.fills_gaps and self._view.start == 0:
            self._check_gap(files, 0, ranges[0][0])  # nothing can have been deleted by its age
        else:
            self._check_head(files, ranges[0][0])
        for (_, first), (end, _) in pairwise(ranges):
            self._check_gap(files, first, end)
        end = self._check_tail(files, ranges[-1][1])
        return QueueBounds(ranges[0][0], max(end, written))

    def _no_files(self, files: QueueFiles, runs: Sequence[Run]) -> None:
        if not runs:
            return
        dispatched = [run for run in runs if run.first_offset < self._view.dispatched_end]
        code = "queue_missing" if dispatched else "queue_not_dispatched"
        count = sum(run.end - run.first for run in runs)
        first = (dispatched or runs)[0]
        self._findings.add(
            Finding(code, f"{self._queues.folder}/{files.name}", None, first.first_offset, files.name, first.first,
                    "no file", f"entries of {count} records")
        )  # fmt: skip

    def _check_files(self, files: QueueFiles, ranges: Sequence[tuple[int, int]]) -> None:
        folder = f"{self._queues.folder}/{files.name}"
        with suppress(FileNotFoundError):
            for entry in sorted(os.scandir(files.folder), key=lambda each: each.name):
                start = parse_segment_name(entry.name)
                if start is not None and entry.is_file():
                    self._check_file(files, f"{folder}/{entry.name}", start, entry.stat().st_size)
        wanted = files.starts[0]
        if ranges:
            wanted = min(wanted, files.file_start(ranges[0][0]))
        for before, after in pairwise([wanted - files.file_size, *files.starts]):
            start, missing = max(0, before + files.file_size), (after - before) // files.file_size - 1
            name, number = f"{folder}/{segment_name(start)}", start // self._queues.entry_size
            expected = f"{missing} files before {segment_name(after)}"
            finding = Finding("queue_missing_file", name, None, None, files.name, number, "no such file", expected)
            self._findings.add_many(finding.code, missing, [finding])

    def _check_file(self, files: QueueFiles, name: str, start: int, size: int) -> None:
        if not files.is_start(start):
            first = f"{files.origin} and " if files.origin else ""
            found, expected = segment_name(start), f"{first}a multiple of {files.file_size}"
            self._findings.add(Finding("queue_file_name", name, queue=files.name, found=found, expected=expected))
        elif size != files.file_size:
            found, expected = f"{size} bytes", f"{files.file_size} bytes"
            self._findings.add(Finding("queue_file_size", name, queue=files.name, found=found, expected=expected))

    def _check_head(self, files: QueueFiles, end: int) -> None:
        """Entries before those of the log's records: all of messages that are deleted by their age."""
        first = max(files.first_number, end - _AT_ONCE)
        for number, entries in _read(files, first, end):
            leads = self._queues.is_written(entries) & ~self._queues.is_filler(entries)
            loose = leads & (entries["physical_offset"] >= self._view.start)
            self._note(files, number, entries, loose)

    def _check_gap(self, files: QueueFiles, first: int, end: int) -> None:
        """Numbers that no record of the log has, between those that some have."""
        explained = 0
        for number, entries in _read(files, max(first, files.first_number), min(end, files.end_number)):
            explained += self._note(files, number, entries, self._queues.is_loose(entries))
        lost = end - first - explained
        self._findings.add_many(
            "log_lost_messages",
            lost,
            [
                Finding("log_lost_messages", self._view.log, queue=files.name, number=first,
                        found=f"no record of numbers {first} to {end - 1}", expected=f"{end - first} records")
            ],
        )  # fmt: skip

    def _check_tail(self, files: QueueFiles, first: int) -> int:
        """Entries behind those of the log's records; the number behind the last that the broker has."""
        end = first
        for number, entries in _read(files, max(first, files.first_number), files.end_number):
            valid = self._queues.is_written(entries)
            if not valid.any():
                break
            stop = len(entries) if valid.all() else int(np.argmin(valid))
            self._note(files, number, entries[:stop], valid[:stop])
            end = number + stop
            if stop < len(entries):
                break
        return end

    def _note(self, files: QueueFiles, first: int, entries: Array, loose: Array) -> int:
        """Say that entries lead to no record; how many of them lead to damage, of which the log has said enough."""
        places = np.flatnonzero(loose)
        explained = 0
        for place in places.tolist():
            offset = int(entries["physical_offset"][place])
            if self._bad.has(offset):
                explained += 1
                continue
            if offset >= self._view.end and self._view.is_live:
                continue  # newer than the end of the log that was taken
            code = "queue_beyond_log" if offset >= self._view.end else "queue_dangling_entry"
            file, position = files.place_of(first + place)
            expected = (
                f"an offset before the log's end, {self._view.end}"
                if offset >= self._view.end
                else f"a record with the number {first + place} there, or no entry"
            )
            found = self._queues.words(entries[place])
            self._findings.add(Finding(code, file, position, offset, files.name, first + place, found, expected))
        return explained


def _read(files: QueueFiles, first: int, end: int) -> Iterator[tuple[int, Array]]:
    for begin, stop, is_there in files.pieces(first, end):
        for number in range(begin, stop, _AT_ONCE) if is_there else ():
            yield number, files.read(number, min(stop, number + _AT_ONCE))
