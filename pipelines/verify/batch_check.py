"""Comparison of records with their entries in BatchConsumeQueues, which are found by physical offset.

Entries have the order of their records in the log, so a range of the log corresponds to a range of the queue.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.facts.entries import QueueEntries
from commitlake.connectors.formats.rocketmq.batch_queues import message_counts
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.queue_check import Run, runs_of
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import StoreView

_BATCH_FIELDS = ("message_base_offset", "batch_size", "store_timestamp")


class BatchChecker:
    """Compares chunks of records with their entries."""

    def __init__(self, view: StoreView, findings: Findings) -> None:
        self._view = view
        self._findings = findings

    def check(self, entries: QueueEntries) -> list[Run]:
        """Compare a queue's records of a chunk with their entries.

        Returns:
            The runs of the records.
        """
        files = self._view.batch_queue(entries.topic, entries.queue_id)
        runs = [run for run, _ in runs_of(entries, message_counts(entries))]
        if files.starts:
            expected = files.layout.to_entries(entries)
            offsets = expected["physical_offset"]
            places, found = files.between(int(offsets[0]), int(offsets[-1]))
            if len(found) == len(expected) and (found["physical_offset"] == offsets).all():
                self._compare(files, places, found, expected)
            else:
                self._match(files, expected, runs)
        return runs

    def _match(self, files: QueueFiles, expected: Array, runs: list[Run]) -> None:
        """Compare records and entries that have each other's offset, and report the others.

        All entries of the queue are read, because damaged ones may be anywhere.
        """
        offsets = expected["physical_offset"]
        places, found = files.between(int(offsets[0]), int(offsets[-1]), by_search=False)
        _, in_found, in_expected = np.intersect1d(found["physical_offset"], offsets, return_indices=True)
        self._compare(files, places[in_found], found[in_found], expected[in_expected])
        without = np.setdiff1d(np.arange(len(expected)), in_expected)
        lags = offsets[without] >= self._view.dispatched_end
        for code, rows in (("queue_missing_entry", without[~lags]), ("queue_not_dispatched", without[lags])):
            self._findings.add_many(
                code, len(rows), (self._absent(code, files, expected[row]) for row in rows[: self._view.limit].tolist())
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
            (self._loose(files, int(places[row]), found[row]) for row in rows[: self._view.limit].tolist()),
        )

    def _compare(self, files: QueueFiles, places: Array, found: Array, expected: Array) -> None:
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
                    self._wrong(code, files, int(places[row]), found[row], expected[row])
                    for row in rows[: self._view.limit].tolist()
                ),
            )

    def _wrong(self, code: str, files: QueueFiles, place: int, found: Array, expected: Array) -> Finding:
        file, position = files.place_of(place)
        words, base = files.layout.words, int(expected["message_base_offset"])
        offset = int(expected["physical_offset"])
        return Finding(code, file, position, offset, files.name, base, words(found), words(expected))

    def _absent(self, code: str, files: QueueFiles, expected: Array) -> Finding:
        return Finding(
            code, files.folder, None, int(expected["physical_offset"]), files.name,
            int(expected["message_base_offset"]), "no entry", files.layout.words(expected),
        )  # fmt: skip

    def _loose(self, files: QueueFiles, place: int, found: Array) -> Finding:
        return loose_finding("queue_dangling_entry", files, place, found, "a record there, or no entry")


def loose_finding(code: str, files: QueueFiles, place: int, found: Array, expected: str) -> Finding:
    """Return a finding for an entry that points to no record."""
    file, position = files.place_of(place)
    offset, base = int(found["physical_offset"]), int(found["message_base_offset"])
    return Finding(code, file, position, offset, files.name, base, files.layout.words(found), expected)
