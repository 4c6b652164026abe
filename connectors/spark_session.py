"""The Spark session of a job, with Delta and the source `commitlog`.

What a launcher or a notebook has set already is kept: the settings here are for a session that nobody has begun. Where
there is one (spark-submit, Databricks), it is used as it is, and only the source is registered.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from connectors.commitlog import register
from connectors.jars import delta_jars

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Small tables read in one task each: 14 s become 1 s for the first count of a table on two cores.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}",
}


def settings() -> dict[str, str]:
    """What a session of our own is begun with."""
    return {**SETTINGS, "spark.jars": ",".join(str(jar) for jar in delta_jars())}


def get_session(name: str) -> SparkSession:
    """The session, begun where there is none.

    Args:
        name: of the application, where it is begun here.

    Raises:
        JarsError: if Delta's jars are needed and not there.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    active = SparkSession.getActiveSession()
    spark = active or _begin(name)
    register(spark)
    return spark


def _begin(name: str) -> SparkSession:
    given = SparkConf()
    builder = SparkSession.builder.appName(f"commitlake {name}")
    if not given.contains("spark.master"):
        builder = builder.master("local[*]")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings().items() if not _knows_delta(given) else ():
        if not given.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _knows_delta(given: SparkConf) -> bool:
    """Whether a launcher has set Delta up, as a cluster that brings its own jars does."""
    return given.contains("spark.sql.extensions") and not given.contains("spark.jars")
