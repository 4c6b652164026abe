"""Clients of HDFS from the package hdfs-native, which needs no JVM: one for each cluster and process.

Settings come from `core-site.xml` and `hdfs-site.xml` in `HADOOP_CONF_DIR` (else in `HADOOP_HOME`): nameservices
with several NameNodes, and Kerberos. Credentials come from the environment: a ticket in `KRB5CCNAME`, tokens in
`HADOOP_TOKEN_FILE_LOCATION`, and without Kerberos the name in `HADOOP_USER_NAME`.

hdfs-native asks each NameNode of a nameservice, but does not retry requests that DataNodes or a NameNode in safe mode
refuse, and does not limit the time of a whole request. Each request therefore runs in its own thread with a time limit,
and is retried here after a temporary error. All requests here can be repeated. A request cannot be cancelled: it holds
its thread, its client and its connections until the server answers or the connection ends. The number of hanging
requests is therefore limited, however long a server hangs.

A NameNode's exception comes as text, with the class, the message and Java's stack. Only the first line of the message
is repeated.
"""

from __future__ import annotations

import io
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import hdfs_native

from commitlake.connectors.printable import escape_line
from commitlake.connectors.storage.errors import LATER, CloudError, CloudNameError, CloudUnavailableError
from commitlake.connectors.storage.uris import HdfsUri
from commitlake.schemas.safe_store_files import FILE_MODE, FOLDER_MODE

if TYPE_CHECKING:
    from hdfs_native import FileReader, FileStatus, FileWriter

