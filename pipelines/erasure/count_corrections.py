"""Corrects counts of erased messages: rows of `topic_minutes`, and the profiles of archive runs.

The minutes of erased messages are counted again, because their tags and body sizes are erased. The rows of a queue's
minute are replaced by new counts of its messages. If several runs have counted the minute, each message is counted for
the run whose rows have its offset, so that the table still has rows of each run.

A profile has sums of hashes of the rows in a window. As long as a row counts as it was before its erasure, the sum
without the other rows is its hash, which confirms a guess of its contents. The rows of `erasures` have what an erasure
changes in each sum, and that is applied here. The commit to `profiles` has the erasure's number, so nothing is applied
twice. A purge then deletes from `erasures` what is not needed any more; until then, a repair may need it.
"""

from __future__ import annotations

import datetime
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.versions import ERASURE_KEY
from commitlake.connectors.lake.erasures import FORM, newest_erasure_number, open_erasures, read_erasure_rules_version
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.erasure.data_file_rewriting import TableErasureCounts, commit_rewritten_files
from commitlake.pipelines.erasure.ledger import newest_erasure_rows, read_erasure_rows
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.file_replacement import (
    ConcurrentMaintenanceError,
    new_table_file,
    replace_table_files,
)
from commitlake.pipelines.masking.erasure_rows import CHANGED_FIGURES, sum_changes_by_row
from commitlake.pipelines.topic_minutes.minute_counts import COLUMNS, count_minutes, write_minutes_file
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.tables.erasures import MESSAGE_EVENTS
from commitlake.schemas.tables.profile import WINDOW_SECONDS
from commitlake.schemas.tables.topic_minutes import MINUTE_SECONDS
from commitlake.schemas.times import EPOCH

_MAX_TRIES = 50
_MINUTE_US = MINUTE_SECONDS * 1_000_000
_KEY = ["broker", "topic", "queue_id", "minute"]
_OF_ROWS = [*_KEY, "first_physical_offset", "last_physical_offset", "messages", "run_id"]
Key = tuple[str | None, str | None, int | None, int | None]
"""Broker, topic, queue, and start of the minute in µs."""
_WINDOW_US = WINDOW_SECONDS * 1_000_000
_PLACE = ["broker", "topic", "queue_id", "window_start", "first_physical_offset", "last_physical_offset"]
Window = tuple[str | None, str | None, int | None, int | None]
Changes = Mapping[int, Mapping[str, int]]
"""By row of a data file, what to add to each figure."""


def recount_minutes(lake: Lake, erasure_number: int) -> TableErasureCounts | None:
    """Count messages again for the rows of `topic_minutes` that include erased messages.

    Args:
        erasure_number: number of the newest erasure, which is done in `messages`.

    Returns:
        The work; None if it was done before, or the lake has no `topic_minutes`.
    """
    for _ in range(_MAX_TRIES):
        table = lake.find("topic_minutes")
        if table is None:
            return None
        done = newest_erasure_number(table)
        if done >= erasure_number:
            return None
        keys = _keys_to_recount(lake, done)
        runs, files = _find_runs_of_keys(lake, table, keys)
        counted = _count_messages(lake, runs)
        # A minute of which messages are missing would be counted too low, so it stays as it is.
        whole = {key for key, parts in runs.items() if all(part["left"] == 0 for part in parts)}
        try:
            removed = [file for file in read_table_files(table) if files.get(file.path, set()) & whole]
            added = [
                rewrite_file(lake, "topic_minutes", file, partial(_drop_rows_of_keys, frozenset(whole)))
                for file in removed
            ]
            new = [file for file in added if file.rows] + _write_minutes(lake, counted, whole)
            commit_rewritten_files(lake, "topic_minutes", removed, new, erasure_number, table.version())
        except (ConcurrentMaintenanceError, FileNotFoundError):
            continue
        sizes = sum(file.size for file in removed), sum(file.size for file in new)
        return TableErasureCounts("topic_minutes", len(whole), len(removed), *sizes)
    raise ConcurrentRunError(
        f"{lake.uri('topic_minutes')}: another writer committed first at each of {_MAX_TRIES} attempts. "
        "Run the command again"
    )


