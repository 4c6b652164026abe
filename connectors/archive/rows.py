"""Rows of ranges on their way into data files: joined, with the places of their bodies, by date.

They wait until they are worth a file, or take up `PART_BYTES`; that, not the log, bounds a task's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from connectors.archive.bodies import DayOfBodies
from connectors.commitlog.arrow import Array
from connectors.lake.data_files import DataFile, sort_rows, write_data_file
from schemas.tables.messages import BODY_PLACE, BODY_REF, MESSAGES, STORE_DATE

PART_BYTES = 64 << 20
_DATE = "date"  # a column of ours, dropped before the file is written
_WRITTEN = [field.name for field in MESSAGES if field.name != STORE_DATE.name]


class WaitingRows:
    """Rows of some ranges, for a table in `messages_uri`."""

    def __init__(self, messages_uri: str) -> None:
        self._messages_uri = messages_uri
        self._tables: list[pa.Table] = []

    @property
    def are_enough(self) -> bool:
        """Whether they should be written before others come."""
        return sum(int(table.nbytes) for table in self._tables) >= PART_BYTES

    def add(self, tables: Sequence[pa.Table], days: Sequence[DayOfBodies]) -> None:
        """Take the rows of one range, in the log's order, and where their bodies lie."""
        rows = join_rows(tables)
        dates = pa.array([day.date.isoformat() if day.date else None for day in days], pa.string())
        codes = np.empty(rows.num_rows, np.int32)
        for code, day in enumerate(days):
            codes[day.rows] = code
        rows = rows.append_column(BODY_REF.name, _body_refs(codes, days))
        self._tables.append(rows.append_column(_DATE, pa.DictionaryArray.from_arrays(codes, dates)))

    def write(self, name: str) -> Iterator[DataFile]:
        """Write a file of this name for each date, and keep nothing."""
        if not self._tables:
            return
        rows = join_rows(self._tables)
        self._tables = []
        dates = rows.column(_DATE).chunk(0)
        codes = dates.indices.to_numpy()
        rows = rows.select(_WRITTEN)
        for code, date in enumerate(dates.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            part = rows if len(chosen) == len(codes) else rows.take(pa.array(chosen))
            if part.num_rows:
                yield write_data_file(sort_rows(part), self._messages_uri, date, name)


def join_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """One table in one chunk; later ones know more values of a dictionary than the first."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _body_refs(codes: Array, days: Sequence[DayOfBodies]) -> pa.Array:
    count = len(codes)
    frame_offsets = np.empty(count, np.int64)
    frame_lengths, offsets, lengths = (np.empty(count, np.int32) for _ in range(3))
    for day in days:
        frame_offsets[day.rows] = day.refs.frame_offsets
        frame_lengths[day.rows] = day.refs.frame_lengths
        offsets[day.rows] = day.refs.offsets
        lengths[day.rows] = day.refs.lengths
    packs = pa.DictionaryArray.from_arrays(codes, pa.array([day.pack for day in days], pa.string()))
    places = [packs, *(pa.array(values) for values in (frame_offsets, frame_lengths, offsets, lengths))]
    return pa.StructArray.from_arrays(places, names=BODY_PLACE.names)
