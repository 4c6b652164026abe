"""The records of keys, read once from a lake and divided by key into slices that fit into memory.

Few records stay in memory. Of more, each slice has a range of keys, and its records wait in files on this machine. A
sample of the keys says where the ranges end, so that slices are about equal, and in the order of keys. All records of a
key are in one slice: no result of one slice depends on another.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import join_chunks, to_numpy_numbers
from commitlake.connectors.lake.delta_log.file_actions import column_bounds_per_file, read_file_actions
from commitlake.connectors.lake.reader import run_sql_over_tables
from commitlake.connectors.lake.sql import Engine
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.partition_files import read_partition, write_partitions
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.sql_statements import RECORD_TEXTS, JourneyStatements, SourceTables

Tables = Mapping[str, DeltaTable]
_CODED = ("topic", "broker")
"""Columns of few different texts, which are numbers in slices."""
_CODES = pa.int32()
KEY_HASH = "key_hash"
"""Column of a hash of the key, by which Spark sorts records."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Largest numbers of rows that are held in memory at once.

    Attributes:
        slice_rows: records in a slice, about; computing their journeys takes some 500 bytes for each.
        chunk_rows: records that are sorted into slices at once.
        part_steps: rows of `edges` that are joined to records at once.
        window_rows: records in the window up to which their keys are found first, and others are not read.
        task_rows: records in a slice of a task of Spark, about; several tasks run in the memory of one machine.
    """

    slice_rows: int = 1_000_000
    chunk_rows: int = 500_000
    part_steps: int = 4_000_000
    window_rows: int = 2_000_000
    task_rows: int = 250_000

    @property
    def sample_fraction(self) -> float:
        """Fraction of the rows to sample in order to find the boundaries of slices."""
        return min(1.0, 2_000 / self.slice_rows)


LIMITS = RowLimits()


@dataclass(frozen=True, slots=True)
class KeySlice:
    """Records of some business keys, with integer codes in place of topics and brokers.

    Attributes:
        rows: rows of `Statements.records_sql`, with codes for `topic` and `broker`.
        texts: texts of these codes, by column.
    """

    rows: pa.Table
    texts: Mapping[str, Sequence[str]]


class KeyRecords:
    """Context manager that provides the records of all business keys of a query, in slices that fit into memory.

    At its end, temporary files are deleted.

    Args:
        tables: tables that the sources name.
        sources: `messages` and `edges`, or queries of them.
        question: the question.
        end_us: time up to which records are read; None for the end of the margin.
        limits: limits on rows in memory.

    Raises:
        QueryError: if a condition of the question is not valid.
    """

    def __init__(
        self,
        tables: Tables,
        sources: SourceTables,
        question: JourneysQuestion,
        end_us: int | None = None,
        limits: RowLimits | None = None,
    ) -> None:
        self._tables = tables
        self._question = question
        self._end_us = question.end_us if end_us is None else end_us
        self._limits = limits or LIMITS
        self._statements = JourneyStatements(question, Engine.DELTALAKE, sources)
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _CODED}
        self._kept: list[pa.Table] = []
        self._kept_rows = 0
        self._ends: pa.Array | None = None
        self._files: list[Path] = []
        self._folder = Path()
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        with self._closing:
            for chunk in self._read_chunks():
                self._add_chunk(chunk)
            self._closing = self._closing.pop_all()  # what an error before this closes stays open from here on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def iterate_slices(self) -> Iterator[KeySlice]:
        """Yield the slices of records in the order of their keys; there is at least one, which may be empty."""
        texts = {name: list(codes) for name, codes in self._codes.items()}
        if self._ends is None:
            yield KeySlice(pa.concat_tables(self._kept), texts)
            return
        for number in range(len(self._ends) + 1):
            yield KeySlice(pa.concat_tables(read_partition(self._files, number)), texts)

    def _add_chunk(self, chunk: pa.Table) -> None:
        """Keep rows in memory or, if there are too many for one slice, write them to a file for each slice."""
        self._kept.append(chunk)
        self._kept_rows += chunk.num_rows
        if self._ends is None:
            if self._kept_rows <= self._limits.slice_rows:
                return
            self._ends = self._sample_slice_boundaries()
            folder = tempfile.TemporaryDirectory(prefix="commitlake-journeys-")
            self._folder = Path(self._closing.enter_context(folder))
        for each in self._kept:
            numbers = slice_numbers(join_chunks(each.column("key")), self._ends)
            self._files.append(write_partitions(each, numbers, len(self._ends) + 1, self._folder))
        self._kept.clear()

    def _sample_slice_boundaries(self) -> pa.Array:
        """Return the first key of each slice except the first, computed from a sample of the keys."""
        sampled = self._limits.sample_fraction
        rows = run_sql_over_tables(
            self._tables, self._statements.keys_sql(self._end_us, f"random() < {sampled}")
        ).read_all()
        keys = join_chunks(rows.column("key").cast(pa.string()))
        count = math.ceil(len(keys) / sampled / self._limits.slice_rows)
        places = np.arange(1, count) * len(keys) // max(count, 1)
        return pc.unique(keys.take(pc.sort_indices(keys)).take(pa.array(places, pa.int64())))

    def _read_chunks(self) -> Iterator[pa.Table]:
        """Yield the rows of all records in chunks; the last chunk may be empty."""
        near = self._question.margin_us > 0 and self._count_rows_in_window() <= self._limits.window_rows
        waiting: list[pa.RecordBatch] = []
        schema = None
        for first_us, end_us in self._time_ranges():
            batches = run_sql_over_tables(
                self._tables, self._statements.records_sql(first_us, end_us, only_window_keys=near)
            )
            schema = batches.schema
            for batch in batches:
                waiting.append(batch)
                if sum(each.num_rows for each in waiting) >= self._limits.chunk_rows:
                    yield _encode_texts(pa.Table.from_batches(waiting), self._codes)
                    waiting.clear()
        yield _encode_texts(pa.Table.from_batches(waiting, schema), self._codes)

    def _time_ranges(self) -> Sequence[tuple[int, int]]:
        """Return the time ranges to read one after another, so that none has too many rows of `edges`."""
        asked, limits = self._question, self._limits
        rows = read_file_actions(self._tables["edges"]).column("num_records")
        times = [asked.begin_us, self._end_us]
        if rows.null_count or (pc.sum(rows).as_py() or 0) > limits.part_steps:
            sampled = min(1.0, 2_000 / limits.part_steps)
            sql = self._statements.step_times_sql(self._end_us, f"from_us IS NOT NULL AND random() < {sampled}")
            sample = np.sort(to_numpy_numbers(run_sql_over_tables(self._tables, sql).read_all().column("from_us")))
            count = math.ceil(len(sample) / sampled / limits.part_steps)
            inner = np.unique(sample[np.arange(1, count) * len(sample) // max(count, 1)])
            times[1:1] = [time for time in inner.tolist() if asked.begin_us < time < self._end_us]
        return list(pairwise(times))

    def _count_rows_in_window(self) -> float:
        """Return the number of rows in files that may have records of the time window; infinity if unknown."""
        asked, actions = self._question, read_file_actions(self._tables["messages"])
        first, last = column_bounds_per_file(actions, "store_timestamp", pa.timestamp("us", "UTC"))
        rows = actions.column("num_records")
        if rows.null_count:
            return math.inf
        first_us = to_numpy_numbers(first, null_value=asked.since_us)
        last_us = to_numpy_numbers(last, null_value=asked.since_us)
        return int(to_numpy_numbers(rows)[(first_us < asked.until_us) & (last_us >= asked.since_us)].sum())


def slices_of_sorted_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[KeySlice]:
    """Yield slices that each have all records of some keys, from batches that are sorted by `KEY_HASH`.

    Only one slice is in memory, or the records of one key that has more.
    """
    codes: dict[str, dict[str, int]] = {name: {} for name in _CODED}
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        last = batch.column(KEY_HASH)[-1]
        if sum(each.num_rows for each in waiting) < LIMITS.task_rows or waiting[0].column(KEY_HASH)[0] == last:
            continue
        rows = pa.Table.from_batches(waiting)
        end = int(np.searchsorted(rows.column(KEY_HASH).to_numpy(), last.as_py()))  # its key may go on
        yield _make_coded_slice(rows.slice(0, end), codes)
        waiting = rows.slice(end).to_batches()
    if waiting:
        yield _make_coded_slice(pa.Table.from_batches(waiting), codes)


def _make_coded_slice(rows: pa.Table, codes: Mapping[str, dict[str, int]]) -> KeySlice:
    coded = _encode_texts(rows.drop_columns(KEY_HASH), codes)
    return KeySlice(coded, {name: list(texts) for name, texts in codes.items()})


def _encode_texts(rows: pa.Table, codes: Mapping[str, dict[str, int]]) -> pa.Table:
    """Replace topics and brokers in rows by integer codes.

    Args:
        rows: the rows.
        codes: codes of texts by column, to which those of new texts are added.
    """
    columns = {}
    for name in rows.column_names:
        column = join_chunks(rows.column(name))
        if name in RECORD_TEXTS:
            column = column.cast(pa.string())
        columns[name] = _encode_column(column, codes[name]) if name in _CODED else column
    return pa.table(columns)


def _encode_column(texts: pa.Array, codes_by_text: dict[str, int]) -> pa.Array:
    encoded = texts.dictionary_encode()
    found = [codes_by_text.setdefault(text, len(codes_by_text)) for text in encoded.dictionary.to_pylist()]
    return pa.array(found, _CODES).take(encoded.indices)


def slice_numbers(keys: pa.Array, slice_first_keys: pa.Array) -> Array:
    """Return the number of the slice that each key belongs to.

    Args:
        keys: the keys.
        slice_first_keys: first keys of all slices but the first one, in their order.

    >>> slice_numbers(pa.array(["a", "b", "c", "z"]), pa.array(["b", "d"])).tolist()
    [0, 1, 1, 2]
    """
    numbers = np.zeros(len(keys), np.int64)
    step = 1 << len(slice_first_keys).bit_length()
    while (step := step >> 1) > 0:
        tried = numbers + step
        last = slice_first_keys.take(pa.array(np.minimum(tried, len(slice_first_keys)) - 1))
        is_after = pc.greater_equal(keys, last).to_numpy(zero_copy_only=False) & (tried <= len(slice_first_keys))
        numbers = np.where(is_after, tried, numbers)
    return numbers
