"""A real HDFS on the loopback address: a NameNode and a DataNode, run from the published jars.

    with HdfsCluster(folder) as cluster:
        subprocess.run(["commitlake", "ship", ..., "--to", f"{cluster.uri}/brokers/a"])

Both keep their data and their ports when they are killed and started again. Users are identified by `HADOOP_USER_NAME`,
as on every cluster without Kerberos; the superuser is the user that runs the tests.
"""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pyspark

from commitlake.connectors.spark.java import java_home
from tests.servers.process import ServerError, ServerProcess, free_ports
from tests.servers.server import Server
from tests.servers.yarn_cluster import LOGGING, yarn_jars

READY_TIMEOUT_SECONDS = 120
BLOCK_BYTES = 8 << 20
"""Small blocks, so that files of a test have several."""

_IP = "127.0.0.1"
_PORTS = (
    "namenode.rpc-address", "namenode.http-address", "datanode.address", "datanode.http.address",
    "datanode.ipc.address",
)  # fmt: skip
_MAIN = {"namenode": "namenode.NameNode", "datanode": "datanode.DataNode"}


class HdfsCluster(Server):
    """A NameNode and a DataNode; their data is kept when they are killed and started again.

    Attributes:
        configuration: a folder for `HADOOP_CONF_DIR`, in which the cluster is the nameservice `tests`.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the cluster; `start`, or entering the context, starts it.

        Args:
            folder: A folder of its own, for settings, logs and blocks.
        """
        self._folder = folder
        self._jars = yarn_jars()
        self._ports = dict(zip(_PORTS, range(free_ports(len(_PORTS)), 1 << 16), strict=False))
        self.configuration = folder / "client"
        self._processes: dict[str, ServerProcess] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Return the NameNode's address; a restart does not change it."""
        return _IP, self._ports["namenode.rpc-address"]

    @property
    def uri(self) -> str:
        """Return the URI of the root folder."""
        return f"hdfs://{_IP}:{self.address[1]}"

    def start(self) -> Self:
        """Start both; return when blocks can be written.

        Raises:
            ServerError: One did not start.
        """
        if not (self._folder / "conf").exists():
            self._write_settings()
            command = [*self._command("namenode"), "-format", "-nonInteractive"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ServerError(f"the NameNode's folder was not made:\n{done.stderr[-3000:]}")
        for name in _MAIN:
            self.start_one(name, is_ready=False)
        self.wait()
        return self

    def start_one(self, name: str, *, is_ready: bool = True) -> None:
        """Start the `namenode` or the `datanode`.

        Args:
            name: Which one.
            is_ready: Whether to wait until blocks can be written.
        """
        self._processes[name] = ServerProcess(name, self._command(name), self._folder / f"{name}.log")
        if is_ready:
            self.wait()

    def wait(self) -> None:
        """Wait until blocks can be written."""
        for process in self._processes.values():
            process.wait_until(self._is_writable, READY_TIMEOUT_SECONDS)

    def kill_one(self, name: str) -> None:
        """End one of them with SIGKILL."""
        self._processes.pop(name).kill()

    def kill(self) -> None:
        """End both with SIGKILL."""
        for name in list(self._processes):
            self.kill_one(name)

    def _is_writable(self) -> bool:
        with suppress(OSError):
            # For some minutes, the NameNode considers a killed DataNode alive.
            socket.create_connection((_IP, self._ports["datanode.address"]), timeout=10).close()
            state = self._bean("FSNamesystemState")
            return state["FSState"] == "Operational" and int(state["NumLiveDataNodes"]) == 1
        return False

    def _bean(self, name: str) -> dict[str, Any]:
        port = self._ports["namenode.http-address"]
        url = f"http://{_IP}:{port}/jmx?qry=Hadoop:service=NameNode,name={name}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            beans: list[dict[str, Any]] = json.load(answer)["beans"]
        return beans[0] if beans else {"FSState": "starting", "NumLiveDataNodes": 0}

    def _command(self, name: str) -> list[str]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder), "LANG": "C.UTF-8"}
        jars = Path(pyspark.__file__).parent / "jars"
        return [
            *("env", "-i", *(f"{key}={value}" for key, value in environment.items())),
            *(str(java_home() / "bin" / "java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-cp", f"{self._folder / 'conf'}:{jars}/*:{self._jars}/*"),
            f"org.apache.hadoop.hdfs.server.{_MAIN[name]}",
        ]

    def _write_settings(self) -> None:
        name_node = f"{_IP}:{self.address[1]}"
        servers = {
            **{f"dfs.{name}": f"{_IP}:{port}" for name, port in self._ports.items()},
            "dfs.namenode.name.dir": self._folder / "names",
            "dfs.namenode.safemode.extension": 0,
            # Tests kill processes, not machines, so nothing needs to be synced to disk.
            "dfs.namenode.edits.noeditlogchannelflush": "true",
            "ipc.client.connect.retry.interval": 200,
            "ipc.client.connect.max.retries": 300,
            "dfs.namenode.fs-limits.min-block-size": BLOCK_BYTES,
            "dfs.datanode.data.dir": self._folder / "blocks",
            "dfs.datanode.hostname": _IP,
            "dfs.blocksize": BLOCK_BYTES,
            "dfs.replication": 1,
            "dfs.heartbeat.interval": 1,
            # Otherwise the client waits half a second for the report of the last block of each file.
            "dfs.namenode.file.close.num-committed-allowed": 1,
        }
        nameservice = {
            "dfs.nameservices": "tests",
            "dfs.ha.namenodes.tests": "a,b",
            # The first one does not exist, like a NameNode whose machine has failed.
            "dfs.namenode.rpc-address.tests.a": f"{_IP}:9",
            "dfs.namenode.rpc-address.tests.b": name_node,
        }
        _write(self._folder / "conf", {"fs.defaultFS": f"hdfs://{name_node}"}, servers)
        (self._folder / "conf" / "log4j2.properties").write_text(LOGGING)
        _write(self.configuration, {"fs.defaultFS": "hdfs://tests"}, nameservice)


def _write(folder: Path, core: dict[str, Any], hdfs: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for name, settings in (("core", core), ("hdfs", hdfs)):
        lines = "".join(
            f"  <property><name>{key}</name><value>{value}</value></property>\n" for key, value in settings.items()
        )
        (folder / f"{name}-site.xml").write_text(f"<configuration>\n{lines}</configuration>\n")
