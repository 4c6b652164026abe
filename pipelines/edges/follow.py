"""Updates `edges` to the newest version of `messages`: links new rows and adds the steps in one commit.

Steps that a later run may complete are in separate data files. Each run removes these files, and writes the steps that
are still open to new ones, in the commit that adds the closed steps. A run therefore reads new rows and open steps, but
not the rest of the table.

The commit records the version it has reached as the number of an application's transaction. If a run is killed, the
next one continues from there; of two concurrent runs one commits. If files that were not read yet have been vacuumed,
the table is rebuilt from the current `messages`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.backoff import follow_to
from commitlake.connectors.lake.committer import advance
from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.delta import delta_table, storage_options
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.erasures import ErasedPlaces, read_erased_places
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.new_files import file_groups, readable_files
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.connectors.lake.versions import AddedFile, table_files
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.edges.delay_levels import DelayLevels
from commitlake.pipelines.edges.edge_rows import SCHEMA, to_edges
from commitlake.pipelines.edges.finding import PLACES
from commitlake.pipelines.edges.increment import Increments
from commitlake.pipelines.edges.lake_spans import read_spans
from commitlake.pipelines.edges.open_steps import steps_of_rows
from commitlake.pipelines.edges.progress import (
    APPLICATION_ID,
    OPEN_PREFIX,
    followed_erasure,
    followed_version,
    is_open_file,
)
from commitlake.pipelines.edges.reading import RowReader, join_found, messages_table
from commitlake.pipelines.edges.steps import STEPS
from commitlake.pipelines.message_keys.follow import catch_up_keys
from commitlake.schemas.tables.edges import EDGES

_CHUNK_ROWS = 1 << 19  # rows of messages: some 300 MiB
_GROUP_ROWS = 1 << 15
_IN_LAKE = "bodies"
_ENCODINGS = {
    "node_hash": "DELTA_BINARY_PACKED",
    "node": "PLAIN",
    "unique_key": "PLAIN",
    "request_id": "PLAIN",
    "from_physical_offset": "DELTA_BINARY_PACKED",
    "to_physical_offset": "DELTA_BINARY_PACKED",
    "evidence_physical_offset": "DELTA_BINARY_PACKED",
    "from_timestamp": "DELTA_BINARY_PACKED",
    "to_timestamp": "DELTA_BINARY_PACKED",
    "event_timestamp": "DELTA_BINARY_PACKED",
}


@dataclass(frozen=True, slots=True)
class EdgesUpdate:
    """Result of an update.

    Attributes:
        version: version of `messages` that the table has reached.
        rows: number of added rows, including those of open steps; 0 if another run committed first.
        seconds: duration.
        is_behind: True if rows of `messages` that existed at the start are still missing.
        passed_over: number of trace records, or of whole bodies, in an unknown format.
        unread: number of trace messages and op records whose bodies the lake does not have, or are damaged.
    """

    version: int
    rows: int = 0
    seconds: float = 0.0
    is_behind: bool = False
    passed_over: int = 0
    unread: int = 0


def catch_up_edges(lake: LakePaths, runner: Runner = HERE, wait: Callable[[float], object] = time.sleep) -> EdgesUpdate:
    """Add the steps of all rows in `messages`, with retries if other runs commit first.

    Args:
        lake: locations of the tables.
        runner: runs the tasks that update `message_keys`, if it is not up to date.
        wait: waits for a number of seconds.

    Raises:
        VersionsError: if rows of `messages` were changed.
    """
    started = time.monotonic()
    wanted = delta_table(lake.messages, lake.s3).version()
    if (version := followed_version(lake)) >= wanted:
        return EdgesUpdate(version, seconds=time.monotonic() - started)
    tries = list(follow_to(wanted, lambda: follow_edges(lake, runner), wait))
    version = tries[-1].version
    rows, passed_over = sum(one.rows for one in tries), sum(one.passed_over for one in tries)
    unread = sum(one.unread for one in tries)
    return EdgesUpdate(version, rows, time.monotonic() - started, version < wanted, passed_over, unread)


def follow_edges(lake: LakePaths, runner: Runner = HERE) -> EdgesUpdate:
    """Add the steps of new rows in `messages`. If these can no longer be read, rebuild the table.

    Args:
        lake: locations of the tables.
        runner: runs the tasks that update `message_keys`, which is needed to find earlier messages.

    Raises:
        VersionsError: if rows of `messages` were changed.
    """
    started = time.monotonic()
    progress, done = followed_version(lake), followed_erasure(lake)
    erased = read_erased_places(lake)
    new = readable_files(lake, progress)
    if new.version <= progress and not new.anew:
        return EdgesUpdate(progress, seconds=time.monotonic() - started)
    catch_up_keys(lake, runner)
    begins = progress < 0 or new.anew
    removed = [] if begins else _open_files(lake)
    work = _Work(lake, erased, secrets.token_hex(8))
    files = work.run(list(new.files), _read_open(lake, removed), has_earlier=not begins)
    step = (None if progress < 0 else progress, new.version)
    # An erasure that reaches this table meanwhile must not miss rows that are added here.
    erasure = {ERASURE: (done, erased.number if begins else done)}
    gone = [(file.path, file.size) for file in removed]
    if not advance(lake.edges, EDGES, files, APPLICATION_ID, step, anew=new.anew, beside=erasure, removed=gone):
        return EdgesUpdate(followed_version(lake), seconds=time.monotonic() - started)
    rows = sum(file.rows for file in files)
    return EdgesUpdate(new.version, rows, time.monotonic() - started, passed_over=work.passed_over, unread=work.unread)


class _Work:
    """Links new rows, part by part, and writes their steps."""

    def __init__(self, lake: LakePaths, erased: ErasedPlaces, run_id: str) -> None:
        messages = delta_table(lake.messages, lake.s3)
        levels = DelayLevels(lake)
        self._lake = lake
        self._run_id = run_id
        self._reader = RowReader(open_store(_packs(lake)), erased, levels)
        self._increments = Increments(lake, read_spans(messages), _places_of(erased), levels)
        self.passed_over = 0
        self.unread = 0

    def run(self, files: Sequence[AddedFile], waiting: pa.Table, *, has_earlier: bool) -> list[DataFile]:
        """Link the rows of data files of `messages`.

        Args:
            files: new files.
            waiting: steps that were open before.
            has_earlier: True if the lake has messages that were linked before.

        Returns:
            Files that no version refers to yet.
        """
        written: list[DataFile] = []
        table = messages_table(self._lake)
        oldest_first = sorted(files, key=lambda file: file.store_date or "")
        # Without new files, the steps that are open are written to a new file all the same.
        parts = list(file_groups(oldest_first, _CHUNK_ROWS, unknown_rows=_CHUNK_ROWS)) or [[]]
        for number, part in enumerate(parts):
            new = join_found(found for file in part for found in self._reader.read(table.read(file)))
            self.passed_over, self.unread = self.passed_over + new.passed_over, self.unread + new.unread
            linked = self._increments.link(new, waiting, has_earlier=has_earlier or number > 0)
            waiting = linked.open
            written += self._write(linked.closed, f"part-{number:05d}")
        return written + self._write(waiting, f"{OPEN_PREFIX}00000")

    def _write(self, steps: pa.Table, name: str) -> list[DataFile]:
        if not steps.num_rows:
            return []
        name = f"{name}-{self._run_id}-{secrets.token_hex(4)}.zstd.parquet"
        return [write_plain_file(to_edges(steps), self._lake.edges, name, _ENCODINGS, _GROUP_ROWS, self._lake.s3)]


@dataclass(frozen=True, slots=True)
class _OpenFile:
    path: str
    size: int


def _open_files(lake: LakePaths) -> list[_OpenFile]:
    try:
        actions = file_actions(delta_table(lake.edges, lake.s3)).to_pylist()
    except TableNotFoundError:
        return []
    return [_OpenFile(one["path"], one["size_bytes"]) for one in actions if is_open_file(unquote(one["path"]))]


def _read_open(lake: LakePaths, files: Sequence[_OpenFile]) -> pa.Table:
    tables = [STEPS.empty_table()]
    if not files:
        return tables[0]
    folder = table_files(lake.edges, storage_options(lake.edges, lake.s3))
    for found in files:
        with folder.open_input_file(unquote(found.path)) as file:
            rows = pq.read_table(file, page_checksum_verification=True)
        tables.append(steps_of_rows(rows.select(SCHEMA.names).cast(SCHEMA)))
    return pa.concat_tables(tables)


def _packs(lake: LakePaths) -> str:
    newest = newest_commit(delta_table(lake.messages, lake.s3))
    bodies = None if newest is None else newest[1].bodies
    return lake.bodies if bodies in {None, _IN_LAKE} else str(bodies)


def _places_of(erased: ErasedPlaces) -> pa.Table:
    tables = [PLACES.empty_table()]
    for broker, found in erased.brokers.items():
        names = pa.array([broker] * len(found.offsets), pa.string())
        tables.append(pa.table([names, pa.array(found.offsets)], schema=PLACES))
    return pa.concat_tables(tables)
