"""Counts the minutes of erased messages in `topic_minutes` again, because their tags and body sizes are erased.

The rows of a queue's minute are replaced by new counts of its messages. If several runs have counted the minute, each
message is counted for the run whose rows have its offset, so that the table still has rows of each run.
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

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.erasures import erasure_number
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.erasure.ledger import ConcurrentErasureError, newest_rows, read_rows
from commitlake.pipelines.erasure.rewriting import TableWork, commit
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.table_files import (
    ConcurrentMaintenanceError,
    TableFile,
    folder_of,
    read_table_files,
)
from commitlake.pipelines.topic_minutes.minutes import COLUMNS, count_minutes, write_minutes_file
from commitlake.schemas.tables.topic_minutes import MINUTE_SECONDS
from commitlake.schemas.times import EPOCH

_MAX_TRIES = 50
_MINUTE_US = MINUTE_SECONDS * 1_000_000
_KEY = ["broker", "topic", "queue_id", "minute"]
_OF_ROWS = [*_KEY, "first_physical_offset", "last_physical_offset", "messages", "run_id"]
Key = tuple[str | None, str | None, int | None, int | None]
"""Broker, topic, queue, and start of the minute in µs."""


def recount_minutes(lake: Lake, number: int) -> TableWork | None:
    """Count the minutes of erased messages again.

    Args:
        number: number of the newest erasure, which is done in `messages`.

    Returns:
        The work; None if it was done before, or the lake has no `topic_minutes`.
    """
    for _ in range(_MAX_TRIES):
        table = lake.find("topic_minutes")
        if table is None:
            return None
        done = erasure_number(table)
        if done >= number:
            return None
        keys = _keys(lake, done)
        runs, files = _counted(table, keys)
        counted = _count(lake, runs)
        whole = {key for key, parts in runs.items() if all(part["left"] == 0 for part in parts)}
        try:
            removed = [file for file in read_table_files(table) if files.get(file.path, set()) & whole]
            added = [
                rewrite_file(lake.uri("topic_minutes"), file, partial(_without, frozenset(whole))) for file in removed
            ]
            new = [file for file in added if file.rows] + _written(lake, counted, whole)
            commit(lake.uri("topic_minutes"), removed, new, number, table.version())
        except (ConcurrentMaintenanceError, FileNotFoundError):
            continue
        sizes = sum(file.size for file in removed), sum(file.size for file in new)
        return TableWork("topic_minutes", len(whole), len(removed), *sizes)
    raise ConcurrentErasureError(
        f"{lake.uri('topic_minutes')}: other writers committed first {_MAX_TRIES} times. Run it again"
    )


def _keys(lake: Lake, done: int) -> set[Key]:
    rows = newest_rows(read_rows(lake))
    rows = rows.filter(pc.greater(rows.column("number"), done))
    return set(_keys_of(rows, "store_timestamp"))


def _keys_of(rows: pa.Table, time: str) -> Iterator[Key]:
    times = rows.column(time).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    minutes = (None if at is None else at // _MINUTE_US * _MINUTE_US for at in times)
    columns = [rows.column(name).cast(pa.string()).to_pylist() for name in ("broker", "topic")]
    yield from zip(*columns, rows.column("queue_id").to_pylist(), minutes, strict=True)


def _counted(table: DeltaTable, keys: set[Key]) -> tuple[dict[Key, list[dict[str, Any]]], dict[str, set[Key]]]:
    """Return, for each key, the range of offsets and the messages of each run; and the keys in each file."""
    runs: dict[Key, dict[str, dict[str, Any]]] = defaultdict(dict)
    files: dict[str, set[Key]] = {}
    for file in read_table_files(table) if keys else ():
        with folder_of(table.table_uri).open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, columns=_OF_ROWS, page_checksum_verification=True)
        found = list(_keys_of(rows, "minute"))
        hits = [row for row, key in enumerate(found) if key in keys]
        for row, values in zip(hits, rows.take(pa.array(hits, pa.int64())).to_pylist(), strict=True):
            run = runs[found[row]].setdefault(values["run_id"], values | {"left": 0})
            run["left"] += values["messages"]
            for name, choose in (("first_physical_offset", min), ("last_physical_offset", max)):
                run[name] = choose(run[name], values[name])
            files.setdefault(file.path, set()).add(found[row])
    return {key: list(parts.values()) for key, parts in runs.items()}, files


def _count(lake: Lake, runs: Mapping[Key, Sequence[dict[str, Any]]]) -> list[tuple[Key, pa.Table]]:
    """Count the messages of each key and run, and deduct them from what is `left` of the run."""
    messages: dict[tuple[Key, int], list[pa.Table]] = defaultdict(list)
    for batch in _messages(lake, runs):
        chosen: dict[tuple[Key, int], list[int]] = defaultdict(list)
        for row, (key, offset) in enumerate(
            zip(_keys_of(batch, "store_timestamp"), batch.column("physical_offset").to_pylist(), strict=True)
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


def _messages(lake: Lake, runs: Mapping[Key, object]) -> Iterator[pa.Table]:
    """Yield rows of `messages` that may be of the given keys."""
    if not runs:
        return
    brokers, topics, _, minutes = (set(values) for values in zip(*runs, strict=True))
    wanted = ds.field("broker").isin(sorted(map(str, brokers))) & ds.field("topic").isin(sorted(map(str, topics)))
    known = [minute for minute in minutes if minute is not None]
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


def _without(keys: frozenset[Key], batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for batch in batches:
        is_kept: Array = np.array([key not in keys for key in _keys_of(batch, "minute")], bool)
        kept = batch if is_kept.all() else batch.filter(pa.array(is_kept))
        if kept.num_rows:
            yield kept


def _written(lake: Lake, counted: Sequence[tuple[Key, pa.Table]], whole: set[Key]) -> list[TableFile]:
    parts = [rows for key, rows in counted if key in whole]
    if not parts:
        return []
    name = f"part-erased-{secrets.token_hex(16)}.zstd.parquet"
    return [_table_file(write_minutes_file(pa.concat_tables(parts), lake, name))]


def _table_file(file: DataFile) -> TableFile:
    modified = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    return TableFile(file.path, {}, file.size, file.rows, modified, statistics=file.statistics)
