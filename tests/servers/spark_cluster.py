"""A real standalone Spark cluster on the loopback address: a master and workers, each a process of its own.

    with SparkCluster(folder, workers=2) as cluster:
        subprocess.run(["./spark-submit.sh", "--master", cluster.master, "archive", ...])

Its processes have an environment of their own, without this package and without the driver's variables, as on other
machines.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from commitlake.connectors.spark.java import java_home
from commitlake.jobs.cli.process import list_descendant_ids
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server
from tests.servers.spark_classes import class_archive, quick_start

READY_TIMEOUT_SECONDS = 90
WORKER_MEMORY_MB = 2000
_IP = "127.0.0.1"


class SparkCluster(Server):
    """A master and its workers.

    Attributes:
        master: URL of the master, for `--master`.
    """

    def __init__(
        self, folder: Path, workers: int = 2, cores: int = 1, environment: Mapping[str, str] | None = None
    ) -> None:
        """Describe the cluster; `start`, or entering the context, starts it.

        Args:
            folder: An own folder, for logs and the working folders of executors.
            workers: How many workers there are.
            cores: Cores that each worker offers.
            environment: Variables that the machines of workers have, such as credentials of an object store.
        """
        self._folder = folder
        self._environment = dict(environment or {})
        self._port = free_ports(2 + workers)
        self._cores = cores
        self._count = workers
        self.master = f"spark://{_IP}:{self._port}"
        self._processes: list[ServerProcess] = []

    def start(self) -> SparkCluster:
        """Start the master, then the workers.

        Raises:
            ServerError: One did not start.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        master = self._launch("master", ["deploy.master.Master", "--port", str(self._port)], self._port + 1)
        master.wait_until(lambda: "I have been elected leader" in master.output(), READY_TIMEOUT_SECONDS)
        for number in range(self._count):
            work = self._folder / f"worker-{number}"
            options = ["--cores", str(self._cores), "--memory", f"{WORKER_MEMORY_MB}m", "--work-dir", str(work)]
            arguments = ["deploy.worker.Worker", *options, self.master]
            self._launch(f"worker-{number}", arguments, self._port + 2 + number, address=f"127.0.0.{number + 1}")
        for worker in self.workers:
            worker.wait_until(lambda worker=worker: "Successfully registered" in worker.output(), READY_TIMEOUT_SECONDS)  # type: ignore[misc]
        return self

    def _launch(self, name: str, arguments: list[str], page_port: int, address: str = _IP) -> ServerProcess:
        """Start a process of the cluster; each worker has an address of its own, as machines have."""
        home = Path(pyspark.__file__).parent
        main, *others = arguments
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(self._folder), "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": address, "SPARK_SCALA_VERSION": "2.13", "LANG": "C.UTF-8", **self._environment,
        }  # fmt: skip
        command = ["env", "-i", *(f"{key}={value}" for key, value in environment.items())]
        command += [str(java_home() / "bin" / "java"), "-Xmx256m", *quick_start(class_archive()).split()]
        command += ["-cp", f"{home}/jars/*"]
        command += [f"org.apache.spark.{main}", "--host", address, "--webui-port", str(page_port), *others]
        process = ServerProcess(name, command, self._folder / f"{name}.log")
        self._processes.append(process)
        return process

    @property
    def workers(self) -> list[ServerProcess]:
        """The workers' processes."""
        return self._processes[1:]

    def executors(self) -> list[int]:
        """Return the process ids of all executors."""
        return [
            pid
            for worker in self.workers
            for pid in list_descendant_ids(worker.pid)
            if b"CoarseGrainedExecutorBackend" in _command_line(pid)
        ]

    def kill_executor_in_task(self) -> bool:
        """Kill an executor that has begun a task after the first stage, and return whether there was one.

        The first stage checks the packages of the workers.
        """
        for pid in self.executors():
            if self._has_task(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def pause_executor_in_task(self) -> int | None:
        """Stop an executor in a task after the first stage, until SIGCONT; return its process id, if there was one."""
        for pid in self.executors():
            if self._has_task(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    return pid
        return None

    def _has_task(self, executor: int) -> bool:
        """Return whether an executor has begun a task after the first stage."""
        words = _command_line(executor).decode().split("\0")
        if "--app-id" not in words:  # it has ended
            return False
        place = "/".join(words[words.index(f"--{name}") + 1] for name in ("app-id", "executor-id"))
        told = [log.read_text() for log in self._folder.glob(f"worker-*/{place}/stderr")]
        return any(re.search(r"Running task \S+ in stage [1-9]", text) for text in told)

    def kill_worker(self) -> bool:
        """Kill a worker whose executor has begun a task, and the executor, for good; return whether there was one."""
        for worker in self.workers:
            executors = [pid for pid in self.executors() if pid in list_descendant_ids(worker.pid)]
            if any(self._has_task(pid) for pid in executors):
                self._processes.remove(worker)
                for pid in executors:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                worker.kill()
                return True
        return False

    def kill(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.kill()
        self._processes.clear()


def _command_line(pid: int) -> bytes:
    with suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
