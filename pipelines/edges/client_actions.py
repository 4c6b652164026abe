"""Actions of clients as entries, one row for each message and action: from bodies of trace messages and consume logs.

A trace body is UTF-8 text: records that end with 0x02, with columns separated by 0x01. Column 0 names the record:

    Pub             timestamp, region, producer group, topic, message id, tags, keys, store host, body length, cost,
                    message type, offset message id, success [, client host]; clients before 4.4 write no offset id
    SubBefore       timestamp, region, consumer group, request id, message id, retry times, keys [, client host]
    SubAfter        request id, message id, cost, success, keys, context code [, timestamp, consumer group]
    EndTransaction  timestamp, region, producer group, topic, message id, tags, keys, store host, message type,
                    transaction id, state, from check
    Recall          timestamp, region, producer group, topic, message id, success

Message ids are unique keys; a batch has several, separated by commas. Source: TraceDataEncoder (RocketMQ 4.9.7, 5.5.0).

Any producer may write to a trace topic. Records in an unknown format are skipped and counted. The work for a body is
limited by `MAX_BODY_BYTES` and `MAX_ENTRIES`. RocketMQ's own clients stay below 128,000 bytes.

A row of `consumptions` names its message by place and by queue offset, which JMQ's unique key consists of. In `edges`
the evidence of such a step is the record of the consume log. Its offset is stored as `-1 - consume_offset`, so that it
cannot be taken for the place of a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.log_format.recorded_deliveries import CONSUMPTION_ROWS
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.step_records import TIME
from commitlake.pipelines.edges.steps import repeat_text
from commitlake.schemas.tables.edges import StepOutcome

MAX_BODY_BYTES = 4 << 20
MAX_ENTRIES = 1 << 16
"""Largest number of records in a body, and of message ids in a record."""
_MAX_COLUMNS = 24
_MAX_MS = 253_402_300_799_999
_MAX_DIGITS = 18
_NULL = "null"
_OFFSET_ID = "^(?:[0-9A-Fa-f]{24})?[0-9A-Fa-f]{16}[0-7][0-9A-Fa-f]{15}$"


class Action(StrEnum):
    """Kind of a client's action in a trace record, such as sending or consuming a message.

    `LOGGED` stands for a row of `consumptions`.
    """

    PUB = "Pub"
    BEFORE = "SubBefore"
    AFTER = "SubAfter"
    END = "EndTransaction"
    RECALL = "Recall"
    LOGGED = "Logged"
    """No trace: a row of `consumptions`."""


ENTRIES = pa.schema([
    ("broker", pa.string()),            # of the trace message
    ("physical_offset", pa.int64()),    # likewise; negative for a row of `consumptions`
    ("entry", pa.int32()),              # index of the record in its body, from 0
    ("store_timestamp", TIME),          # of the trace message
    ("client_host", pa.string()),
    ("action", pa.string()),
    ("unique_key", pa.string()),
    ("group", pa.string()),             # group of the producer or consumer
    ("topic", pa.string()),
    ("sent_offset", pa.int64()),        # physical offset of the message: of a Pub, in the offset message id
    ("request_id", pa.string()),        # of a consumption
    ("attempt", pa.int32()),
    ("outcome", pa.string()),
    ("cost_ms", pa.int64()),
    ("event_timestamp", TIME),
])  # fmt: skip
"""Columns of a table of entries."""
PARENTS = ("broker", "physical_offset", "store_timestamp", "client_host")
"""Columns of entries that come from the trace message."""
_CONTEXT = (
    StepOutcome.SUCCESS,
    StepOutcome.TIME_OUT,
    StepOutcome.EXCEPTION,
    StepOutcome.RETURNED_NULL,
    StepOutcome.FAILED,
)
_STATES = {
    "COMMIT_MESSAGE": StepOutcome.COMMITTED,
    "ROLLBACK_MESSAGE": StepOutcome.ROLLED_BACK,
    "UNKNOW": StepOutcome.UNKNOWN,
}
_LEAST_COLUMNS = {Action.PUB: 13, Action.BEFORE: 7, Action.AFTER: 5, Action.END: 12, Action.RECALL: 7}


@dataclass(frozen=True)
class ParsedTraces:
    """Trace entries, one for each message and client action, that were parsed from the bodies of trace messages.

    Attributes:
        entries: a table of `ENTRIES`.
        passed_over: number of records, or of whole bodies, in an unknown format.
    """

    entries: pa.Table
    passed_over: int = 0


def parse_traces(trace_messages: pa.Table, bodies: pa.Array) -> ParsedTraces:
    """Parse the bodies of trace messages into entries, one for each message that a client sent or consumed.

    Args:
        trace_messages: the trace messages, with `PARENTS`.
        bodies: binary, decompressed, one for each trace message; null if it cannot be read.
    """
    sizes = to_numpy_numbers(pc.binary_length(bodies).cast(pa.int64()), null_value=0)
    bodies = bodies.filter(to_boolean_array(sizes <= MAX_BODY_BYTES)) if (sizes > MAX_BODY_BYTES).any() else bodies
    passed_over = int((sizes > MAX_BODY_BYTES).sum())
    rows = np.flatnonzero(sizes <= MAX_BODY_BYTES)
    # Counted before anything is split, because a body of separators only would grow to millions of records.
    counts = to_numpy_numbers(pc.count_substring(bodies, "\x02").cast(pa.int64()), null_value=0)
    few = counts <= MAX_ENTRIES
    passed_over += int((~few).sum())
    rows, bodies = rows[few], bodies.filter(to_boolean_array(few))
    records, parent, numbers = _split_records(bodies)
    columns = pc.split_pattern(records, "\x01", max_splits=_MAX_COLUMNS)
    widths = to_numpy_numbers(pc.list_value_length(columns).cast(pa.int64()), null_value=0)
    names = pc.list_element(columns, 0) if len(columns) else records
    found, taken = [ENTRIES.empty_table()], 0
    for action, least in _LEAST_COLUMNS.items():
        chosen = pc.fill_null(pc.equal(names, str(action).encode()), False).to_numpy(zero_copy_only=False)
        # A record with fewer columns is cut or of another program; more columns come from newer clients.
        chosen &= widths >= least
        places = np.flatnonzero(chosen)
        if len(places):
            texts = _TraceTextColumns(columns.take(pa.array(places)), widths[places])
            entries, refused = _parse_trace_entries(
                action, texts, trace_messages, rows[parent[places]], numbers[places]
            )
            found.append(entries)
            taken += len(places) - refused
    return ParsedTraces(pa.concat_tables(found).combine_chunks(), passed_over + len(records) - taken)


def _split_records(bodies: pa.Array) -> tuple[pa.Array, Array, Array]:
    """Split trace bodies into records; return these with the index of their body, and their index in it."""
    lists = pc.split_pattern(bodies, "\x02")
    records, parents = pc.list_flatten(lists), to_numpy_numbers(pc.list_parent_indices(lists))
    starts = np.searchsorted(parents, parents, side="left")
    numbers = np.arange(len(parents)) - starts
    is_there = to_numpy_numbers(pc.binary_length(records).cast(pa.int64()), null_value=0) > 0
    return records.filter(to_boolean_array(is_there)), parents[is_there], numbers[is_there]


class _TraceTextColumns:
    """Columns of the trace records of one kind, accessed by column number."""

    def __init__(self, columns: pa.ListArray, widths: Array) -> None:
        self._columns = columns
        self._widths = widths

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def column_counts(self) -> Array:
        """Number of columns of each record."""
        return self._widths

    def texts(self, column_index: int) -> pa.Array:
        """Return a column as text; null where it is missing or not UTF-8."""
        has_it = self._widths > column_index
        if has_it.all():
            return _decode_utf8(pc.list_element(self._columns, column_index))
        places = np.flatnonzero(has_it)
        index = np.full(len(self._columns), -1, np.int64)
        index[places] = np.arange(len(places))
        if not len(places):
            return pa.nulls(len(self._columns), pa.string())
        found = _decode_utf8(pc.list_element(self._columns.take(pa.array(places)), column_index))
        return found.take(pa.array(index, mask=index < 0))

    def integers(self, column_index: int) -> pa.Array:
        """Return a column of integers; null where the text is not a number of up to 18 digits."""
        return _parse_integers(self.texts(column_index))

    def times(self, column_index: int) -> pa.Array:
        """Return a column of milliseconds as times; null where the text is not a valid time."""
        return _to_times(self.integers(column_index))


def _parse_trace_entries(
    action: Action, texts: _TraceTextColumns, trace_messages: pa.Table, rows: Array, entry_numbers: Array
) -> tuple[pa.Table, int]:
    """Parse trace records of one kind into entries; return these and the number of records in an unknown format."""
    told = _COLUMNS[action](texts)
    of_trace = trace_messages.select(PARENTS).take(pa.array(rows))
    known: dict[str, pa.Array] = {name: of_trace.column(name).combine_chunks() for name in PARENTS}
    known |= {"entry": pa.array(entry_numbers, pa.int64()).cast(pa.int32()), **told}
    known["action"] = pa.array([str(action)], pa.string()).take(pa.array(np.zeros(len(texts), np.int64)))
    event = known.get("event_timestamp", pa.nulls(len(texts), TIME))
    # A trace without a valid time is at least as old as its storing.
    known["event_timestamp"] = pc.coalesce(event, known["store_timestamp"])
    table = pa.table(
        [known[f.name].cast(f.type) if f.name in known else pa.nulls(len(texts), f.type) for f in ENTRIES],
        schema=ENTRIES,
    )
    is_known = pc.and_(pc.is_valid(table.column("unique_key")), pc.not_equal(table.column("unique_key"), ""))
    if action is Action.AFTER:
        is_known = pc.and_(is_known, pc.is_valid(table.column("request_id")))
    keys = table.column("unique_key").combine_chunks()
    # A batch with more ids than the limit is refused before it is split.
    is_known = pc.and_(is_known, pc.less(pc.count_substring(keys, ","), MAX_ENTRIES))
    chosen = pc.fill_null(is_known, False)
    kept = table.filter(chosen)
    ids = told["offset_id"] if "offset_id" in told else pa.nulls(len(texts), pa.string())
    return _split_batches(kept, _filter_ids(ids, chosen)), table.num_rows - kept.num_rows


def _split_batches(entries: pa.Table, ids: pa.Array) -> pa.Table:
    """Replace each entry for a batch by an entry per message, with the physical offset from the message's id."""
    keys = entries.column("unique_key").combine_chunks()
    counts = to_numpy_numbers(pc.count_substring(keys, ",").cast(pa.int64())) + 1
    if (counts > 1).any():
        lists = pc.split_pattern(keys, ",")
        entries = entries.take(pa.array(to_numpy_numbers(pc.list_parent_indices(lists))))
        # Message ids that are not as many as the keys cannot be assigned to them.
        same = to_numpy_numbers(pc.count_substring(pc.fill_null(ids, ""), ",").cast(pa.int64())) + 1 == counts
        none = pc.binary_repeat(",", pa.array(counts - 1))
        ids = pc.list_flatten(pc.split_pattern(pc.coalesce(pc.if_else(to_boolean_array(same), ids, none), none), ","))
        entries = _replace_column(entries, "unique_key", pc.list_flatten(lists))
    entries = _replace_column(entries, "sent_offset", parse_offsets_of_ids(ids))
    return entries.filter(pc.not_equal(entries.column("unique_key"), ""))


