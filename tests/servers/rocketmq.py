"""A real RocketMQ name server and broker, run from the published jars.

    with RocketMQ("5.5.0", folder, options=SMALL_FILES) as rocketmq:
        run_java(rocketmq, "ProduceEveryKind", [...])

Servers listen on the loopback address as far as RocketMQ allows it: 4.9.x has no setting for it, and the broker's HA
port is open on every address in all versions. All files are in the given folder: `store/` (unless another store is
given), `home/conf/`, `broker.log`, `namesrv.log`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.servers.class_archives import archive_options, recording_options, rocketmq_archives
from tests.servers.jars import java_command, resolve_jars
from tests.servers.process import ServerError, ServerProcess, free_ports
from tests.servers.remoting import knows_broker
from tests.servers.server import Server

VERSIONS = ("5.5.0", "4.9.7")
ARTIFACTS = ("namesrv", "broker", "client", "store", "tools")

READY_TIMEOUT_SECONDS = 180
"""Ready after 5 to 20 s; a loaded CI machine may need much longer."""

QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For servers that run for seconds; with the quick compiler alone, they start in two thirds of the time."""
FAST_JVM = ("-XX:+UseSerialGC",)
"""For servers whose speed is measured."""

WITHOUT_TLS = "-Dtls.server.mode=disabled"
"""For servers without TLS clients; otherwise each start would create a key and a certificate."""

# Packages that RocketMQ's own start scripts open on Java 9 and later, because it unmaps its files explicitly.
JAVA_OPENINGS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
IDLE_SETTINGS = {
    # A thread of 5.x is busy until this time has passed once, which takes 10 s of processor time by default.
    "transactionMetricFlushInterval": 300,
    # Each flush writes the whole timer wheel, by default every second.
    "timerFlushIntervalMs": 5000,
}
"""Settings with which an idle broker takes no processor time."""

# A broker refuses messages on a disk that is 90 % full, as a developer's often is.
DISK_LIMITS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
)
# 5.x reads rmq.logback.xml (its logback is shaded); 4.9.x reads the other files, which must exist.
LOGBACK_FILES = (
    "rmq.logback.xml",
    "logback.xml",
    "logback_namesrv.xml",
    "logback_broker.xml",
    "logback_tools.xml",
)
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d %-5p %logger{0} %m%n</pattern></encoder>
  </appender>
  <root level="LEVEL"><appender-ref ref="out"/></root>
