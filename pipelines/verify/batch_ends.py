"""Checks of BatchConsumeQueues for entries and files without records in the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.pipelines.verify.batch_check import loose_finding
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.loose import QueueBounds
from commitlake.pipelines.verify.queue_check import Run
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.queue_folders import QueueFolders
from commitlake.pipelines.verify.runs import BadRanges, Restarts, claimed
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.counts import count_text


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
        ranges = claimed(runs)
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
                            expected=count_text(end - first, "message"))
                ],
            )  # fmt: skip
        begins = np.array([run.first_offset for run in runs], np.int64)
        ends = np.array([run.last_offset for run in runs], np.int64)
        begins.sort()
        ends.sort()
        queue_end = 0
        for first_place, entries in files.blocks():
            written = files.layout.is_written(entries)
            offsets = entries["physical_offset"].astype(np.int64)
            if written.any():
                last = entries[np.flatnonzero(written)[-1]]
                queue_end = int(last["message_base_offset"]) + int(last["batch_size"])
            in_a_run = np.searchsorted(begins, offsets, "right") > np.searchsorted(ends, offsets, "left")
            for row in np.flatnonzero(written & ~in_a_run & (offsets >= self._view.start)).tolist():
                self._note(files, first_place + row, entries[row])
        first = ranges[0][0] if ranges else queue_end
        return QueueBounds(first, max(queue_end, ranges[-1][1] if ranges else 0))

    def _note(self, files: QueueFiles, place: int, entry: Array) -> None:
        offset = int(entry["physical_offset"])
        if self._bad.has(offset) or (offset >= self._view.end and self._view.is_live):
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
        self._findings.add(loose_finding(code, files, place, entry, expected))
