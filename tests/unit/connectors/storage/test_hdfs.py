"""Places in HDFS, and errors of its servers; no server is contacted here."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import hdfs_native
import pyarrow.fs as pafs
import pytest

from commitlake.connectors.reading.files.shipped_stores import resolve_filesystem
from commitlake.connectors.storage import hdfs_clients
from commitlake.connectors.storage.errors import CloudError, CloudNameError, CloudUnavailableError
from commitlake.connectors.storage.filesystem import open_filesystem
from commitlake.connectors.storage.hdfs_clients import HdfsClient, forget_clients, hdfs_error
from commitlake.connectors.storage.hdfs_files import HdfsFile
from commitlake.connectors.storage.uris import is_hdfs, parse_hdfs_uri
from commitlake.schemas.errors import CommitLakeError, ExitCode
from tests.support.waiting import let_pass

PLACE = "hdfs://namenode-1.example:8020"
HA_PLACE = "hdfs://name_service"
STACK = r"\n\tat org.apache.hadoop.hdfs.server.namenode.FSPermissionChecker.check(FSPermissionChecker.java:663)"


@pytest.mark.parametrize(
    ("uri", "folder", "key"),
    [
        (PLACE, "", "/x"),
        (f"{PLACE}/", "", "/x"),
        (f"{PLACE}/a/b/", "a/b", "/a/b/x"),
        (f"{PLACE}/a b/%RETRY%g/ü?#", "a b/%RETRY%g/ü?#", "/a b/%RETRY%g/ü?#/x"),
        (f"HDFS{PLACE[4:]}/a", "a", "/a/x"),
        (f"{HA_PLACE}/a", "a", "/a/x"),
    ],
)
def test_a_uri_is_an_address_and_a_folder(uri: str, folder: str, key: str) -> None:
    found = parse_hdfs_uri(uri)
    assert found.authority in {"namenode-1.example:8020", "name_service"}
    assert (found.folder, found.key("x")) == (folder, key)
    assert parse_hdfs_uri(str(found)) == found


@pytest.mark.parametrize(
    "uri",
    [
        "hdfs://",
        "hdfs:///a",  # no address
        "hdfs://:8020/a",
        "hdfs://host:port/a",
        "hdfs://host:123456/a",
        "hdfs://host:99999/a",
        "hdfs://host:0/a",
        "hdfs://me@host:8020/a",
        "hdfs://a b/c",
        "viewfs://host/a",
        f"{PLACE}/a//b",
        f"{PLACE}/a/../b",
        f"{PLACE}/a:b",
        f"{PLACE}/.snapshot/a",
    ],
)
def test_other_forms_are_refused(uri: str) -> None:
    with pytest.raises(CloudError, match=r"expected hdfs://host:port/folder or hdfs://nameservice/folder"):
        parse_hdfs_uri(uri)


def test_a_password_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(CloudError, match="holds credentials") as found:
        parse_hdfs_uri("hdfs://me:hunter2@host:8020/a")
    assert "hunter2" not in str(found.value)


def test_other_schemes_are_not_hdfs() -> None:
    assert is_hdfs("Hdfs://host/a")
    assert not any(is_hdfs(place) for place in ("/hdfs://a", "s3://hdfs/a", "viewfs://host/a", "hdfs:/a"))


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (
            RuntimeError(
                'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=a, '
                rf'inode=\"/b\":root{STACK}")'
            ),
            CloudError,
            'access denied (Permission denied: user=a, inode="/b":root). Give this user permission',
        ),
        (
            RuntimeError(
                'RPCError("org.apache.hadoop.security.AccessControlException", "/a/b (is not a directory)' + STACK
            ),
            NotADirectoryError,
            "found a file in the place of a folder: /a/b (is not a directory)",
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot create /a")'),
            CloudUnavailableError,
            "a cluster that is busy or not well (SafeModeException: Cannot create /a)",
        ),
        (
            RuntimeError(
                'RPCError("java.io.IOException", "File /a could only be written to 0 of the 1 minReplication nodes.")'
            ),
            CloudUnavailableError,
            "could only be written to 0",
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "The quota of /a")'),
            CloudUnavailableError,
            "a quota that is used up (The quota of /a). Free some space",
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", "/a\x1b[2J")'),
            CloudError,
            "PathIsNotEmptyDirectoryException: /a\\x1b[2J",
        ),
        (
            RuntimeError(
                'RPCError("org.apache.hadoop.security.token.SecretManager$InvalidToken", "token (x) is expired")'
            ),
            CloudError,
            "no credentials that can be used (InvalidToken: token (x) is expired)",
        ),
        (
            RuntimeError(
                'RPCError("org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException", "The a")'
            ),
            CloudNameError,
            "a name that is too long (The a). Use shorter names",
        ),
        (
            RuntimeError(
                'RPCError("org.apache.hadoop.hdfs.server.federation.router.NoNamenodesAvailableException", "No one")'
            ),
            CloudUnavailableError,
            "NoNamenodesAvailableException: No one",
        ),
        (
            RuntimeError('ErasureCodingError("Not enough valid shards")'),
            CloudUnavailableError,
            "DataNodes that are not well",
        ),
        (IsADirectoryError("/a"), IsADirectoryError, f"{PLACE}/x: /a"),
        (
            OSError("Connection refused (os error 111)"),
            CloudUnavailableError,
            "no connection to the NameNode 'namenode-1.example:8020'",
        ),
        (TimeoutError(), CloudUnavailableError, "a server that does not answer"),
        (RuntimeError('SASLError("no")'), CloudError, "no credentials that can be used"),
        (RuntimeError("NoSASLMechanism"), CloudError, "no credentials that can be used"),
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), CloudError, "no nameservice"),
        (RuntimeError("XmlParseError(UnexpectedEndOfStream)"), CloudError, "Correct HADOOP_CONF_DIR"),
        (
            RuntimeError('DataTransferError("All DataNodes failed")'),
            CloudUnavailableError,
            "DataNodes that are not well",
        ),
        (NotImplementedError("File encryption"), CloudError, "encryption zone"),
        (RuntimeError("anything"), CloudError, "RuntimeError: anything"),
        (FileNotFoundError("/a\n\tat org.apache"), FileNotFoundError, f"{PLACE}/x: /a"),
    ],
)
def test_errors_say_what_was_found_and_what_to_do(error: Exception, kind: type[Exception], expected: str) -> None:
    found = hdfs_error(error, parse_hdfs_uri(f"{PLACE}/x"), "it cannot be read: ")
    assert type(found) is kind
    assert expected in str(found)
    assert "FSPermissionChecker" not in str(found)
    if isinstance(found, CommitLakeError):
        is_later = kind is CloudUnavailableError
        assert found.exit_code == (ExitCode.FAILED if is_later else ExitCode.USAGE)


def test_the_filesystem_is_only_read_and_its_paths_are_uris_without_a_scheme() -> None:
    filesystem, path = resolve_filesystem(f"{PLACE}/a/commitlog/")
    assert path == f"{PLACE}/a/commitlog"[len("hdfs://") :]
    assert filesystem == open_filesystem(f"{HA_PLACE}/b")[0]
    assert filesystem.type_name == "py::hdfs"
    with pytest.raises(NotImplementedError, match="read-only"):
        filesystem.create_dir(path)
    with pytest.raises(NotImplementedError):
        filesystem.get_file_info(pafs.FileSelector(path, recursive=True))


def test_a_request_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_clients, "_REQUEST_SECONDS", 0.05)
    client, ended = HdfsClient(parse_hdfs_uri(PLACE), attempts=1), threading.Event()
    with pytest.raises(CloudUnavailableError, match="does not answer"):
        client.send_with_retries(lambda _: ended.wait(30), "")
    ended.set()


def test_few_requests_hang_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_clients, "_REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(hdfs_clients, "_hanging", hdfs_clients._HangingRequests())
    client, ended, begun = HdfsClient(parse_hdfs_uri(PLACE), attempts=1), threading.Event(), []

    def hang(_: object) -> None:
        begun.append(threading.current_thread())
        ended.wait(30)

    def ask() -> int:
        """Send a request that is answered, however busy this machine is."""
        with monkeypatch.context() as patched:
            patched.setattr(hdfs_clients, "_REQUEST_SECONDS", 60.0)
            return client.send_once(lambda _: 7, "")

    for _ in range(9):
        with pytest.raises(CloudUnavailableError, match="does not answer"):
            client.send_once(hang, "")
    assert len(begun) == 4
    monkeypatch.setattr(hdfs_clients._hanging, "_next_try", 0.0)  # some time later
    assert ask() == 7
    assert ask() == 7  # one of the four hangs for ever, but the server is well
    with pytest.raises(CloudUnavailableError, match="does not answer"):
        client.send_once(hang, "")
    with pytest.raises(CloudUnavailableError, match="does not answer"):
        client.send_once(lambda _: 7, "")
    ended.set()
    for thread in begun:
        thread.join(30)
    assert ask() == 7


def test_requests_that_hang_together_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_clients, "_REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(hdfs_clients, "_hanging", hdfs_clients._HangingRequests())
    client, ended, all_begun = HdfsClient(parse_hdfs_uri(PLACE), attempts=1), threading.Event(), threading.Barrier(8)
    failed: list[Exception] = []

    def hang(_: object) -> None:
        all_begun.wait(30)
        ended.wait(30)

    def ask() -> None:
        try:
            client.send_once(hang, "")
        except CloudUnavailableError as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(failed) == 8
    assert client.send_once(lambda _: 7, "") == 7
    ended.set()


def test_requests_that_overlap_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_clients, "_REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(hdfs_clients, "_hanging", hdfs_clients._HangingRequests())
    client, ended, begun = HdfsClient(parse_hdfs_uri(PLACE), attempts=1), threading.Event(), []

    def hang(_: object) -> None:
        begun.append(threading.current_thread())
        ended.wait(60)

    def ask() -> None:
        for _ in range(12):
            with suppress(CloudUnavailableError):
                client.send_once(hang, "")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
        let_pass(0.05, "the readers begin one after the other")
    for thread in threads:
        thread.join(60)
    assert len(begun) <= 4 * (4 + 1)
    ended.set()


COUNT_THREADS = """
import os
from commitlake.connectors.storage import hdfs_clients