_REMOTE = re.compile(r'RPCError\("(?P<name>[\w.$]{1,200})", "(?P<message>(?:[^"\\]|\\(?!n).)*)', re.DOTALL)
_MAX_SHOWN = 300
_NETWORK = "Are the host and the port of the URI right, and do the servers run? If so, run it again later"
_NAMESERVICE = "Write host and port (hdfs://host:8020/folder), or set HADOOP_CONF_DIR to the cluster's settings"
_CREDENTIALS = (
    "Set HADOOP_CONF_DIR to the cluster's settings, and get a ticket with kinit, or set HADOOP_TOKEN_FILE_LOCATION"
)
_DENIED = "Give this user permission; without Kerberos, HADOOP_USER_NAME is the user"
_LOG = "See the NameNode's log for its reason"
_SPACE = "Free some space, or raise the quota"
_DENIED_ERRORS = frozenset({"AccessControlException", "AuthorizationException"})
_CLASS_END = re.compile(r"[.$]")  # the end of a package, or of an enclosing class
_QUOTA_ERRORS = frozenset(
    {"DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeExceededException"}
)
_BUSY_ERRORS = frozenset(
    {
        "LeaseExpiredException",
        "NoNamenodesAvailableException",
        "NotReplicatedYetException",
        "ObserverRetryOnActiveException",
        "RecoveryInProgressException",
        "RetriableException",
        "SafeModeException",
        "ServerTooBusyException",
        "StandbyException",
    }
)
_NO_DATA_NODE = re.compile(r"could only be written to|could not find enough|no DataNode|Connection re|CallQueue")
_CREDENTIAL_ERRORS = ("SASLError(", "GSSAPIError(", "NoSASLMechanism")
_SERVER_ERRORS = (
    "BlocksNotFound(",
    "ChecksumError",
    "DataTransferError(",
    "ErasureCodingError(",
    "InvalidRPCResponse(",
    "OperationFailed(",
)
_SETTING_ERRORS = ("XmlParseError(", "UrlParseError(", "InvalidArgument(")
FILE_ERRORS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors about a path, which are not converted."""


def hdfs_error(error: BaseException, uri: HdfsUri, message_start: str) -> Exception:
    """Return the error to raise for a failed request to HDFS, given the one that its client raised.

    Args:
        error: the error that the client raised.
        uri: a place in the cluster of the request.
        message_start: beginning of the message: what was attempted.
    """
    text = str(error)
    shown = _first_line(text)
    remote = _REMOTE.search(text)
    if isinstance(error, FILE_ERRORS):
        return type(error)(f"{uri}: {shown}")
    if remote is not None:
        return _remote_error(_CLASS_END.split(remote["name"])[-1], remote["message"], message_start)
    kind = CloudError
    if isinstance(error, TimeoutError):
        kind, found, advice = CloudUnavailableError, "a server that does not answer", LATER
    elif isinstance(error, NotImplementedError):
        found = f"a feature that the client does not have ({shown})"
        advice = "A folder in an encryption zone cannot be used: use another one"
    elif isinstance(error, OSError):
        kind, advice = CloudUnavailableError, _NETWORK
        found = f"no connection to the NameNode {uri.authority!r} or a DataNode, also when tried again ({shown})"
    elif text.startswith(_CREDENTIAL_ERRORS):
        found, advice = f"no credentials that can be used ({shown})", _CREDENTIALS
    elif "No NameNode hosts found" in text:
        found, advice = f"no nameservice {uri.authority!r} in the settings of Hadoop", _NAMESERVICE
    elif text.startswith(_SETTING_ERRORS):
        found, advice = f"wrong settings of Hadoop ({shown})", "Correct HADOOP_CONF_DIR"
    elif text.startswith(_SERVER_ERRORS):
        kind, found, advice = CloudUnavailableError, f"DataNodes that are not well ({shown})", LATER
    else:
        found, advice = f"{type(error).__name__}: {shown}", _LOG
    return kind(found, advice, message_start)


def _remote_error(error_name: str, message: str, message_start: str) -> Exception:
    shown = _first_line(message.replace('\\"', '"'))
    if "(is not a directory)" in message:
        return NotADirectoryError(f"{message_start}found a file in the place of a folder: {shown}")
    kind = CloudError
    if error_name == "InvalidToken":
        found, advice = f"no credentials that can be used ({error_name}: {shown})", _CREDENTIALS
    elif error_name in _DENIED_ERRORS:
        found, advice = f"access denied ({shown})", _DENIED
    elif error_name == "PathComponentTooLongException":
        kind, found, advice = CloudNameError, f"a name that is too long ({shown})", "Use shorter names"
    elif error_name in _QUOTA_ERRORS:
        # Temporary: an agent continues once somebody has freed space or raised the quota.
        kind, found, advice = CloudUnavailableError, f"a quota that is used up ({shown})", _SPACE
    elif error_name in _BUSY_ERRORS or _NO_DATA_NODE.search(message):
        kind, advice = CloudUnavailableError, LATER
        found = f"a cluster that is busy or not well ({error_name}: {shown})"
    else:
        found, advice = f"{error_name}: {shown}", _LOG
    return kind(found, advice, message_start)


def _first_line(text: str) -> str:
    lines = text.replace("\\n", "\n").splitlines() or [""]
    return escape_line(lines[0])[:_MAX_SHOWN]


_Result = TypeVar("_Result")
MAX_ATTEMPTS = 8
FEW_ATTEMPTS = 2  # while a user waits, and a wrong address is more likely than a busy cluster
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 20.0
_REQUEST_SECONDS = 120.0
_MAX_HANGING, _NEXT_TRY_SECONDS = 4, 600.0
_WORKER_THREADS = "TOKIO_WORKER_THREADS"
_FEW_THREADS = "2"  # per client; the default is one per CPU, and each of Spark's workers has a client
# By default, an unreachable NameNode is retried for minutes. Each NameNode of a nameservice needs one attempt.
_SETTINGS = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "50",
    "dfs.client.failover.sleep.max.millis": "500",
}


class HdfsClient:
    """Client for requests to one HDFS cluster.

    Every method raises a `CloudError` for an error that a user has to correct, a `CloudUnavailableError` for a
    temporary one, and a `FileNotFoundError`, `FileExistsError`, `NotADirectoryError` or `IsADirectoryError` for its
    path.

    Args:
        uri: a place in the cluster, for its address and for messages.
        attempts: maximum number of attempts for a request.
    """

    def __init__(self, uri: HdfsUri, attempts: int = MAX_ATTEMPTS) -> None:
        self._uri, self._attempts = uri, attempts

    def status(self, path: str) -> FileStatus | None:
        """Return the status of a file or folder, or None if there is none."""
        try:
            found: FileStatus = self.send_with_retries(
                lambda client: client.get_file_info(path), f"{self._to_uri(path)} cannot be read: "
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def list(self, path: str, limit: int | None = None) -> list[FileStatus]:
        """Return the entries of a folder, at most `limit`; for a file, the file itself."""
        return self.send_with_retries(
            lambda client: list(islice(client.list_status(path, False), limit)),
            f"{self._to_uri(path)} cannot be listed: ",
        )

    def list_files(self, path: str, limit: int | None = None) -> Sequence[FileStatus]:
        """Return at most `limit` files in a folder and its subfolders."""
        return self.send_with_retries(
            lambda client: list(islice((each for each in client.list_status(path, True) if not each.isdir), limit)),
            f"{self._to_uri(path)} cannot be listed: ",
        )

    def open(self, path: str) -> FileReader:
        """Open a file for reading; the reader keeps its present content even if it is replaced."""
        reader: FileReader = self.send_with_retries(
            lambda client: client.read(path), f"{self._to_uri(path)} cannot be read: "
        )
        return reader

    def read(self, reader: FileReader, start: int, end: int, path: str) -> bytes:
        """Read a range of an open file, which must not exceed the file's end."""
        return self.send_with_retries(
            lambda _: reader.read_range(start, end - start), f"{self._to_uri(path)} cannot be read: "
        )

    def make_folder(self, path: str) -> None:
        """Create a folder and those above it, if they do not exist."""
        self.send_with_retries(
            lambda client: client.mkdirs(path, FOLDER_MODE, True), f"{self._to_uri(path)} cannot be created: "
        )

    def delete(self, path: str) -> None:
        """Delete a file or an empty folder, if it exists."""
        self.send_with_retries(lambda client: client.delete(path, False), f"{self._to_uri(path)} cannot be deleted: ")

    def rename(self, source: str, target: str, *, replace: bool) -> None:
        """Rename a file, without retries: after an error, the file may have been renamed.

        Args:
            source: its path.
            target: its new path, in a folder that exists.
            replace: whether to replace a file of that name; if not, it is a `FileExistsError`.
        """
        self.send_once(
            lambda client: client.rename(source, target, replace), f"{self._to_uri(target)} cannot be written: "
        )

    def write_new_file(self, folder: str, pieces: Iterable[bytes]) -> str:
        """Write a new file with a random name into a folder, without retries, and return its path.

        After an error, no complete file exists. An incomplete one is deleted if possible.
        """
        path = f"{folder}/{secrets.token_hex(16)}"
        what = f"{self._to_uri(folder)} cannot be written: "
        options = hdfs_native.WriteOptions(permission=FILE_MODE)
        writer: FileWriter = self.send_once(lambda client: client.create(path, options), what)
        try:
            for piece in pieces:
                self.send_once(lambda _, piece=piece: writer.write(piece), what)  # type: ignore[misc]
            self.send_once(lambda _: writer.close(), what)
        except FileNotFoundError:  # another process has deleted the file
            raise CloudUnavailableError(
                f"{what}its temporary file was deleted by another process while it was written", "Run it again"
            ) from None
        except BaseException:
            self._try_delete(path)
            raise
        finally:
            # Otherwise the garbage collector would close it again: a request without a time limit, in any thread.
            io.RawIOBase.close(writer)
        return path

    def send_with_retries(self, request: Callable[[Any], _Result], message_start: str) -> _Result:
        """Send a request that may be repeated, with retries, and return the answer.

        Args:
            request: function of a client of the package.
            message_start: beginning of an error's message.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                return self.send_once(request, message_start)
            except CloudUnavailableError:
                if attempt == self._attempts:
                    raise
            pause_before_retry(attempt)
        raise AssertionError

    def send_once(self, request: Callable[[Any], _Result], message_start: str) -> _Result:
        """Send a request without retries, and return the answer."""
        try:
            client = _client(self._uri.authority)
            return _hanging.run_request(lambda: request(client))
        except BaseException as error:
            # A panic of the library is no Exception.
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, CloudUnavailableError)):
                raise
            raise hdfs_error(error, self._uri, message_start) from None

    def _try_delete(self, path: str) -> None:
        try:
            self.send_once(lambda client: client.delete(path, False), "")
        except Exception:  # noqa: BLE001 (the next agent deletes it)
            return

    def _to_uri(self, path: str) -> str:
        return f"hdfs://{self._uri.authority}{path}"


def pause_before_retry(attempt: int) -> None:
    """Wait before the next attempt.

    Args:
        attempt: number of the one that failed, from 1 on.
    """
    time.sleep(min(_FIRST_WAIT_SECONDS * 2 ** (attempt - 1), _LONGEST_WAIT_SECONDS))


class _HangingRequests:
    """Requests of this process that have timed out while their threads still wait for an answer.

    While there are too many of them, other requests fail at once, except for a probe from time to time. If the probe is
    answered, the server works again, so the answer to the oldest hanging request was lost, and that request is no
    longer counted. Requests that hang at the same time count as one: a file is read by several requests at once, and
    one lost connection affects all of them.
    """

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._next_try = self._given_up = 0.0
        self._lock = threading.Lock()

    def run_request(self, request: Callable[[], _Result]) -> _Result:
        """Call a function in another thread, so that signals are handled while it waits, and return its result."""
        answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

        def run_in_thread() -> None:
            try:
                answers.put((True, request()))
            except BaseException as error:  # noqa: BLE001 (a panic of the library is no Exception)
                answers.put((False, error))

        is_try, begun = self._begin_request(), time.monotonic()
        # A daemon, because a request that hangs must not keep the process from ending.
        thread = threading.Thread(target=run_in_thread, name="hdfs", daemon=True)
        thread.start()
        try:
            is_done, found = answers.get(timeout=_REQUEST_SECONDS)
        except queue.Empty:
            with self._lock:
                now = time.monotonic()
                # Only a request that is counted sets this time: if all did, those of two readers that overlap would
                # never be counted.
                if begun >= self._given_up:
                    self._threads.append(thread)
                    self._given_up = now
                self._next_try = now + _NEXT_TRY_SECONDS
            # The next request gets a new client, because the connections of this one may be what hangs.
            forget_clients()
            raise TimeoutError from None
        if is_try:
            with self._lock:
                del self._threads[:1]
        if not is_done:
            raise found
        return found  # type: ignore[no-any-return]

    def _begin_request(self) -> bool:
        """Register a request's start; return whether it is a probe, sent to see if a server that hung works again."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if len(self._threads) < _MAX_HANGING:
                return False
            if time.monotonic() < self._next_try:
                raise TimeoutError
            self._next_try = time.monotonic() + _NEXT_TRY_SECONDS
            return True


