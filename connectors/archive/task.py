"""One task of an archive run: ranges of logs into packs and data files, without a row that crosses into the JVM.

A task that is done again, after a failure or beside a slow one, writes the same files under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from connectors.archive.bodies import BodyPacks
from connectors.archive.manifest import MANIFEST, ManifestRow, to_batch
from connectors.archive.rows import WaitingRows, join_rows
from connectors.commitlog.batches import read_split
from connectors.commitlog.options import Mode
from connectors.commitlog.refused import CORRUPT_RECORD
from connectors.commitlog.request import Request
from connectors.commitlog.settled import settle
from connectors.commitlog.splits import Split
from connectors.packs.stores import open_store
from schemas.tables.messages import BODY, SOURCE

_COLUMNS = StructType([field for field in SOURCE if field.name != BODY.name])


_MOST_BATCHES = 8  # each keeps all of the kernel's buffers, however little it fills of them
_MOST_SPLITS = 8  # of one task, which is done again as a whole


@dataclass(frozen=True)
class ArchiveTasks:
    """The tasks of one run.

    Attributes:
        splits: the ranges; each has packs of its own, a data file may hold the rows of several.
        messages_uri: path or URI of the table.
        bodies_root: where packs go.
        run_id: part of the data files' names, so that runs do not meet there.
    """

    splits: Sequence[Split]
    messages_uri: str
    bodies_root: str
    run_id: str

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The manifest: a row for each file. To collect it is to do the work."""
        # A task costs Spark a tenth of a second besides its work: two rounds of the cores, unless the ranges are many.
        cores = spark.sparkContext.defaultParallelism
        count = min(len(self.splits), max(2 * cores, -(-len(self.splits) // _MOST_SPLITS)))
        numbers = spark.range(0, len(self.splits), 1, numPartitions=max(1, count))
        return numbers.mapInArrow(partial(_run_tasks, self), MANIFEST)

    def run(self, numbers: Sequence[int]) -> Iterator[ManifestRow]:
        """Do the task for some of the ranges; a row for each file, and one for all that goes with them."""
        waiting = WaitingRows(self.messages_uri)
        manifest: list[ManifestRow] = []
        refused = pack_bytes = files = 0
        with ThreadPoolExecutor(1) as background:
            closing: list[Future[None]] = []
            for number in numbers:
                with ExitStack() as open_packs:
                    packs = open_packs.enter_context(BodyPacks(self.splits[number], open_store(self.bodies_root)))
                    rows, bad = _read(self.splits[number], packs)
                    days = packs.finish()
                    # The disk takes them meanwhile.
                    closing.append(background.submit(open_packs.pop_all().close))
                refused += bad
                pack_bytes += sum(day.refs.end for day in days)
                if rows:
                    waiting.add(rows, days)
                    del rows
                if waiting.are_enough or number == numbers[-1]:
                    name = f"part-{numbers[0]:05d}-{files:03d}-{self.run_id}.zstd.parquet"
                    manifest += map(ManifestRow.of_file, waiting.write(name))
                    files += 1
            for one in closing:
                one.result()
        yield from manifest
        yield ManifestRow(pack_bytes=pack_bytes, refused=refused)


def _read(split: Split, packs: BodyPacks) -> tuple[list[pa.Table], int]:
    """The messages of a range, their bodies on their way into packs, and how much was refused."""
    rows: list[pa.Table] = []
    refused = 0
    for batch in read_split(split, _request(), packs.add):
        refused += batch.num_rows - batch.column(CORRUPT_RECORD).null_count
        if batch.column("size").null_count == 0:  # bad ranges have batches of their own
            rows.append(pa.Table.from_batches([batch.drop_columns([CORRUPT_RECORD])]))
        if len(rows) >= _MOST_BATCHES:
            rows = [join_rows(rows)]
    return rows, refused


def _request() -> Request:
    return Request(to_arrow_schema(_COLUMNS, timezone="UTC"), Mode.PERMISSIVE, encoded=True)


def _run_tasks(tasks: ArchiveTasks, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    if numbers:
        yield to_batch(tasks.run(numbers))
    settle()
