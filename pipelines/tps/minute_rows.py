"""Rows of `topic_minutes` as numbers: the group and the minute of each row, and what it counts.

Columns are read as they lie in the data files, where a text is a number of a dictionary. A group's number follows from
these, so that no text is compared, and a year of minutes takes less time here than an engine needs to group it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.table_rows import TableRows
from commitlake.connectors.lake.versions import AddedFile, files_of_time
from commitlake.connectors.plain_arrays import mask_of, numbers_of
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.tps.question import MINUTE, MINUTES, RatesQuestion
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.times import epoch_us

Key = tuple[Any, ...]
_MINUTE_US = 60_000_000
_MAX_CODES = 1 << 16
"""Combinations of values that are told apart by a table; more are sorted."""
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
    """Some rows that are asked for.

    Attributes:
        keys: the groups that they are of.
        groups: for each row, the place of its group in `keys`.
        minutes: for each row, minutes since the start of the time that is asked for.
        sums: by name, what each row adds to it; empty where all add nothing.
    """

    keys: Sequence[Key]
    groups: Array
    minutes: Array
    sums: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as numbers.

    Attributes:
        codes: for each row, the place of its value.
        values: the values; None, which stands for a null, is the last one.
    """

    codes: Array
    values: Sequence[Any]


def read_minute_rows(
    lake: LakePaths, question: RatesQuestion, sums: Sequence[str], use: Callable[[MinuteRows], None]
) -> None:
    """Read the rows of `topic_minutes` that a question is about, on all cores.

    Args:
        lake: where the table lies.
        question: what is asked; of whole minutes.
        sums: the names of what is counted.
        use: is given the rows, some ten thousands at a time, in any order; by one thread at a time.

    Raises:
        DataFileError: if a data file cannot be read.
        NotReadableError: if a data file has rows that are deleted by a deletion vector.
    """
    uri = lake.topic_minutes
    files = files_of_time(uri, delta_table(uri, lake.s3), MINUTES.time, question.start, question.end)
    names = dict.fromkeys([MINUTES.time, *_columns(question)])
    names |= dict.fromkeys(column for name in sums for column in _SUMS[name].columns)
    schema = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in names])
    table = TableRows(uri, lake.s3, schema, [name for name in _TEXTS if name in names], skips_constants=True)
    lock = Lock()

    def read(file: AddedFile) -> None:
        for rows in table.read(file):
            numbered = _numbered(rows, question, sums)
            if len(numbered.groups):
                with lock:
                    use(numbered)

    for _ in ThreadRunner().run(read, files):
        pass


@dataclass(frozen=True, slots=True)
class _Sum:
    """What is counted of a row.

    Attributes:
        columns: that it needs.
        add: makes it of these.
    """

    columns: Sequence[str]
    add: Callable[[pa.Table], Array]


def _plain(name: str) -> _Sum:
    return _Sum([name], lambda rows: numbers_of(rows.column(name)))


def _of_kind(kind: Kind, less: str | None = None) -> _Sum:
    """Messages of a kind, without those that another column counts."""

    def add(rows: pa.Table) -> Array:
        kinds = _coded(rows.column("kind"))
        is_kind = np.array([value == kind for value in kinds.values])
        if not is_kind.any():
            return _NOTHING
        counts = numbers_of(rows.column("messages")) - (0 if less is None else numbers_of(rows.column(less)))
        found: Array = counts * is_kind[kinds.codes]
        return found

    return _Sum(["kind", "messages", *([] if less is None else [less])], add)


def _of_other_tags(rows: pa.Table) -> Array:
    marks = numbers_of(rows.column("other_tags"))
    return marks * numbers_of(rows.column("messages")) if marks.any() else _NOTHING


_NOTHING: Array = np.zeros(0, np.int64)
"""Stands for as many zeros as there are rows."""
_SUMS: Mapping[str, _Sum] = {
    "messages": _plain("messages"),
    "bytes": _plain("bytes"),
    "retries": _of_kind(Kind.RETRY),
    "dead_letters": _of_kind(Kind.DLQ),
    "prepared": _of_kind(Kind.HALF, "rechecked"),
    "committed": _plain("committed"),
    "clock_skew": _plain("clock_skew_messages"),
    "other_tags": _Sum(["other_tags", "messages"], _of_other_tags),
}
"""By the names of `question.SUMS`, which say the same in SQL."""


