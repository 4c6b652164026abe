"""Messages that were erased, and that a run takes once more: the lake was set back by a repair, and the log has them.

They come into the lake as they were left by the erasure. Their rows in `erasures`, of the event `again`, are in a file
that the run's commit names, as those of the tables that follow `messages` are. The run's profile is of what the log
has, as every profile is: what an audit expects instead follows from these rows.
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
    """Takes out of the rows of a task what was erased, and writes down that it did.

    Args:
        lake: where the tables lie.
        name: of the file.
        places: the erased messages.
        parser_version: version of CommitLake.
    """

    def __init__(self, lake: LakePaths, name: str, places: ErasedPlaces, parser_version: str) -> None:
        self._lake = lake
        self._name = name
        self._places = places
        self._writer = Writer(time.time_ns() // 1000, f"{socket.gethostname()} {os.getpid()}", parser_version)
        self._rows: list[pa.Table] = []

    def erase(self, rows: pa.Table) -> pa.Table:
        """Return rows of `messages` without what was erased, in their order."""
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
        """Write the rows of `erasures`; no table knows of the file until it is committed."""
        if not self._rows:
            return []
        rows = pa.concat_tables(self._rows)
        return [write_plain_file(rows, self._lake.erasures, f"{self._name}-000.zstd.parquet", s3=self._lake.s3)]
