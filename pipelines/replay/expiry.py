"""Drops copies of messages in `replay_rows` once their replay no longer needs them.

A replay that changes or copies its messages reads them from `replay_rows` when it sends, when it resumes after a crash,
and when it is verified. After that they are not needed, and they contain bodies, which a lake often keeps for a shorter
time than the rest. Rows are dropped by replay, not by the age of their files, because the copies are the only source of
a replay that can still be resumed.

The ledger records the drop before the first copy is dropped, so a later `replay verify` or `replay resume` can say why
there is nothing to read. If a run is killed between the two steps, the next run completes it.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.table_files import TableFile, exchange_files, folder_of, read_table_files
from commitlake.pipelines.replay.errors import OtherProcessError
from commitlake.pipelines.replay.ledger import Ledger, ReplayState, add_event, check_is_free, read_states
from commitlake.schemas.tables.replays import ENDED, ReplayEvent

DEFAULT_KEEP = datetime.timedelta(days=30)
"""Default time for which the copies of a replay are kept after its end."""
_ID_TIME = re.compile(r"([0-9]{8}-[0-9]{6})-[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class OldCopies:
    """Copies to be dropped, and old copies that are kept.

    Attributes:
        replays: whose rows are dropped, sorted.
        files: the data files that have such rows, each with the number of them.
        resumable: replays whose copies are just as old, but are kept because the replays can be resumed.
        unknown: ids whose rows in the ledger cannot be read, or that no replay can have; their copies are kept.
    """

    replays: tuple[str, ...] = ()
    files: tuple[tuple[TableFile, int], ...] = ()
    resumable: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows to be dropped."""
        return sum(rows for _, rows in self.files)

    @property
    def bytes(self) -> int:
        """Size of the copies in bytes, estimated where a file also has other rows."""
        return sum(file.size * rows // max(1, file.rows or rows) for file, rows in self.files)


def find_old_copies(
    lake: Lake,
    now: datetime.datetime,
    keep: datetime.timedelta,
    unfinished_after: datetime.timedelta,
    *,
    drops_resumable: bool,
) -> OldCopies:
    """Return the copies that are not needed any more.

    Args:
        now: the moment from which ages count.
        keep: how long the copies of a replay are kept after its newest event.
        unfinished_after: age from which copies are dropped if their replay was killed before its plan was recorded.
        drops_resumable: whether to include those of a replay that has stopped or failed, and could be resumed. Those of
            a replay that a process may be sending are always kept.

    Raises:
        LakeError: if a table is damaged.
    """
    table = lake.find("replay_rows")
    if table is None:
        return OldCopies()
    files = [(file, _rows_by_replay(lake.uri("replay_rows"), file)) for file in read_table_files(table)]
    unreadable: set[str] = set()
    states = read_states(lake, on_error=lambda replay_id, _: unreadable.add(replay_id))
    old: set[str] = set()
    resumable: set[str] = set()
    unknown: set[str] = set()
    for replay_id in {name for _, counts in files for name in counts}:
        state = states.get(replay_id)
        planned_at = _time_in_id(replay_id)
        if replay_id in unreadable or (state is None and planned_at is None):
            unknown.add(replay_id)
        elif state is None:  # killed before its plan was recorded, or still copying
            if _is_older(planned_at, now - unfinished_after):
                old.add(replay_id)
        elif state.copies_dropped_at is not None:
            old.add(replay_id)
        elif _is_older(state.last_at, now - keep):
            if state.event in ENDED or (drops_resumable and _is_left(lake, state, now - keep)):
                old.add(replay_id)
            else:
                resumable.add(replay_id)
    hits = tuple((file, rows) for file, counts in files if (rows := sum(counts[name] for name in old)))
    return OldCopies(tuple(sorted(old)), hits, tuple(sorted(resumable)), tuple(sorted(unknown)))


def drop_copies(lake: Lake, found: OldCopies) -> None:
    """Record that the copies are dropped, and drop them in one commit.

    Args:
        found: what `find_old_copies` has found.

    Raises:
        ConcurrentMaintenanceError: if another process has replaced files of the table meanwhile.
    """
    if not found.files:
        return
    states = read_states(lake, on_error=lambda *_: None)
    for replay_id in found.replays:
        state = states.get(replay_id)
        if state is not None and state.copies_dropped_at is None:
            add_event(lake, replay_id, ReplayEvent.COPIES_DROPPED)
    left_out = partial(_without, frozenset(found.replays))
    added = [
        rewrite_file(lake.uri("replay_rows"), file, left_out)
        for file, rows in found.files
        if file.rows is None or rows < file.rows
    ]
    exchange_files(
        lake.uri("replay_rows"),
        [file for file, _ in found.files],
        [file for file in added if file.rows],
        changes_data=True,
        note={"action": "drop copies", "replays": list(found.replays)},
    )


def _is_older(moment: datetime.datetime | None, limit: datetime.datetime) -> bool:
    return moment is not None and moment < limit


def _is_left(lake: Lake, state: ReplayState, limit: datetime.datetime) -> bool:
    """Return True if no process sends a replay, and none has sent it since a time."""
    last_written = Ledger(lake, state.plan.replay_id).last_written()
    if last_written is not None and last_written >= limit:
        return False
    with suppress(OtherProcessError):
        check_is_free(state, last_written)
        return True
    return False


def _time_in_id(replay_id: str) -> datetime.datetime | None:
    """Return when a replay was planned, according to its id; None if `new_replay_id` did not make the id."""
    match = _ID_TIME.fullmatch(replay_id)
    with suppress(ValueError):
        if match is not None:
            return datetime.datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=datetime.UTC)
    return None


def _rows_by_replay(table_uri: str, file: TableFile) -> Counter[str]:
    """Return how many rows of a data file each replay has."""
    counts: Counter[str] = Counter()
    with pq.ParquetFile(folder_of(table_uri).open_input_file(file.path)) as opened:
        for batch in opened.iter_batches(columns=["replay_id"]):
            for row in pc.value_counts(batch.column(0)).to_pylist():
                counts[row["values"] or ""] += row["counts"]
    return counts


def _without(replays: Collection[str], batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Leave out the rows of the given replays."""
    names = pa.array(sorted(replays), pa.string())
    for batch in batches:
        kept = batch.filter(pc.invert(pc.is_in(batch.column("replay_id").cast(pa.string()), value_set=names)))
        if kept.num_rows:
            yield kept
