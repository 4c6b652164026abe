"""Erases messages again that a run archives a second time, after a repair restored an earlier version of the lake.

The messages are archived in their erased form. Their rows in `erasures`, with the event `again`, are in a data file
that the run's commit names, like those of the tables that follow `messages`. The run's profile describes the log, as
always; an audit accounts for these rows.
"""

from __future__ import annotations

import os
import socket
import time

import pyarrow as pa

from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.erasures import ErasedPlaces
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.pipelines.masking.erased_rows import erase_rows
from commitlake.pipelines.masking.tombstones import Writer, tombstones
from commitlake.schemas.tables.erasures import ErasureEvent


class AgainErased:
    """Erases the rows of a task that were erased before, and records it.

    Args:
        lake: locations of the tables.
        name: name of the file.
        places: places of the erased messages.
        parser_version: version of CommitLake.
    """

    def __init__(self, lake: LakePaths, name: str, places: ErasedPlaces, parser_version: str) -> None:
        self._lake = lake
        self._name = name
        self._places = places
        self._writer = Writer(time.time_ns() // 1000, f"{socket.gethostname()} {os.getpid()}", parser_version)
        self._rows: list[pa.Table] = []

    def erase(self, rows: pa.Table) -> pa.Table:
        """Return rows of `messages` with erased messages emptied, in their order."""
        after, hits = erase_rows(rows, self._places)
        if len(hits):
            numbers = pa.array(hits)
            before = rows.combine_chunks().take(numbers).combine_chunks()
            columns = (before.column(name).combine_chunks() for name in ("broker", "physical_offset"))
            codes = self._places.ids_of_rows(*columns).tolist()
            ids, erasures = [self._places.ids[code] for code in codes], [self._places.numbers[code] for code in codes]
            again = after.take(numbers).combine_chunks()
            self._rows.append(tombstones(before, again, ids, erasures, ErasureEvent.AGAIN, self._writer))
        return after

    def finish(self) -> list[DataFile]:
        """Write the rows of `erasures` to a file, which no table refers to until the commit."""
        if not self._rows:
            return []
        rows = pa.concat_tables(self._rows)
        return [write_plain_file(rows, self._lake.erasures, f"{self._name}-000.zstd.parquet", s3=self._lake.s3)]
