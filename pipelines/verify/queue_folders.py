"""Checks of queue folders: which files exist, their names and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from commitlake.connectors.formats.engine.indexed_files import StoreFiles
from commitlake.connectors.formats.facts.queue_layouts import QueueLayout
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.queue_check import Run
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.runs import Restarts
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.counts import count_text
from commitlake.schemas.layouts.rocketmq.inner_batch import BATCH_QUEUE_TYPE, SIMPLE_QUEUE_TYPE
from commitlake.schemas.layouts.segments import is_segment_name, parse_segment_name, segment_name


class QueueFolders:
    """Checks of the names and sizes of queue files; their content is not read."""

    def __init__(self, view: StoreView, findings: Findings, restarts: Restarts) -> None:
        self._view = view
        self._findings = findings
        self._restarts = restarts

    def check_absent(self, files: QueueFiles, runs: Sequence[Run]) -> None:
        """Check a queue that has no file: if it has records, they lack their entries."""
        self._check_names(files)
        if not runs:
            return
        dispatched = [run for run in runs if run.first_offset < self._view.dispatched_end]
        code = "queue_missing" if dispatched else "queue_not_dispatched"
        new = max((new for _, new in self._restarts.get(files.topic, ())), default=0)
        is_deleted = self._view.is_deleted(files.topic) or runs[-1].last_offset < new
        if code == "queue_missing" and is_deleted:
            code = "queue_deleted"
        count = sum(run.end - run.first for run in runs)
        first = (dispatched or runs)[0]
        self._findings.add(
            Finding(code, files.folder, None, first.first_offset, files.name, first.first,
                    "no file", f"entries of {count_text(count, 'record')}")
        )  # fmt: skip

    def check(self, files: QueueFiles, first_number: int | None) -> None:
        """Check names and sizes of a queue's files, and report missing files.

        Args:
            files: the files of a queue that has some.
            first_number: number of the entry of the log's first record of this queue; None if that does not show it
                which file should exist.
        """
        self._check_names(files)
        wanted = files.starts[0]
        if first_number is not None:
            wanted = min(wanted, files.file_start(first_number))
        for before, after in pairwise([wanted - files.file_size, *files.starts]):
            start, missing = max(0, before + files.file_size), (after - before) // files.file_size - 1
            name, number = f"{files.folder}/{segment_name(start)}", start // files.layout.entry_size
            expected = f"{count_text(missing, 'file')} before {segment_name(after)}"
            finding = Finding("queue_missing_file", name, None, None, files.name, number, "no such file", expected)
            self._findings.add_many(finding.code, missing, [finding])

    def _check_names(self, files: QueueFiles) -> None:
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
        if not files.is_start(start):
            first = f"{files.origin} and " if files.origin else ""
            found, expected = segment_name(start), f"{first}a multiple of {files.file_size}"
            self._findings.add(Finding("queue_file_name", name, queue=files.name, found=found, expected=expected))
        elif size != files.file_size:
            found, expected = f"{size} bytes", f"{files.file_size} bytes"
            self._findings.add(Finding("queue_file_size", name, queue=files.name, found=found, expected=expected))


def check_kinds(
    files: StoreFiles,
    listed: Mapping[str, bool],
    queues: Sequence[tuple[str, int]],
    layout: QueueLayout,
    findings: Findings,
    *,
    are_batches: bool,
) -> None:
    """Check that topics.json has the queue type of every topic that its queues' folder shows.

    Args:
        listed: The topics in topics.json, each with whether it has batches.
        queues: Those that have a folder of this layout.
        layout: ConsumeQueues or BatchConsumeQueues.
        findings: Gets those topics whose queues would keep a broker from starting.
        are_batches: Whether the layout is that of BatchConsumeQueues.
    """
    wrong = [queue for queue in queues if listed.get(queue[0], False) is not are_batches]
    for topic in dict.fromkeys(
        topic for topic, queue_id in wrong if files.files_in(f"{layout.folder}/{topic}/{queue_id}", is_segment_name)
    ):
        kind = SIMPLE_QUEUE_TYPE if are_batches else BATCH_QUEUE_TYPE
        expected = (
            f"none, as topics.json {'says' if topic in listed else 'does not have the topic, which means'} {kind}"
        )
        findings.add(
            Finding("queue_wrong_kind", f"{layout.folder}/{topic}", queue=topic, found="queues", expected=expected)
        )
