"""Sessions of Spark Connect, whose JVM is on a server: connection, cores, operation tags and progress.

A session of Spark Connect has no Spark context: cores are counted by a query, jobs are cancelled by a tag of the
session, and the server reports progress with its answers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from pyspark.errors import PySparkException, PySparkImportError, PySparkValueError
from pyspark.sql import SparkSession as AnySession

from commitlake.connectors.runtime.runner import TaskCounter
from commitlake.schemas.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

_MAX_CORES = 1 << 16
_DEFAULT_PORT = 15002
_TIMEOUT_SECONDS = 10
_EXPECTED_URL = "SPARK_REMOTE: expected sc://HOST:PORT, perhaps followed by /;NAME=VALUE;…"


def open_connect_session(url: str, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Connect to a server and return a session; error messages leave out the URL, which may have a token.

    Args:
        url: as in `SPARK_REMOTE`: `sc://host:15002`, or `sc://host:443/;token=…`.
        settings: settings of the session.

    Raises:
        UsageError: if the URL is wrong, or a package is missing.
        UnavailableError: if no server answers, or the server refuses.
    """
    host, port = _parse_address(url)
    try:
        socket.create_connection((host, port), _TIMEOUT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or error
        raise UnavailableError(f"no Spark Connect server answers at {host}:{port}: {reason}") from None
    try:
        _wait_for_server(url, f"{host}:{port}")
        session = AnySession.builder.remote(url).getOrCreate()
        for key, value in settings.items():
            session.conf.set(key, value)
    except PySparkImportError as error:
        reason = str(error).rstrip(".")
        cure = "pip install 'commitlake[connect]' installs them, or in a clone .venv/bin/pip install '.[connect]'"
        raise UsageError(f"Spark Connect needs more packages: {reason}; {cure}") from None
    except PySparkValueError:
        raise UsageError(_EXPECTED_URL) from None
    except PySparkException as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnavailableError(f"the Spark Connect server at {host}:{port} refused the session: {reason}") from None
    return session


def _parse_address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    if host is None or parts.scheme != "sc" or not set(";=@").isdisjoint(parts.netloc):
        raise UsageError(_EXPECTED_URL)
    return host, port


def _wait_for_server(url: str, address: str) -> None:
    """Wait until the server answers by gRPC, because pyspark would retry silently for ten minutes."""
    from pyspark.sql.connect.utils import check_dependencies  # noqa: PLC0415 (only with Spark Connect)

    check_dependencies()
    import grpc  # noqa: PLC0415 (likewise)
    from pyspark.sql.connect.client.core import DefaultChannelBuilder  # noqa: PLC0415 (likewise)

    with DefaultChannelBuilder(url).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(_TIMEOUT_SECONDS)
        except grpc.FutureTimeoutError:
            raise UnavailableError(
                f"the server at {address} is not a Spark Connect server, or it requires TLS (add use_ssl=true to the "
                "URL)"
            ) from None


def is_connect(session: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect; this does not load Spark Connect's packages."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


class ConnectSession:
    """Cores, operation tags and task progress of a session of Spark Connect."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._cores: int | None = None

    def cores(self) -> int:
        """Return the number of tasks that run at a time; the first call runs a small job."""
        if self._cores is None:
            # Without a number of partitions, Spark makes as many as it has cores.
            parts = self._session.range(_MAX_CORES).selectExpr("spark_partition_id() AS part")
            self._cores = int(parts.selectExpr("max(part) + 1 AS cores").collect()[0]["cores"])
        return self._cores

    def add_tag(self, tag: str) -> None:
        """Add a tag to the operations that this thread starts from now on."""
        self._session.addTag(tag)

    def cancel_jobs(self, tag: str) -> None:
        """Cancel the running operations with a tag."""
        with suppress(PySparkException, OSError):  # the server may have exited
            self._session.interruptTag(tag)

    def task_counter(self) -> TaskCounter:
        """Return a counter of the tasks of all operations of the session from now on."""
        operations = _OperationCounter()
        self._session.registerProgressHandler(cast("ProgressHandler", operations.report))
        return operations.count


class _OperationCounter:
    """Counter of the tasks of operations, fed by the progress reports of the server."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def report(
        self,
        stages: Iterable[StageInfo] | None,
        inflight_tasks: int,  # noqa: ARG002 (pyspark passes these names)
        operation_id: str | None,
        done: bool,
    ) -> None:
        """Process a progress report on an operation. When it is done, all its known tasks count as finished."""
        if operation_id is None:
            return
        with self._lock:
            if stages := list(stages or ()):
                self._seen[operation_id] = (
                    sum(stage.num_completed_tasks for stage in stages),
                    sum(stage.num_tasks for stage in stages),
                )
            if done:
                _, known = self._seen.get(operation_id, (0, 0))
                self._seen[operation_id] = (known, known)

    def count(self) -> tuple[int, int]:
        """Return the number of finished tasks, and the number of all tasks known so far."""
        with self._lock:
            counts = list(self._seen.values())
        return sum(done for done, _ in counts), sum(known for _, known in counts)
