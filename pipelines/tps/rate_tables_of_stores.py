"""Builds the tables for rates from the logs of stores, without archiving them.

A log is read once, in bounded memory, and only segments that can have wanted messages. The results are written to
tables in a folder that the caller deletes: `topic_minutes` for whole minutes, otherwise `messages` with the columns for
rates. The same questions are then asked of them as of a lake.
"""

from __future__ import annotations

import datetime
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_files, open_or_create_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.data_files import DataFile, sort_rows
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.damage import CORRUPT_RECORD
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_snapshot
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.snapshots import StoreRange, segment_ranges, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.store_identity_check import check_not_truncated
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.reading.time_bounds import time_bounds
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.topic_minutes.minute_counts import COLUMNS as MINUTES_COLUMNS
from commitlake.pipelines.topic_minutes.minute_counts import MinutesFiles
from commitlake.pipelines.tps.coverage import Coverage, TimeSpan, first_and_last_time_sql
from commitlake.pipelines.tps.rates_query import MINUTE, MINUTES, CountedTable
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, Fault
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.messages import SOURCE, STORE_DATE
from commitlake.schemas.tables.topic_minutes import TOPIC_MINUTES
from commitlake.schemas.times import EPOCH, FIRST_USUAL_TIME, add_capped, from_ms, latest_plausible_time

_RUN_ID = "store"
_MESSAGES_COLUMNS = (
    "broker", "topic", "queue_id", "tags", "kind", "born_timestamp", "store_timestamp", "born_host", "size",
    "sys_flag", "format", "properties", "origin_topic", "producer_group",
)  # fmt: skip
_KINDS_WITH_PROPERTIES = {Kind.HALF, Kind.DELAY, Kind.TIMER}
"""Kinds of messages whose properties are needed for rates and for delayed messages."""
_MAX_BYTES = 64 << 20
"""Size of messages in memory that are counted, or written as rows, at once; for each worker."""
_ROW_GROUP_ROWS = 1 << 17
_STATISTICS = ("broker", "topic", "kind", "store_timestamp")
_ANY_STEP_MS = 1 << 45  # larger than any clock step, so that every segment has bounds


@dataclass(frozen=True, slots=True)
class StoreTables:
    """Result of reading stores' logs into a table: the covered time ranges, and the number of damaged ranges.

    Attributes:
        coverage: time ranges that the logs cover.
        damaged: number of ranges of each store that hold no intact record.
    """

    coverage: Coverage
    damaged: Mapping[str, int]


@dataclass(frozen=True)
class _LogReadTasks:
    """Reads ranges of logs in tasks, and counts or writes their messages; can be pickled."""

    lake: Lake
    table: str
    request: Request

    def process_splits(self, splits: Sequence[Split]) -> tuple[list[DataFile], Counter[str]]:
        """Read ranges of logs; return the data files that were written, and the number of damaged ranges by store."""
        name = f"part-{_RUN_ID}-{secrets.token_hex(8)}"
        damaged: Counter[str] = Counter()
        if self.table == MINUTES.name:
            minutes = MinutesFiles(self.lake, name, _RUN_ID)
            for rows in self._read_rows(splits, damaged):
                minutes.add_messages(sort_rows(rows))
            return minutes.finish_files(), damaged
        files = []
        for number, rows in enumerate(self._read_rows(splits, damaged)):
            path = f"{name}-{number:05d}.zstd.parquet"
            lean = _add_store_date(_null_unneeded_properties(rows))
            file = write_plain_file(
                lean, self.lake, "messages", path, row_group_rows=_ROW_GROUP_ROWS, statistics=_STATISTICS
            )
            files.append(file)
        return files, damaged

    def _read_rows(self, splits: Sequence[Split], damage_counts: Counter[str]) -> Iterator[pa.Table]:
        waiting: list[pa.RecordBatch] = []
        size = 0
        for split in splits:
            for batch in read_split(split, self.request):
                rows = _keep_intact_rows(batch, split.broker, damage_counts)
                if rows.num_rows:
                    waiting.append(rows)
                    size += rows.nbytes
                if size >= _MAX_BYTES:
                    yield _join_batches(waiting)
                    waiting, size = [], 0
            check_not_truncated(split)
        if waiting:
            yield _join_batches(waiting)


