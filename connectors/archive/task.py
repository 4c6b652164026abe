"""One task of an archive run: a range of a log into packs and data files, without a row that crosses into the JVM.

A task that is done again, after a failure or beside a slow one, writes the same files under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from connectors.archive.bodies import BodyPacks, DayOfBodies
from connectors.archive.manifest import MANIFEST, ManifestRow, to_batch
from connectors.commitlog.batches import read_split
from connectors.commitlog.options import Mode
from connectors.commitlog.refused import CORRUPT_RECORD
from connectors.commitlog.request import Request
from connectors.commitlog.settled import settle
from connectors.commitlog.splits import Split
from connectors.lake.data_files import sort_rows, write_data_file
from connectors.packs.stores import open_store
from schemas.tables.messages import BODY, BODY_PLACE, BODY_REF, MESSAGES, SOURCE, STORE_DATE

_READ = StructType([field for field in SOURCE if field.name != BODY.name])
_WRITTEN = StructType([field for field in MESSAGES if field.name != STORE_DATE.name])


_MOST_SPLITS = 8  # of one task, which is done again as a whole


@dataclass(frozen=True)
class ArchiveTasks:
    """The tasks of one run.

    Attributes:
        splits: the ranges, one a task.
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

    def run(self, number: int) -> Iterator[ManifestRow]:
        """Do one task; a row for each file, and one for what was refused."""
        split = self.splits[number]
        rows: list[pa.RecordBatch] = []
        refused = 0
        with ExitStack() as open_packs, ThreadPoolExecutor(1) as background:
            packs = open_packs.enter_context(BodyPacks(split, open_store(self.bodies_root)))
            for batch in read_split(split, _request(), packs.add):
                refused += batch.num_rows - batch.column(CORRUPT_RECORD).null_count
                if batch.column("size").null_count == 0:  # bad ranges have batches of their own
                    rows.append(batch.drop_columns([CORRUPT_RECORD]))
            days = packs.finish()
            closing = background.submit(open_packs.pop_all().close)  # the disk takes the packs meanwhile
            manifest = [ManifestRow(refused=refused)] if refused else []
            if rows:
                table = _joined(rows)
                del rows
                manifest += [self._write(table, day, number) for day in days]
            closing.result()
        yield from manifest

    def _write(self, table: pa.Table, day: DayOfBodies, number: int) -> ManifestRow:
        chosen = table if len(day.rows) == table.num_rows else table.take(pa.array(day.rows))
        chosen = chosen.append_column(BODY_REF.name, _body_refs(day)).combine_chunks()
        names = [field.name for field in _WRITTEN]
        date = day.date.isoformat() if day.date else None
        name = f"part-{number:05d}-{self.run_id}.zstd.parquet"
        file = write_data_file(sort_rows(chosen.select(names)), self.messages_uri, date, name)
        pack_bytes = int((day.refs.frame_offsets[-1:] + day.refs.frame_lengths[-1:]).sum())
        return ManifestRow(file.path, file.store_date, file.size, file.rows, file.statistics, pack_bytes=pack_bytes)


def _request() -> Request:
    return Request(to_arrow_schema(_READ, timezone="UTC"), Mode.PERMISSIVE, encoded=True)


def _run_tasks(tasks: ArchiveTasks, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            rows = list(tasks.run(number))
            if rows:
                yield to_batch(rows)
    settle()


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    """One table in one chunk; later batches know more values than the first ones."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _body_refs(day: DayOfBodies) -> pa.Array:
    count = len(day.refs)
    pack = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([day.pack]))
    refs = day.refs
    values = [pack, *(pa.array(it) for it in (refs.frame_offsets, refs.frame_lengths, refs.offsets, refs.lengths))]
    return pa.StructArray.from_arrays(values, names=BODY_PLACE.names)
