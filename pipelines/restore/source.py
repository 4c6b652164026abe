"""The source of a restore, in a form that can be sent to worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.pipelines.message_keys.opening import open_messages
from commitlake.pipelines.restore.bodies import BodySource
from commitlake.pipelines.restore.segment import SegmentRestored, SegmentTask, restore_segment


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """One version of a lake.

    Attributes:
        lake: where the tables are.
        version: version of `messages`.
        packs: where the packs are.
        skip: leave out the records whose bodies cannot be read; otherwise the first one is an error.
        threads: how many packs are read at the same time for one segment.
        run: identifies the run.
    """

    lake: Lake
    version: int
    packs: PackLocation
    skip: bool
    threads: int
    run: str


def restore_from(source: LakeVersion, task: SegmentTask) -> SegmentRestored:
    """Restore one segment; see `segment.restore_segment`."""
    bodies = BodySource(open_store(source.packs), source.skip, source.threads)
    return restore_segment(_table(source), bodies, task)


@lru_cache(1)
def _table(source: LakeVersion) -> DeltaTable:
    """Open `messages` once for all segments of a run in a process."""
    table = open_messages(source.lake)
    if table.version() != source.version:
        table.load_as_version(source.version)
    return table
