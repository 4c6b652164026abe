"""The plan of a run: log, end, settings. A run that was interrupted is resumed with the same plan."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from commitlake.connectors.atomic_files import write_synced
from commitlake.connectors.reading.files.store_files import store_folder_of_log
from commitlake.connectors.reading.snapshots import StoreRange, divide_segment, log_range, segment_ranges
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.runtime.runner import available_cores
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.layouts.rocketmq.topics import TOPICS_FILE
from commitlake.schemas.safe_store_files import check_own_folder, make_folders, read_json

WORK = ".rebuild"
PARTITION_BYTES = 128 << 20
"""Bytes of the log that one task reads. Its queue entries are held in memory: at most a third of that."""
PLAN, _VERSION = "plan.json", 1


@dataclass(frozen=True)
class RebuildPlan:
    """Input, output and settings of one rebuild of a store's indexes.

    Attributes:
        place: the store's folder, as a path or URI.
        root: folder with its small files: the store's own, or a copy of those of a store in an object store.
        out: the folder that receives the new files.
        start: physical offset of the log's first byte.
        end: physical offset after the last record.
        settings: the broker's settings.
        partition_bytes: bytes of the log that one task reads.
    """

    place: str
    root: Path
    out: Path
    start: int
    end: int
    settings: Settings
    partition_bytes: int = PARTITION_BYTES

    @property
    def work_folder(self) -> Path:
        """Folder of the files that are not finished yet."""
        return self.out / WORK

    @property
    def parts_folder(self) -> Path:
        """Folder of the part files."""
        return self.work_folder / "parts"

    def log_splits(self, store: Store) -> list[Split]:
        """Return the ranges of the log that the tasks read, in order."""
        with ThreadPoolExecutor(available_cores()) as pool:
            divided = pool.map(
                lambda whole: list(divide_segment(whole, self.partition_bytes, DEFAULT_MAX_RECORD_BYTES)),
                segment_ranges(store, StoreRange(self.start, self.end)),
            )
            return [split for splits in divided for split in splits]

    def to_document(self) -> dict[str, Any]:
        """Return the plan as a JSON object, in which a format is named by its folder."""
        settings = json.loads(json.dumps({**asdict(self.settings), "format": self.settings.format.folder}))
        settings["layout"] = settings.pop("format")
        return {
            "version": _VERSION,
            "root": self.place,
            "start": self.start,
            "end": self.end,
            "partition_bytes": self.partition_bytes,
            "settings": settings,
        }


def begin_or_resume_plan(
    store: Store,
    root: Path,
    output_folder: Path,
    settings: Settings,
    partition_bytes: int = PARTITION_BYTES,
    *,
    is_live: bool = False,
) -> RebuildPlan:
    """Write the plan of a new run, or read that of an interrupted one.

    Args:
        output_folder: the folder that receives the new files.
        partition_bytes: bytes of the log that one task reads.
        is_live: whether a broker has the store open.

    Raises:
        UsageError: if the folder holds other files.
        UnsafeFileError: if it holds a link in place of a run's file, or another user's unfinished run.
    """
    now = log_range(store, is_live=is_live)
    place = store_folder_of_log(store.root) if store.is_remote else str(root)
    plan = RebuildPlan(place, root, output_folder, now.start, now.end, settings, partition_bytes)
    check_own_folder(plan.work_folder)
    check_own_folder(plan.parts_folder)
    known = _read_document(plan.work_folder / PLAN)
    if known is None:
        for name in settings.format.folders.rebuilt:
            if os.path.lexists(output_folder / name) and not (name == TOPICS_FILE and output_folder == root):
                raise UsageError(
                    f"{output_folder} already contains {name}, and nothing is overwritten: name a folder without it"
                )
        make_folders(plan.parts_folder, trusted_root=output_folder)
        write_synced(
            plan.work_folder / PLAN, json.dumps(plan.to_document(), indent=2).encode(), trusted_root=output_folder
        )
        return plan
    settings = _settings_as_in_first_run(settings, known)
    plan = replace(plan, settings=settings)
    wanted = plan.to_document() | {"end": known.get("end")}
    if known != wanted or not isinstance(known["end"], int) or known["end"] > now.end:
        raise UsageError(
            f"{output_folder} contains an unfinished rebuild of another store, or one with other options: delete it, "
            "or name another folder"
        )
    make_folders(
        plan.parts_folder, trusted_root=output_folder
    )  # a run that was interrupted while it removed its work has none
    return replace(plan, end=known["end"])


def _settings_as_in_first_run(settings: Settings, first_document: dict[str, Any]) -> Settings:
    """Return the settings with `may_have_light_queues` as an interrupted earlier run recorded it, if it did."""
    found = first_document.get("settings")
    has_light = found.get("may_have_light_queues") if isinstance(found, dict) else None
    return replace(settings, may_have_light_queues=has_light) if isinstance(has_light, bool) else settings


def _read_document(path: Path) -> dict[str, Any] | None:
    try:
        document = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