def parse_offsets_of_ids(ids: pa.Array) -> pa.Array:
    """Return the physical offsets in the last 16 digits of offset message ids; null for other texts.

    >>> parse_offsets_of_ids(pa.array(["0A00000100002A9F0000000000001000", "B", None])).to_pylist()
    [4096, None, None]
    """
    is_id = pc.fill_null(pc.match_substring_regex(ids, _OFFSET_ID), False).to_numpy(zero_copy_only=False)
    offsets = np.full(len(ids), -1, np.int64)
    if is_id.any():
        digits = pc.utf8_slice_codeunits(ids.filter(to_boolean_array(is_id)), -16)
        _, _, data = pa.concat_arrays([digits]).buffers()
        start = 16 * digits.offset
        letters = np.frombuffer(data, np.uint8)[start : start + 16 * len(digits)].reshape(-1, 16)
        values = np.where(letters > ord("9"), (letters & 0xDF) - ord("A") + 10, letters - ord("0")).astype(np.int64)
        offsets[is_id] = (values << (4 * np.arange(15, -1, -1, dtype=np.int64))).sum(axis=1)
    return pa.array(offsets, mask=offsets < 0)


def _filter_ids(ids: pa.Array | pa.ChunkedArray, row_mask: pa.Array | pa.ChunkedArray) -> pa.Array:
    mask = row_mask.combine_chunks() if isinstance(row_mask, pa.ChunkedArray) else row_mask
    return ids.filter(mask)