def _keys_to_recount(lake: Lake, done_number: int) -> set[Key]:
    rows = newest_erasure_rows(read_erasure_rows(lake))
    rows = rows.filter(pc.greater(rows.column("number"), done_number))
    return set(_minute_keys(rows, "store_timestamp"))


def _minute_keys(rows: pa.Table, time_column: str) -> Iterator[Key]:
    times = rows.column(time_column).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    minutes = (None if at is None else at // _MINUTE_US * _MINUTE_US for at in times)
    columns = [rows.column(name).cast(pa.string()).to_pylist() for name in ("broker", "topic")]
    yield from zip(*columns, rows.column("queue_id").to_pylist(), minutes, strict=True)


def _find_runs_of_keys(
    lake: Lake, table: DeltaTable, keys: set[Key]
) -> tuple[dict[Key, list[dict[str, Any]]], dict[str, set[Key]]]:
    """Return each archive run's offset range and message count for each given key of `topic_minutes`.

    Also return the keys in each data file.
    """
    folder = lake.open_folder("topic_minutes")
    runs: dict[Key, dict[str, dict[str, Any]]] = defaultdict(dict)
    files: dict[str, set[Key]] = {}
    for file in read_table_files(table) if keys else ():
        with folder.open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, columns=_OF_ROWS, page_checksum_verification=True)
        found = list(_minute_keys(rows, "minute"))
        hits = [row for row, key in enumerate(found) if key in keys]
        for row, values in zip(hits, rows.take(pa.array(hits, pa.int64())).to_pylist(), strict=True):
            run = runs[found[row]].setdefault(values["run_id"], values | {"left": 0})
            run["left"] += values["messages"]
            for name, choose in (("first_physical_offset", min), ("last_physical_offset", max)):
                run[name] = choose(run[name], values[name])
            files.setdefault(file.path, set()).add(found[row])
    return {key: list(parts.values()) for key, parts in runs.items()}, files


def _count_messages(lake: Lake, runs: Mapping[Key, Sequence[dict[str, Any]]]) -> list[tuple[Key, pa.Table]]:
    """Count the messages again for each key of `topic_minutes` and each archive run.

    The messages found are subtracted from the run's expected number, `left`.
    """
    messages: dict[tuple[Key, int], list[pa.Table]] = defaultdict(list)
    for batch in _read_messages(lake, runs):
        chosen: dict[tuple[Key, int], list[int]] = defaultdict(list)
        for row, (key, offset) in enumerate(
            zip(_minute_keys(batch, "store_timestamp"), batch.column("physical_offset").to_pylist(), strict=True)
        ):
            for number, part in enumerate(runs.get(key, ())):
                if part["first_physical_offset"] <= offset <= part["last_physical_offset"] and part["left"] > 0:
                    part["left"] -= 1
                    chosen[key, number].append(row)
                    break
            else:
                if key in runs:  # a message that no run has counted yet: the minute stays as it is
                    runs[key][0]["left"] -= 1 << 62
        for place, rows in chosen.items():
            messages[place].append(batch.take(pa.array(rows)))
    return [
        (key, count_minutes(pa.concat_tables(parts).combine_chunks(), str(runs[key][number]["run_id"])))
        for (key, number), parts in messages.items()
    ]


def _read_messages(lake: Lake, runs: Mapping[Key, object]) -> Iterator[pa.Table]:
    """Yield rows of `messages` that may belong to the given keys of `topic_minutes`."""
    if not runs:
        return
    brokers, topics, _, minutes = (set(values) for values in zip(*runs, strict=True))
    wanted = ds.field("broker").isin(sorted(map(str, brokers))) & ds.field("topic").isin(sorted(map(str, topics)))
    known = [minute for minute in minutes if minute is not None]
    # A minute without a time may be in any file.
    if len(known) == len(minutes):
        first, last = (EPOCH + datetime.timedelta(microseconds=at) for at in (min(known), max(known) + _MINUTE_US))
        wanted &= (ds.field("store_timestamp") >= pa.scalar(first)) & (ds.field("store_timestamp") < pa.scalar(last))
    dataset = lake.table("messages").to_pyarrow_dataset()
    names = [name for name in COLUMNS if name in dataset.schema.names]
    for batch in dataset.to_batches(columns=names, filter=wanted):
        if batch.num_rows:
            rows = pa.Table.from_batches([batch])
            for name in COLUMNS:
                if name not in names:
                    rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
            yield rows


