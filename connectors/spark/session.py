"""Spark session of a job, with Delta; this package's sources must be registered separately.

Existing settings are kept. In a notebook or on Databricks there is a session, which is used unchanged. Under
spark-submit there is a JVM: the settings here apply if its command line does not set them. Otherwise a job starts the
JVM itself, also through spark-submit, with the user's options in `PYSPARK_SUBMIT_ARGS`, and with those settings here
that the installation's `spark-defaults.conf` does not have. If `SPARK_REMOTE` names a server of Spark Connect, the
session is one of that server, whose own settings apply.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from commitlake.connectors.spark.connect_session import is_connect, open_connect_session
from commitlake.connectors.spark.jars import delta_jars, s3_jars
from commitlake.connectors.spark.submit_arguments import REMOTE_VARIABLE, uses_cluster
from commitlake.connectors.spark.worker_check import check_workers
from commitlake.connectors.storage.s3_options import S3Options, s3a_settings
from commitlake.schemas.safe_store_files import restricted_umask

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # A topic may be named ${env:HOME}, so text in a query must not be substituted.
    "spark.sql.variable.substitute": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Defaults are for clusters: with them, the first count of a Delta table takes 14 s on two cores, with these 1 s.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # Over TCP, a Python worker and its JVM wait 40 ms for acknowledgements at each end of a task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Otherwise Spark creates a folder in the working directory.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "commitlake-spark-warehouse"),
}


QUIET_JVM = f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}"
"""Option of a JVM on this machine, which then prints no log."""
# Arrow's vectors check every access by default; data from our workers is written by Arrow itself.
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_COLLECTOR = "-XX:+UseParallelGC"  # for throughput: rows are transferred 10 % faster than with G1
_checked: weakref.WeakSet[SparkSession] = weakref.WeakSet()
"""Sessions whose workers have what tasks need."""


def launch_settings(s3: S3Options | None = None) -> dict[str, str]:
    """Return the Spark settings that a JVM needs from its start.

    Args:
        s3: object store that the session reads and writes; None for none.

    Raises:
        JarsError: if Delta's jars are missing, or those for object stores cannot be fetched.
    """
    return {
        "spark.master": "local[*]",
        **submission_settings(s3),
        "spark.driver.extraJavaOptions": f"{QUIET_JVM} {_ARROW} {_COLLECTOR}",
    }


def submission_settings(s3: S3Options | None = None) -> dict[str, str]:
    """Return the Spark settings that a driver on a cluster needs from its start; the cluster's logging is kept.

    Args:
        s3: as for `launch_settings`.

    Raises:
        JarsError: as `launch_settings`.
    """
    return {
        "spark.driver.memory": "2g",
        "spark.executor.extraJavaOptions": _ARROW,
        "spark.driver.extraJavaOptions": f"{_ARROW} {_COLLECTOR}",
        "spark.jars": ",".join(str(jar) for jar in [*delta_jars(), *(s3_jars() if s3 else [])]),
    }


def get_session(name: str, s3: S3Options | None = None) -> SparkSession:
    """Return the active session, or start one; check once that workers on other machines can run tasks.

    Args:
        name: name of the application, if the session is started here.
        s3: object store that Spark itself reads and writes, for example for a lake's tables; None for none. Packs and
            the output of `archive` do not go through Spark.

    Raises:
        JarsError: if jars are needed and missing.
        JavaError: if a JVM is needed and there is no Java.
        UnavailableError: if no server of Spark Connect answers, or no task runs on workers of other machines.
        UsageError: if `SPARK_REMOTE` is wrong, a package is missing here or there, or the workers have another version
            of CommitLake.
    """
    session = SparkSession.getActiveSession() or _start_or_connect_session(name, s3)
    if (uses_cluster() or is_connect(session)) and session not in _checked:
        check_workers(session)
        _checked.add(session)
    return session


def _start_or_connect_session(name: str, s3: S3Options | None) -> SparkSession:
    remote = os.environ.get(REMOTE_VARIABLE)
    return _connect_to_server(remote) if remote else _start_session(name, s3)


def _connect_to_server(url: str) -> SparkSession:
    """Return a session of a Spark Connect server, with only those settings that belong to a session."""
    _silence_pyspark()
    keys = ("spark.sql.session.timeZone", "spark.sql.variable.substitute")
    return open_connect_session(url, {key: SETTINGS[key] for key in keys})


def _start_session(name: str, s3: S3Options | None) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 (py4j, only with a JVM)

    from commitlake.connectors.spark.jvm import launch_jvm  # noqa: PLC0415 (likewise)

    application = f"commitlake {name}"
    with restricted_umask() as umask:  # Spark itself sets the mode of its files
        modes = {"spark.hadoop.fs.permissions.umask-mode": f"{umask:03o}"}
    settings = {**SETTINGS, **modes, **(s3a_settings(s3) if s3 else {})}
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._active_spark_context is None:  # noqa: SLF001 (no other way to ask)
        _silence_pyspark()
        gateway = launch_jvm({**settings, **launch_settings(s3)})
        return SparkSession(_new_context(application, gateway))
    # Joins the JVM that is there: from now on SparkConf knows its command line.
    SparkContext.getSystemProperty("java.version")
    given = SparkConf()
    builder = SparkSession.builder.appName(application)
    for key, value in settings.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def _silence_pyspark() -> None:
    """Stop pyspark from also logging errors that it raises, with Java's whole stack trace."""
    logging.getLogger("SQLQueryContextLogger").disabled = True


def _new_context(application_name: str, gateway: JavaGateway) -> SparkContext:
    """Create a Spark context so that pyspark does not replace the program's SIGINT handler."""
    from pyspark import SparkContext  # noqa: PLC0415 (likewise)

    if signal.getsignal(signal.SIGINT) in (None, signal.default_int_handler):
        return SparkContext(appName=application_name, gateway=gateway)
    # pyspark sets its handler only in a program's main thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(SparkContext, appName=application_name, gateway=gateway).result()
