"""Places in HDFS, and errors of its servers; no server is contacted here."""

from __future__ import annotations

import multiprocessing

import pyarrow.fs as pafs
import pytest

from commitlake.connectors.formats.engine.shipped import resolve_filesystem
from commitlake.connectors.object_store import hdfs_clients
from commitlake.connectors.object_store.errors import CloudError, CloudUnavailableError
from commitlake.connectors.object_store.hdfs_clients import HdfsClient, forget_clients
from commitlake.connectors.object_store.hdfs_errors import hdfs_error
from commitlake.connectors.object_store.hdfs_filesystem import hdfs_filesystem
from commitlake.connectors.object_store.hdfs_uris import is_hdfs, parse_hdfs_uri
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
    assert filesystem == hdfs_filesystem(f"{HA_PLACE}/b")[0]
    assert filesystem.type_name == "py::hdfs"
    with pytest.raises(NotImplementedError, match="only read"):
        filesystem.create_dir(path)
    with pytest.raises(NotImplementedError):
        filesystem.get_file_info(pafs.FileSelector(path, recursive=True))


def test_a_request_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_clients, "_REQUEST_SECONDS", 0.05)
    client = HdfsClient(parse_hdfs_uri(PLACE), attempts=1)
    with pytest.raises(CloudUnavailableError, match="does not answer"):
        client.retried(lambda _: let_pass(0.5, "the answer does not come"), "")


def test_a_request_is_repeated_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_clients, "pause", lambda _: None)
    client, answers = HdfsClient(parse_hdfs_uri(PLACE), attempts=3), [OSError("a"), RuntimeError("ChecksumError"), None]

    def request(_: object) -> int:
        if (error := answers.pop(0)) is not None:
            raise error
        return 7

    assert client.retried(request, "") == 7
    answers[:] = [OSError("a")] * 3
    with pytest.raises(CloudUnavailableError):
        client.retried(request, "")
    answers[:] = [FileNotFoundError("a"), None]
    with pytest.raises(FileNotFoundError):
        client.retried(request, "")


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