_hanging = _HangingRequests()
_clients: dict[str, Any] = {}
_creating = threading.Lock()
_of_parent: list[Any] = []


def _client(authority: str) -> Any:
    with _creating:
        client = _clients.get(authority)
        if client is None:
            with _limit_threads():
                client = _clients[authority] = hdfs_native.Client(f"hdfs://{authority}", _SETTINGS)
    return client


@contextmanager
def _limit_threads() -> Iterator[None]:
    """Limit the threads of a client that is created inside the block, unless the environment sets a number."""
    if _WORKER_THREADS in os.environ:
        yield
        return
    # The library has no setting for it: its runtime reads the variable when a client is created.
    os.environ[_WORKER_THREADS] = _FEW_THREADS
    try:
        yield
    finally:
        os.environ.pop(_WORKER_THREADS, None)


def forget_clients() -> None:
    """Discard this process's clients, so that the next requests read the environment again."""
    _clients.clear()


def _keep_clients_of_parent() -> None:
    """Keep a forked process from closing its parent's clients, which would wait for threads it does not have."""
    global _hanging, _creating
    _hanging, _creating = _HangingRequests(), threading.Lock()
    _of_parent.append(_clients.copy())
    _clients.clear()


os.register_at_fork(after_in_child=_keep_clients_of_parent)
