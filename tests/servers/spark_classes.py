"""An archive of the classes that Spark's JVM loads at startup, which makes its starts faster.

The JVM of a first, small job writes it when it ends; it is kept between test runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from commitlake.connectors.spark.jars import delta_jars
from tests.servers.cache import build_once, cache_folder, digest
from tests.servers.class_archives import java_version
from tests.servers.process import ServerError

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 300
_NAME = "classes.jsa"
_QUICK = "-XX:TieredStopAtLevel=1"
_JOB = """
import sys
from commitlake.jobs.arguments.runner import get_spark_session
spark = get_spark_session("classes")
spark.range(100).mapInArrow(lambda batches: batches, "id long").write.format("delta").save(sys.argv[1])
assert spark.read.format("delta").load(sys.argv[1]).groupBy("id").count().count() == 100
spark.stop()
"""


def class_archive() -> Path:
    """Return the archive for this Java and this Spark; create it if it is not in the cache.

    Raises:
        ServerError: The job failed, or its JVM wrote no archive.
    """
    jars = [*sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")), *delta_jars()]
    # A JVM refuses an archive, silently, if a jar has another path, size or time than when the archive was made.
    states = [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    name = digest([java_version(), *states, _JOB])
    return build_once(cache_folder() / "spark-classes" / name, _build) / _NAME


def quick_start(archive: Path) -> str:
    """Return SPARK_SUBMIT_OPTS for the JVMs of tests: classes from an archive, and the quick compiler.

    These JVMs run for a minute or two, in which the optimizing compiler takes more processor time than it saves.
    """
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable {_QUICK}"


def _build(folder: Path) -> None:
    """Run the job, and wait for the files that its JVM writes when it ends."""
    archive = folder / _NAME
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable {_QUICK}"}
    command = [sys.executable, "-c", _JOB, str(folder / "table")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    if done.returncode != 0:
        raise ServerError(f"a job for an archive of Spark's classes failed:\n{done.stderr[-4000:]}")
    # The JVM outlives the job, and writes the archive in one step.
    deadline, size = time.monotonic() + PATIENCE_SECONDS, -1
    while not (archive.exists() and archive.stat().st_size == size > 0):
        size = archive.stat().st_size if archive.exists() else -1
        if time.monotonic() > deadline:
            raise ServerError(f"{archive}: Spark's JVM wrote no archive within {PATIENCE_SECONDS} s")
        time.sleep(1)
