"""This project's broker and name server, run in a process as users run them.

with BrokerLite(folder) as broker:
    run_java("5.5.0", "ProduceEveryKind", [broker.name_server_address])
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.servers.process import ServerError, ServerProcess, free_ports
from tests.servers.remoting import knows_broker
from tests.servers.server import Server

READY_TIMEOUT_SECONDS = 60

SMALL_FILES = ("--segment-mib", "1", "--queue-entries", "100", "--index-slots", "200", "--index-entries", "800",
               "--max-message-kib", "512", "--disk-percent", "97,98,99")  # fmt: skip
"""The sizes of tests.servers.rocketmq.SMALL_FILES, and its limits of the disk."""
QUICK_DELAYS = ("--delay-levels", "1s 2s 1s 1s 3s 1h", "--transaction-timeout", "4s",
                "--transaction-check-interval", "2s", "--transaction-check-max", "3")  # fmt: skip
"""Delays and transaction checks short enough for tests, as in tests.servers.recording.RECORDING_OPTIONS."""


class BrokerLite(Server):
    """A broker and its name server.

    Attributes:
        folder: folder of its log.
        store: the broker's store folder.
        broker_name: the broker's name.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: Path | None = None,
        options: Sequence[str] = SMALL_FILES,
        broker_port: int | None = None,
    ) -> None:
        """Describe the server; `start`, or entering the context, starts it.

        Args:
            folder: A folder of its own, created if it does not exist.
            store: The broker's store; by default `folder/store`.
            options: Further arguments of `commitlake broker`.
            broker_port: The broker's port; by default a free one.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.store = store or folder / "store"
        self.broker_name = "broker-a"
        self._options = options
        # A real broker that takes over the store on the same port also listens on that port minus 2.
        first = free_ports(4)
        self._broker_port = broker_port or first + 2
        self._name_server_port = first + 3
        self._process: ServerProcess | None = None

    @property
    def name_server_address(self) -> str:
        """Return the name server's `ip:port` for clients."""
        return f"127.0.0.1:{self._name_server_port}"

    @property
    def broker_address(self) -> str:
        """Return the broker's `ip:port`."""
        return f"127.0.0.1:{self._broker_port}"

    @property
    def process(self) -> ServerProcess:
        """Return the broker's process."""
        if self._process is None:
            raise ServerError("the broker was not started")
        return self._process

    def start(self) -> Self:
        """Start the broker, and return when a client would find it.

        Raises:
            ServerError: It did not start.
        """
        command = [sys.executable, "-m", "commitlake.jobs.cli.main", "broker", "--store", str(self.store)]
        command += ["--listen", self.broker_address, "--namesrv", self.name_server_address, *self._options]
        self._process = ServerProcess("broker_lite", command, self.folder / "broker_lite.log")
        self._process.wait_until(
            lambda: knows_broker(self.name_server_address, self.broker_address), READY_TIMEOUT_SECONDS
        )
        return self

    def stop(self) -> None:
        """Stop it cleanly: everything is flushed, and `abort` is removed."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
