"""Collects counts by minute and writes them to data files of `topic_minutes`, a few files per task."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.pipelines.quality.merging import sort_ranks
from commitlake.pipelines.topic_minutes.minutes import SCHEMA, count_minutes

_MAX_WAITING_BYTES = 32 << 20
_NO_MINUTE = np.iinfo(np.int64).min
_REPEATING = ("broker", "topic", "tag", "kind", "run_id")
_STATISTICS = ("broker", "topic", "kind", "minute", "run_id")  # only these, to keep the commit of `messages` small
_FOOTER_STATISTICS = (
    "clock_skew_messages",
    "rechecked",
    "committed",
    "other_tags",
)  # a question does not read columns of zeros
_ENCODINGS = {
    field.name: "PLAIN" if pa.types.is_binary(field.type) else "DELTA_BINARY_PACKED"
    for field in SCHEMA
    if pa.types.is_binary(field.type) or pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
}


class MinutesFiles:
    """Counts messages by minute and writes the counts to files whose names begin with `name`.

    Args:
        lake: where the tables are.
        name: beginning of the file names.
        run_id: id of the run in the rows.
    """

    def __init__(self, lake: Lake, name: str, run_id: str) -> None:
        self._lake = lake
        self._name = name
        self._run_id = run_id
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._written: list[DataFile] = []

    def add(self, messages: pa.Table) -> None:
        """Count rows of `messages` with the columns of `count_minutes`."""
        minutes = count_minutes(messages, self._run_id)
        self._waiting.append(minutes)
        self._bytes += minutes.nbytes
        if self._bytes > _MAX_WAITING_BYTES:
            self._write()

    def finish(self) -> list[DataFile]:
        """Write the remaining counts and return all files; they are in no table until they are committed."""
        if self._waiting:
            self._write()
        return self._written

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._bytes = [], 0
        name = f"{self._name}-{len(self._written):03d}.zstd.parquet"
        self._written.append(write_minutes_file(rows, self._lake, name))


def write_minutes_file(rows: pa.Table, lake: Lake, name: str) -> DataFile:
    """Write rows of `topic_minutes`, sorted as `maintain` sorts them; the file is in no table until it is committed.

    Args:
        rows: columns of `SCHEMA`.
        name: file name.
    """
    rows = rows.combine_chunks()
    minutes = rows.column("minute").chunk(0).cast(pa.int64()).fill_null(_NO_MINUTE)  # nulls first, as maintain sorts
    rows = rows.take(pa.array(np.lexsort((minutes.to_numpy(), sort_ranks(rows.column("topic").chunk(0))))))
    for column in _REPEATING:
        place = rows.schema.get_field_index(column)
        rows = rows.set_column(place, column, rows.column(column).dictionary_encode())
    return write_plain_file(
        rows,
        lake.uri("topic_minutes"),
        name,
        _ENCODINGS,
        s3=lake.s3,
        statistics=_STATISTICS,
        footer_statistics=_FOOTER_STATISTICS,
    )
