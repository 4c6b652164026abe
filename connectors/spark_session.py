"""The Spark session of a job, with Delta and the source `commitlog`.

What others have set is kept. In a notebook or on Databricks there is a session: it is used as it is, and only the
source is registered. Under spark-submit there is a JVM: the settings here are for what its command line leaves open.
Else a job begins the JVM itself, through spark-submit too, with the user's options in `PYSPARK_SUBMIT_ARGS`.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from connectors.commitlog import register
from connectors.jars import delta_jars
from connectors.jvm import launch

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Defaults are for clusters: with them, the first count of a Delta table takes 14 s on two cores, with these 1 s.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # By TCP, a Python worker and its JVM wait 40 ms for one another's acknowledgements at each end of a task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Else Spark makes a folder where the user stands.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "commitlake-spark-warehouse"),
}


def launch_settings() -> dict[str, str]:
    """What only a JVM that is not yet running can be told.

    Raises:
        JarsError: if Delta's jars are not there.
    """
    log_configuration = Path(__file__).parent / "log4j2.properties"
    # Arrow's vectors check every access unless told otherwise; what comes from our workers is made by Arrow itself.
    arrow = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    collector = "-XX:+UseParallelGC"  # a job wants throughput: rows cross a tenth faster than with G1
    return {
        "spark.master": "local[*]",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_configuration} {arrow} {collector}",
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
    }


def get_session(name: str) -> SparkSession:
    """The session, begun where there is none.

    Args:
        name: of the application, where it is begun here.

    Raises:
        JarsError: if Delta's jars are needed and not there.
        JavaError: if a JVM is needed and there is no Java for it.
    """
    spark = SparkSession.getActiveSession() or _begin(name)
    register(spark)
    return spark


def _begin(name: str) -> SparkSession:
    application = f"commitlake {name}"
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._active_spark_context is None:  # noqa: SLF001 (no other way to ask)
        # pyspark logs what it also raises, with all of Java's stack.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        return SparkSession(SparkContext(appName=application, gateway=launch({**SETTINGS, **launch_settings()})))
    SparkContext.getSystemProperty(
        "java.version"
    )  # joins the JVM that is there: from now on SparkConf knows its command line
    given = SparkConf()
    builder = SparkSession.builder.appName(application)
    for key, value in SETTINGS.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()
