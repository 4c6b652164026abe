"""A profile's columns as arrays, with conversions from and to a table of `PROFILE`, bytes, and rows of `profiles`.

QualityError           quality could not be judged: neither good data nor bad
└── ProfileError       a table is not what a profile is made of
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.tables.profile import KEY_COLUMNS, MAX_RUNS, PROFILE, PROFILES, RUN, RUN_ID, RUNS

SCHEMA = arrow_schema(PROFILE)
"""Schema of a profile."""
FIRST = ("first_queue_offset", "first_physical_offset", "min_store_timestamp", "min_born_timestamp", "min_size")
"""Columns of minima."""
LAST = ("last_queue_offset", "last_physical_offset", "max_store_timestamp", "max_born_timestamp", "max_size")
"""Columns of maxima of the same values. If a minimum is larger than its maximum, there are no values."""
QUEUE = ("duplicate_rows", "duplicate_offsets", "missing_offsets", "restarts")
"""Columns that follow from the runs, if these are known."""
SUMS = tuple(name for name in PROFILE.names if name not in {*KEY_COLUMNS, *FIRST, *LAST, *QUEUE, RUNS.name})
_INT64 = np.iinfo(np.int64)
_EMPTY = {**dict.fromkeys(FIRST, int(_INT64.max)), **dict.fromkeys(LAST, int(_INT64.min))}
PROFILES_SCHEMA = arrow_schema(PROFILES)
"""Schema of the table `profiles`."""


class QualityError(CommitLakeError):
    """Error because the expectations could not be evaluated; its text says why."""

    exit_code = ExitCode.FAILED


class ProfileError(QualityError):
    """Error because a table lacks columns that a profile must have, or serialized bytes are not a profile."""


@dataclass(frozen=True, slots=True)
class WindowParts:
    """Columns of a profile as arrays, in which several elements may count parts of the same time window.

    Attributes:
        keys: columns of the key, one array each.
        values: the other columns except runs, as int64; for extremes without values see `compiled_profiling`.
        runs: 4 x runs, part by part, in the order of the log.
        run_counts: number of runs of each part.
        known: True if a part's runs are known; otherwise it has none, and its values of `QUEUE` are used.
    """

    keys: list[pa.Array]
    values: dict[str, Array]
    runs: Array
    run_counts: Array
    known: Array

    @classmethod
    def from_table(cls, table: pa.Table) -> WindowParts:
        """Return the columns of a profile as arrays.

        Raises:
            ProfileError: if the table has other columns.
        """
        missing = [name for name in SCHEMA.names if name not in table.column_names]
        if missing:
            raise ProfileError(
                f"expected the columns of the table profiles, found a table without {', '.join(missing)}"
            )
        table = table.select(SCHEMA.names).cast(SCHEMA).combine_chunks()
        columns = {name: _single_chunk(table.column(name)) for name in SCHEMA.names}
        lists = columns[RUNS.name]
        structs = lists.flatten()
        runs = np.array([structs.field(name).to_numpy() for name in RUN.names], np.int64).reshape(len(RUN.names), -1)
        return cls(
            keys=[columns[name] for name in KEY_COLUMNS],
            values={
                name: columns[name].cast(pa.int64()).fill_null(_EMPTY.get(name, 0)).to_numpy()
                for name in (*SUMS, *FIRST, *LAST, *QUEUE)
            },
            runs=runs,
            run_counts=lists.value_lengths().fill_null(0).to_numpy().astype(np.int64),
            known=lists.is_valid().to_numpy(zero_copy_only=False),
        )

    def to_table(self) -> pa.Table:
        """Return the profile as a table."""
        columns = dict(zip(KEY_COLUMNS, self.keys, strict=True))
        nothing = {}
        for first, last in zip(FIRST, LAST, strict=True):
            nothing[first] = nothing[last] = self.values[first] > self.values[last]
        for name, values in self.values.items():
            columns[name] = pa.array(values, pa.int64(), mask=nothing.get(name)).cast(SCHEMA.field(name).type)
        columns[RUNS.name] = self._run_lists()
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _run_lists(self) -> pa.Array:
        counts = self.run_counts
        kept = self.known & (counts <= MAX_RUNS)
        runs = self.runs[:, np.repeat(kept, counts)]
        data_type = SCHEMA.field(RUNS.name).type
        structs = pa.StructArray.from_arrays(list(map(pa.array, runs)), fields=list(data_type.value_type))
        ends = np.cumsum(np.where(kept, counts, 0)).astype(np.int32)
        offsets = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
        return pa.ListArray.from_arrays(offsets, structs, data_type, mask=pa.array(~kept))


def _single_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def serialize_profile(profile: pa.Table) -> bytes:
    """Serialize a profile (message counts by time window) to bytes for a task's manifest."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(profile)
    return bytes(sink.getvalue())


def parse_profile(data: bytes) -> pa.Table:
    """Parse a profile (message counts by time window) from bytes in a task's manifest.

    Raises:
        ProfileError: if the bytes are not a profile.
    """
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
    except pa.ArrowInvalid as error:
        raise ProfileError(
            f"expected a serialized profile of messages, found {len(data)} bytes that cannot be parsed: {error}"
        ) from error
    if table.schema != SCHEMA:
        raise ProfileError(f"expected the columns of the table profiles, found {', '.join(table.schema.names)}")
    return table


def to_profiles(profile: pa.Table, run_id: str) -> pa.Table:
    """Convert a run's profile to rows of the table `profiles`.

    Args:
        run_id: id of the archive run.
    """
    run_ids = pa.repeat(pa.scalar(run_id, pa.string()), profile.num_rows)
    return profile.select(SCHEMA.names).append_column(RUN_ID.name, run_ids).cast(PROFILES_SCHEMA)
