"""The plan of a run: lake, log and segments. An interrupted run is resumed with the same plan."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from commitlake.connectors.atomic_files import write_synced
from commitlake.connectors.log_format.format import Format
from commitlake.pipelines.restore.log_rows import LogRange, RestoreSelection
from commitlake.pipelines.restore.segment_restore import SegmentRestored, SegmentTask, UnrestoredRecord
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.safe_store_files import check_folder, check_own_folder, make_folders, read_json

WORK = ".restore"
PLAN, _DONE, _VERSION = "plan.json", "done", 1
_INDEX_BYTES = 100
"""Disk space for queues and index per record: a generous estimate."""


@dataclass(frozen=True)
class RestorePlan:
    """Options of one restore run: the chosen part of a log, and the store to create.

    Attributes:
        out: the folder for the store.
        lake: root of the lake.
        chosen: the requested part of a log.
        log: its range of physical offsets.
        segment_size: bytes per segment.
        skip: true if records without bodies are left out.
        format: format of the log that is created.
    """

    out: Path
    lake: str
    chosen: RestoreSelection
    log: LogRange
    segment_size: int
    skip: bool
    format: Format

    @property
    def work_folder(self) -> Path:
        """Folder for the unfinished log and for notes on its segments."""
        return self.out / WORK

    @property
    def commitlog_folder(self) -> Path:
        """Folder that holds the segments until all of them are written."""
        return self.work_folder / self.format.folder

    @property
    def base_offsets(self) -> range:
        """The base offsets of the segments."""
        first = self.log.start - self.log.start % self.segment_size
        return range(first, self.log.end, self.segment_size)

    def make_segment_task(self, base_offset: int, filler_time: int = 0) -> SegmentTask:
        """Return the task that restores one segment.

        Args:
            base_offset: physical offset of the start of the segment.
            filler_time: store time of the last record before it, ms; needed only for a segment without a record.
        """
        start, end = self.log.start, self.log.end
        return SegmentTask(
            self.chosen.broker, base_offset, self.segment_size, start, end, filler_time, self.commitlog_folder
        )

    def read_segment_result(self, base_offset: int) -> SegmentRestored | None:
        """Read the saved result of restoring a segment; None if it was not restored yet."""
        try:
            known = read_json(self._result_path(base_offset), trusted_root=self.out)
            known["lost"] = tuple(UnrestoredRecord(**each) for each in known["lost"])
            known["filled"] = tuple((start, end) for start, end in known["filled"])
            known["first"] = tuple(known["first"]) if known["first"] else None
            return SegmentRestored(**known | {"made_up": tuple(known["made_up"])})
        except FileNotFoundError:
            return None

    def write_segment_result(self, base_offset: int, result: SegmentRestored) -> None:
        """Save the result of restoring a segment, once its file has its final name."""
        write_synced(self._result_path(base_offset), json.dumps(asdict(result)).encode(), trusted_root=self.out)

    def _result_path(self, base_offset: int) -> Path:
        return self.work_folder / _DONE / f"{segment_name(base_offset)}.json"

    def resume_options(self) -> dict[str, Any]:
        """Options, as a JSON object, that a run must share with the interrupted run that it resumes."""
        wanted = {name: None if value is None else str(value) for name, value in asdict(self.chosen).items()}
        return {"version": _VERSION, "lake": self.lake, "chosen": wanted, "skip": self.skip}

    def save_plan(self) -> None:
        """Write the plan to the work folder, for a run that resumes this one."""
        document = self.resume_options() | {"log": asdict(self.log), "segment_size": self.segment_size}
        make_folders(self.commitlog_folder, trusted_root=self.out)
        write_synced(self.work_folder / PLAN, json.dumps(document, indent=2).encode(), trusted_root=self.out)


def has_run_to_resume(output_folder: Path, log_format: Format) -> bool:
    """Return whether a folder contains an interrupted run that can be resumed.

    Args:
        log_format: format of the log that is created.

    Raises:
        UsageError: if it contains anything else.
        UnsafeFileError: if it contains a link in place of a file of the run, or another user's unfinished run.
    """
    if check_own_folder(output_folder / WORK):
        check_folder(output_folder / WORK / _DONE)
        check_folder(output_folder / WORK / log_format.folder)
        if os.path.lexists(output_folder / WORK / PLAN):
            return True
    if output_folder.exists() and not output_folder.is_dir():
        raise UsageError(f"{output_folder} is a file: name a new or an empty folder")
    others = (
        sorted(path.name for path in output_folder.iterdir() if path.name != WORK) if output_folder.exists() else []
    )
    if others:
        raise UsageError(
            f"{output_folder} contains {others[0]}, and nothing is overwritten: name a new or an empty folder"
        )
    return False


def read_resumed_plan(plan: RestorePlan) -> RestorePlan:
    """Return the plan of the interrupted run in a folder; raise an error if this run has other options.

    Raises:
        UsageError: if the options differ.
    """
    known: dict[str, Any] = {}
    try:
        known = read_json(plan.work_folder / PLAN, trusted_root=plan.out)
        if {name: known[name] for name in plan.resume_options()} == plan.resume_options():
            size = known["segment_size"] if plan.segment_size == 0 else plan.segment_size
            if size == known["segment_size"]:
                return RestorePlan(
                    plan.out, plan.lake, plan.chosen, LogRange(**known["log"]), size, plan.skip, plan.format
                )
    except (ValueError, KeyError, TypeError):
        pass
    raise UsageError(
        f"{plan.out} contains an unfinished restore of another lake, or one with other options: delete it, or choose "
        "another folder"
    )


def check_free_space(plan: RestorePlan) -> None:
    """Raise an error if the restored store does not fit on the disk.

    Raises:
        UsageError: if it does not fit.
    """
    folder = next(folder for folder in (plan.out, *plan.out.absolute().parents) if folder.exists())
    done = sum(1 for _ in (plan.work_folder / _DONE).glob("*.json"))
    needed = (len(plan.base_offsets) - done) * plan.segment_size + plan.log.records * _INDEX_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UsageError(
            f"{plan.out}: {needed:,} bytes of free disk are needed for "
            f"{format_count(len(plan.base_offsets), 'segment')} and their indexes, found {free:,}. Restore a shorter "
            "range, or to another disk"
        )