def _replace_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(
        table.schema.get_field_index(name), ENTRIES.field(name), column.cast(ENTRIES.field(name).type)
    )


def _parse_published_columns(texts: _TraceTextColumns) -> Mapping[str, pa.Array]:
    is_long = to_boolean_array(texts.column_counts >= 14)
    # Without an offset id, the success is one column earlier.
    succeeded = pc.if_else(is_long, texts.texts(13), texts.texts(12))
    return {
        "event_timestamp": texts.times(1),
        "group": _replace_placeholders(texts.texts(3)),
        "topic": _replace_placeholders(texts.texts(4)),
        "unique_key": _replace_placeholders(texts.texts(5)),
        "cost_ms": texts.integers(10),
        "offset_id": _replace_placeholders(pc.if_else(is_long, texts.texts(12), None)),
        "outcome": _parse_success_outcomes(succeeded),
    }


def _parse_consume_start_columns(texts: _TraceTextColumns) -> Mapping[str, pa.Array]:
    return {
        "event_timestamp": texts.times(1),
        "group": _replace_placeholders(texts.texts(3)),
        "request_id": _replace_placeholders(texts.texts(4)),
        "unique_key": _replace_placeholders(texts.texts(5)),
        "attempt": _to_int32(texts.integers(6)),
    }


