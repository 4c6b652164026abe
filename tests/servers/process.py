"""A server process: started, observed by its output, stopped cleanly or killed."""

from __future__ import annotations

import fcntl
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PORT_RANGE = (15000, 30000)
"""Below the range of ephemeral ports, because an outgoing connection could take a free port."""
PORTS_PER_PROCESS = 500


class ServerError(Exception):
    """Error for a server that did not start, or ended by itself; the message contains the end of its log."""


class _PortBlock:
    """Consecutive ports that only this process assigns, in order.

    A port that was free a moment ago may be taken by another server when ours starts. Therefore each process of this
    test run, and of other runs on the machine, owns a block of ports, with a lock that ends with the process.
    """

    def __init__(self) -> None:
        """Acquire a block that no other process owns.

        Raises:
            ServerError: All blocks are taken.
        """
        folder = Path(tempfile.gettempdir()) / f"commitlake-test-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        blocks = list(range(*PORT_RANGE, PORTS_PER_PROCESS))
        random.shuffle(blocks)
        for first in blocks:
            lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._lock = lock
            self._ports = range(first, first + PORTS_PER_PROCESS)
            self._next = first
            return
        raise ServerError(f"every block of {PORTS_PER_PROCESS} ports in {PORT_RANGE} is in use; locks are in {folder}")

    def take(self, count: int, ip: str) -> int:
        """Return the first of `count` consecutive free ports; ports are reused only after all others."""
        for _ in self._ports:
            if self._next + count > self._ports.stop:
                self._next = self._ports.start
            first = self._next
            self._next += 1
            if all(is_free(port, ip) for port in range(first, first + count)):
                self._next = first + count
                return first
        raise ServerError(f"no {count} free ports in a row in {self._ports}")


@functools.cache
def _block_of(process: int) -> _PortBlock:
    """Return the ports of this process; a forked process acquires its own."""
    return _PortBlock()


def free_ports(count: int, ip: str = "127.0.0.1") -> int:
    """Return the first of `count` consecutive ports that are free and not assigned to another test.

    Args:
        count: How many ports in a row are needed.
        ip: The loopback address to listen on.
    """
    return _block_of(os.getpid()).take(count, ip)


def is_free(port: int, ip: str) -> bool:
    """Return whether a server can listen on the port."""
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError:
            return False
    return True


class ServerProcess:
    """One server process and its log file, which contains standard output and error."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start the process.

        Args:
            name: Name of the server in error messages.
            command: The program and its arguments.
            log: The file to which its output is appended.
            env: Additional environment variables.
        """
        self.name = name
        self.log = log
        self._start_of_log = log.stat().st_size if log.exists() else 0
        # If the test run dies without cleaning up (a time limit), the kernel kills the server.
        guard = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                # Ctrl-C is for the tests, which then stop their servers in order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def output(self) -> str:
        """Return the output of this process so far."""
        with self.log.open("rb") as log:
            log.seek(self._start_of_log)
            return log.read().decode(errors="replace")

    def wait_until(self, is_ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait until a condition holds.

        Raises:
            ServerError: The process ended, or the condition did not hold in time.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            if not self.is_running:
                raise self.error(f"ended by itself with code {self._process.returncode}")
            if time.monotonic() > deadline:
                raise self.error(f"was not ready within {timeout_seconds:.0f} s")
            time.sleep(0.1)

    def error(self, what: str) -> ServerError:
        """Return an error that shows the end of the log."""
        return ServerError(f"{self.name} {what}; its log {self.log} ends:\n{self.output()[-4000:]}")

    def stop(self, timeout_seconds: float = 60) -> None:
        """Send SIGTERM to the process, and wait until it ends.

        Raises:
            ServerError: It did not end in time, and was killed.
        """
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.error(f"did not stop within {timeout_seconds:.0f} s") from None

    def kill(self) -> None:
        """End the process with SIGKILL, so that it cannot write anything else."""
        self._process.kill()
        self._process.wait()