def _columns(question: RatesQuestion) -> list[str]:
    """Return the columns that the groups and the conditions of a question need."""
    return [*(MINUTES.groups[name] for name in question.by), *_conditions(question)]


def _conditions(question: RatesQuestion) -> dict[str, Collection[Any]]:
    """Return the values that are asked for, by column."""
    asked: dict[str, Collection[Any]] = {
        "topic": question.topics,
        "queue_id": [] if question.queue_id is None else [question.queue_id],
        "tag": question.tags,
        "kind": question.kinds,
        "broker": question.brokers,
    }
    return {name: set(values) for name, values in asked.items() if values}


def _numbered(rows: pa.Table, question: RatesQuestion, sums: Sequence[str]) -> MinuteRows:
    """Return the rows that are asked for as numbers."""
    times = numbers_of(rows.column(MINUTES.time), null=_NO_TIME)
    minutes = (times - epoch_us(question.start)) // _MINUTE_US
    chosen = (minutes >= 0) & (minutes < (question.end - question.start) // MINUTE)
    coded = {name: _coded(rows.column(name)) for name in _columns(question)}
    for name, values in _conditions(question).items():
        column = coded[name]
        chosen &= np.array([value in values for value in column.values])[column.codes]
    if not chosen.all():
        rows, minutes = rows.filter(mask_of(chosen)), minutes[chosen]
        coded = {name: _Column(column.codes[chosen], column.values) for name, column in coded.items()}
    keys, groups = _grouped([coded[MINUTES.groups[name]] for name in question.by], rows.num_rows)
    found = MinuteRows(keys, groups, minutes, {name: _SUMS[name].add(rows) for name in sums})
    return found if question.only is None or not question.by else _only(found, set(question.only))


def _only(rows: MinuteRows, wanted: Collection[Key]) -> MinuteRows:
    """Return the rows of some groups."""
    is_wanted = np.array([key in wanted for key in rows.keys], bool)
    chosen = is_wanted[rows.groups]
    return MinuteRows(
        [key for key in rows.keys if key in wanted],
        (np.cumsum(is_wanted) - 1)[rows.groups[chosen]],
        rows.minutes[chosen],
        {name: values[chosen] if len(values) else values for name, values in rows.sums.items()},
    )


def _coded(column: pa.ChunkedArray) -> _Column:
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = array.dictionary.to_pylist()
    return _Column(numbers_of(array.indices, null=len(values)), [*values, None])


def _grouped(columns: Sequence[_Column], count: int) -> tuple[list[Key], Array]:
    """Return the groups that rows are of, and for each row the place of its group."""
    if not columns:
        return [()], np.zeros(count, np.int64)
    codes, combinations = np.zeros(count, np.int64), 1
    for column in columns:
        if combinations * len(column.values) > _MAX_NUMBER:
            known, codes = np.unique(codes, return_inverse=True)
            combinations = len(known)
        codes = codes * len(column.values) + column.codes
        combinations *= len(column.values)
    firsts, groups = _placed(codes, combinations)
    keys = zip(*([column.values[code] for code in column.codes[firsts].tolist()] for column in columns), strict=True)
    return list(keys), groups


def _placed(codes: Array, combinations: int) -> tuple[Array, Array]:
    """Return the first row of each code, in order of the codes, and for each row the place of its code."""
    if combinations > _MAX_CODES:
        _, firsts, groups = np.unique(codes, return_index=True, return_inverse=True)
        return firsts, groups
    first_rows = np.full(combinations, -1, np.int64)
    first_rows[codes[::-1]] = np.arange(len(codes))[::-1]
    found = np.flatnonzero(first_rows >= 0)
    places = np.empty(combinations, np.int64)
    places[found] = np.arange(len(found))
    return first_rows[found], places[codes]
