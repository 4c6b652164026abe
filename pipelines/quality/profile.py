"""Profiles a task's rows in one pass, without a Python object for each row.

`schemas.tables.profile` describes a profile. Computing it takes a twentieth of the task's time. The rows are passed to
the kernel as arrays, with marks on rows that break a rule for a single column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.numpy_arrays import Array, read_only_view
from commitlake.pipelines.quality import compiled_profiling
from commitlake.pipelines.quality.checksums import column_hashes
from commitlake.pipelines.quality.compiled_profiling import (
    NO_QUEUE,
    NULL_BODY_SIZE,
    NULL_BORN,
    NULL_CRC,
    NULL_PHYSICAL,
    NULL_QUEUE_OFFSET,
    NULL_SIZE,
    NULL_STORE,
)
from commitlake.pipelines.quality.profile_columns import QUEUE, SUMS, ProfileError, WindowParts
from commitlake.pipelines.quality.profile_merging import combine_window_parts
from commitlake.schemas.layouts.integer_parsing import parse_int32
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.rocketmq import commitlog
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, BodyCodec, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.messages import MESSAGES, STORE_DATE
from commitlake.schemas.tables.profile import BORN_TOLERANCE_MS, COLUMN_CHECKSUMS, WINDOW_SECONDS

_WINDOW_US = WINDOW_SECONDS * 1_000_000
_MIN_RECORD_SIZE = min(commitlog.MIN_RECORD_SIZE, journal.MIN_RECORD_SIZE)
_EXTREMES = [compiled_profiling.GREATEST] * compiled_profiling.LEASTS + [
    compiled_profiling.LEAST
] * compiled_profiling.LEASTS
PROFILED_COLUMNS = tuple(field.name for field in MESSAGES if field.name != STORE_DATE.name)
_NULL_BITS = {
    "physical_offset": NULL_PHYSICAL,
    "queue_offset": NULL_QUEUE_OFFSET,
    "size": NULL_SIZE,
    "body_crc": NULL_CRC,
    "store_timestamp": NULL_STORE,
    "born_timestamp": NULL_BORN,
    "body_size": NULL_BODY_SIZE,
}
_MAX_INNER = 1 << 20
_CODECS = frozenset(str(codec) for codec in BodyCodec if codec is not BodyCodec.UNKNOWN)
_KINDS = frozenset(str(kind) for kind in Kind)


def profile_rows(table: pa.Table) -> pa.Table:
    """Count rows of `messages` by broker, topic, queue and time window, with sums and checksums (a profile).

    Args:
        table: columns of `messages` without the partition; times in microseconds, strings plain or as dictionaries. Any
            order is allowed; the order by topic, queue and queue offset of data files is fastest.

    Returns:
        A table of `PROFILE`, one row per broker, topic, queue and window, in this order.

    Raises:
        ProfileError: if the table lacks a column.
    """
    return combine_window_parts(_profile_groups(RowArrays(table))).to_table()


def _profile_groups(rows: RowArrays) -> WindowParts:
    """Count each group of consecutive rows with the same broker, topic, queue and time window."""
    brokers, broker_names = rows.string_codes("broker")
    topics, topic_names = rows.string_codes("topic")
    queues, stores, nulls = rows.queue_numbers(), rows.number_column("store_timestamp"), rows.null_bits()
    starts = np.empty(rows.count, np.int64)
    starts = starts[: compiled_profiling.find_part_starts(brokers, topics, queues, stores, nulls, _WINDOW_US, starts)]
    out = np.zeros((len(compiled_profiling.FIELDS), len(starts)), np.int64)
    out[compiled_profiling.SUMS :] = np.array(_EXTREMES)[:, None]
    runs, run_counts = np.empty((4, rows.count), np.int64), np.zeros(len(starts), np.int64)
    taken, _ = rows.inner_message_counts()
    found = compiled_profiling.profile_parts(
        starts,
        rows.number_column("physical_offset"),
        rows.number_column("queue_offset"),
        taken,
        rows.number_column("size"),
        rows.number_column("body_size"),
        rows.number_column("body_crc"),
        rows.number_column("reconsume_times"),
        queues,
        stores,
        rows.number_column("born_timestamp"),
        nulls,
        _MIN_RECORD_SIZE,
        DEFAULT_MAX_RECORD_BYTES,
        BORN_TOLERANCE_MS * 1000,
        out,
        runs,
        run_counts,
    )
    zeros = np.zeros(len(starts), np.int64)
    values = dict.fromkeys((*SUMS, *QUEUE), zeros) | dict(zip(compiled_profiling.FIELDS, out, strict=True))
    for name, marked in rows.masks_by_count_column().items():
        values[name] = np.add.reduceat(marked, starts, dtype=np.int64)
    for name, hashes in rows.row_hashes_by_column().items():
        values[name] = np.add.reduceat(hashes, starts) if len(starts) else hashes
    windows, timeless = stores[starts] // _WINDOW_US * _WINDOW_US, nulls[starts] & compiled_profiling.NULL_STORE != 0
    return WindowParts(
        keys=[
            broker_names.take(_nullable_indices(brokers[starts])).cast(pa.string()),
            topic_names.take(_nullable_indices(topics[starts])).cast(pa.string()),
            pa.array(queues[starts], mask=queues[starts] == compiled_profiling.NO_QUEUE).cast(pa.int32()),
            pa.array(windows, mask=timeless).cast(pa.timestamp("us", "UTC")),
        ],
        values=values,
        runs=runs[:, :found],
        run_counts=run_counts,
        known=np.ones(len(starts), bool),
    )


def _nullable_indices(codes: np.ndarray[tuple[int], np.dtype[np.int32]]) -> pa.Array:
    return pa.array(codes, mask=codes < 0)


class RowArrays:
    """Columns of one task's rows of `messages` as arrays, ordered by broker.

    Args:
        table: columns of `messages`, as a task has them.
        columns: columns that are needed; by default all except the partition.

    Raises:
        ProfileError: if the table lacks a column.
    """

    def __init__(self, table: pa.Table, columns: Sequence[str] = PROFILED_COLUMNS) -> None:
        names = set(table.column_names)
        missing = [name for name in columns if name not in names]
        if missing:
            raise ProfileError(
                f"expected the columns of the table messages, found a table without {', '.join(missing)}"
            )
        self.count = table.num_rows
        self._order: Array | None = None
        self._table = table.select(columns).unify_dictionaries().combine_chunks()
        brokers, _ = self.string_codes("broker")
        if (brokers[1:] != brokers[:-1]).any():
            # Rows of several brokers are mixed, and each row would become a part of its own.
            self._order = np.argsort(brokers, kind="stable")
        self._sort_rows_of_queues()

    def _sort_rows_of_queues(self) -> None:
        """Order the rows of each queue as in the log: by queue offset, except for damaged records."""
        names = self.string_codes("broker")[0], self.string_codes("topic")[0], self.queue_numbers()
        physical = self.number_column("physical_offset")
        back = physical[1:] < physical[:-1]
        for values in names:
            back &= values[1:] == values[:-1]
        if back.any():
            order = np.lexsort((self.number_column("queue_offset"), physical, *names[::-1]))
            self._order = order if self._order is None else self._order[order]

    def _single_chunk(self, name: str) -> pa.Array:
        column = self._table.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    def _reorder_values(self, values: Array) -> Array:
        if self._order is None:
            return values
        ordered: Array = values[self._order]
        return ordered if values.flags.writeable else read_only_view(ordered)

    def number_column(self, name: str) -> Array:
        """Return the values of a column of integers or timestamps (microseconds); 0 where null."""
        column = self._single_chunk(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return self._reorder_values(_fill_nulls(column, 0))

    def queue_numbers(self) -> Array:
        """Return the queue id of each row; `NO_QUEUE` for rows without a queue."""
        return self._reorder_values(_fill_nulls(self._single_chunk("queue_id").cast(pa.int64()), NO_QUEUE))

    def string_codes(self, name: str) -> tuple[Array, pa.Array]:
        """Return a column's strings as dictionary codes (-1 for null), and the dictionary."""
        codes, values = self._encode_column(name)
        return self._reorder_values(codes), values

    def _encode_column(self, name: str) -> tuple[Array, pa.Array]:
        column = self._single_chunk(name)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        indices = encoded.indices.fill_null(-1) if encoded.indices.null_count else encoded.indices
        return indices.cast(pa.int32()).to_numpy(), encoded.dictionary

    def null_bits(self) -> Array:
        """Return, for each row, bits that tell which columns are null; a missing column has no bits set."""
        bits = np.zeros(self.count, np.uint8)
        for name, bit in _NULL_BITS.items():
            if name in self._table.column_names and (column := self._single_chunk(name)).null_count:
                bits[_is_null(column)] |= bit
        return self._reorder_values(bits)

    def inner_message_counts(self) -> tuple[Array, Array | None]:
        """Return how many queue offsets each row takes, and a mask of the rows that are inner batches.

        Returns:
            The counts, and for each row whether it is an inner batch; the latter is None if no row is.

        A prepared or rolled back record is in no queue and has no queue offset. A client can create such a record by
        the bits of its sysFlag.
        """
        taken = np.ones(self.count, np.int32)
        flags = _fill_nulls(self._single_chunk("sys_flag"), 0)
        if (flags & (INNER_BATCH | TransactionType.PREPARED)).any():
            flags = np.where(self._mask_without_flags(), 0, flags)
        taken[flags & TransactionType.PREPARED != 0] = 0  # a bit that rollbacks have, too, but commits do not
        batches = (flags & INNER_BATCH != 0) & (taken > 0)
        if not batches.any():
            return self._reorder_values(taken), None
        (places,) = np.nonzero(batches)
        for place, properties in zip(places, self._single_chunk("properties").take(pa.array(places)), strict=True):
            taken[place] = _inner_message_count(properties.as_py() or ())
        return self._reorder_values(taken), self._reorder_values(batches)

    def rows_without_transaction_flags(self) -> Array:
        """Return a mask of the rows whose format has no transaction bits in sysFlag, in log order."""
        return self._reorder_values(self._mask_without_flags())

    def rows_with_property(self, property_names: Collection[str]) -> Array:
        """Return a mask of the rows that have a property of one of these names."""
        column = self._single_chunk("properties")
        keys, offsets = column.keys, column.offsets.to_numpy()
        found = np.zeros(self.count, bool)
        if pa.types.is_dictionary(keys.type):
            wanted = np.array([name in property_names for name in keys.dictionary.to_pylist()] + [False])
            places = np.flatnonzero(wanted[keys.indices.to_numpy()]) if wanted.any() else np.empty(0, np.int64)
        else:
            places = np.flatnonzero(pc.is_in(keys, pa.array(sorted(property_names))).to_numpy(zero_copy_only=False))
        # A slice of a map still has the entries before and after it.
        places = places[(places >= offsets[0]) & (places < offsets[-1])]
        found[np.searchsorted(offsets, places, side="right") - 1] = True
        return self._reorder_values(found)

    def _mask_without_flags(self) -> Array:
        """Return a mask of the rows whose format has no transaction bits in sysFlag, in the table's order."""
        codes, names = self._encode_column("format")
        lacking = {each.name for each in all_formats() if not each.brokers.has_transaction_flags}
        lacks = np.array([name in lacking for name in names.to_pylist()] + [False])  # the last one is for null
        found: Array = lacks[codes]
        return found

    def masks_by_count_column(self) -> dict[str, Array]:
        """Return, for each count in a profile, a mask of the rows that it counts; counts of no row are left out."""
        found: dict[str, Array | None] = {
            f"null_{name}": self._rows_with_null([name])
            for name in ("msg_id", "unique_key", "keys", "tags", "properties")
        }
        found["null_hosts"] = self._rows_without_host()
        found["null_body_ref"], found["body_ref_violations"] = self._rows_with_bad_body_refs()
        found["unknown_codecs"] = self._rows_with_unknown_value("body_codec", _CODECS)
        found["unknown_kinds"] = self._rows_with_unknown_value("kind", _KINDS)
        found["inner_batches"] = self.inner_message_counts()[1]
        return {name: rows for name, rows in found.items() if rows is not None}

    def row_hashes_by_column(self) -> dict[str, Array]:
        """Return, for each checksum in a profile, the hashes of rows that it sums."""
        return {
            checksum.name: self._reorder_values(column_hashes(self._table, checksum.columns))
            for checksum in COLUMN_CHECKSUMS
        }

    def _rows_with_null(self, names: Iterable[str]) -> Array | None:
        columns = [column for column in map(self._single_chunk, names) if column.null_count]
        return self._reorder_values(np.any([_is_null(column) for column in columns], axis=0)) if columns else None

    def _rows_without_host(self) -> Array | None:
        """Return a mask of the rows without a host (erased rows may lack the producer's); None if there are none."""
        born, store, crc = (_is_null(self._single_chunk(name)) for name in ("born_host", "store_host", "body_crc"))
        lost = store | (born & ~crc)
        return self._reorder_values(lost) if lost.any() else None

    def _rows_with_bad_body_refs(self) -> tuple[Array | None, ...]:
        places, sizes = self._single_chunk("body_ref"), _fill_nulls(self._single_chunk("body_size"), 0)
        absent = _is_null(places)
        frame, offset, length = (places.field(name) for name in ("frame_offset", "offset", "length"))
        least = np.minimum(_fill_nulls(frame, -1), _fill_nulls(offset, -1))
        wrong = ((_fill_nulls(length, -1) != sizes) | (least < 0)) & ~absent
        lost = absent & (sizes > 0)
        return tuple(self._reorder_values(rows) if rows.any() else None for rows in (lost, wrong))

    def _rows_with_unknown_value(self, name: str, known_values: frozenset[str]) -> Array | None:
        codes, values = self.string_codes(name)
        # The last one is for null, whose code is -1.
        strange = np.array([value not in known_values for value in values.to_pylist()] + [True])
        return strange[codes] if strange[:-1].any() or (codes < 0).any() else None


def _is_null(column: pa.Array) -> Array:
    flags: Array = pc.is_null(column).to_numpy(zero_copy_only=False)
    return flags


def _fill_nulls(column: pa.Array, value: int) -> Array:
    values: Array = (column.fill_null(value) if column.null_count else column).to_numpy()
    return values


def _inner_message_count(properties: Iterable[tuple[str, str]]) -> int:
    """Return the number of messages in an inner batch; 1 if it is not given."""
    count = parse_int32(dict(properties).get(INNER_NUM))
    return 1 if count is None else min(max(count, 1), _MAX_INNER)
