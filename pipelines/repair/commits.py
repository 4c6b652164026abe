"""Commits of repairs: progress and lost runs of `messages`, and the number of rows that were removed from a table.

After a repair of `messages`, a commit records the archive's progress and the lost runs:

    {"commitlake": {"sequence": 9, "run_id": "repair-…", …}, "commitlake.repair": {"after": 6, "first": 7, …}}

The commit is an archive commit without messages, with a sequence that no run had, so that the tables that follow
continue after it. Rows of runs between the last intact run and the repair belong to lost runs.

The commit that takes damaged files out of another table has a note on their rows, so that the loss is reported once.
"""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.archive_commits import (
    APPLICATION_ID,
    ArchiveCommit,
    RunCounts,
    StoreProgress,
    newest_commit,
    read_messages_history,
)
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.delta_log.history import CommitNote, read_history
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.maintenance.file_replacement import METADATA_KEY, NO_HOOKS
from commitlake.pipelines.repair.delta_log import REPAIR_KEY
from commitlake.schemas.layouts.integer_parsing import parse_int64

_LOST_ROWS = "lost_rows"


@dataclass(frozen=True, slots=True)
class LostRuns:
    """Archive runs whose commits and messages were lost, as one repair recorded it.

    Attributes:
        after: sequence of the last intact run.
        before: sequence of the repair's own commit.
        first: the first lost version.
        last: the version of the repair's commit.
        run_ids: ids of the lost runs that are known.
    """

    after: int
    before: int
    first: int
    last: int
    run_ids: tuple[str, ...] = ()


def read_lost_runs(lake: Lake) -> list[LostRuns]:
    """Return the archive runs that repairs found to be lost, as far back as the Delta log goes."""
    found = []
    for entry in read_messages_history(lake):
        note = _repair_note_of_entry(entry)
        commit = ArchiveCommit.from_metadata(entry.metadata)
        if note is not None and commit is not None:
            found.append(
                LostRuns(note["after"], commit.sequence, note["first"], entry.version, tuple(note.get("run_ids", ())))
            )
    return found


def find_unfinished_repair(lake: Lake) -> dict[str, Any] | None:
    """Return the note of a repair that replaced log entries but was killed before it committed; None if none."""
    for entry in read_messages_history(lake):
        note = _repair_note_of_entry(entry)
        if note is not None:
            return None if ArchiveCommit.from_metadata(entry.metadata) else note
        if ArchiveCommit.from_metadata(entry.metadata):
            return None
    return None


def commit_repair(lake: Lake, note: dict[str, Any]) -> ArchiveCommit:
    """Commit how far each store is archived, after a repair of `messages`.

    Args:
        note: note of the repair; `first` is the first lost version, and `run_ids` are the lost runs.
    """
    table = lake.table("messages")
    known = newest_commit(lake, table)
    last = known[1] if known else ArchiveCommit(0, "")
    # A sequence that no run has had, also none whose commit is lost but that other tables know.
    newest = max(
        last.sequence, table.transaction_version(APPLICATION_ID) or 0, newest_finished_sequence(lake), note["sequence"]
    )
    # Each lost version may have been an unknown run.
    sequence = newest + 1 + max(0, int(table.version()) - note["first"])
    stores = last.stores
    # The log knows a newer run than its commits show: their progress is lost, and rows are all that is left.
    if last.sequence < (table.transaction_version(APPLICATION_ID) or 0):
        stores = _progress_from_rows(lake, table, last)
    now = datetime.datetime.now(datetime.UTC).isoformat()
    commit = replace(
        last,
        sequence=sequence,
        run_id=f"repair-{secrets.token_hex(16)}",
        stores=stores,
        ranges={},
        counts=RunCounts(now, 0, 0, 0),
        files={},
    )
    after = last.sequence if note["goes_back"] else sequence - 1
    repaired = {"after": after, "first": note["first"], "run_ids": note["run_ids"]}
    metadata = json.dumps({**json.loads(commit.to_metadata()), REPAIR_KEY: repaired}, sort_keys=True)
    table.create_write_transaction(
        [],
        "append",
        table.schema(),
        list(table.metadata().partition_columns),
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": metadata}, app_transactions=[Transaction(APPLICATION_ID, sequence)]
        ),
        post_commithook_properties=NO_HOOKS,
    )
    lake.seal_log("messages")
    return commit


def _repair_note_of_entry(entry: CommitNote) -> dict[str, Any] | None:
    try:
        note = parse_json(entry.metadata or "")[REPAIR_KEY]
    except (ValueError, KeyError, TypeError):
        return None
    return note if isinstance(note, dict) else None


def newest_finished_sequence(lake: Lake) -> int:
    """Return the sequence number of the newest run in `archive_runs`; 0 if it cannot be read."""
    try:
        runs = lake.find("archive_runs")
        return 0 if runs is None else runs.transaction_version(APPLICATION_ID) or 0
    except (DeltaError, LogDamagedError):
        return 0


def _progress_from_rows(lake: Lake, table: DeltaTable, last_commit: ArchiveCommit) -> dict[str, StoreProgress]:
    """Return each store's archived end, computed from the rows of `messages` because the latest commits are lost."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    ends = {broker: progress.end for broker, progress in last_commit.stores.items()}
    for columns in _read_last_records(lake, table, pq):
        for broker, offset, size in zip(*columns, strict=True):
            ends[broker] = max(ends.get(broker, 0), offset + size)
    return {
        broker: last_commit.stores[broker]
        if broker in last_commit.stores and last_commit.stores[broker].end == end
        else StoreProgress(end)
        for broker, end in ends.items()
    }


def _read_last_records(lake: Lake, table: DeltaTable, parquet_module: Any) -> Iterator[tuple[list[Any], ...]]:
    files = lake.open_folder("messages")
    for file in read_table_files(table):
        with files.open_input_file(unquote(file.path)) as source:
            rows = parquet_module.read_table(
                source, columns=["broker", "physical_offset", "size"], page_checksum_verification=True
            )
        last = rows.append_column("end", rows.column("physical_offset")).group_by("broker").aggregate([("end", "max")])
        for broker, offset in zip(last.column("broker").to_pylist(), last.column("end_max").to_pylist(), strict=True):
            found = rows.filter(
                parquet_module.filters_to_expression([("broker", "=", broker), ("physical_offset", "=", offset)])
            )
            yield tuple(found.column(name).to_pylist() for name in ("broker", "physical_offset", "size"))


def make_repair_note(lost_rows: int) -> dict[str, str]:
    """Return the commit metadata of a repair that removes damaged data files: the number of lost rows.

    Args:
        lost_rows: number of rows in these files.
    """
    return {"action": "repair", _LOST_ROWS: str(lost_rows)}


def count_lost_rows(lake: Lake, table: str) -> int:
    """Return the number of a table's rows that repairs recorded as lost, as far back as its Delta log goes.

    Raises:
        NoTableError: if the lake does not have the table.
    """
    newest = lake.table(table).version()
    return sum(_lost_row_count(note.metadata) for note in read_history(lake.open_log(table), newest))


def _lost_row_count(metadata: str | None) -> int:
    text = (read_maintenance_note(metadata) or {}).get(_LOST_ROWS)
    return max(parse_int64(text) or 0, 0) if isinstance(text, str) else 0


def read_maintenance_note(metadata: str | None) -> dict[str, Any] | None:
    """Return the object that `maintain` wrote into a commit's metadata; None for commits of other programs."""
    try:
        document: Any = parse_json(metadata or "null")
    except ValueError:
        return None
    note = document.get(METADATA_KEY) if isinstance(document, dict) else None
    return note if isinstance(note, dict) else None
