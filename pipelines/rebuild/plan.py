"""A run: which log, up to where, with which settings. A run that was interrupted goes on with the same."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from commitlake.connectors.formats.engine.plan import StoreRange, divide, log_range, segment_ranges
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.formats.rocketmq.topic_configs import TOPICS
from commitlake.connectors.runtime.runner import available_cores
from commitlake.connectors.whole_files import write_synced
from commitlake.pipelines.rebuild.errors import RebuildError
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.store_files import check_own_folder, make_folders, read_json

WORK = ".rebuild"
PARTITION_BYTES = 128 << 20
"""Of the log, for one task; its entries are held in memory until all are there, at most a third of that."""
PLAN, _VERSION = "plan.json", 1


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        root: the store's folder.
        out: the folder that gets what is made.
        start: physical offset of the log's first byte.
        end: behind the last record.
        settings: the broker's.
        partition_bytes: of the log, for one task.
    """

    root: Path
    out: Path
    start: int
    end: int
    settings: Settings
    partition_bytes: int = PARTITION_BYTES

    @property
    def work(self) -> Path:
        """Where what is not whole is kept until the run is done."""
        return self.out / WORK

    @property
    def parts(self) -> Path:
        """Where the parts are."""
        return self.work / "parts"

    def splits(self, store: Store) -> list[Split]:
        """The ranges of the log, in order."""
        with ThreadPoolExecutor(available_cores()) as pool:
            divided = pool.map(
                lambda whole: divide(whole, self.partition_bytes, DEFAULT_MAX_RECORD_BYTES),
                segment_ranges(store, StoreRange(self.start, self.end)),
            )
            return [split for splits in divided for split in splits]

    def to_document(self) -> dict[str, Any]:
        """What is written of it; the format is called by its folder."""
        settings = json.loads(json.dumps({**asdict(self.settings), "format": self.settings.format.folder}))
        settings["layout"] = settings.pop("format")
        return {
            "version": _VERSION,
            "root": str(self.root),
            "start": self.start,
            "end": self.end,
            "partition_bytes": self.partition_bytes,
            "settings": settings,
        }


def begin_or_go_on(
    store: Store,
    root: Path,
    out: Path,
    settings: Settings,
    partition_bytes: int = PARTITION_BYTES,
    *,
    is_live: bool = False,
) -> Plan:
    """The plan of a new run, written; or that of one which was interrupted.

    Raises:
        RebuildError: if the folder holds anything else.
        UnsafeFileError: if it holds a link in the place of what a run makes, or another user's unfinished run.
    """
    now = log_range(store, is_live=is_live)
    plan = Plan(root, out, now.start, now.end, settings, partition_bytes)
    check_own_folder(plan.work)
    check_own_folder(plan.parts)
    known = _read(plan.work / PLAN)
    if known is None:
        for name in settings.format.rebuilt_files:
            if os.path.lexists(out / name) and not (name == TOPICS and out == root):
                raise RebuildError(f"{out} holds {name}: expected a folder without, as nothing is overwritten")
        make_folders(plan.parts, below=out)
        write_synced(plan.work / PLAN, json.dumps(plan.to_document(), indent=2).encode(), below=out)
        return plan
    wanted = plan.to_document() | {"end": known.get("end")}
    if known != wanted or not isinstance(known["end"], int) or known["end"] > now.end:
        raise RebuildError(
            f"{out} holds an unfinished run for another store, or with other options: delete it, or choose another"
        )
    return Plan(root, out, now.start, known["end"], settings, partition_bytes)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