def _parse_consume_end_columns(texts: _TraceTextColumns) -> Mapping[str, pa.Array]:
    codes = to_numpy_numbers(texts.integers(6), null_value=-1)
    by_code = pa.array([*map(str, _CONTEXT), None], pa.string())
    known = np.where((codes >= 0) & (codes < len(_CONTEXT)), codes, len(_CONTEXT))
    return {
        "request_id": _replace_placeholders(texts.texts(1)),
        "unique_key": _replace_placeholders(texts.texts(2)),
        "cost_ms": texts.integers(3),
        "outcome": pc.coalesce(by_code.take(pa.array(known)), _parse_success_outcomes(texts.texts(4))),
        "event_timestamp": texts.times(7),
        "group": _replace_placeholders(texts.texts(8)),
    }


def _parse_transaction_end_columns(texts: _TraceTextColumns) -> Mapping[str, pa.Array]:
    states = texts.texts(11)
    outcome: pa.Array = pa.nulls(len(texts), pa.string())
    for state, meaning in _STATES.items():
        outcome = pc.if_else(pc.fill_null(pc.equal(states, state), False), str(meaning), outcome)
    return {
        "event_timestamp": texts.times(1),
        "group": _replace_placeholders(texts.texts(3)),
        "topic": _replace_placeholders(texts.texts(4)),
        "unique_key": _replace_placeholders(texts.texts(5)),
        "outcome": outcome,
    }


def _parse_recall_columns(texts: _TraceTextColumns) -> Mapping[str, pa.Array]:
    return {
        "event_timestamp": texts.times(1),
        "group": _replace_placeholders(texts.texts(3)),
        "topic": _replace_placeholders(texts.texts(4)),
        "unique_key": _replace_placeholders(texts.texts(5)),
        "outcome": _parse_success_outcomes(texts.texts(6)),
    }


