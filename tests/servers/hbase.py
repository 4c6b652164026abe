"""A real HBase with its Thrift server, run from the published jars.

    with HBase(folder) as hbase:
        happybase.Connection("127.0.0.1", hbase.thrift_port)

ZooKeeper, master and region server share one process, as in HBase's standalone mode, so they are killed together. With
`region_servers`, each has a separate process, and one can be killed while the others continue. Everything listens on
127.0.0.1 only, on ports that a restart does not change. All files are in the given folder: `conf/`, `data/`,
`zookeeper/`, `hbase.log`, `thrift.log`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import happybase
from thriftpy2.transport import TTransportException

from tests.servers.jars import java_command, resolve_jars
from tests.servers.process import ServerError, ServerProcess, free_ports, is_free
from tests.servers.rocketmq import QUICK_JVM
from tests.servers.server import Server

VERSION = "2.6.1"
"""Newest version of 2.6 with a published Thrift server; all artifacts have this version."""

ARTIFACTS = ("server", "thrift", "zookeeper")
READY_TIMEOUT_SECONDS = 240
"""Ready after 11 to 25 s; a loaded CI machine may need much longer."""

# Packages that HBase's own start scripts open on Java 17.
JAVA_OPENINGS = (
    "--add-modules=jdk.unsupported",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
LOGGING = """log4j.rootLogger=WARN,out
log4j.logger.org.apache.hadoop.hbase.master.HMaster=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
"""
_READY = "Master has completed initialization"


def hbase_jars() -> Path:
    """Return the folder with HBase's jars."""
    return resolve_jars([f"org.apache.hbase:hbase-{name}:{VERSION}" for name in ARTIFACTS], f"hbase-{VERSION}")