</configuration>
"""


def rocketmq_jars(version: str) -> Path:
    """Return the folder with the jars of a RocketMQ version; fetch them if they are not in the cache."""
    coordinates = [f"org.apache.rocketmq:rocketmq-{name}:{version}" for name in ARTIFACTS]
    return resolve_jars(coordinates, f"rocketmq-{version}")


def write_quiet_logging(conf: Path, level: str = "WARN") -> None:
    """Write the log settings of 4.9.x and 5.x into a class path folder; servers log to standard error.

    Args:
        conf: The folder.
        level: The lowest level that is logged.
    """
    conf.mkdir(parents=True, exist_ok=True)
    for name in LOGBACK_FILES:
        (conf / name).write_text(LOGBACK.replace("LEVEL", level))


@dataclasses.dataclass(frozen=True)
class BrokerOptions:
    """Settings of the broker that tests vary; None means RocketMQ's default.

    Attributes:
        segment_size_bytes: Size of a CommitLog file. A store can only be loaded with the size with which it was
            written.
        consume_queue_file_size_bytes: Size of a ConsumeQueue file, a multiple of 20.
        max_hash_slot_num: Slots of an IndexFile.
        max_index_num: Entries of an IndexFile.
        max_message_size_bytes: Maximum size of a body; a record (64 KiB more) must fit into a segment.
        message_delay_level: The delays of the levels from 1 on, such as `1s 5s 1h`.
        file_reserved_hours: Age at which segments are deleted.
        transaction_timeout_ms: Age at which a half message is first checked.
        transaction_check_interval_ms: Time between two checks.
        has_batched_ops: Whether 5.x writes op records in batches every 3 s, which is its default. The thread for this
            never sleeps again once 3 s have passed since the first transaction, and uses a core as long as the broker
            runs. So the default here is to write each op record at once.
        trace_topic_enable: Whether RMQ_SYS_TRACE_TOPIC exists.
        flush_disk_type: `ASYNC_FLUSH` or `SYNC_FLUSH`.
        extra: Other keys of broker.conf.
    """

    segment_size_bytes: int | None = None
    consume_queue_file_size_bytes: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    max_message_size_bytes: int | None = None
    message_delay_level: str | None = None
    file_reserved_hours: int = 72
    transaction_timeout_ms: int | None = None
    transaction_check_interval_ms: int | None = None
    has_batched_ops: bool = False
    trace_topic_enable: bool = True
    flush_disk_type: str = "ASYNC_FLUSH"
    extra: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def conf(self) -> dict[str, object]:
        """Return the settings under their names in broker.conf."""
        named: dict[str, object] = {
            "mappedFileSizeCommitLog": self.segment_size_bytes,
            "mappedFileSizeConsumeQueue": self.consume_queue_file_size_bytes,
            "maxHashSlotNum": self.max_hash_slot_num,
            "maxIndexNum": self.max_index_num,
            "maxMessageSize": self.max_message_size_bytes,
            "messageDelayLevel": self.message_delay_level,
            "fileReservedTime": self.file_reserved_hours,
            "transactionTimeOut": self.transaction_timeout_ms,
            "transactionCheckInterval": self.transaction_check_interval_ms,
            "traceTopicEnable": self.trace_topic_enable,
            "flushDiskType": self.flush_disk_type,
        }
        if not self.has_batched_ops:
            named |= {"transactionOpMsgMaxSize": 1, "transactionOpBatchInterval": _NEVER_MS}
        return {key: value for key, value in named.items() if value is not None} | dict(self.extra)


_NEVER_MS = 2**31 - 1

SMALL_FILES = BrokerOptions(
    segment_size_bytes=1 << 20,
    consume_queue_file_size_bytes=100 * 20,
    max_hash_slot_num=200,
    max_index_num=800,
    max_message_size_bytes=512 << 10,
)
"""Files so small that a few megabytes of messages fill several of each kind."""


class RocketMQ(Server):
    """A name server and a broker of one version.

    Attributes:
        version: RocketMQ's version.
        jars: The folder with its jars.
        folder: Folder of its files.
        store: The broker's store folder.
        broker_name: The broker's name.
        ip: The loopback address that the broker gives to clients and writes as store host.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        store: Path | None = None,
        options: BrokerOptions | None = None,
        ip: str = "127.0.0.1",
        broker_port: int | None = None,
        broker_name: str = "broker-a",
        jvm: Sequence[str] = QUICK_JVM,
        name_server_jvm: Sequence[str] = (),
        has_tls: bool = False,
        archives_to: Path | None = None,
    ) -> None:
        """Describe the servers; `start`, or entering the context, starts them.

        Args:
            version: One of `VERSIONS`.
            folder: A folder of its own, created if it does not exist.
            store: The broker's store, which another broker may have written; by default `folder/store`.
            options: The broker's settings.
            ip: `127.0.0.1`, or `::1` for a broker whose records contain IPv6 hosts.
            broker_port: The broker's port; by default a free one. A client that views a message by its offset id
                connects to the address in the id, so the old port of a store may be needed.
            broker_name: The broker's name.
            jvm: Options of the JVMs for garbage collection and compilation.
            name_server_jvm: Further options of the name server's JVM.
            has_tls: Whether the servers also accept TLS.
            archives_to: Folder into which the JVMs write archives of their classes when they are stopped.
        """
        self.version = version
        self.jars = rocketmq_jars(version)
        self.folder = folder
        self.store = store or folder / "store"
        self.options = options or BrokerOptions()
        self.ip = ip
        self.broker_name = broker_name
        self._broker_port = broker_port
        self._jvm = list(jvm)
        self._name_server_jvm = list(name_server_jvm)
        self._has_tls = has_tls
        self._archives_to = archives_to
        self._name_server_port = 0
        self._ha_port = 0
        self._name_server: ServerProcess | None = None
        self._broker: ServerProcess | None = None
        write_quiet_logging(folder / "home" / "conf")

    @property
    def name_server_address(self) -> str:
        """Return the name server's `ip:port` for clients, which is always on IPv4."""
        return f"127.0.0.1:{self._name_server_port}"

    @property
    def broker_address(self) -> str:
        """Return the broker's `ip:port` as RocketMQ writes it (an IPv6 address without brackets)."""
        return f"{self.ip}:{self._broker_port}"

    @property
    def broker(self) -> ServerProcess:
        """Return the broker's process."""
        if self._broker is None:
            raise ServerError("the broker was not started")
        return self._broker

    def start(self) -> Self:
        """Start the name server and then the broker; return when clients can find the broker.

        Raises:
            ServerError: One of them did not start.
        """
        try:
            self.start_name_server()
            self.start_broker()
        except BaseException:
            self.kill()
            raise
        return self

    def start_name_server(self) -> None:
        """Start the name server on a free port."""
        self._name_server_port = free_ports(1)
        conf = {"listenPort": self._name_server_port, "bindAddress": "127.0.0.1"}
        self._name_server = self._launch(
            "namesrv", "NamesrvStartup", conf, ["-Xms64m", "-Xmx256m", *self._name_server_jvm]
        )
        server = self._name_server
        server.wait_until(lambda: "boot success" in server.output(), READY_TIMEOUT_SECONDS)

    def start_broker(self, *, options: BrokerOptions | None = None, ip: str | None = None) -> None:
        """Start the broker on its store.

        Args:
            options: New settings; by default, the previous ones.
            ip: A new address; by default, the previous one.

        Raises:
            ServerError: It did not start; the message contains the end of its log.
        """
        self.options = options or self.options
        self.ip = ip or self.ip
        if self._broker_port is None:
            # The broker also uses its port minus 2, and version 4.9.7 its port plus 1, whatever haListenPort says.
            self._broker_port = free_ports(4, self.ip) + 2
        self._ha_port = self._ha_port or free_ports(1)
        memory = ["-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g"]
        self._broker = broker = self._launch("broker", "BrokerStartup", self._broker_conf(), [*memory, *DISK_LIMITS])
        # For two minutes a name server still knows a killed broker, so its answer proves nothing about this process.
        # Nor does the log: 5.x prints "boot success", but may register only 10 s later.
        broker.wait_until(
            lambda: "boot success" in broker.output() and knows_broker(self.name_server_address, self.broker_address),
            READY_TIMEOUT_SECONDS,
        )

    def stop_broker(self) -> None:
        """Stop the broker cleanly: everything is flushed, and `abort` is removed."""
        self.broker.stop()

    def kill_broker(self) -> None:
        """Kill the broker with SIGKILL."""
        self.broker.kill()

    def stop(self) -> None:
        """Stop the broker cleanly and then the name server."""
        try:
            if self._broker is not None:
                self._broker.stop()
        finally:
            if self._name_server is not None:
                # It has nothing to flush, but may write an archive of its classes.
                (self._name_server.kill if self._archives_to is None else self._name_server.stop)()

    def kill(self) -> None:
        """Kill all running processes."""
        for server in (self._broker, self._name_server):
            if server is not None:
                server.kill()

    def _broker_conf(self) -> dict[str, object]:
        """Return the whole broker.conf."""
        return (
            {
                "brokerClusterName": "DefaultCluster",
                "brokerName": self.broker_name,
                "brokerId": 0,
                "brokerIP1": self.ip,
                "brokerIP2": self.ip,
                "bindAddress": self.ip,
                "listenPort": self._broker_port,
                "haListenPort": self._ha_port,
                "namesrvAddr": self.name_server_address,
                "storePathRootDir": self.store,
                "storePathCommitLog": self.store / "commitlog",
                "autoCreateTopicEnable": True,
                "diskMaxUsedSpaceRatio": 98,
            }
            | IDLE_SETTINGS
            | self.options.conf()
        )

    def _launch(self, name: str, main_class: str, conf: Mapping[str, object], jvm: list[str]) -> ServerProcess:
        """Write a server's settings and start it."""
        home = self.folder / "home"
        settings = self.folder / f"{name}.conf"
        # Java properties: a backslash starts an escape, and booleans are lower case.
        lines = (f"{key}={_property(value)}\n" for key, value in conf.items())
        settings.write_text("".join(lines))
        command = [java_command(), *jvm, *self._jvm, *JAVA_OPENINGS]
        command += [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
        # Every start with TLS leaves a test certificate in the folder for temporary files.
        command += [f"-Djava.io.tmpdir={home}", *([] if self._has_tls else [WITHOUT_TLS])]
        # Not on the class path, because a JVM ignores an archive of classes if there is a folder with files.
        command += [f"-Dlogback.configurationFile={home / 'conf' / 'logback.xml'}"]
        command += [f"-Drmq.logback.configurationFile={home / 'conf' / 'rmq.logback.xml'}"]
        if self._archives_to is None:
            command += archive_options(rocketmq_archives(self.version), name)
        else:
            command += recording_options(self._archives_to, name)
        command += ["-cp", f"{self.jars}/*"]
        command += [f"org.apache.rocketmq.{name}.{main_class}", "-c", str(settings)]
        log = self.folder / f"{name}.log"
        return ServerProcess(f"RocketMQ {self.version} {name}", command, log, {"ROCKETMQ_HOME": str(home)})


StartBroker = Callable[..., RocketMQ]
"""The type of the fixture `start_broker`."""


def _property(value: object) -> str:
    """Return a value in the form of Java's properties files."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("\\", "\\\\")
