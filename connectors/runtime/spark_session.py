"""The Spark session of a job, with Delta; whoever needs this package's sources registers them with it.

What others have set is kept. In a notebook or on Databricks there is a session: it is used as it is. Under
spark-submit there is a JVM: the settings here are for what its command line leaves open. Else a job begins the JVM
itself, through spark-submit too, with the user's options in `PYSPARK_SUBMIT_ARGS`.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from commitlake.connectors.object_store.options import S3Options
from commitlake.connectors.object_store.spark import s3a_settings
from commitlake.connectors.runtime.jars import delta_jars, s3_jars
from commitlake.connectors.runtime.jvm import launch
from commitlake.schemas.store_files import restricted_umask

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # A topic may be named ${env:HOME}: what stands in a question is not a variable's name.
    "spark.sql.variable.substitute": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
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


def launch_settings(s3: S3Options | None = None) -> dict[str, str]:
    """What only a JVM that is not yet running can be told.

    Args:
        s3: the object store that the session is to read and write, if any.

    Raises:
        JarsError: if Delta's jars are not there, or those for object stores could not be fetched.
    """
    log_configuration = Path(__file__).parent / "log4j2.properties"
    # Arrow's vectors check every access unless told otherwise; what comes from our workers is made by Arrow itself.
    arrow = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    collector = "-XX:+UseParallelGC"  # a job wants throughput: rows cross a tenth faster than with G1
    return {
        "spark.master": "local[*]",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_configuration} {arrow} {collector}",
        "spark.jars": ",".join(str(jar) for jar in [*delta_jars(), *(s3_jars() if s3 else [])]),
    }


def get_session(name: str, s3: S3Options | None = None) -> SparkSession:
    """The session, begun where there is none.

    Args:
        name: of the application, where it is begun here.
        s3: the object store that Spark itself is to read and write, if any: a lake's tables, say. Packs and what
            `archive` writes do not go through Spark, and need none.

    Raises:
        JarsError: if jars are needed and not there.
        JavaError: if a JVM is needed and there is no Java for it.
    """
    return SparkSession.getActiveSession() or _begin(name, s3)


def _begin(name: str, s3: S3Options | None) -> SparkSession:
    application = f"commitlake {name}"
    with restricted_umask() as umask:  # Spark sets the mode of its files itself
        modes = {"spark.hadoop.fs.permissions.umask-mode": f"{umask:03o}"}
    settings = {**SETTINGS, **modes, **(s3a_settings(s3) if s3 else {})}
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._active_spark_context is None:  # noqa: SLF001 (no other way to ask)
        # pyspark logs what it also raises, with all of Java's stack.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        gateway = launch({**settings, **launch_settings(s3)})
        return SparkSession(_new_context(application, gateway))
    SparkContext.getSystemProperty(
        "java.version"
    )  # joins the JVM that is there: from now on SparkConf knows its command line
    given = SparkConf()
    builder = SparkSession.builder.appName(application)
    for key, value in settings.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def _new_context(application: str, gateway: JavaGateway) -> SparkContext:
    """A context that leaves the program's handler of SIGINT in place: in the main thread pyspark sets its own."""
    if signal.getsignal(signal.SIGINT) in (None, signal.default_int_handler):
        return SparkContext(appName=application, gateway=gateway)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(SparkContext, appName=application, gateway=gateway).result()
