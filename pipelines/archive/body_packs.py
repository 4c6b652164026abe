"""Writes the bodies of a range to packs: one pack for each date in the range, which is nearly always one.

A pack is named after broker, range and attempt. It holds the bodies of the range's records of one date, in the order of
the log. Two attempts at the same range, in one run or in two, never write to the same pack: the packs of the committed
attempt stay, and `maintain` deletes the others.

A broken clock, or damage that no CRC covers, can give as many dates as there are records. The number of packs for a
range is therefore limited: bodies of further dates go to a pack without a date, which does not expire by date.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays_without_pandas import string_bytes_and_offsets
from commitlake.connectors.lake.erasures import NOTHING_ERASED, ErasedMessages
from commitlake.connectors.lake.packs.frames import PackRefs
from commitlake.connectors.lake.packs.names import new_token, pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.writer import PackWriter, open_pack_writer
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.columns import DecodedBatch
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.pipelines.archive.task_input import Part
from commitlake.pipelines.masking.copies_of_erased import NO_COPIES, LaterCopies

_DAY_MS = 86_400_000
_MILLISECOND_US = 1000
_MAX_DAYS = 16  # each needs an open file, and memory for a frame
_NO_DAY = -1
_LAST_DAY = (datetime.date.max - datetime.date(1970, 1, 1)).days


def date_of_day(day: int) -> datetime.date | None:
    """Return the date a number of days after 1970-01-01; None if no column can hold it."""
    return None if day == _NO_DAY else datetime.date(1970, 1, 1) + datetime.timedelta(days=day)


def _day_numbers(store_timestamps: Array) -> Array:
    days = store_timestamps // _DAY_MS
    return np.where((store_timestamps < 0) | (days > _LAST_DAY), _NO_DAY, days)


def _zero_erased_bodies(window: Array, erased_rows: Array, positions: Array, lengths: Array) -> Array:
    """Return a window of log bytes in which the bodies of erased messages are replaced by zeros."""
    if not len(erased_rows):
        return window
    # A copy, because the other columns are still read from this window.
    window = np.array(window)
    for row in erased_rows.tolist():
        window[positions[row] : positions[row] + lengths[row]] = 0
    return window


@dataclass(frozen=True, slots=True)
class NewBodyPack:
    """Bodies that were written to one pack: the pack's name, and the row and location of each body.

    Attributes:
        pack: the pack's name.
        rows: int64, indexes of its rows in the range.
        refs: locations of the bodies, in the order of `rows`.
    """

    pack: str
    rows: Array
    refs: PackRefs


@dataclass
class _OpenPack:
    name: str
    writer: PackWriter
    rows: list[Array] = field(default_factory=list)


class BodyPacks:
    """Context manager that writes the bodies of one range of a log to packs.

    The packs are created only if it ends without an error.

    Args:
        parts: the parts of the range, in order; all are of one broker.
        store: receives the packs.
        erased: messages whose bodies are left out.
        copies: recognises copies of erased messages, whose bodies are left out, too.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        store: PackStore,
        erased: ErasedMessages = NOTHING_ERASED,
        copies: LaterCopies = NO_COPIES,
    ) -> None:
        self._broker, self._start, self._end = parts[0].broker, parts[0].start, parts[-1].end
        self._erased = erased
        self._copies = copies
        self._store = store
        self._token = new_token()
        self._stack = ExitStack()
        self._packs: dict[int, _OpenPack] = {}
        self._rows = 0

    def __enter__(self) -> Self:
        self._stack.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def add_batch(self, batch: DecodedBatch) -> None:
        """Add the bodies of a decoded batch, whose log bytes must still be in memory."""
        positions, lengths = batch.parts[h.BODY], batch.parts[h.BODY_LENGTH]
        erased = self._erased_rows(batch.int64_values("physical_offset"), batch.column)
        window = _zero_erased_bodies(batch.window, erased, positions, lengths)
        self._append_bodies(_day_numbers(batch.int64_values("store_timestamp")), window, positions, lengths)

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Add the bodies in the column `body` of rows.

        Args:
            rows: rows with `physical_offset`, `store_timestamp` and `body`; only the time may be null.
        """
        window, offsets = string_bytes_and_offsets(pa.concat_arrays([rows.column("body")]))
        ends = offsets.astype(np.int64)
        positions, lengths = ends[:-1], np.diff(ends)
        physical = rows.column("physical_offset").to_numpy(zero_copy_only=False)
        # A row without a time goes to the pack without a date.
        times = rows.column("store_timestamp").cast(pa.int64()).fill_null(-_MILLISECOND_US)
        days = _day_numbers(times.to_numpy(zero_copy_only=False) // _MILLISECOND_US)
        erased = self._erased_rows(physical, rows.column)
        self._append_bodies(days, _zero_erased_bodies(window, erased, positions, lengths), positions, lengths)

    def _append_bodies(self, days: Array, window: Array, positions: Array, lengths: Array) -> None:
        known = np.unique(days)
        # The dates that came first keep their packs; rows of further ones are never refused, only not expired by date.
        if len(known) + len(self._packs) > _MAX_DAYS:
            kept = [day for day in known.tolist() if self._has_room_for(day)]
            days = np.where(np.isin(days, kept), days, _NO_DAY)
            known = np.unique(days)
        for day in known.tolist():
            pack = self._open_pack_of_day(day)
            rows = np.flatnonzero(days == day)
            pack.writer.append_bodies(window, positions[rows], lengths[rows])
            pack.rows.append(rows + self._rows)
        self._rows += len(days)

    def finish(self) -> list[NewBodyPack]:
        """Write the last compressed frames, and return the contents of each pack, oldest date first."""
        return [
            NewBodyPack(pack.name, np.concatenate(pack.rows), pack.writer.finish())
            for _, pack in sorted(self._packs.items())
        ]

    def _erased_rows(self, offsets: Array, read_column: Callable[[str], pa.Array]) -> Array:
        """Return the row indexes of messages that were erased before, or are copies of erased ones."""
        found = (
            self._erased.find_erasure_indexes(self._broker, offsets) >= 0
            if self._erased
            else np.zeros(len(offsets), bool)
        )
        if self._copies and len(offsets):
            found |= self._copies.find_copied_erasures(len(offsets), read_column) > 0
        return np.flatnonzero(found)

    def _has_room_for(self, day: int) -> bool:
        if day not in self._packs and len(self._packs) < _MAX_DAYS:
            self._open_pack_of_day(day)
        return day in self._packs

    def _open_pack_of_day(self, day: int) -> _OpenPack:
        if day not in self._packs:
            name = pack_name(date_of_day(day), self._broker, self._start, self._end, self._token)
            self._packs[day] = _OpenPack(name, self._stack.enter_context(open_pack_writer(self._store, name)))
        return self._packs[day]
