"""Erases messages when they are archived: those that were erased before, and later copies of erased ones.

A message is archived again after a repair restored an earlier version of the lake. The messages are archived in their
erased form. Their rows in `erasures`, with the event `again` or `copy`, are in a data file that the run's commit names,
like those of the tables that follow `messages`. The run's profile counts the messages in this form.
"""

from __future__ import annotations

import os
import socket
import time

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.erasures import ErasedPlaces, erased_places
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.pipelines.masking.erased_rows import erase_rows
from commitlake.pipelines.masking.later_copies import LaterCopies
from commitlake.pipelines.masking.tombstones import Writer, tombstones
from commitlake.schemas.tables.erasures import ErasureEvent

_NONE = np.empty(0, np.int64)


class AgainErased:
    """Erases the rows of a task that were erased before or are copies of erased messages, and records it.

    Args:
        lake: the lake.
        name: name of the file.
        places: places of messages that were erased before.
        copies: recognises later copies.
        parser_version: version of CommitLake.
    """

    def __init__(self, lake: Lake, name: str, places: ErasedPlaces, copies: LaterCopies, parser_version: str) -> None:
        self._lake = lake
        self._name = name
        self._places = places
        self._copies = copies
        self._writer = Writer(time.time_ns() // 1000, f"{socket.gethostname()} {os.getpid()}", parser_version)
        self._rows: list[pa.Table] = []

    def erase(self, rows: pa.Table) -> pa.Table:
        """Return rows of `messages` with erased messages emptied, in their order."""
        if self._places:
            rows = self._erase(rows, self._places, ErasureEvent.AGAIN)
        if self._copies:
            rows = rows.combine_chunks()
            found = (
                self._copies.find(rows.num_rows, lambda name: rows.column(name).chunk(0)) if rows.num_rows else _NONE
            )
            copies = np.flatnonzero(found)
            if len(copies):
                rows = self._erase(rows, self._places_of(rows, copies, found[copies]), ErasureEvent.COPY)
        return rows

    def _erase(self, rows: pa.Table, places: ErasedPlaces, event: ErasureEvent) -> pa.Table:
        after, hits = erase_rows(rows, places)
        if len(hits):
            numbers = pa.array(hits)
            before = rows.combine_chunks().take(numbers).combine_chunks()
            columns = (before.column(name).combine_chunks() for name in ("broker", "physical_offset"))
            codes = places.ids_of_rows(*columns).tolist()
            ids, erasures = [places.ids[code] for code in codes], [places.numbers[code] for code in codes]
            erased = after.take(numbers).combine_chunks()
            self._rows.append(tombstones(before, erased, ids, erasures, event, self._writer, is_counted=True))
        return after

    def _places_of(self, rows: pa.Table, copies: Array, numbers: Array) -> ErasedPlaces:
        named = rows.select(["broker", "physical_offset"]).take(pa.array(copies))
        ids = [self._copies.ids[number] for number in numbers.tolist()]
        named = named.append_column("erasure_id", pa.array(ids)).append_column("number", pa.array(numbers))
        return erased_places(named, 0)

    def finish(self) -> list[DataFile]:
        """Write the rows of `erasures` to a file, which no table refers to until the commit."""
        if not self._rows:
            return []
        rows = pa.concat_tables(self._rows)
        return [write_plain_file(rows, self._lake.uri("erasures"), f"{self._name}-000.zstd.parquet", s3=self._lake.s3)]
