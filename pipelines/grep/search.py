"""A search: its tasks read the bodies of packs in order, each frame once, and return the messages that match.

`run_search` runs all tasks, and returns the matches in order and counts of what was read.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies, group_rows_by_pack
from commitlake.connectors.lake.packs.errors import PackError, PackNameError, PackStoreError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.names import parse_pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore, open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import quote_column_name
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.bodies import DEFAULT_MAX_BYTES, decompress_as
from commitlake.connectors.reading.errors import BodyError
from commitlake.connectors.runtime.runner import Runner, results_in_order
from commitlake.pipelines.grep.pattern import Pattern
from commitlake.pipelines.grep.planning import PackPart, SearchPlan, pack_conditions_sql
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec

MATCH_COLUMNS = ("match_offset", "excerpt")
"""Columns of a match: the number of bytes before it in the body, and the match with the text around it."""
MAX_NAMED = 3
"""Maximum number of unreadable bodies that a task names."""
_NEEDED = ("store_timestamp", "broker", "physical_offset", "msg_id", "body_ref", "body_crc", "body_codec")
_ORDER = [("store_timestamp", "ascending"), ("broker", "ascending"), ("physical_offset", "ascending")]
_SQL_ORDER = "body_ref['pack'], body_ref['frame_offset'], body_ref['offset']"
_WAITING_BYTES = 64 << 20  # decompressed size


@dataclass(frozen=True)
class SearchParameters:
    """Parameters of a search that its tasks need; picklable.

    Attributes:
        lake: where the tables are.
        version: version of `messages`.
        bodies: where the packs are.
        pattern: the regular expression.
        conditions: SQL conditions that a message must match.
        columns: columns of `messages` in the answer.
        limit: maximum number of matches of a task, one more than is shown; 0 for no limit.
        with_excerpts: true to add `MATCH_COLUMNS`.
    """

    lake: Lake
    version: int
    bodies: PackLocation
    pattern: Pattern
    conditions: Sequence[str]
    columns: Sequence[str]
    limit: int = 0
    with_excerpts: bool = True


@dataclass(frozen=True, slots=True)
class GrepResult:
    """Messages that one search task has found, and counts of what it has read.

    Attributes:
        rows: the messages that match, with the requested columns and `MATCH_COLUMNS`, by store time.
        messages: number of messages whose bodies were read.
        bytes: size of these bodies, as sent by the producers.
        packs: number of packs that were read.
        unreadable: number of bodies that could not be read.
        reasons: why the first of these could not be read, each with its message.
        missing: missing packs, with the number of bodies in each.
    """

    rows: pa.Table
    messages: int = 0
    bytes: int = 0
    packs: int = 0
    unreadable: int = 0
    reasons: Sequence[str] = ()
    missing: Sequence[tuple[str, int]] = ()


@dataclass
class _SearchCounts:
    messages: int = 0
    bytes: int = 0
    packs: set[str] = field(default_factory=set)
    unreadable: int = 0
    reasons: list[str] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)

    def add_unreadable(self, rows: pa.RecordBatch, error: str) -> None:
        """Count the bodies of the given rows as unreadable, and keep the first errors."""
        self.unreadable += rows.num_rows
        if len(self.reasons) < MAX_NAMED:
            more = f" and {rows.num_rows - 1:,} more of its frame" if rows.num_rows > 1 else ""
            self.reasons.append(f"message {rows.column('msg_id')[0].as_py()}{more}: {error}")


def search_packs(search: SearchParameters, parts: Sequence[PackPart]) -> GrepResult:
    """Read the bodies of the given packs, and return the messages that match."""
    table = _open_messages(search.lake, search.version)
    names = [*search.columns, *(name for name in _NEEDED if name not in search.columns)]
    where = " AND ".join([*search.conditions, *pack_conditions_sql(parts)])
    selected = ", ".join(quote_column_name(name) for name in names)
    # In the order of the packs, so that each frame is read and decompressed once.
    sql = f"SELECT {selected} FROM messages WHERE {where} ORDER BY {_SQL_ORDER}"
    counts = _SearchCounts()
    matches: list[pa.Table] = []
    for batch in _read_bodies(search, run_sql(table, "messages", sql, sorts_large_result=True), counts):
        is_match = search.pattern.match_bodies(batch.column("body"))
        if is_match.any():
            matches.append(_append_excerpt_columns(search, batch.filter(pa.array(is_match))))
        # Enough rows: `run_search` may cut them, but needs no more of this part.
        if search.limit and sum(map(len, matches)) >= search.limit:
            break
    rows = pa.concat_tables(matches).sort_by(_ORDER) if matches else pa.table({})
    if search.limit and rows.num_rows > search.limit:
        rows = rows.slice(0, search.limit)
    shown = [*search.columns, *(MATCH_COLUMNS if search.with_excerpts else ())] if matches else []
    return GrepResult(
        rows.select(shown), counts.messages, counts.bytes, len(counts.packs), counts.unreadable, counts.reasons,
        sorted(counts.missing.items()),
    )  # fmt: skip


@lru_cache(maxsize=2)
def _open_messages(lake: Lake, version: int) -> DeltaTable:
    """Open `messages` at a version, once for all tasks of a process."""
    # Reading a table's log takes longer than many a task.
    return lake.table_at("messages", version)


def _append_excerpt_columns(search: SearchParameters, batch: pa.RecordBatch) -> pa.Table:
    kept = pa.Table.from_batches([batch]).drop_columns("body")
    if not search.with_excerpts:
        return kept
    starts, excerpts = search.pattern.first_match_excerpts(batch.column("body"))
    return kept.append_column(MATCH_COLUMNS[0], starts).append_column(MATCH_COLUMNS[1], excerpts)


def _read_bodies(
    search: SearchParameters, query_batches: Iterator[pa.RecordBatch], counts: _SearchCounts
) -> Iterator[pa.RecordBatch]:
    """Yield rows with their bodies as sent by the producers, in batches of limited size."""
    store, cache = open_pack_store(search.bodies), FrameCache()
    for views in query_batches:
        batch = views.cast(pa.schema([field.with_type(_replace_view_types(field.type)) for field in views.schema]))
        packs = batch.column("body_ref").field("pack")
        for first, last in group_rows_by_pack(packs, 0, batch.num_rows):
            rows = batch.slice(first, last - first)
            pack = str(packs[first].as_py())
            if not _has_pack(store, pack, rows, counts):
                continue
            for part in _readable_rows(rows, store, cache, counts):
                yield from _decompress_bodies(part, counts)


def _replace_view_types(data_type: pa.DataType) -> pa.DataType:
    """Replace Arrow's view types in a data type by ordinary ones, which all functions of Arrow support."""
    if pa.types.is_string_view(data_type):
        return pa.string()
    if pa.types.is_binary_view(data_type):
        return pa.binary()
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_replace_view_types(data_type.value_type)))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_replace_view_types(field.type)) for field in data_type])
    return data_type


