"""Updates `edges` to the newest versions of `messages` and `consumptions`: adds the steps of new rows in one commit.

Steps that a later run may complete, and the content of retry stores, are in separate data files. Each run removes these
files, and writes the steps that are still open to new ones, in the commit that adds the closed steps. A run therefore
reads new rows and open steps, but not the rest of the table.

The commit records the versions it has reached as two application transactions (Delta's `txn` action). If a run is
killed, the next one continues from there; of two concurrent runs, only one commits. If files that were not read yet
have been vacuumed, the table is rebuilt from the current rows of both tables.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat, zip_longest
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.added_files import AddedFiles, group_files, readable_added_files
from commitlake.connectors.lake.archive_commits import newest_commit
from commitlake.connectors.lake.backoff import TableUpdate, update_until_version
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.erasures import ErasedMessages, read_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.rows.table_rows import convert_data_file_errors
from commitlake.connectors.reading.files.concurrent_reads import LOCAL_THREADS, map_concurrently
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.edges.client_actions import consumptions_to_entries, open_consumptions
from commitlake.pipelines.edges.edge_rows import SCHEMA, open_steps_of_rows, select_rows, to_edges
from commitlake.pipelines.edges.incremental_linking import RowLinker
from commitlake.pipelines.edges.key_matching import LinkableRecords
from commitlake.pipelines.edges.lake_spans import BrokerSpans, LinkedExtents
from commitlake.pipelines.edges.message_reader import (
    PLACES,
    LinkInputs,
    RowReader,
    join_link_inputs,
    open_messages_table,
    rows_to_records,
)
from commitlake.pipelines.edges.progress import (
    APPLICATION_ID,
    CONSUMPTIONS_ID,
    OPEN_PREFIX,
    followed_consumptions_version,
    followed_erasure_number,
    followed_messages_version,
    is_open_steps_file,
)
from commitlake.pipelines.edges.retry_states import RetryEntries, link_retry_entries, retry_entry_mask
from commitlake.pipelines.edges.row_lookup import WantedRows, file_may_need_edges, read_rows_at_positions
from commitlake.pipelines.edges.step_records import DelayCache
from commitlake.pipelines.edges.steps import STEPS
from commitlake.pipelines.message_keys.progress import followed_version as followed_keys
from commitlake.pipelines.message_keys.table_update import catch_up_keys

_CHUNK_ROWS = 1 << 19  # rows of messages: some 300 MiB
_GROUP_ROWS = 1 << 15
_IN_LAKE = "bodies"
_NO_STATES = RetryEntries()
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


@dataclass(frozen=True)
class EdgesUpdate(TableUpdate):
    """Result of an update of `edges`; the added rows include those of open steps.

    Attributes:
        passed_over: number of trace records, or of whole bodies, in an unknown format.
        unread: number of trace messages and op records whose bodies the lake does not have, or are damaged.
    """

    table: str = "edges"
    passed_over: int = 0
    unread: int = 0


def catch_up_edges(
    lake: Lake,
    runner: Runner = HERE,
    wait: Callable[[float], object] = time.sleep,
    states: RetryEntries = _NO_STATES,
    files_without_roles: Collection[str] = (),
    lake_view: Lake | None = None,
) -> EdgesUpdate:
    """Add the edges between all rows in `messages` to `edges`; retry if another run commits first.

    Args:
        runner: runs the tasks that update `message_keys`, if it is not up to date.
        wait: waits for a number of seconds.
        files_without_roles: names of data files of `messages` that are known to have no row with a role.
        lake_view: view of the lake to update from first; by default its newest versions.

    Raises:
        VersionsError: if rows of `messages` were changed.
    """
    started = time.monotonic()
    lake_view = lake_view or lake.pin_versions()
    wanted, consumed = lake_view.table("messages").version(), _consumptions_version(lake_view)
    is_done = (version := followed_messages_version(lake_view)) >= wanted and followed_consumptions_version(
        lake_view
    ) >= consumed
    if is_done and not _have_retry_states_changed(lake_view, states):
        return EdgesUpdate(version=version, seconds=time.monotonic() - started)
    views = chain([lake_view], repeat(None))  # what other runs have committed is read before each further attempt
    tries = list(
        update_until_version(wanted, lambda: follow_edges(lake, runner, states, files_without_roles, next(views)), wait)
    )
    version = tries[-1].version
    rows, passed_over = sum(one.rows for one in tries), sum(one.passed_over for one in tries)
    unread = sum(one.unread for one in tries)
    is_unfinished = version < wanted or followed_consumptions_version(lake) < consumed
    seconds = time.monotonic() - started
    return EdgesUpdate(
        version=version, rows=rows, seconds=seconds, is_unfinished=is_unfinished, passed_over=passed_over, unread=unread
    )


def follow_edges(
    lake: Lake,
    runner: Runner = HERE,
    states: RetryEntries = _NO_STATES,
    files_without_roles: Collection[str] = (),
    lake_view: Lake | None = None,
) -> EdgesUpdate:
    """Add the edges of new rows in `messages` and `consumptions`, or rebuild the table if these cannot be read.

    Args:
        runner: runs the tasks that update `message_keys`, which is needed to find earlier messages.
        states: content of retry stores, which replaces their earlier content.
        files_without_roles: names of data files of `messages` that are known to have no row with a role.
        lake_view: view of the lake to update from; by default its newest versions.

    Raises:
        VersionsError: if rows of `messages` were changed.
    """
    started = time.monotonic()
    lake_view = lake_view or lake.pin_versions()
    progress, done = followed_messages_version(lake_view), followed_erasure_number(lake_view)
    consumptions = followed_consumptions_version(lake_view)
    erased = read_erased_messages(lake_view)
    new, consumed = _find_new_files(lake_view, progress, consumptions)
    is_done = new.version <= progress and not new.from_scratch and consumed.version <= consumptions
    if is_done and not _have_retry_states_changed(lake_view, states):
        return EdgesUpdate(version=progress, seconds=time.monotonic() - started)
    # Earlier messages are found by their keys, so the keys must be as new as the rows that are linked.
    if followed_keys(lake_view) < new.version:
        catch_up_keys(lake, runner)
        lake_view = lake.pin_versions()
    begins = progress < 0 or new.from_scratch
    removed = [] if begins else _list_open_step_files(lake_view)
    work = _EdgesWriter(lake_view, erased, secrets.token_hex(8), files_without_roles)
    states = states.drop_positions(_to_positions_table(erased))
    files = work.link_files(
        list(new.files), consumed.files, _read_open_steps(lake, removed), states, has_linked_messages=not begins
    )
    step = (None if progress < 0 else progress, new.version)
    # An erasure that reaches this table meanwhile must not miss rows that are added here.
    beside = {ERASURE: (done, erased.number if begins else done)}
    if consumed.version >= 0:
        beside[CONSUMPTIONS_ID] = (consumptions + 1, consumed.version + 1)
    gone = [(file.path, file.size) for file in removed]
    if not commit_with_transaction(
        lake,
        "edges",
        files,
        APPLICATION_ID,
        step,
        replaces_all_files=new.from_scratch,
        other_transactions=beside,
        removed_files=gone,
    ):
        return EdgesUpdate(version=followed_messages_version(lake), seconds=time.monotonic() - started)
    rows = sum(file.rows for file in files)
    seconds = time.monotonic() - started
    return EdgesUpdate(
        version=new.version, rows=rows, seconds=seconds, passed_over=work.passed_over, unread=work.unread
    )


def _have_retry_states_changed(lake: Lake, states: RetryEntries) -> bool:
    """Return whether the given retry stores have changed since `edges` was last updated."""
    if not states.brokers:
        return False
    wanted = states.drop_positions(_to_positions_table(read_erased_messages(lake)))
    return wanted.differs_from_steps(_read_open_steps(lake, _list_open_step_files(lake)))


def _consumptions_version(lake: Lake) -> int:
    """Return the newest version of `consumptions`; -1 if there is none."""
    table = lake.find("consumptions")
    return -1 if table is None else table.version()


def _find_new_files(lake: Lake, progress: int, consumptions: int) -> tuple[AddedFiles, AddedFiles]:
    """Return the new data files of `messages` and `consumptions`.

    If some new files are unreadable, return all files of both.

    Args:
        progress: followed version of `messages`.
        consumptions: followed version of `consumptions`.
    """
    new, consumed = readable_added_files(lake, progress), AddedFiles((), -1)
    if _consumptions_version(lake) >= 0:
        is_first = progress < 0 or new.from_scratch
        consumed = readable_added_files(lake, -1 if is_first else consumptions, "consumptions")
    if consumed.from_scratch:
        new, consumed = readable_added_files(lake, -1), readable_added_files(lake, -1, "consumptions")
        new = replace(new, from_scratch=progress >= 0)
    return new, consumed


class _EdgesWriter:
    """Searches new rows for edges, part by part, and writes these to data files of the table `edges`."""

    def __init__(self, lake: Lake, erased: ErasedMessages, run_id: str, without_roles: Collection[str]) -> None:
        messages = lake.table("messages")
        levels = DelayCache(lake)
        self._lake = lake
        self._run_id = run_id
        self._without_roles = frozenset(without_roles)
        self._reader = RowReader(open_pack_store(_find_packs(lake)), erased, levels)
        self._delay_levels = levels
        self._messages = messages
        self._increments = RowLinker(lake, _to_positions_table(erased), levels)
        self.passed_over = 0
        self.unread = 0

    def link_files(
        self,
        files: Sequence[AddedFile],
        consumption_files: Sequence[AddedFile],
        open_steps: pa.Table,
        states: RetryEntries,
        *,
        has_linked_messages: bool,
    ) -> list[DataFile]:
        """Search the rows of data files for edges, and write these to files that are not committed yet.

        Args:
            files: new files of `messages`.
            consumption_files: new files of `consumptions`.
            open_steps: steps that were open before.
            has_linked_messages: True if the lake has messages that were linked before.

        Returns:
            Files that no version refers to yet.
        """
        written: list[DataFile] = []
        oldest_first = sorted(files, key=lambda file: file.store_date or "")
        # Even without new files, the open steps are written to a new file.
        parts = list(group_files(oldest_first, _CHUNK_ROWS, default_rows_per_file=_CHUNK_ROWS)) or [[]]
        logs = list(group_files(consumption_files, _CHUNK_ROWS, default_rows_per_file=_CHUNK_ROWS))
        count = max(len(parts), len(logs))
        # A consumption may name a message of any part.
        has_others = has_linked_messages or (count > 1 and bool(logs))
        nothing: list[AddedFile] = []
        extents = LinkedExtents(self._lake, self._messages, {file.name for file in files})
        is_stored = retry_entry_mask(open_steps)
        waiting, stored = (
            select_rows(open_steps, ~is_stored),
            states.exclude_retry_steps(select_rows(open_steps, is_stored)),
        )
        for number, (part, log) in enumerate(zip_longest(parts, logs, fillvalue=nothing)):
            new = self._read_contents(part, log, waiting)
            self.passed_over, self.unread = self.passed_over + new.passed_over, self.unread + new.unread
            spans = extents.spans_after(file.name for file in part)
            linked = self._increments.link_increment(new, waiting, spans, has_linked_messages=has_others or number > 0)
            waiting = linked.open
            written += self._write_steps(linked.closed, f"part-{number:05d}")
        stored = pa.concat_tables([stored, self._link_retry_states(states, spans)])
        return written + self._write_steps(pa.concat_tables([waiting, stored]), f"{OPEN_PREFIX}00000")

    def _link_retry_states(self, states: RetryEntries, spans: BrokerSpans) -> pa.Table:
        """Return an edge from the record of each message in a retry store to the message's entry there."""
        places = states.rows.select(PLACES.names).cast(PLACES)
        members = rows_to_records(read_rows_at_positions(self._lake, places), self._delay_levels)
        return link_retry_entries(LinkableRecords(members), states.rows, spans)

    def _read_contents(
        self, files: Sequence[AddedFile], consumption_files: Sequence[AddedFile], waiting: pa.Table
    ) -> LinkInputs:
        """Read new data files of `messages` and `consumptions`, except files without rows that edges can need."""
        folder = self._lake.open_folder("messages")
        table = open_messages_table(self._lake)
        unknown = [file for file in files if file.name not in self._without_roles]
        have_roles = map_concurrently(partial(file_may_need_edges, folder), unknown, LOCAL_THREADS)
        with_roles = {file.name for file, has_roles in zip(unknown, have_roles, strict=True) if has_roles}
        found = [
            part
            for file in files
            if file.name in with_roles
            for part in self._reader.read_contents(table.read_file(file))
        ]
        new = self._add_consumptions(join_link_inputs(found), consumption_files)
        wanted = WantedRows(new, waiting)
        others = [file for file in files if file.name not in with_roles and wanted.may_be_in_file(folder, file)]
        return join_link_inputs(
            [new, *(part for file in others for part in self._reader.read_contents(table.read_file(file)))]
        )

    def _add_consumptions(self, new_rows: LinkInputs, consumption_files: Sequence[AddedFile]) -> LinkInputs:
        """Add the entries in data files of `consumptions` to the contents of rows of `messages`."""
        if not consumption_files:
            return new_rows
        table = open_consumptions(self._lake)
        entries = [consumptions_to_entries(rows) for file in consumption_files for rows in table.read_file(file)]
        return replace(new_rows, entries=pa.concat_tables([new_rows.entries, *entries]))

    def _write_steps(self, steps: pa.Table, name: str) -> list[DataFile]:
        if not steps.num_rows:
            return []
        name = f"{name}-{self._run_id}-{secrets.token_hex(4)}.zstd.parquet"
        return [write_plain_file(to_edges(steps), self._lake, "edges", name, _ENCODINGS, _GROUP_ROWS)]


