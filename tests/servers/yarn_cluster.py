"""A real YARN on the loopback address: a resource manager and a node manager, run from the published jars.

    with YarnCluster(folder) as cluster:
        environment = {**os.environ, "HADOOP_CONF_DIR": str(cluster.configuration)}
        subprocess.run(["./spark-submit.sh", "--master", "yarn", "archive", ...], env=environment)

The environment of its processes lacks this package and the user's variables, as on other machines. The default file
system is the local one, which all containers share. Hadoop's version is that of pyspark.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

from commitlake.connectors.spark.java import java_home
from commitlake.jobs.cli.process import list_descendant_ids
from tests.servers.jars import resolve_jars
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server

VERSION = "3.5.0"
"""Hadoop's version in pyspark, whose client must be compatible."""

READY_TIMEOUT_SECONDS = 120
CONTAINER_MEMORY_MB = 6000
_IP = "127.0.0.1"
_PORTS = (
    "resourcemanager.address", "resourcemanager.scheduler.address", "resourcemanager.resource-tracker.address",
    "resourcemanager.admin.address", "resourcemanager.webapp.address", "nodemanager.address",
    "nodemanager.localizer.address", "nodemanager.webapp.address", "nodemanager.collector-service.address",
)  # fmt: skip
_FIFO = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


def yarn_jars() -> Path:
    """Return the folder with the jar of Hadoop's servers, and with dependencies that are not among pyspark's jars."""
    coordinates = [f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}", "org.bouncycastle:bcpkix-jdk18on:1.83"]
    return resolve_jars(coordinates, f"yarn-{VERSION}")


class YarnCluster(Server):
    """A resource manager and a node manager.

    Attributes:
        configuration: the folder for `HADOOP_CONF_DIR`.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the cluster; `start`, or entering the context, starts it.

        Args:
            folder: A folder of its own, for settings, logs and the working folders of containers.
        """
        self._folder = folder
        self._jars = yarn_jars()
        self._ports = dict(zip(_PORTS, range(free_ports(len(_PORTS)), 1 << 16), strict=False))
        self.configuration = folder / "conf"
        self._processes: list[ServerProcess] = []

    def start(self) -> YarnCluster:
        """Start both; return when the node has registered.

        Raises:
            ServerError: One did not start.
        """
        self._write_settings()
        for main in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            self._launch(main)
        for process in self._processes:
            process.wait_until(self._has_node, READY_TIMEOUT_SECONDS)
        return self

    def applications(self) -> list[dict[str, Any]]:
        """Return the resource manager's data about all applications, oldest first."""
        listed = (self._get("apps").get("apps") or {}).get("app", [])
        return sorted(listed, key=lambda application: str(application["id"]))

    def logs(self) -> str:
        """Return the output of all containers."""
        files = sorted((self._folder / "logs").rglob("std*"))
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')}" for file in files if file.is_file())

    def kill_driver(self) -> None:
        """Kill the JVMs of all drivers that run in application masters."""
        for process in self._processes:
            for pid in list_descendant_ids(process.pid):
                with suppress(OSError):  # it has ended
                    if b"deploy.yarn.ApplicationMaster\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """End both servers, and with them all containers."""
        for process in reversed(self._processes):
            containers = list_descendant_ids(process.pid)
            process.kill()
            for pid in containers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._processes.clear()

    def _has_node(self) -> bool:
        with suppress(OSError):
            return int(self._get("metrics")["clusterMetrics"]["activeNodes"]) == 1
        return False

    def _get(self, what: str) -> dict[str, Any]:
        url = f"http://{_IP}:{self._ports['resourcemanager.webapp.address']}/ws/v1/cluster/{what}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _launch(self, main: str) -> None:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self._folder),
            "JAVA_HOME": str(java_home()),
            "LANG": "C.UTF-8",
        }
        name = main.partition(".")[0]
        jars = Path(pyspark.__file__).parent / "jars"
        command = ["env", "-i", *(f"{key}={value}" for key, value in environment.items())]
        command += [str(java_home() / "bin" / "java"), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", f"{self.configuration}:{jars}/*:{self._jars}/*", f"org.apache.hadoop.yarn.server.{main}"]
        self._processes.append(ServerProcess(name, command, self._folder / f"{name}.log"))

    def _write_settings(self) -> None:
        self.configuration.mkdir(parents=True)
        (self.configuration / "log4j2.properties").write_text(LOGGING)
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": self._folder / "hadoop"}
        yarn = {
            **{f"yarn.{name}": f"{_IP}:{port}" for name, port in self._ports.items()},
            "yarn.resourcemanager.hostname": _IP,
            "yarn.resourcemanager.bind-host": _IP,
            "yarn.resourcemanager.scheduler.class": _FIFO,
            "yarn.nodemanager.hostname": _IP,
            "yarn.nodemanager.bind-host": _IP,
            "yarn.nodemanager.local-dirs": self._folder / "node",
            "yarn.nodemanager.log-dirs": self._folder / "logs",
            "yarn.nodemanager.resource.memory-mb": CONTAINER_MEMORY_MB,
            "yarn.nodemanager.resource.cpu-vcores": 8,
            "yarn.nodemanager.vmem-check-enabled": "false",
            # Test machines may have a disk that is 90 % full.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME",
            "yarn.scheduler.minimum-allocation-mb": 128,
        }
        for name, settings in (("core", core), ("yarn", yarn)):
            lines = "".join(
                f"  <property><name>{key}</name><value>{value}</value></property>\n" for key, value in settings.items()
            )
            (self.configuration / f"{name}-site.xml").write_text(f"<configuration>\n{lines}</configuration>\n")
