"""Rewrites data files of tables without erased data, and replaces them in one commit for each table.

The commit carries the number of the newest erasure (see `connectors.lake.erasures`): a table with that number is done.
The commit is tried only on the version that was examined. If another writer commits first, the table is examined again,
and files that were rewritten are reused if their original is still there. If a run is killed before its commit, it
leaves files that no version refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Transaction

from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.delta_log.file_actions import TableFile
from commitlake.connectors.lake.delta_log.versions import ERASURE_KEY
from commitlake.connectors.lake.erasures import (
    APPLICATION_ID,
    FORM,
    FORM_ID,
    ErasedMessages,
    newest_erasure_number,
    read_erasure_rules_version,
)
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.erasure.ledger import make_erasure_writer as ledger_writer
from commitlake.pipelines.erasure.ledger import newest_erasure_rows
from commitlake.pipelines.erasure.ledger import read_erasure_rows as read_ledger
from commitlake.pipelines.erasure.selection import (
    ROWS,
    RowsToEraseInFile,
    drop_already_erased_rows,
    find_files_with_messages,
    read_rows_to_erase,
    rows_refer_to_messages,
)
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.file_replacement import ConcurrentMaintenanceError, replace_table_files
from commitlake.pipelines.masking.erased_rows import erase_rows, erased_row_mask
from commitlake.pipelines.masking.erasure_rows import make_erasure_rows
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.tables.erasures import ErasureEvent

_MAX_TRIES = 50
_PREFIXES: Mapping[str, Sequence[str]] = {"edges": ("from_", "to_", "evidence_")}
"""Prefixes of the columns that refer to messages, if a table has several."""
_RECORDED_BEFORE = ("row_before", "lake_before", "body_ref")
Change = Callable[[ErasedMessages, Iterator[pa.Table]], Iterator[pa.Table]]


@dataclass(frozen=True, slots=True)
class TableErasureCounts:
    """Numbers of rows and files of one table that an erasure has changed, or would change.

    Attributes:
        table: name of the table.
        rows: number of rows that were changed or deleted.
        files: number of data files that were rewritten.
        bytes_before: size of the old files.
        bytes_after: size of the new files; 0 if nothing was written.
    """

    table: str
    rows: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def erase_messages(erased_messages: ErasedMessages, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows of `messages` without the data of erased messages; the rows themselves stay."""
    for batch in batches:
        yield erase_rows(batch, erased_messages)[0].cast(batch.schema)


