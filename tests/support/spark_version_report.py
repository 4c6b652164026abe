"""Program that reads and archives a store with the Spark of its Python, and writes the rows as JSON.

    python -m tests.support.spark_version_report STORE SEGMENT FOLDER

The segment is added to the store while a stream is stopped. The result is `report.json` in the folder.

It imports none of the tests' packages, so it also runs in an environment with only CommitLake's packages.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame

from commitlake import register
from commitlake.connectors.spark.session import get_session
from commitlake.jobs.archive import command as archive
from commitlake.jobs.verify import command as verify

Rows = list[str]
_BATCH_SECONDS = 120


def rows_of(frame: DataFrame) -> Rows:
    """Return the rows as text, without values that differ between two archives of one store."""
    names = [name for name in frame.columns if name != "body_ref"]
    return sorted(repr(row.asDict()) for row in frame.select(names).collect())


def report(store: Path, segment: Path, folder: Path) -> dict[str, object]:
    """Read a store as a batch, with predicates and as a stream that is restarted; archive and verify it."""
    lake = folder / "lake"
    code = archive.main(["--store", str(store), "--lake", str(lake), "--no-quality"])
    spark = get_session("versions")
    register(spark, pushdown=True)
    source = spark.read.format("commitlog")
    found: dict[str, object] = {
        "version": pyspark.__version__,
        "archive": code,
        "batch": rows_of(source.option("body", "decompressed").load(str(store))),
        "predicate": rows_of(source.load(str(store)).where("queue_id = 0 and physical_offset > 300")),
        "columns": rows_of(source.schema("topic string, keys array<string>").load(str(store))),
        "delta": rows_of(spark.read.format("delta").load(f"{lake}/messages")),
    }
    streamed: list[Rows] = []
    for added in (None, segment, None):
        if added is not None:
            shutil.copy(added, store / "commitlog")
        frame = spark.readStream.format("commitlog").load(str(store))
        writer = frame.writeStream.foreachBatch(lambda batch, _: streamed.append(rows_of(batch)))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(_BATCH_SECONDS)
    found["stream"] = [row for batch in streamed for row in batch]
    found["micro_batches"] = [len(batch) for batch in streamed if batch]
    followed = folder / "followed"
    found["follow"] = archive.main(["--store", str(store), "--lake", str(followed), "--available-now", "--no-quality"])
    found["followed"] = rows_of(spark.read.format("delta").load(f"{followed}/messages"))
    found["verify"] = verify.main(["--store", str(store)])
    spark.stop()
    return found


if __name__ == "__main__":
    given, later, results = map(Path, sys.argv[1:])
    (results / "report.json").write_text(json.dumps(report(given, later, results)))
