"""Tasks that compare bodies with their messages: the messages are divided by pack, so that each pack is read once."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.erasures import ErasedMessages
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies, group_rows_by_pack
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.merged_packs import pack_size
from commitlake.connectors.lake.packs.pack_stores import PackStore, open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.audit.counts_by_window import count_messages_by_window, merge_windows
from commitlake.pipelines.audit.message_rows import MessageRows
from commitlake.pipelines.audit.window_profiles import SHOWN
from commitlake.pipelines.quality.checksums import column_hashes, part_numbers
from commitlake.schemas.tables.messages import BODY_PLACE, BODY_REF, STORE_DATE

_KEPT = ("broker", "topic", "queue_id", "queue_offset", "physical_offset", "size", "store_timestamp")
_ERROR = "error"
"""The column with the reason why a body is not available."""
COLUMNS = (*_KEPT, "body_size", "body_crc", BODY_REF.name, STORE_DATE.name)
_COMPARED = [*_KEPT, "body_size", "body_crc"]
_PLACE = BODY_PLACE.names
_BATCH_ROWS = 1 << 15
_DATED = "store_date="  # prefix of the names of packs with a date
_UNDATED = f"{_DATED}__"  # placeholder in a name without a date; sorts after every date
BodyErrors = list[tuple[str, int, str]]
"""Broker and physical offset of messages whose bodies cannot be read, with the reason."""


@dataclass(frozen=True)
class PackedMessages:
    """Reader of messages whose bodies must be in packs, because they are neither erased nor expired; picklable.

    Attributes:
        rows: rows of `messages`, with `COLUMNS`.
        kept_since: messages whose bodies may have expired, because they are of earlier dates, are left out; None for
            none.
        erased: messages with erased bodies, which are left out.
    """

    rows: MessageRows
    kept_since: datetime.date | None
    erased: ErasedMessages

    def _read_unerased(self, file: AddedFile) -> Iterator[pa.Table]:
        for rows in self.rows.read(file):
            left = self.erased.drop_erased_rows(rows)
            yield left if self.kept_since is None else _drop_expired_rows(left, self.kept_since)

    def count_by_window(self, file: AddedFile) -> pa.Table:
        """Count the messages of a data file by queue and time window, as a table of `AUDIT`."""
        return merge_windows([count_messages_by_window(rows.select(_COMPARED)) for rows in self._read_unerased(file)])

    def divide_by_pack(self, parts: int, file: AddedFile) -> Iterator[tuple[pa.Table, Array]]:
        """Yield a data file's messages with body locations, and for each row the number of the part that checks it.

        All rows of a pack are in the same part.

        Messages without a location are spread over the parts.
        """
        for rows in self._read_unerased(file):
            flat = _flatten_body_refs(rows).combine_chunks()
            has_pack = pc.is_valid(flat.column("pack").combine_chunks()).to_numpy(zero_copy_only=False)
            # Otherwise one part would have all messages without a location.
            hashes = np.where(has_pack, column_hashes(flat, ["pack"]), column_hashes(flat, ["physical_offset"]))
            yield flat, part_numbers(hashes, parts)


def _drop_expired_rows(rows: pa.Table, since: datetime.date) -> pa.Table:
    """Leave out messages whose bodies may have expired, because they are of dates before `since`.

    A pack expires by the date in its name. One without a date holds messages without a time, or of many dates, and
    expires by the time when it was written, which is not before the last of them was stored.
    """
    packs = pc.struct_field(rows.column(BODY_REF.name), "pack").cast(pa.string())
    is_dated_since = pc.greater_equal(packs, f"{_DATED}{since.isoformat()}")
    is_stored_since = pc.greater_equal(rows.column(STORE_DATE.name), pa.scalar(since)).fill_null(False)
    is_dated = pc.invert(pc.starts_with(packs, _UNDATED))
    kept = pc.and_(is_dated_since, pc.or_(is_dated, is_stored_since)).fill_null(True)
    return rows.filter(kept).combine_chunks()


def _flatten_body_refs(rows: pa.Table) -> pa.Table:
    """Return rows with a column for each field of the struct `body_ref`, by which rows can be sorted."""
    places = rows.column(BODY_REF.name)
    columns = {name: rows.column(name) for name in _COMPARED}
    columns |= {name: pc.struct_field(places, name) for name in _PLACE}
    return pa.table([_decode_dictionary(column) for column in columns.values()], list(columns))


def _decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary column as plain texts; other columns are returned unchanged."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def check_packs(location: PackLocation, rows: Sequence[pa.Table]) -> tuple[pa.Table, BodyErrors]:
    """Read the bodies of messages from their packs; return sizes and CRCs by time window, and the first errors.

    Args:
        rows: from `PackedMessages.divide_by_pack`.

    Returns:
        A table of `AUDIT` with the sizes and CRCs of the bodies that were read, and the first errors.
    """
    messages = pa.concat_tables(rows)
    # In the order of the pack, so that each frame is read once.
    order = [(name, "ascending") for name in ("pack", "frame_offset", "offset")]
    messages = messages.take(pc.sort_indices(messages, order)).combine_chunks()
    windows: list[pa.Table] = []
    errors: BodyErrors = []
    store, cache = open_pack_store(location), FrameCache()
    for start in range(0, messages.num_rows, _BATCH_ROWS):
        batch = _nest_body_refs(messages.slice(start, _BATCH_ROWS))
        found = pa.Table.from_batches(list(_check_bodies(batch, store, cache))).combine_chunks()
        windows.append(count_messages_by_window(found))
        errors = _select_first_errors([*errors, *_read_first_errors(found)])
    return merge_windows(windows), errors


def _nest_body_refs(rows: pa.Table) -> pa.RecordBatch:
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    places = [columns.pop(name) for name in _PLACE]
    columns[BODY_REF.name] = pa.StructArray.from_arrays(places, names=_PLACE)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _check_bodies(rows: pa.RecordBatch, store: PackStore, cache: FrameCache) -> Iterator[pa.RecordBatch]:
    """Read the bodies of rows, and yield their actual size and CRC, or an error where a body is not available.

    Args:
        rows: rows with `_KEPT`, `body_ref`, `body_size` and `body_crc`; those of one pack together.
        cache: cache of frames, kept from one batch to the next.

    Yields:
        `_KEPT`, the actual `body_size` and `body_crc` (null if the body is not available), and `_ERROR`.
    """
    names = rows.column("body_ref").field("pack")
    for first, last in group_rows_by_pack(names, 0, rows.num_rows):
        yield from _check_bodies_of_pack(rows.slice(first, last - first), names[first].as_py(), store, cache)


def _check_bodies_of_pack(
    rows: pa.RecordBatch, pack: str | None, store: PackStore, cache: FrameCache
) -> list[pa.RecordBatch]:
    """Check the bodies of one pack's rows; if the pack is missing, report all rows without further reads."""
    if pack is None:
        return [_to_error_rows(rows, "the message has no body_ref")]
    try:
        pack_size(store, pack)
    except PackError as error:
        return [_to_error_rows(rows, str(error))]
    return _check_bodies_or_halve(rows, store, cache)