_COLUMNS = {
    Action.PUB: _parse_published_columns,
    Action.BEFORE: _parse_consume_start_columns,
    Action.AFTER: _parse_consume_end_columns,
    Action.END: _parse_transaction_end_columns,
    Action.RECALL: _parse_recall_columns,
}


def _parse_success_outcomes(texts: pa.Array) -> pa.Array:
    failed = pc.if_else(pc.equal(texts, "false"), str(StepOutcome.FAILED), None)
    return pc.if_else(pc.fill_null(pc.equal(texts, "true"), False), str(StepOutcome.SUCCESS), failed)


def _replace_placeholders(texts: pa.Array) -> pa.Array:
    """Return texts in which empty texts and placeholders for missing values are replaced by null."""
    is_none = pc.or_(pc.equal(texts, _NULL), pc.equal(texts, ""))
    return pc.if_else(pc.fill_null(is_none, False), None, texts)


def _parse_integers(texts: pa.Array) -> pa.Array:
    sizes = pc.binary_length(texts)
    is_short = pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, _MAX_DIGITS))
    is_number = pc.fill_null(pc.and_(pc.ascii_is_decimal(texts), is_short), False)
    return pc.if_else(is_number, texts, None).cast(pa.int64())


def _to_int32(numbers: pa.Array) -> pa.Array:
    return pc.if_else(pc.less_equal(numbers, (1 << 31) - 1), numbers, None).cast(pa.int32())


def _to_times(milliseconds: pa.Array) -> pa.Array:
    known = pc.if_else(pc.less_equal(milliseconds, _MAX_MS), milliseconds, None)
    return pc.multiply(known, 1000).cast(TIME)


def _decode_utf8(data: pa.Array) -> pa.Array:
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:  # rare, so that decoding each value is no loss
        # Any producer may write such bytes, so one value must not fail the others.
        return pa.array([_decode_utf8_or_none(value) for value in data.to_pylist()], pa.string())


def _decode_utf8_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def open_consumptions(lake: Lake) -> TableRows:
    """Return a reader for data files of `consumptions`."""
    return TableRows(lake.uri("consumptions"), lake.s3, CONSUMPTION_ROWS)


def consumptions_to_entries(rows: pa.Table) -> pa.Table:
    """Convert rows of `consumptions` to the form of trace entries.

    >>> row = {"broker": "a", "consume_offset": 7, "topic": "t", "queue_id": 1, "queue_offset": 5, "physical_offset": 9}
    >>> rows = pa.Table.from_pylist([row], CONSUMPTION_ROWS)
    >>> consumptions_to_entries(rows).select(["physical_offset", "unique_key", "sent_offset"]).to_pylist()
    [{'physical_offset': -8, 'unique_key': 't/1/5@a', 'sent_offset': 9}]
    """
    rows = rows.combine_chunks()
    count = rows.num_rows
    known = {
        "broker": rows.column("broker"),
        "physical_offset": pc.subtract(-1, rows.column("consume_offset")),
        "entry": pa.array(np.zeros(count, np.int32)),
        "store_timestamp": rows.column("event_timestamp"),
        "client_host": rows.column("client_host"),
        "action": repeat_text(str(Action.LOGGED), count),
        "unique_key": build_unique_keys(rows),
        "group": rows.column("consumer_group"),
        "topic": rows.column("topic"),
        "sent_offset": rows.column("physical_offset"),
        "attempt": rows.column("attempt"),
        "outcome": rows.column("outcome"),
        "event_timestamp": rows.column("event_timestamp"),
    }
    return pa.table(
        [known[f.name].cast(f.type) if f.name in known else pa.nulls(count, f.type) for f in ENTRIES], schema=ENTRIES
    )


def build_unique_keys(rows: pa.Table) -> pa.Array:
    """Return the unique keys of JMQ's messages, from their brokers, topics, queues and queue offsets."""
    numbers = pa.array(to_numpy_numbers(rows.column("queue_offset")).view(np.uint64)).cast(pa.string())
    queue = pc.binary_join_element_wise(rows.column("topic"), rows.column("queue_id").cast(pa.string()), numbers, "/")
    return pc.binary_join_element_wise(queue, rows.column("broker"), "@")