@dataclass(frozen=True, slots=True)
class _OpenStepsFile:
    path: str
    size: int


def _list_open_step_files(lake: Lake) -> list[_OpenStepsFile]:
    table = lake.find("edges")
    actions = [] if table is None else read_file_actions(table).to_pylist()
    return [
        _OpenStepsFile(one["path"], one["size_bytes"]) for one in actions if is_open_steps_file(unquote(one["path"]))
    ]


def _read_open_steps(lake: Lake, files: Sequence[_OpenStepsFile]) -> pa.Table:
    tables = [STEPS.empty_table()]
    if not files:
        return tables[0]
    folder = lake.open_folder("edges")
    for found in files:
        name = unquote(found.path)
        with convert_data_file_errors(lake.uri("edges"), name), folder.open_input_file(name) as file:
            rows = pq.read_table(file, page_checksum_verification=True)
        tables.append(open_steps_of_rows(rows.select(SCHEMA.names).cast(SCHEMA)))
    return pa.concat_tables(tables)


def _find_packs(lake: Lake) -> PackLocation:
    """Return the location of the packs that the newest archive run names; the lake's own location if it names none."""
    newest = newest_commit(lake, lake.table("messages"))
    bodies = None if newest is None else newest[1].bodies
    return lake.packs if bodies in {None, _IN_LAKE} else pack_location(str(bodies), lake.s3)


def _to_positions_table(erased_messages: ErasedMessages) -> pa.Table:
    tables = [PLACES.empty_table()]
    for broker, found in erased_messages.brokers.items():
        names = pa.array([broker] * len(found.offsets), pa.string())
        tables.append(pa.table([names, pa.array(found.offsets)], schema=PLACES))
    return pa.concat_tables(tables)
