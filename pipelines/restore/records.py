"""Writes the records of a segment from rows in any order, and returns where they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.pipelines.restore.arrow import coded
from commitlake.pipelines.restore.errors import LakeRowsError
from commitlake.pipelines.restore.found import Records, Refusal
from commitlake.pipelines.restore.serialize import TakenRows
from commitlake.schemas.counts import count_text
from commitlake.schemas.layouts.rocketmq.commitlog import MIN_RECORD_SIZE


class RecordWriter:
    """Writer of the records of one segment.

    Args:
        out: uint8, the segment.
        base: physical offset of the start of the segment.

    Attributes:
        packs: names of the packs, by number.
    """

    def __init__(self, out: Array, base: int) -> None:
        self.packs: list[str] = []
        self._codes: dict[str, int] = {}
        self._out = out
        self._base = base
        self._records: list[Records] = []

    def add(self, batch: pa.RecordBatch) -> int:
        """Write the records of rows, which may be in any order, and return their size in bytes.

        Args:
            batch: rows with the columns `COLUMNS`.

        Raises:
            LakeRowsError: if a row is not within the segment.
        """
        rows = TakenRows(batch)
        self._check_places(rows)
        found = rows.records(self._pack_codes(batch.column("body_ref")))
        rows.write(self._out, self._base, np.flatnonzero(found.refusals == Refusal.NONE))
        self._records.append(found)
        return int(found.sizes.sum())

    def finish(self) -> Records:
        """Return all records, ordered by physical offset.

        Raises:
            LakeRowsError: if records overlap.
        """
        joined = Records.joined(self._records)
        self._records.clear()
        records = joined.take(np.argsort(joined.starts, kind="stable"))
        # An OPTIMIZE by another program at the same time as maintain's can leave a row twice.
        twice = np.flatnonzero(np.diff(records.starts) == 0) + 1
        if (
            len(twice)
            and (np.diff(records.crcs)[twice - 1] == 0).all()
            and (np.diff(records.sizes)[twice - 1] == 0).all()
        ):
            records = records.take(np.delete(np.arange(len(records.starts)), twice))
        ends = records.starts + records.sizes
        if len(over := np.flatnonzero(ends[:-1] > records.starts[1:])):
            row = int(over[0])
            raise LakeRowsError(
                f"the record at {records.starts[row]} ends at {ends[row]}: expected the next one there or later, "
                f"found it at {records.starts[row + 1]}. The lake contains two logs under one name, or is damaged"
            )
        return records

    def _check_places(self, rows: TakenRows) -> None:
        end = self._base + len(self._out)
        outside = (rows.sizes < MIN_RECORD_SIZE) | (rows.starts < self._base) | (rows.sizes > end - rows.starts)
        if outside.any():
            row = int(outside.argmax())
            raise LakeRowsError(
                f"the record at {rows.starts[row]} has {rows.sizes[row]} bytes: expected at least {MIN_RECORD_SIZE}, "
                f"and an end within its segment, which ends at {end}. If the broker's segments are not of "
                f"{count_text(len(self._out), 'byte')} (mappedFileSizeCommitLog), give their size"
            )

    def _pack_codes(self, places: pa.Array) -> Array:
        codes, names = coded(pc.struct_field(places, "pack"))
        known = [-1 if name is None else self._code_of(name) for name in names]
        return np.array(known, np.int64)[codes]

    def _code_of(self, name: str) -> int:
        if name not in self._codes:
            self._codes[name] = len(self.packs)
            self.packs.append(name)
        return self._codes[name]