class StoreLogs:
    """Logs of broker stores, as they are when the object is created, from which message rates are computed.

    Args:
        stores: from `find_stores`.
        wanted: messages to read, by topic, queue and store time.
        columns: columns of a table of messages in addition to those for rates.

    Attributes:
        size: number of bytes to read.
    """

    def __init__(self, stores: Sequence[Store], wanted: Selection, columns: Sequence[str] = ()) -> None:
        options, filters = ReadOptions(path="", mode=Mode.PERMISSIVE), Filters.of(wanted)
        self._columns = columns
        self._stores = stores
        self._ranges = take_snapshot(stores)
        self._splits = plan_snapshot(stores, self._ranges, options, filters).splits
        self._request = partial(Request.of, options, filters)
        self.size = sum(split.size for split in self._splits)

    def fill_table(
        self,
        table: CountedTable,
        lake: Lake,
        runner: Runner = HERE,
        advance: Callable[[int], None] = lambda _: None,
    ) -> StoreTables:
        """Read the logs, and write their messages, or counts of them, to the table from which rates are computed.

        Args:
            lake: location of the table, which must not exist.
            runner: runs the tasks that read logs.
            advance: called with the number of bytes that were done.
        """
        names = MINUTES_COLUMNS if table is MINUTES else tuple(dict.fromkeys([*_MESSAGES_COLUMNS, *self._columns]))
        columns = SOURCE.select_columns(names)
        schema = arrow_schema(Columns([*columns, SOURCE[CORRUPT_RECORD]]))
        tasks = _LogReadTasks(lake, table.name, replace(self._request(schema), encoded=True, keeps_bad_ranges=True))
        groups = [[split] for split in self._splits]
        files: list[DataFile] = []
        damaged: Counter[str] = Counter()
        for number, (written, bad) in runner.run(partial(_run_task, tasks), groups):
            files += written
            damaged += bad
            advance(sum(split.size for split in groups[number]))
        made = TOPIC_MINUTES if table is MINUTES else Columns([*columns, STORE_DATE])
        append_files(lake, table.name, files, 1, made)
        if table is MINUTES:  # a folder without a table of messages would be no lake
            open_or_create_table(lake, "messages")
        return StoreTables(self._make_coverage(dict(_read_spans(lake, table))), damaged)

    def _make_coverage(self, read_spans: Mapping[str, TimeSpan]) -> Coverage:
        times = {store.broker: _read_log_times(store, self._ranges.ranges[store.broker]) for store in self._stores}
        spans = {
            broker: span
            for broker, (logged, _) in times.items()
            if (span := _cover_spans(each for each in (logged, read_spans.get(broker)) if each is not None)) is not None
        }
        return Coverage(spans, {broker: gaps for broker, (_, gaps) in times.items()})


def _run_task(tasks: _LogReadTasks, splits: Sequence[Split]) -> tuple[list[DataFile], Counter[str]]:
    return tasks.process_splits(splits)


def _keep_intact_rows(batch: pa.RecordBatch, broker: str, damage_counts: Counter[str]) -> pa.RecordBatch:
    """Return a batch's intact messages, and count its damaged ranges, except missing segments, by broker."""
    sizes = batch.column("size")
    if sizes.null_count:
        reasons = pc.struct_field(batch.column(CORRUPT_RECORD).filter(pc.is_null(sizes)), "reason")
        damage_counts[broker] += pc.sum(pc.not_equal(reasons, str(Fault.MISSING_SEGMENT))).as_py() or 0
        batch = batch.filter(pc.is_valid(sizes))
    return batch.drop_columns([CORRUPT_RECORD])


def _join_batches(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()


def _null_unneeded_properties(rows: pa.Table) -> pa.Table:
    """Set `properties` to null in messages of kinds whose properties are not needed to count them."""
    place = rows.schema.get_field_index("properties")
    kinds = rows.column("kind").chunk(0)
    has_needed = np.array([name in _KINDS_WITH_PROPERTIES for name in kinds.dictionary.to_pylist()], bool)
    numbers = pa.array(np.arange(rows.num_rows), mask=~has_needed[kinds.indices.to_numpy()])
    return rows.set_column(place, "properties", rows.column("properties").chunk(0).take(numbers))


def _add_store_date(rows: pa.Table) -> pa.Table:
    return rows.append_column(STORE_DATE.name, rows.column("store_timestamp").cast(pa.date32()))


def _read_log_times(store: Store, store_range: StoreRange) -> tuple[TimeSpan | None, list[TimeSpan]]:
    """Return the time range from a log's first record to its last one, and the time ranges of its missing segments."""
    wholes = [whole for whole in segment_ranges(store, store_range) if whole.size]
    found = [
        _plausible_span(bounds.low + _ANY_STEP_MS, bounds.high - _ANY_STEP_MS)
        if bounds.low is not None and bounds.high is not None
        else None
        for bounds in time_bounds(wholes, store_range.last_record, _ANY_STEP_MS, DEFAULT_MAX_RECORD_BYTES)
    ]
    known = [span for span in found if span is not None]
    gaps = [span for whole, span in zip(wholes, found, strict=True) if whole.missing and span is not None]
    return _cover_spans(known), gaps


def _plausible_span(first_ms: int, last_ms: int) -> TimeSpan | None:
    """Return the range from the first to the last store time, in whole minutes, without times of wrong clocks."""
    first, last = max(from_ms(first_ms), FIRST_USUAL_TIME), min(from_ms(last_ms), latest_plausible_time())
    return TimeSpan(_minute_start(first), _minute_start(last) + MINUTE) if first <= last else None


def _minute_start(time: datetime.datetime) -> datetime.datetime:
    return EPOCH + (time - EPOCH) // MINUTE * MINUTE


def _cover_spans(spans: Iterable[TimeSpan]) -> TimeSpan | None:
    spans = list(spans)
    return TimeSpan(min(span.start for span in spans), max(span.end for span in spans)) if spans else None


def _read_spans(lake: Lake, table: CountedTable) -> Iterator[tuple[str, TimeSpan]]:
    """Yield each store with the time range of its messages in the table."""
    for row in rows_to_dicts(run_sql(lake.table(table.name), table.name, first_and_last_time_sql(table)).read_all()):
        yield row["broker"], TimeSpan(_minute_start(row["first"]), add_capped(_minute_start(row["last"]), MINUTE))