def _check_bodies_or_halve(rows: pa.RecordBatch, store: PackStore, cache: FrameCache) -> list[pa.RecordBatch]:
    """Check the bodies of rows together; if that fails, check both halves, down to the faulty rows."""
    try:
        # The reader has compared each body with its CRC, so its size and CRC are those of the row.
        return [
            _to_result_rows(
                part, pc.binary_length(part.column("body")), part.column("body_crc"), pa.nulls(part.num_rows)
            )
            for part in batches_with_bodies(rows, store, cache)
        ]
    except PackError as error:
        if rows.num_rows == 1:
            return [_to_error_rows(rows, str(error))]
        half = rows.num_rows // 2
        return [
            *_check_bodies_or_halve(rows.slice(0, half), store, cache),
            *_check_bodies_or_halve(rows.slice(half), store, cache),
        ]


def _to_error_rows(rows: pa.RecordBatch, error: str) -> pa.RecordBatch:
    return _to_result_rows(rows, pa.nulls(rows.num_rows), pa.nulls(rows.num_rows), pa.repeat(error, rows.num_rows))


def _to_result_rows(rows: pa.RecordBatch, sizes: pa.Array, crcs: pa.Array, errors: pa.Array) -> pa.RecordBatch:
    columns = [rows.column(name) for name in _KEPT]
    found = [sizes.cast(pa.int32()), crcs.cast(pa.int32()), errors.cast(pa.string())]
    return pa.RecordBatch.from_arrays([*columns, *found], [*_KEPT, "body_size", "body_crc", _ERROR])


def _read_first_errors(rows: pa.Table) -> Iterator[tuple[str, int, str]]:
    broken = rows.filter(pc.is_valid(rows.column(_ERROR))).select(["broker", "physical_offset", _ERROR])
    if broken.num_rows:
        order = [(name, "ascending", "at_start") for name in broken.column_names]
        for row in rows_to_dicts(broken.take(pc.sort_indices(broken, order)[:SHOWN])):
            yield row["broker"], row["physical_offset"], row[_ERROR]


def _select_first_errors(errors: BodyErrors) -> BodyErrors:
    """Return the first errors in the order of broker and offset; errors without an offset come first."""
    return sorted(errors, key=lambda error: [(value is not None, value) for value in error])[:SHOWN]


def body_error_sentences(errors: BodyErrors) -> list[str]:
    """Return sentences on the first bodies that could not be read."""
    return [f"{broker} {physical_offset}: {error}" for broker, physical_offset, error in _select_first_errors(errors)]