def _drop_rows_of_keys(keys: frozenset[Key], batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for batch in batches:
        is_kept: Array = np.array([key not in keys for key in _minute_keys(batch, "minute")], bool)
        kept = batch if is_kept.all() else batch.filter(pa.array(is_kept))
        if kept.num_rows:
            yield kept


def _write_minutes(
    lake: Lake, counted_rows: Sequence[tuple[Key, pa.Table]], complete_keys: set[Key]
) -> list[TableFile]:
    parts = [rows for key, rows in counted_rows if key in complete_keys]
    if not parts:
        return []
    name = f"part-erased-{secrets.token_hex(16)}.zstd.parquet"
    return [new_table_file(write_minutes_file(pa.concat_tables(parts), lake, name))]


def correct_profiles(lake: Lake, erasure_number: int) -> TableErasureCounts | None:
    """Change the counts and checksums in `profiles` to those of the messages after all erasures up to a number.

    Args:
        erasure_number: number of the newest erasure, which is done in `messages`.

    Returns:
        The work; None if it was done before, or the lake has no profiles.
    """
    for _ in range(_MAX_TRIES):
        table = lake.find("profiles")
        if table is None:
            return None
        done = newest_erasure_number(table)
        if done >= erasure_number:
            return None
        changes = _changes_by_file(lake, table, _changes_by_window(lake, done))
        files = [file for file in read_table_files(table) if file.path in changes]
        try:
            added = [rewrite_file(lake, "profiles", file, partial(_correct_rows, changes[file.path])) for file in files]
            commit_rewritten_files(lake, "profiles", files, added, erasure_number, table.version())
        except (ConcurrentMaintenanceError, FileNotFoundError):
            continue
        sizes = sum(file.size for file in files), sum(file.size for file in added)
        return TableErasureCounts("profiles", sum(map(len, changes.values())), len(files), *sizes)
    raise ConcurrentRunError(
        f"{lake.uri('profiles')}: another writer committed first at each of {_MAX_TRIES} attempts. "
        "Run the command again"
    )


def _changes_by_window(lake: Lake, done_number: int) -> dict[Window, list[tuple[int, dict[str, int]]]]:
    """Return, for each time window, the offsets of its erased messages and how the erasures change its sums."""
    rows = newest_erasure_rows(read_erasure_rows(lake))
    rows = rows.filter(pc.greater(rows.column("number"), done_number)).combine_chunks()
    changes = sum_changes_by_row(rows)
    times = rows.column("store_timestamp").cast(pa.int64()).to_pylist()
    places = [rows.column(name).to_pylist() for name in ("broker", "topic", "queue_id", "physical_offset")]
    found: dict[Window, list[tuple[int, dict[str, int]]]] = defaultdict(list)
    for row, (broker, topic, queue, offset) in enumerate(zip(*places, strict=True)):
        # Hashes of this row were lost, and audits do not compare its window.
        if changes["unknown"][row]:
            continue
        start = None if times[row] is None else times[row] // _WINDOW_US * _WINDOW_US
        change = {name: int(changes[name][row]) for name in CHANGED_FIGURES}
        found[broker, topic, queue, start].append((offset, change))
    return found


def _changes_by_file(
    lake: Lake, table: DeltaTable, changes_by_window: dict[Window, list[tuple[int, dict[str, int]]]]
) -> dict[str, dict[int, dict[str, int]]]:
    """Return the changes to the sums in each row of each data file of `profiles`, caused by erasures.

    Each message counts once.
    """
    folder = lake.open_folder("profiles")
    found: dict[str, dict[int, dict[str, int]]] = {}
    for file in read_table_files(table) if changes_by_window else ():
        with folder.open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, columns=_PLACE, page_checksum_verification=True)
        starts = rows.column("window_start").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        columns = [rows.column(name).to_pylist() for name in _PLACE if name != "window_start"]
        for row, (broker, topic, queue, first, last) in enumerate(zip(*columns, strict=True)):
            left = changes_by_window.get((broker, topic, queue, starts[row]))
            if not left:
                continue
            own = [change for offset, change in left if first <= offset <= last]
            left[:] = [(offset, change) for offset, change in left if not first <= offset <= last]
            if own:
                sums = {name: sum(change[name] for change in own) for name in CHANGED_FIGURES}
                found.setdefault(file.path, {})[row] = sums
    return found