class HBase(Server):
    """HBase and its Thrift server.

    Attributes:
        folder: folder of its files.
        thrift_port: port for clients on 127.0.0.1.
    """

    def __init__(
        self, folder: Path, *, heap_mb: int = 768, region_servers: int = 0, jvm: Sequence[str] = QUICK_JVM
    ) -> None:
        """Describe the servers; `start`, or entering the context, starts them.

        Args:
            folder: a folder of its own, created if it does not exist.
            heap_mb: heap size of a process with data.
            region_servers: number of region servers in separate processes; 0 for HBase's standalone mode.
            jvm: options of the JVMs for garbage collection and compilation.
        """
        self._jvm = list(jvm)
        self.folder = folder
        self._heap_mb = heap_mb
        self._jars = hbase_jars()
        self._region_servers: list[ServerProcess | None] = [None] * region_servers
        self._zookeeper: ServerProcess | None = None
        self.thrift_port = free_ports(1)
        self._zookeeper_port = free_ports(1)
        self._hbase: ServerProcess | None = None
        self._thrift: ServerProcess | None = None
        self._write_settings()

    def start(self) -> Self:
        """Start HBase and then Thrift; return when a client gets answers.

        Raises:
            ServerError: one of them did not start.
        """
        try:
            self.start_hbase()
            self.start_thrift()
        except BaseException:
            self.kill()
            raise
        return self

    def start_hbase(self, *, wait: bool = True) -> None:
        """Start ZooKeeper, master and region server on their data, in one process or in one for each.

        Args:
            wait: whether to wait until the master is up; otherwise see `wait_for_hbase`.
        """
        if self._region_servers:
            command = self._command("org.apache.hadoop.hbase.zookeeper.HQuorumPeer", 128)
            self._zookeeper = ServerProcess(f"HBase {VERSION} ZooKeeper", command, self.folder / "zookeeper.log")
            for number in range(len(self._region_servers)):
                self.start_region_server(number)
        command = self._command("org.apache.hadoop.hbase.master.HMaster", self._heap_mb)
        self._hbase = ServerProcess(f"HBase {VERSION}", command, self.folder / "hbase.log")
        if wait:
            self.wait_for_hbase()

    def wait_for_hbase(self) -> None:
        """Wait until the master is up."""
        hbase = self._running(self._hbase, "HBase")
        hbase.wait_until(lambda: _READY in hbase.output(), READY_TIMEOUT_SECONDS)

    def start_thrift(self) -> None:
        """Start the Thrift server, and wait until it answers a request to HBase."""
        command = self._command("org.apache.hadoop.hbase.thrift.ThriftServer", 256)
        command += ["-b", "127.0.0.1", "-p", str(self.thrift_port)]
        self._thrift = ServerProcess(f"HBase {VERSION} Thrift", command, self.folder / "thrift.log")
        self._thrift.wait_until(self._answers, READY_TIMEOUT_SECONDS)

    def start_region_server(self, number: int) -> None:
        """Start one of the region servers in separate processes."""
        command = self._command("org.apache.hadoop.hbase.regionserver.HRegionServer", self._heap_mb)
        log = self.folder / f"region-server-{number}.log"
        self._region_servers[number] = ServerProcess(f"HBase {VERSION} region server {number}", command, log)

    def kill_region_server(self, number: int) -> None:
        """Kill one of them with SIGKILL; the master assigns its regions to the others."""
        self._running(self._region_servers[number], f"region server {number}").kill()

    def kill_hbase(self) -> None:
        """Kill ZooKeeper, master and region server at once with SIGKILL."""
        self._running(self._hbase, "HBase").kill()

    @contextmanager
    def thrift2(self) -> Iterator[int]:
        """Run a Thrift 2 server, and yield its port."""
        port = free_ports(1)
        command = self._command("org.apache.hadoop.hbase.thrift2.ThriftServer", 256)
        command += ["-b", "127.0.0.1", "-p", str(port)]
        server = ServerProcess(f"HBase {VERSION} Thrift 2", command, self.folder / "thrift2.log")
        try:
            server.wait_until(lambda: not is_free(port, "127.0.0.1"), READY_TIMEOUT_SECONDS)
            yield port
        finally:
            server.kill()

    def kill_thrift(self) -> None:
        """Kill the Thrift server with SIGKILL."""
        self._running(self._thrift, "Thrift").kill()

    def restart_hbase(self) -> None:
        """Kill HBase and start it again on the same data and ports; the Thrift server keeps running."""
        self.kill_hbase()
        self.start_hbase()

    def restart_thrift(self) -> None:
        """Kill the Thrift server and start it again on the same port."""
        self.kill_thrift()
        self.start_thrift()

    def kill(self) -> None:
        """Kill all running processes."""
        for server in (self._thrift, *self._region_servers, self._hbase, self._zookeeper):
            if server is not None:
                server.kill()

    def connection(self, timeout_seconds: float = 90) -> happybase.Connection:
        """Return a connection to the Thrift server; the first call after a start may take half a minute."""
        return happybase.Connection("127.0.0.1", self.thrift_port, timeout=int(timeout_seconds * 1000))

    def _answers(self) -> bool:
        try:
            connection = self.connection(20)
        except TTransportException:
            return False
        try:
            connection.tables()
        except (TTransportException, OSError):
            return False
        finally:
            connection.close()
        return True

    def _running(self, server: ServerProcess | None, name: str) -> ServerProcess:
        if server is None:
            raise ServerError(f"{name} was not started")
        return server

    def _command(self, main_class: str, heap_mb: int) -> list[str]:
        command = [java_command(), f"-Xmx{heap_mb}m", *self._jvm, *JAVA_OPENINGS]
        command += [f"-Djava.io.tmpdir={self.folder / 'tmp'}", f"-Duser.home={self.folder}"]
        command += ["-Djava.net.preferIPv4Stack=true"]
        return [*command, "-cp", f"{self.folder / 'conf'}:{self._jars}/*", main_class, "start"]

    def _write_settings(self) -> None:
        for name in ("conf", "data", "zookeeper", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        lines = "".join(
            f"  <property><name>{name}</name><value>{value}</value></property>\n"
            for name, value in self._settings().items()
        )
        conf = self.folder / "conf"
        (conf / "hbase-site.xml").write_text(f"<configuration>\n{lines}</configuration>\n")
        (conf / "log4j.properties").write_text(LOGGING)

    def _settings(self) -> dict[str, object]:
        return {
            "hbase.cluster.distributed": str(bool(self._region_servers)).lower(),
            "hbase.rootdir": (self.folder / "data").absolute().as_uri(),
            "hbase.tmp.dir": self.folder / "tmp",
            "hbase.zookeeper.property.dataDir": self.folder / "zookeeper",
            "hbase.zookeeper.property.clientPort": self._zookeeper_port,
            "hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
            "hbase.zookeeper.quorum": "127.0.0.1",
            "hbase.localcluster.assign.random.ports": "false",
            # A local disk lacks what HDFS provides for a write-ahead log; the tests only kill processes.
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            "hbase.master.port": 0,
            "hbase.regionserver.port": 0,
            "hbase.master.info.port": -1,
            "hbase.regionserver.info.port": -1,
            "hbase.thrift.info.port": -1,
            "hbase.master.hostname": "localhost",
            "hbase.regionserver.hostname": "localhost",
            "hbase.master.ipc.address": "127.0.0.1",
            "hbase.regionserver.ipc.address": "127.0.0.1",
            "hbase.regionserver.handler.count": 10,
            # The death of a region server is detected when its session ends.
            "zookeeper.session.timeout": 10_000,
        }