hdfs_clients._FEW_THREADS = "7"
before = len(os.listdir("/proc/self/task"))
hdfs_clients._client("127.0.0.1:9")
print(len(os.listdir("/proc/self/task")) - before, os.environ.get("TOKIO_WORKER_THREADS"))
"""


@pytest.mark.parametrize(("given", "expected"), [({}, "7 None"), ({"TOKIO_WORKER_THREADS": "5"}, "5 5")])
def test_a_client_has_few_threads(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str) -> None:
    monkeypatch.delenv("TOKIO_WORKER_THREADS", raising=False)
    found = subprocess.check_output([sys.executable, "-c", COUNT_THREADS], env=os.environ | given, text=True)
    assert found.strip() == expected


@pytest.mark.parametrize("path", ["a", "log.json/00000000000000000017"])
def test_a_file_that_is_deleted_while_it_is_read_is_missing(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    status = SimpleNamespace(path=f"/{path}", isdir=False, length=9, modification_time=1)
    files = {f"/{path}": status, "/log.json": SimpleNamespace(path="/log.json", isdir=True)}

    class Reader:
        def __len__(self) -> int:
            return 9

        def read_range(self, start: int, count: int) -> bytes:
            if f"/{path}" not in files:
                raise RuntimeError('DataTransferError("no such block")')
            return b"123456789"[start : start + count]

    def get_file_info(path: str) -> Any:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    fake = SimpleNamespace(get_file_info=get_file_info, read=lambda _: Reader(), list_status=lambda *_: [status])
    monkeypatch.setattr(hdfs_clients, "_client", lambda _: fake)
    file = HdfsFile(parse_hdfs_uri(f"{PLACE}/{path.partition('/')[0]}"))
    assert file.read(4) == b"1234"
    del files[f"/{path}"]
    # A version's folder is there, and a manifest that is missing would be a store without a manifest.
    kind = FileNotFoundError if path == "a" else CloudUnavailableError
    with pytest.raises(kind):
        file.read(4)


def test_a_request_is_repeated_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_clients, "pause_before_retry", lambda _: None)
    client, answers = HdfsClient(parse_hdfs_uri(PLACE), attempts=3), [OSError("a"), RuntimeError("ChecksumError"), None]

    def request(_: object) -> int:
        if (error := answers.pop(0)) is not None:
            raise error
        return 7

    assert client.send_with_retries(request, "") == 7
    answers[:] = [OSError("a")] * 3
    with pytest.raises(CloudUnavailableError):
        client.send_with_retries(request, "")
    answers[:] = [FileNotFoundError("a"), None]
    with pytest.raises(FileNotFoundError):
        client.send_with_retries(request, "")


@pytest.mark.parametrize("broken", ["", "write", "close"])
def test_a_writer_is_not_closed_when_it_is_garbage(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    requests: list[str] = []

    def send(request: str) -> None:
        requests.append(request)
        if request == broken:
            raise OSError("no connection")

    raw: Any = SimpleNamespace(write=lambda _: send("write"), close=lambda: send("close"))
    fake = SimpleNamespace(create=lambda *_: hdfs_native.FileWriter(raw), delete=lambda *_: send("delete"))
    monkeypatch.setattr(hdfs_clients, "_client", lambda _: fake)
    with pytest.raises(CloudUnavailableError) if broken else nullcontext():
        HdfsClient(parse_hdfs_uri(PLACE)).write_new_file("/a", [b"x"])
    gc.collect()
    expected = {"": ["write", "close"], "write": ["write", "delete"], "close": ["write", "close", "delete"]}
    assert requests == expected[broken]


def test_a_forked_process_has_clients_of_its_own() -> None:
    client = hdfs_clients._client("127.0.0.1:9")
    assert hdfs_clients._client("127.0.0.1:9") is client
    process = multiprocessing.get_context("fork").Process(target=_check_no_client)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    forget_clients()
    assert hdfs_clients._client("127.0.0.1:9") is not client
    forget_clients()


def _check_no_client() -> None:
    assert not hdfs_clients._clients
    with pytest.raises(CloudUnavailableError):
        HdfsClient(parse_hdfs_uri("hdfs://127.0.0.1:9/a"), attempts=1).list("/a")