def _correct_rows(changes: Changes, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    first = 0
    for batch in batches:
        rows = [row for row in changes if first <= row < first + batch.num_rows]
        changed = batch
        for name in CHANGED_FIGURES if rows else ():
            if name not in batch.column_names:
                continue
            amounts: Array = np.zeros(batch.num_rows, np.uint64)
            for row in rows:
                # Modulo 2^64, as the sums of a profile are.
                amounts[row - first] = changes[row][name] % (1 << 64)
            column = batch.column(name).combine_chunks()
            sums = column.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64) + amounts
            mask = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False), bool)
            place = batch.schema.get_field_index(name)
            changed = changed.set_column(place, batch.schema.field(place), pa.array(sums.view(np.int64), mask=mask))
        first += batch.num_rows
        yield changed


def delete_content_hashes(lake: Lake, erasure_number: int) -> TableErasureCounts | None:
    """Delete from `erasures` the hashes of rows before their erasure, and the CRCs of their bodies.

    Args:
        erasure_number: number of an erasure; what profiles do not count yet is kept.

    Returns:
        The work; None if there is nothing to delete.
    """
    # Profiles that still count the rows as they were need these hashes.
    erasure_number = min(erasure_number, _newest_erasure_in_profiles(lake))
    for _ in range(_MAX_TRIES):
        table = open_erasures(lake)
        if table is None:
            return None
        files: list[TableFile] = []
        rows = 0
        folder = lake.open_folder("erasures")
        for file in read_table_files(table):
            with folder.open_input_file(unquote(file.path)) as source:
                count = int(
                    _rows_with_hashes(pq.read_table(source, page_checksum_verification=True), erasure_number).sum()
                )
            if count:
                files.append(file)
                rows += count
        if not files:
            return None
        try:
            added = [rewrite_file(lake, "erasures", file, partial(_delete_hashes, erasure_number)) for file in files]
            replace_table_files(
                lake, "erasures", files, added, changes_data=True, note={"forgotten": erasure_number},
                note_key=ERASURE_KEY,
                expected_version=table.version(),
            )  # fmt: skip
        except (ConcurrentMaintenanceError, FileNotFoundError):
            continue
        sizes = sum(file.size for file in files), sum(file.size for file in added)
        return TableErasureCounts("erasures", rows, len(files), *sizes)
    raise ConcurrentRunError(
        f"{lake.uri('erasures')}: another writer committed first at each of {_MAX_TRIES} attempts. "
        "Run the command again"
    )


def _newest_erasure_in_profiles(lake: Lake) -> int:
    """Return the number of the newest erasure that is applied to both `messages` and `profiles`."""
    messages = lake.table("messages")
    if read_erasure_rules_version(messages) < FORM:
        return 0
    done = newest_erasure_number(messages)
    profiles = lake.find("profiles")
    return done if profiles is None else min(done, newest_erasure_number(profiles))


_TO_FORGET = ("row_before", "lake_before", "body_crc", "detail")


def _rows_with_hashes(rows: pa.Table, erasure_number: int) -> Array:
    is_message = pc.is_in(rows.column("event").cast(pa.string()), pa.array([str(event) for event in MESSAGE_EVENTS]))
    is_done = pc.and_(is_message, pc.less_equal(rows.column("number"), erasure_number)).fill_null(False)
    holds = [pc.is_valid(rows.column(name)) for name in _TO_FORGET if name in rows.column_names]
    return np.asarray(pc.and_(is_done, _any_true(holds)).to_numpy(), bool)


def _any_true(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    found = columns[0]
    for column in columns[1:]:
        found = pc.or_(found, column)
    return found


def _delete_hashes(erasure_number: int, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for batch in batches:
        hits = pa.array(_rows_with_hashes(batch, erasure_number))
        changed = batch
        for name in _TO_FORGET:
            place, field = batch.schema.get_field_index(name), batch.schema.field(name)
            column = pc.if_else(hits, pa.scalar(None, field.type), batch.column(name))
            changed = changed.set_column(place, field, column)
        yield changed
