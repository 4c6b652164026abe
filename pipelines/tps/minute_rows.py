"""Reads rows of `topic_minutes` as numbers: the group, the minute and the counts of each row.

Columns are read as they are in the data files, where strings are dictionary codes. Group numbers are computed from the
codes without comparing strings, so that reading a year of minutes is faster than grouping it in an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays_without_pandas import join_chunks, to_boolean_array, to_numpy_numbers
from commitlake.connectors.lake.delta_log.versions import AddedFile, files_in_time_range
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.tps.rates_query import MINUTE, MINUTES, RatesQuestion
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.times import epoch_us

Key = tuple[Any, ...]
_MINUTE_US = 60_000_000
_MAX_CODES = 1 << 16
"""Largest number of combinations of values for which a lookup table is used; more are sorted."""
_MAX_NUMBER = 1 << 62
_TEXTS = ("broker", "topic", "tag", "kind")
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(_TEXTS, pa.string()),
    "queue_id": pa.int32(),
    "other_tags": pa.bool_(),
    "minute": pa.timestamp("us", "UTC"),
}
_NO_TIME = np.iinfo(np.int64).min // 2


@dataclass(frozen=True, slots=True)
class MinuteRows:
    """Rows of `topic_minutes` that a query selects, as arrays.

    Attributes:
        keys: the groups of the rows.
        groups: for each row, the index of its group in `keys`.
        minutes: for each row, minutes since the start of the time range.
        sums: by name, the summand of each row; empty if all are zero.
        sketches: by column, the sketch of each row.
    """

    keys: Sequence[Key]
    groups: Array
    minutes: Array
    sums: Mapping[str, Array]
    sketches: Mapping[str, pa.Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _EncodedColumn:
    """Dictionary-encoded column: an index for each row, and the distinct values.

    Attributes:
        codes: for each row, the index of its value.
        values: the distinct values; the last one is None, for null.
    """

    codes: Array
    values: Sequence[Any]


def read_minute_rows(
    lake: Lake,
    question: RatesQuestion,
    sum_names: Sequence[str],
    process_rows: Callable[[MinuteRows], None],
    sketch_columns: Sequence[str] = (),
) -> None:
    """Read the rows of `topic_minutes` that a query selects, on all cores, and pass them to a function.

    Args:
        sum_names: names of the sums.
        process_rows: called with some ten thousand rows at a time, in any order, from one thread at a time.
        sketch_columns: names of columns of sketches.

    Raises:
        LakeError: if a data file cannot be read.
        VersionsError: if a data file has rows that are deleted by a deletion vector.
    """
    uri = lake.uri("topic_minutes")
    files = files_in_time_range(uri, lake.table("topic_minutes"), MINUTES.time, question.start, question.end)
    names = dict.fromkeys([MINUTES.time, *_needed_columns(question)])
    names |= dict.fromkeys(column for name in sum_names for column in _SUMS[name].columns)
    names |= dict.fromkeys(sketch_columns)
    types = _TYPES | dict.fromkeys(sketch_columns, pa.binary())
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in names])
    table = TableRows(uri, lake.s3, schema, [name for name in _TEXTS if name in names], skips_constants=True)
    lock = Lock()

    def read_rows_of_file(file: AddedFile) -> None:
        for rows in table.read_file(file):
            numbered = _to_minute_rows(rows, question, sum_names, sketch_columns)
            if len(numbered.groups):
                with lock:
                    process_rows(numbered)

    for _ in ThreadRunner().run(read_rows_of_file, files):
        pass


@dataclass(frozen=True, slots=True)
class _SumDefinition:
    """Definition of a sum: the columns it needs, and a function that computes what each row adds to it.

    Attributes:
        columns: columns that it needs.
        add: computes it from these columns.
    """

    columns: Sequence[str]
    add: Callable[[pa.Table], Array]


def _sum_of_column(name: str) -> _SumDefinition:
    return _SumDefinition([name], lambda rows: to_numpy_numbers(rows.column(name)))


def _sum_of_kind(kind: Kind, counted_column: str = "messages", subtracted_column: str | None = None) -> _SumDefinition:
    """Return the definition of a sum over messages of one kind, of a column or of the difference of two columns."""

    def count_rows_of_kind(rows: pa.Table) -> Array:
        kinds = _encode_column(rows.column("kind"))
        is_kind = np.array([value == kind for value in kinds.values])
        if not is_kind.any():
            return _NOTHING
        counts = to_numpy_numbers(rows.column(counted_column)) - (
            0 if subtracted_column is None else to_numpy_numbers(rows.column(subtracted_column))
        )
        found: Array = counts * is_kind[kinds.codes]
        return found

    return _SumDefinition(
        ["kind", counted_column, *([] if subtracted_column is None else [subtracted_column])], count_rows_of_kind
    )


def _count_other_tags(rows: pa.Table) -> Array:
    marks = to_numpy_numbers(rows.column("other_tags"))
    return marks * to_numpy_numbers(rows.column("messages")) if marks.any() else _NOTHING


_NOTHING: Array = np.zeros(0, np.int64)
"""Array that means zeros for all rows."""
_SUMS: Mapping[str, _SumDefinition] = {
    "messages": _sum_of_column("messages"),
    "bytes": _sum_of_column("bytes"),
    "sent": _sum_of_kind(Kind.NORMAL),
    "retries": _sum_of_kind(Kind.RETRY),
    "dead_letters": _sum_of_kind(Kind.DLQ),
    "prepared": _sum_of_kind(Kind.HALF, subtracted_column="rechecked"),
    "committed": _sum_of_kind(Kind.NORMAL, "committed"),
    "clock_skew": _sum_of_column("clock_skew_messages"),
    "other_tags": _SumDefinition(["other_tags", "messages"], _count_other_tags),
}
"""Summands by the names in `question.SUMS`, which defines the same in SQL."""


def _needed_columns(question: RatesQuestion) -> list[str]:
    """Return the columns of `topic_minutes` that are needed to group and select rows for a query."""
    return [*(MINUTES.groups[name] for name in question.by), *_selected_column_values(question)]


def _selected_column_values(question: RatesQuestion) -> dict[str, Collection[Any]]:
    """Return the values that a query selects, by column."""
    tag = MINUTES.groups["tag"]
    return {tag if name == "tags" else name: set(values) for name, values in question.selection.column_values}


def _to_minute_rows(
    rows: pa.Table, question: RatesQuestion, sum_names: Sequence[str], sketch_columns: Sequence[str]
) -> MinuteRows:
    """Return the rows that a query selects, with group, minute and sums as numbers."""
    times = to_numpy_numbers(rows.column(MINUTES.time), null_value=_NO_TIME)
    minutes = (times - epoch_us(question.start)) // _MINUTE_US
    chosen = (minutes >= 0) & (minutes < (question.end - question.start) // MINUTE)
    coded = {name: _encode_column(rows.column(name)) for name in _needed_columns(question)}
    for name, values in _selected_column_values(question).items():
        column = coded[name]
        chosen &= np.array([value in values for value in column.values])[column.codes]
    if not chosen.all():
        rows, minutes = rows.filter(to_boolean_array(chosen)), minutes[chosen]
        coded = {name: _EncodedColumn(column.codes[chosen], column.values) for name, column in coded.items()}
    keys, groups = _group_rows([coded[MINUTES.groups[name]] for name in question.by], rows.num_rows)
    summands = {name: _SUMS[name].add(rows) for name in sum_names}
    found = MinuteRows(
        keys, groups, minutes, summands, {name: join_chunks(rows.column(name)) for name in sketch_columns}
    )
    return found if question.only is None or not question.by else _rows_of_groups(found, set(question.only))


def _rows_of_groups(rows: MinuteRows, groups: Collection[Key]) -> MinuteRows:
    """Return only the rows of the given groups."""
    is_wanted = np.array([key in groups for key in rows.keys], bool)
    chosen = is_wanted[rows.groups]
    return MinuteRows(
        [key for key in rows.keys if key in groups],
        (np.cumsum(is_wanted) - 1)[rows.groups[chosen]],
        rows.minutes[chosen],
        {name: values[chosen] if len(values) else values for name, values in rows.sums.items()},
        {name: sketches.filter(to_boolean_array(chosen)) for name, sketches in rows.sketches.items()},
    )


def _encode_column(column: pa.ChunkedArray) -> _EncodedColumn:
    array = join_chunks(column)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = array.dictionary.to_pylist()
    return _EncodedColumn(to_numpy_numbers(array.indices, null_value=len(values)), [*values, None])


def _group_rows(columns: Sequence[_EncodedColumn], row_count: int) -> tuple[list[Key], Array]:
    """Return the distinct groups in the rows, and for each row the index of its group."""
    if not columns:
        return [()], np.zeros(row_count, np.int64)
    codes, combinations = np.zeros(row_count, np.int64), 1
    for column in columns:
        if combinations * len(column.values) > _MAX_NUMBER:
            known, codes = np.unique(codes, return_inverse=True)
            combinations = len(known)
        codes = codes * len(column.values) + column.codes
        combinations *= len(column.values)
    firsts, groups = _compact_codes(codes, combinations)
    keys = zip(*([column.values[code] for code in column.codes[firsts].tolist()] for column in columns), strict=True)
    return list(keys), groups


def _compact_codes(codes: Array, code_count: int) -> tuple[Array, Array]:
    """Renumber codes without gaps; return the first row of each code in use, and each row's new code."""
    if code_count > _MAX_CODES:
        _, firsts, groups = np.unique(codes, return_index=True, return_inverse=True)
        return firsts, groups
    first_rows = np.full(code_count, -1, np.int64)
    first_rows[codes[::-1]] = np.arange(len(codes))[::-1]
    found = np.flatnonzero(first_rows >= 0)
    places = np.empty(code_count, np.int64)
    places[found] = np.arange(len(found))
    return first_rows[found], places[codes]