def _has_pack(store: PackStore, pack: str, rows: pa.RecordBatch, counts: _SearchCounts) -> bool:
    """Return whether a pack exists, asking the store once for all of its rows.

    If the pack is missing, `rows` are counted as missing in `counts`.
    """
    if pack in counts.packs:
        return True
    if pack not in counts.missing:
        try:
            store.size(pack)
        except PackStoreError:
            raise
        except PackError:
            counts.missing[pack] = 0
        else:
            counts.packs.add(pack)
            return True
    counts.missing[pack] += rows.num_rows
    return False


def _readable_rows(
    rows: pa.RecordBatch, store: PackStore, cache: FrameCache, counts: _SearchCounts
) -> Iterator[pa.RecordBatch]:
    """Yield rows of one pack with their stored bodies; unreadable bodies are counted and left out."""
    done = 0
    try:
        for part in batches_with_bodies(rows, store, cache, DEFAULT_MAX_BYTES):
            yield part
            done += part.num_rows
    except PackStoreError:
        # The store cannot be reached: that is no fault of the pack, and ends the task.
        raise
    except PackError as error:
        rest = rows.slice(done)
        if rest.num_rows == 1:
            counts.add_unreadable(rest, str(error))
            return
        frames = _frame_starts(rest)
        if len(frames) == 1:
            yield from _readable_rows_of_frame(rest, store, cache, counts, str(error))
            return
        # Halved at a frame until the damaged one is found, so that frames before and after it are still searched.
        half = frames[len(frames) // 2]
        yield from _readable_rows(rest.slice(0, half), store, cache, counts)
        yield from _readable_rows(rest.slice(half), store, cache, counts)


def _frame_starts(rows: pa.RecordBatch) -> list[int]:
    """Return the index of the first row of each compressed frame of a pack; the rows are sorted by frame."""
    offsets = rows.column("body_ref").field("frame_offset").fill_null(-1).to_numpy(zero_copy_only=False)
    return [0, *(np.flatnonzero(offsets[1:] != offsets[:-1]) + 1).tolist()]


def _readable_rows_of_frame(
    rows: pa.RecordBatch, store: PackStore, cache: FrameCache, counts: _SearchCounts, error: str
) -> Iterator[pa.RecordBatch]:
    """Yield the readable rows of one compressed frame one by one, after reading the whole frame has failed."""
    refs = rows.column("body_ref")
    ends = pc.add(refs.field("offset").cast(pa.int64()), refs.field("length").cast(pa.int64())).fill_null(0)
    is_needed = pc.greater(refs.field("length"), 0).fill_null(True).to_numpy(zero_copy_only=False)
    # The body that ends first needs the smallest part of the frame. If even that cannot be read, none can.
    least = int(np.argmin(np.where(is_needed, ends.to_numpy(zero_copy_only=False), np.iinfo(np.int64).max)))
    same_frame = len(pc.unique(refs.field("frame_length"))) == 1 and not refs.field("frame_offset").null_count
    frame_is_read = True
    try:
        list(batches_with_bodies(rows.slice(least, 1), store, cache, DEFAULT_MAX_BYTES))
    except PackStoreError:
        raise
    except PackError as found:
        key = (str(refs.field("pack")[least].as_py()), *(refs.field(n)[least].as_py() for n in _FRAME))
        frame_is_read = cache.get(*key) is not None
        error = str(found)
    if same_frame and not frame_is_read:
        counts.add_unreadable(rows, error)
        return
    for number in range(rows.num_rows):
        yield from _readable_rows(rows.slice(number, 1), store, cache, counts)


_FRAME = ("frame_offset", "frame_length")


def _decompress_bodies(rows: pa.RecordBatch, counts: _SearchCounts) -> Iterator[pa.RecordBatch]:
    """Yield the given rows with decompressed bodies.

    Each compressed body is decompressed alone, within its size limit.
    """
    is_plain = _are_uncompressed_codecs(rows.column("body_codec"))
    if is_plain.all():
        yield _count_bodies(rows, counts)
        return
    if is_plain.any():
        yield _count_bodies(rows.filter(pa.array(is_plain)), counts)
    packed = rows.filter(pa.array(~is_plain))
    kept: list[int] = []
    bodies: list[bytes] = []
    size = 0
    for number, (body, codec) in enumerate(zip(packed.column("body"), packed.column("body_codec"), strict=True)):
        try:
            bodies.append(decompress_as(body.as_py(), _parse_codec(codec.as_py())))
        except BodyError as error:
            counts.add_unreadable(packed.slice(number, 1), str(error))
            continue
        kept.append(number)
        size += len(bodies[-1])
        if size >= _WAITING_BYTES:
            yield _count_bodies(_replace_bodies_of_rows(packed, kept, bodies), counts)
            kept, bodies, size = [], [], 0
    if kept:
        yield _count_bodies(_replace_bodies_of_rows(packed, kept, bodies), counts)


def _are_uncompressed_codecs(codecs: pa.Array) -> Array:
    return np.asarray(pc.equal(codecs, str(BodyCodec.NONE)).fill_null(False).to_numpy(zero_copy_only=False), bool)


def _parse_codec(name: str | None) -> BodyCodec:
    return BodyCodec(name) if name in set(BodyCodec) else BodyCodec.UNKNOWN


def _replace_bodies_of_rows(rows: pa.RecordBatch, row_numbers: list[int], bodies: list[bytes]) -> pa.RecordBatch:
    taken = rows.take(pa.array(row_numbers, pa.int64()))
    return taken.set_column(rows.schema.get_field_index("body"), "body", pa.array(bodies, pa.binary()))


def _count_bodies(rows: pa.RecordBatch, counts: _SearchCounts) -> pa.RecordBatch:
    counts.messages += rows.num_rows
    counts.bytes += pc.sum(pc.binary_length(rows.column("body")).cast(pa.int64())).as_py() or 0
    return rows


@dataclass
class SearchProgress:
    """Counts of what a search has read so far.

    Attributes:
        messages: number of messages whose bodies were read.
        bytes: size of these bodies, as sent by the producers.
        packs: number of packs that were read.
        tasks: number of finished tasks.
        expired: number of bodies whose packs were deleted by retention.
        unreadable: number of bodies that could not be read.
        reasons: why the first of these could not be read.
        is_cut: true if a limit has ended the search early.
    """

    messages: int = 0
    bytes: int = 0
    packs: int = 0
    tasks: int = 0
    expired: int = 0
    unreadable: int = 0
    reasons: list[str] = field(default_factory=list)
    is_cut: bool = False

    def add_result(self, result: GrepResult, expired_before: datetime.date | None) -> None:
        """Add the counts of one finished task."""
        self.messages += result.messages
        self.bytes += result.bytes
        self.packs += result.packs
        self.tasks += 1
        self.unreadable += result.unreadable
        self.reasons += result.reasons
        for pack, bodies in result.missing:
            if _is_pack_expired(pack, expired_before):
                self.expired += bodies
                continue
            self.unreadable += bodies
            self.reasons.append(
                f"pack {pack}: expected the bodies of {format_count(bodies, 'message')}, found no such pack"
            )
        del self.reasons[MAX_NAMED:]


def _is_pack_expired(pack: str, expired_before: datetime.date | None) -> bool:
    try:
        date = parse_pack_name(pack).store_date
    except PackNameError:
        return False
    return expired_before is not None and date is not None and date < expired_before


def run_search(
    search: SearchParameters,
    plan: SearchPlan,
    runner: Runner,
    progress: SearchProgress,
    *,
    limit: int = 0,
    expired_before: datetime.date | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """Search the planned packs for messages whose bodies match, and yield the matches in batches.

    Args:
        search: the search; its limit is one more than `limit`.
        plan: the packs to read.
        progress: receives the counts.
        limit: maximum number of matches; 0 for no limit.
        expired_before: first date whose bodies are all kept; None if none has ever expired.
        advance: called with the size of the bodies of each finished task.

    Yields:
        The matches: task by task in the order of their oldest message, and by store time within a task.
    """

    def run_tasks() -> Iterator[tuple[int, GrepResult]]:
        """Yield the number and the result of each task as it ends."""
        is_remote = search.bodies.s3 is not None
        for number, found in runner.run(partial(search_packs, search), plan.tasks, is_io_bound=is_remote):
            advance(sum(part.bytes for part in plan.tasks[number]))
            yield number, found

    given = 0
    for done in results_in_order(run_tasks()):
        progress.add_result(done, expired_before)
        rows = done.rows
        if limit and given + rows.num_rows > limit:
            progress.is_cut = True
            rows = rows.slice(0, limit - given)
        given += rows.num_rows
        yield from rows.to_batches()
        if progress.is_cut:
            return