def drop_erased_rows(erased_messages: ErasedMessages, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows without those of erased messages."""
    for batch in batches:
        ids = _erasure_codes(erased_messages, batch)
        kept = batch.filter(pa.array(ids < 0)) if (ids >= 0).any() else batch
        if kept.num_rows:
            yield kept


def drop_erased_edges(erased_messages: ErasedMessages, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows of `edges` without those that refer to an erased message as an end or as evidence."""
    for batch in batches:
        kept = batch.filter(pa.array(~rows_refer_to_messages(batch, erased_messages, _PREFIXES["edges"])))
        if kept.num_rows:
            yield kept


def drop_erased_topic_rows(erased_messages: ErasedMessages, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows of the typed table of a topic without those of erased messages."""
    for batch in batches:
        kept = batch.filter(pa.array(~rows_refer_to_messages(batch, erased_messages, ("_",))))
        if kept.num_rows:
            yield kept


def clear_erased_rows(erased_messages: ErasedMessages, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Remove the data of erased messages from rows of `replay_rows`, so that a resumed replay skips these rows."""
    for batch in batches:
        is_erased = _erasure_codes(erased_messages, batch) >= 0
        if not is_erased.any():
            yield batch
            continue
        hits, stays = np.flatnonzero(is_erased), np.flatnonzero(~is_erased)
        emptied = batch.take(pa.array(hits))
        texts = ["the message was erased"] * len(hits)
        for name, values in {**dict.fromkeys(("keys", "properties", "body")), "error": texts}.items():
            place, field = batch.schema.get_field_index(name), batch.schema.field(name)
            column = pa.nulls(len(hits), field.type) if values is None else pa.array(values, field.type)
            emptied = emptied.set_column(place, field, column)
        rows = pa.concat_tables([batch.take(pa.array(stays)), emptied])
        # Back in the order of the file.
        yield rows.take(pa.array(np.argsort(np.concatenate([stays, hits]))))


def _erasure_codes(erased_messages: ErasedMessages, batch: pa.Table) -> Array:
    columns = batch.select(["broker", "physical_offset"]).combine_chunks()
    return erased_messages.find_row_erasure_indexes(columns.column(0).chunk(0), columns.column(1).chunk(0))


CHANGES: Mapping[str, Change] = {
    "messages": erase_messages,
    "message_keys": drop_erased_rows,
    "edges": drop_erased_edges,
    "replay_rows": clear_erased_rows,
    "topic_misfits": drop_erased_rows,
}
"""Tables whose rows refer to messages and have data of them, in the order of the commits; those of topics follow."""


def tables_with_message_data(lake: Lake) -> list[str]:
    """Return the tables of a lake whose rows refer to messages and have data of them, in the order of the commits."""
    return [*CHANGES, *lake.list_topic_tables()]


def _change_of_table(table: str) -> Change:
    return CHANGES.get(table, drop_erased_topic_rows)


def _column_prefixes(table: str) -> Sequence[str]:
    """Return the prefixes of the columns by which a table refers to messages."""
    return _PREFIXES.get(table, ("",) if table in CHANGES else ("_",))


def count_rows_to_erase(
    lake: Lake, table: str, erased_messages: ErasedMessages, runner: Runner = HERE
) -> TableErasureCounts | None:
    """Return how many rows and files of a table an erasure would change; None if the lake lacks the table.

    Args:
        table: one of `tables_with_message_data`.
        erased_messages: the messages.
        runner: runs the tasks that read files.
    """
    opened = lake.find(table)
    if opened is None:
        return None
    hits = list(_find_unerased_rows(lake, table, opened, erased_messages, runner))
    return TableErasureCounts(table, sum(one.row_count for one in hits), len(hits), sum(one.file.size for one in hits))


def is_erasure_done(lake: Lake, table: str, erasure_number: int) -> bool:
    """Return whether all erasures up to a number are applied to a table, or the table does not exist."""
    opened = lake.find(table)
    if opened is None:
        return True
    return newest_erasure_number(opened) >= erasure_number and (
        table != "messages" or not erasure_number or read_erasure_rules_version(opened) >= FORM
    )


def add_missing_erasure_rows(lake: Lake, erased_messages: ErasedMessages, parser_version: str) -> None:
    """Add rows to `erasures` for messages that an older version of CommitLake erased only in part.

    That version kept their tags, sizes and CRCs.

    Args:
        parser_version: version of CommitLake.
    """
    opened = lake.table("messages")
    # All rows have the form of this version already.
    if read_erasure_rules_version(opened) >= FORM:
        return
    recorded = newest_erasure_rows(read_ledger(lake))
    known = {
        (row["broker"], row["physical_offset"]): row
        for row in recorded.select(["broker", "physical_offset", *_RECORDED_BEFORE]).to_pylist()
    }
    folder = lake.open_folder("messages")
    for hits in find_files_with_messages(lake, "messages", opened, erased_messages):
        left = drop_already_erased_rows(folder, hits)
        rows = read_rows_to_erase(folder, left, ROWS).combine_chunks() if left.groups else ROWS.empty_table()
        old = rows.filter(pa.array(erased_row_mask(rows, by_any_version=True))).combine_chunks()
        if not old.num_rows:
            continue
        after, _ = erase_rows(old, erased_messages)
        codes = erased_messages.find_row_erasure_indexes(
            *(old.column(name).chunk(0) for name in ("broker", "physical_offset"))
        ).tolist()
        ids, numbers = [erased_messages.ids[code] for code in codes], [erased_messages.numbers[code] for code in codes]
        made = make_erasure_rows(old, after, ids, numbers, ErasureEvent.AGAIN, ledger_writer(parser_version))
        keys = zip(old.column("broker").to_pylist(), old.column("physical_offset").to_pylist(), strict=True)
        before = [known.get(key, {}) for key in keys]
        for name in _RECORDED_BEFORE:
            column = pa.array([row.get(name) for row in before], made.schema.field(name).type)
            made = made.set_column(made.schema.get_field_index(name), made.schema.field(name), column)
        append_rows(lake, "erasures", made)


def erase_from_table(
    lake: Lake, table: str, erased_messages: ErasedMessages, runner: Runner = HERE
) -> TableErasureCounts | None:
    """Erase the data of erased messages from one of the lake's tables.

    Args:
        table: one of `tables_with_message_data`.
        runner: runs the tasks that read and write files.

    Returns:
        The work; None if it was done before, or there is no such table.
    """
    uri = lake.uri(table)
    written: dict[str, TableFile] = {}
    for _ in range(_MAX_TRIES):
        if is_erasure_done(lake, table, erased_messages.number):
            return None
        opened = lake.table(table)
        try:
            hits = list(_find_unerased_rows(lake, table, opened, erased_messages, runner))
            # Files that an earlier attempt has rewritten are used again.
            new = [one.file for one in hits if one.file.path not in written]
            for number, file in runner.run(partial(_rewrite_data_file, lake, table, erased_messages), new):
                written[new[number].path] = file
            removed = [one.file for one in hits]
            added = [written[file.path] for file in removed]
            commit_rewritten_files(
                lake, table, removed, [file for file in added if file.rows], erased_messages.number, opened.version(),
                records_row_form=table == "messages",
            )  # fmt: skip
        except (ConcurrentMaintenanceError, FileNotFoundError):
            # A merge may have deleted a file, or committed first: the table is examined again.
            continue
        before, after = sum(file.size for file in removed), sum(file.size for file in added)
        return TableErasureCounts(table, sum(one.row_count for one in hits), len(removed), before, after)
    raise ConcurrentRunError(
        f"{uri}: another writer committed first at each of {_MAX_TRIES} attempts. Finished steps remain done: "
        "run the command again"
    )


def _find_unerased_rows(
    lake: Lake, table: str, delta_table: DeltaTable, erased_messages: ErasedMessages, runner: Runner
) -> Iterator[RowsToEraseInFile]:
    folder = lake.open_folder(table)
    for hits in find_files_with_messages(lake, table, delta_table, erased_messages, runner, _column_prefixes(table)):
        left = drop_already_erased_rows(folder, hits) if table == "messages" else hits
        if left.groups:
            yield left


def _rewrite_data_file(lake: Lake, table: str, erased_messages: ErasedMessages, file: TableFile) -> TableFile:
    return rewrite_file(lake, table, file, partial(_change_of_table(table), erased_messages))


def commit_rewritten_files(
    lake: Lake,
    table: str,
    removed_files: Sequence[TableFile],
    added_files: Sequence[TableFile],
    erasure_number: int,
    expected_version: int,
    *,
    records_row_form: bool = False,
) -> None:
    """Replace data files of a table in one commit that records up to which number erasures are applied to it.

    Raises:
        ConcurrentMaintenanceError: if another writer has committed first.
    """
    form = [Transaction(FORM_ID, FORM)] if records_row_form else []
    replace_table_files(
        lake,
        table,
        removed_files,
        added_files,
        changes_data=True,
        note={"number": erasure_number},
        note_key=ERASURE_KEY,
        transactions=[Transaction(APPLICATION_ID, erasure_number), *form],
        # A commit in between may have added rows of the messages, which must be examined, too.
        expected_version=expected_version,
    )
