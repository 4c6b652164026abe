"""Copies messages into a table `messages` of their own, in a folder that the caller deletes.

Messages of a store's log, or of live topics, are copied with their bodies in a column, so that they can be chosen like
those of a lake. Reading is limited by the conditions that a log or a queue can evaluate: topics, queue and store time.
All other conditions are SQL on the table.

Messages of a lake whose places are given are copied without bodies, which are in the lake's packs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.message_places import WantedMessages
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import BodyForm, Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_snapshot
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.store_identity_check import check_not_truncated
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.range_reader import RangeReader
from commitlake.connectors.rocketmq.source.ranges import plan_batch
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.messages import BODY, CORRUPT_RECORD, MESSAGES, SOURCE, STORE_DATE

_MAX_BYTES = 64 << 20
"""Size of rows in memory before they are written."""
_STATISTICS = ("broker", "physical_offset", "topic", "queue_id", "queue_offset", "kind", "store_timestamp")


def copy_log_messages(
    stores: Sequence[Store],
    selection: Selection,
    lake: Lake,
    advance: Callable[[int, int], None] = lambda *_: None,
    *,
    has_bodies: bool = True,
) -> int:
    """Copy the current messages of stores' logs into the table `messages` of a new lake.

    Args:
        stores: from `find_stores`.
        selection: messages to read, by topic, queue and store time. More may be copied, but never less.
        lake: location of the table, which must not exist.
        advance: called with the number of bytes read so far, and in total.
        has_bodies: True if the table has a column of bodies.

    Returns:
        The number of ranges that are missing or hold no intact record.
    """
    options = ReadOptions(path="", mode=Mode.PERMISSIVE, body=BodyForm.STORED)
    splits = plan_snapshot(stores, take_snapshot(stores), options, Filters.of(selection)).splits
    # A reader that filters by content does not report damage, so rows are filtered here.
    columns = _columns_to_copy(has_bodies=has_bodies)
    request = Request.of(options, Filters(), _schema_to_read(columns))
    total = sum(split.size for split in splits)

    def read_batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for split in splits:
            yield from read_split(split, request)
            # A broker may have deleted the segment while it was read, and its rows would be missing without an error.
            check_not_truncated(split)
            done += split.size
            advance(done, total)

    return _copy_batches(read_batches(), selection, columns, lake)


def copy_topic_messages(
    name_servers: str,
    selection: Selection,
    lake: Lake,
    advance: Callable[[int, int], None] = lambda *_: None,
    *,
    has_bodies: bool = True,
) -> int:
    """Copy messages of topics from running brokers to a new lake, up to the current end of each queue.

    Args:
        name_servers: `host:port` of each, separated by semicolons.
        selection: messages to read; must name topics.
        lake: location of the table, which must not exist.
        advance: called with the number of queue offsets read so far, and in total.
        has_bodies: True if the table has a column of bodies.

    Raises:
        RocketMQError: if messages are deleted while they are read.
    """
    given = {
        "namesrv": name_servers,
        "topics": ",".join(selection.topics),
        "mode": str(Mode.PERMISSIVE),
        "body": "stored",
    }
    filters = Filters.of(selection)
    if filters.min_store_timestamp is not None:
        given["startingTimestamp"] = str(filters.min_store_timestamp)
    if filters.end_store_timestamp is not None:
        given["endingTimestamp"] = str(filters.end_store_timestamp)
    options, columns = SourceOptions.parse(given).for_batch(), _columns_to_copy(has_bodies=has_bodies)

    def read_batches() -> Iterator[pa.RecordBatch]:
        with options.open_puller() as puller:
            ranges = [each for partition in plan_batch(puller, options) for each in partition]
            if selection.queue_ids:
                ranges = [each for each in ranges if each.queue.queue_id in selection.queue_ids]
            reader = RangeReader(puller, options, _schema_to_read(columns))
            total, done = sum(each.size for each in ranges), 0
            for each in ranges:
                yield from reader.read([each])
                done += each.size
                advance(done, total)

    return _copy_batches(read_batches(), selection, columns, lake)


def _columns_to_copy(*, has_bodies: bool) -> Columns:
    without = {CORRUPT_RECORD.name} | (set() if has_bodies else {BODY.name})
    return SOURCE.drop_columns(*without)


def _schema_to_read(columns: Columns) -> pa.Schema:
    return arrow_schema(Columns([*columns, CORRUPT_RECORD]))


def _copy_batches(batches: Iterable[pa.RecordBatch], selection: Selection, columns: Columns, lake: Lake) -> int:
    damaged = 0

    def select_intact_rows() -> Iterator[pa.RecordBatch]:
        nonlocal damaged
        for batch in batches:
            intact = batch.filter(pc.is_valid(batch.column("size"))).drop_columns([CORRUPT_RECORD.name])
            damaged += batch.num_rows - intact.num_rows
            if selection.topics:
                intact = intact.filter(pc.is_in(intact.column("topic"), pa.array(selection.topics, pa.string())))
            yield intact

    _write_messages(select_intact_rows(), columns, lake)
    return damaged


def _write_messages(batches: Iterable[pa.RecordBatch], columns: Columns, lake: Lake) -> None:
    """Write batches of messages with the given columns to the table `messages` of a new lake."""
    files: list[DataFile] = []
    waiting: list[pa.RecordBatch] = []
    size = 0

    def write_waiting_batches() -> None:
        rows = pa.Table.from_batches(waiting)
        dates = rows.column("store_timestamp").cast(pa.date32())
        name = f"part-{secrets.token_hex(16)}.zstd.parquet"
        rows = rows.append_column(STORE_DATE.name, dates)
        files.append(write_plain_file(rows, lake, "messages", name, statistics=_STATISTICS))

    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= _MAX_BYTES:
            write_waiting_batches()
            waiting, size = [], 0
    if waiting:
        write_waiting_batches()
    append_files(lake, "messages", files, 1, Columns([*columns, STORE_DATE]))


def copy_chosen_messages(source: DeltaTable, places: Mapping[str, Array], lake: Lake) -> None:
    """Copy the messages at given log positions, without bodies, to the table `messages` of a new lake.

    Args:
        source: table `messages` of a lake.
        places: by store, the physical offsets, sorted and each once.
        lake: location of the new table, which must not exist.

    Raises:
        ReplayError: if the table has no message at one of the places.
        QueryError: if the table cannot be read.
    """
    known = {field.name for field in source.schema().fields}
    columns = Columns([column for column in MESSAGES if column.name != STORE_DATE.name])
    present = arrow_schema(Columns([column for column in columns if column.name in known]))
    wanted = arrow_schema(columns)
    chosen = WantedMessages(places)

    def select_chosen_rows() -> Iterator[pa.RecordBatch]:
        sql = f"SELECT {', '.join(present.names)} FROM messages WHERE {chosen.condition()}"
        for batch in run_sql(source, "messages", sql):
            # The engine returns strings in a form that not all functions of Arrow accept.
            rows = chosen.select(batch.cast(present))
            arrays = [
                rows.column(field.name) if field.name in known else pa.nulls(rows.num_rows, field.type)
                for field in wanted
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

    _write_messages(select_chosen_rows(), columns, lake)
    if (missing := chosen.first_missing()) is not None:
        count = format_count(chosen.missing_count, "of the chosen rows is", "of the chosen rows are")
        raise ReplayError(
            f"{count} not in the lake's table messages, such as broker {missing[0]!r}, physical_offset {missing[1]}"
        )
