"""A real Spark Connect server on the loopback address, with Delta.

    with SparkConnect(folder) as server:
        subprocess.run(["./spark-submit.sh", "--remote", server.url, "archive", ...])

Its process has a separate environment. By default its Python has this package, as on a cluster where the package is
installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from commitlake.connectors.spark.jars import delta_jars
from commitlake.connectors.spark.java import java_home
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server
from tests.servers.spark_classes import class_archive, quick_start

READY_TIMEOUT_SECONDS = 90
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
_IP = "127.0.0.1"


class SparkConnect(Server):
    """A Spark Connect server.

    Attributes:
        url: URL of the server, for `--remote`.
    """

    def __init__(self, folder: Path, cores: int = 2, python: str = sys.executable) -> None:
        """Describe the server; `start`, or entering the context, starts it.

        Args:
            folder: A folder of its own, for its log and its working folder.
            cores: Number of parallel tasks.
            python: Path of the workers' Python.
        """
        self._python = python
        self._folder = folder
        self._cores = cores
        self._port = free_ports(1)
        self._process: ServerProcess | None = None
        self.url = f"sc://{_IP}:{self._port}"

    def start(self) -> SparkConnect:
        """Start the server.

        Raises:
            ServerError: It did not start.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        home = Path(pyspark.__file__).parent
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(self._folder), "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": _IP, "SPARK_SCALA_VERSION": "2.13", "LANG": "C.UTF-8", "PYSPARK_PYTHON": self._python,
            "SPARK_SUBMIT_OPTS": quick_start(class_archive()),
        }  # fmt: skip
        settings = SETTINGS | {
            "spark.connect.grpc.binding.address": _IP,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        command = ["env", "-i", f"--chdir={self._folder}", *(f"{key}={value}" for key, value in environment.items())]
        command += [str(home / "bin" / "spark-submit"), "--master", f"local[{self._cores}]"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        command += ["--jars", ",".join(map(str, delta_jars()))]
        command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        self._process = ServerProcess("spark-connect", [*command, "spark-internal"], self._folder / "server.log")
        process = self._process
        process.wait_until(lambda: "Spark Connect server started" in process.output(), READY_TIMEOUT_SECONDS)
        return self

    def kill(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None
