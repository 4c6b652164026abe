"""Corrects the profiles of archive runs after an erasure, and removes from `erasures` what was needed for it.

A profile has sums of hashes of the rows in a window. As long as a row counts as it was before its erasure, the sum
without the other rows is its hash, which confirms a guess of its contents. The rows of `erasures` have what an erasure
changes in each sum, and that is applied here. The commit to `profiles` has the erasure's number, so nothing is applied
twice. A purge then deletes from `erasures` what is not needed any more; until then, a repair may need it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.erasures import FORM, erased_form, erasure_number, open_erasures
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.versions import ERASURE_KEY
from commitlake.pipelines.erasure.ledger import ConcurrentErasureError, newest_rows, read_rows
from commitlake.pipelines.erasure.rewriting import TableWork, commit
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.table_files import (
    ConcurrentMaintenanceError,
    TableFile,
    exchange_files,
    folder_of,
    read_table_files,
)
from commitlake.pipelines.masking.erased_rows import CHANGED_FIGURES, changes_of
from commitlake.schemas.tables.erasures import MESSAGE_EVENTS
from commitlake.schemas.tables.profile import WINDOW_SECONDS

_MAX_TRIES = 50
_WINDOW_US = WINDOW_SECONDS * 1_000_000
_PLACE = ["broker", "topic", "queue_id", "window_start", "first_physical_offset", "last_physical_offset"]
Window = tuple[str | None, str | None, int | None, int | None]
Changes = Mapping[int, Mapping[str, int]]
"""By row of a data file, what to add to each figure."""


def correct_profiles(lake: Lake, number: int) -> TableWork | None:
    """Change profiles so that they count messages as they are after all erasures up to a number.

    Args:
        number: number of the newest erasure, which is done in `messages`.

    Returns:
        The work; None if it was done before, or the lake has no profiles.
    """
    for _ in range(_MAX_TRIES):
        table = lake.find("profiles")
        if table is None:
            return None
        done = erasure_number(table)
        if done >= number:
            return None
        changes = _changes_by_file(table, _by_window(lake, done))
        files = [file for file in read_table_files(table) if file.path in changes]
        try:
            added = [
                rewrite_file(lake.uri("profiles"), file, partial(_corrected, changes[file.path])) for file in files
            ]
            commit(lake.uri("profiles"), files, added, number, table.version())
        except (ConcurrentMaintenanceError, FileNotFoundError):
            continue
        sizes = sum(file.size for file in files), sum(file.size for file in added)
        return TableWork("profiles", sum(map(len, changes.values())), len(files), *sizes)
    raise ConcurrentErasureError(
        f"{lake.uri('profiles')}: other writers committed first {_MAX_TRIES} times. Run it again"
    )


def _by_window(lake: Lake, done: int) -> dict[Window, list[tuple[int, dict[str, int]]]]:
    """Return, for each window, the offsets of messages and what their erasure changes."""
    rows = newest_rows(read_rows(lake))
    rows = rows.filter(pc.greater(rows.column("number"), done)).combine_chunks()
    changes = changes_of(rows)
    times = rows.column("store_timestamp").cast(pa.int64()).to_pylist()
    places = [rows.column(name).to_pylist() for name in ("broker", "topic", "queue_id", "physical_offset")]
    found: dict[Window, list[tuple[int, dict[str, int]]]] = defaultdict(list)
    for row, (broker, topic, queue, offset) in enumerate(zip(*places, strict=True)):
        if changes["unknown"][row]:
            continue
        start = None if times[row] is None else times[row] // _WINDOW_US * _WINDOW_US
        change = {name: int(changes[name][row]) for name in CHANGED_FIGURES}
        found[broker, topic, queue, start].append((offset, change))
    return found


def _changes_by_file(
    table: DeltaTable, wanted: dict[Window, list[tuple[int, dict[str, int]]]]
) -> dict[str, dict[int, dict[str, int]]]:
    """Return the rows of each data file that count the messages, and what to add to them; each message counts once."""
    folder = folder_of(table.table_uri)
    found: dict[str, dict[int, dict[str, int]]] = {}
    for file in read_table_files(table) if wanted else ():
        with folder.open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, columns=_PLACE, page_checksum_verification=True)
        starts = rows.column("window_start").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        columns = [rows.column(name).to_pylist() for name in _PLACE if name != "window_start"]
        for row, (broker, topic, queue, first, last) in enumerate(zip(*columns, strict=True)):
            left = wanted.get((broker, topic, queue, starts[row]))
            if not left:
                continue
            own = [change for offset, change in left if first <= offset <= last]
            left[:] = [(offset, change) for offset, change in left if not first <= offset <= last]
            if own:
                sums = {name: sum(change[name] for change in own) for name in CHANGED_FIGURES}
                found.setdefault(file.path, {})[row] = sums
    return found


def _corrected(changes: Changes, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    first = 0
    for batch in batches:
        rows = [row for row in changes if first <= row < first + batch.num_rows]
        changed = batch
        for name in CHANGED_FIGURES if rows else ():
            if name not in batch.column_names:
                continue
            amounts: Array = np.zeros(batch.num_rows, np.uint64)
            for row in rows:
                amounts[row - first] = changes[row][name] % (1 << 64)
            column = batch.column(name).combine_chunks()
            sums = column.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64) + amounts
            mask = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False), bool)
            place = batch.schema.get_field_index(name)
            changed = changed.set_column(place, batch.schema.field(place), pa.array(sums.view(np.int64), mask=mask))
        first += batch.num_rows
        yield changed


def forget_contents(lake: Lake, number: int) -> TableWork | None:
    """Delete the hashes of rows before their erasure, and CRCs of bodies, from `erasures`.

    Args:
        number: number of an erasure; what profiles do not count yet is kept.

    Returns:
        The work; None if there is nothing to delete.
    """
    number = min(number, _counted(lake))
    for _ in range(_MAX_TRIES):
        table = open_erasures(lake)
        if table is None:
            return None
        files: list[TableFile] = []
        rows = 0
        for file in read_table_files(table):
            with folder_of(table.table_uri).open_input_file(unquote(file.path)) as source:
                count = int(_are_to_forget(pq.read_table(source, page_checksum_verification=True), number).sum())
            if count:
                files.append(file)
                rows += count
        if not files:
            return None
        try:
            added = [rewrite_file(lake.uri("erasures"), file, partial(_forgotten, number)) for file in files]
            exchange_files(
                lake.uri("erasures"), files, added, changes_data=True, note={"forgotten": number}, key=ERASURE_KEY,
                at_version=table.version(),
            )  # fmt: skip
        except (ConcurrentMaintenanceError, FileNotFoundError):
            continue
        sizes = sum(file.size for file in files), sum(file.size for file in added)
        return TableWork("erasures", rows, len(files), *sizes)
    raise ConcurrentErasureError(
        f"{lake.uri('erasures')}: other writers committed first {_MAX_TRIES} times. Run it again"
    )


def _counted(lake: Lake) -> int:
    """Return the number of the newest erasure that is complete in `messages` and in `profiles`."""
    messages = lake.table("messages")
    if erased_form(messages) < FORM:
        return 0
    done = erasure_number(messages)
    profiles = lake.find("profiles")
    return done if profiles is None else min(done, erasure_number(profiles))


_TO_FORGET = ("row_before", "lake_before", "body_crc", "detail")


def _are_to_forget(rows: pa.Table, number: int) -> Array:
    is_message = pc.is_in(rows.column("event").cast(pa.string()), pa.array([str(event) for event in MESSAGE_EVENTS]))
    is_done = pc.and_(is_message, pc.less_equal(rows.column("number"), number)).fill_null(False)
    holds = [pc.is_valid(rows.column(name)) for name in _TO_FORGET if name in rows.column_names]
    return np.asarray(pc.and_(is_done, _any_true(holds)).to_numpy(), bool)


def _any_true(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    found = columns[0]
    for column in columns[1:]:
        found = pc.or_(found, column)
    return found


def _forgotten(number: int, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for batch in batches:
        hits = pa.array(_are_to_forget(batch, number))
        changed = batch
        for name in _TO_FORGET:
            place, field = batch.schema.get_field_index(name), batch.schema.field(name)
            column = pc.if_else(hits, pa.scalar(None, field.type), batch.column(name))
            changed = changed.set_column(place, field, column)
        yield changed
