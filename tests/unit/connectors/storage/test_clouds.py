"""Places in object stores other than S3, and errors of their servers; no server is contacted here."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator

import obstore
import pytest
from obstore import exceptions
from obstore.store import MemoryStore

from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.shipped_stores import resolve_filesystem
from commitlake.connectors.storage import azure_storage, cloud_storage
from commitlake.connectors.storage.azure_storage import AzureStorage, azure_client, azure_error, forget_clients
from commitlake.connectors.storage.errors import CloudError, CloudUnavailableError, ObjectStoreError
from commitlake.connectors.storage.filesystem import open_filesystem
from commitlake.connectors.storage.uris import check_scheme, is_azure_or_google, parse_cloud_uri
from commitlake.jobs.archive import command as archive
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from commitlake.schemas.errors import ExitCode

PLACE = "abfss://logs@account1.dfs.core.windows.net"
SECRET = "d3Jvbmc="


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key, and no settings from outside."""
    for name in ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", SECRET)
    forget_clients()
    yield
    forget_clients()


@pytest.mark.parametrize(
    ("uri", "prefix", "key"),
    [
        (PLACE, "", "x"),
        (f"{PLACE}/", "", "x"),
        (f"{PLACE}/a/b/", "a/b", "a/b/x"),
        (f"{PLACE}/a b/%RETRY%g/ü", "a b/%RETRY%g/ü", "a b/%RETRY%g/ü/x"),
        (f"ABFSS{PLACE[5:]}", "", "x"),
        (PLACE.replace(".dfs.", ".blob."), "", "x"),
    ],
)
def test_a_uri_is_a_container_an_account_and_a_prefix(uri: str, prefix: str, key: str) -> None:
    found = parse_cloud_uri(uri)
    assert (found.container, found.account, found.suffix) == ("logs", "account1", "core.windows.net")
    assert (found.prefix, found.key("x")) == (prefix, key)
    assert parse_cloud_uri(str(found)) == found


@pytest.mark.parametrize(
    "uri",
    [
        "abfss://logs/a",  # no account
        "abfss://logs@account1/a",  # no server
        "abfss://@account1.dfs.core.windows.net/a",
        "abfss://Logs@account1.dfs.core.windows.net/a",
        f"{PLACE}/a//b",
        f"{PLACE}/a/../b",
        "abfss://",
        "wasbs://bucket/a",
    ],
)
def test_other_forms_are_refused(uri: str) -> None:
    with pytest.raises(CloudError, match=r"expected abfss://container@account"):
        parse_cloud_uri(uri)


@pytest.mark.parametrize(
    "uri", [f"{PLACE}/a?sv=1&sig={SECRET}", f"abfss://user:{SECRET}@account1.dfs.core.windows.net/a"]
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for main, arguments in ((dump.main, [uri]), (ship.main, ["--store", uri, "--to", "/nothing", "--once"])):
        assert main([*arguments, "--verbose"]) == ExitCode.USAGE
        told = capsys.readouterr().err
        assert "holds credentials" in told
        assert SECRET not in told


@pytest.mark.parametrize("scheme", ["gcs", "az", "wasbs", "adl", "https", "dbfs", "s3a", "x-y.z+1"])
def test_schemes_that_cannot_be_read_are_refused(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"{scheme}://bucket/copy"
    with pytest.raises(CloudError, match=f"{scheme}:// is not supported here".replace("+", "[+]")):
        check_scheme(place)
    with pytest.raises(CloudError):
        resolve_filesystem(place)
    for main, arguments in (
        (dump.main, [place]),
        (archive.main, ["--store", f"/tmp,{place}", "--lake", "/nothing", "--local"]),
    ):
        assert main(arguments) == ExitCode.USAGE
        told = capsys.readouterr().err
        assert f"{scheme}:// is not supported here: expected a folder, s3://bucket/prefix, gs://" in told


def test_folders_and_uris_of_arrow_are_let_through() -> None:
    for place in ("/data/a:b", "C:/data", "file:///data", "s3://bucket/a", "hdfs://host/a", f"{PLACE}/a"):
        check_scheme(place)
    assert is_azure_or_google(f"{PLACE}/a")
    assert not is_azure_or_google("s3://bucket/a")


def test_what_arrow_cannot_open_is_an_error_of_the_store() -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        resolve_filesystem("file://other-host/a")


def refused(status: str, code: str) -> exceptions.BaseError:
    """Return an error of obstore, whose text has the URL with a signature."""
    return exceptions.GenericError(
        f"Generic MicrosoftAzure error: Error performing GET https://account1/logs?sig={SECRET} in 1ms - Server "
        f"returned non-2xx status code: {status}: <Error>\n<Code>{code}</Code><Message>{SECRET}</Message>"
    )


@pytest.mark.parametrize(
    ("error", "expected", "is_temporary"),
    [
        (refused("404 Not Found", "ContainerNotFound"), "no container 'logs' in the account 'account1'", False),
        (refused("403 Forbidden", "AuthorizationFailure"), "access denied (AuthorizationFailure)", False),
        (refused("401 Unauthorized", ""), "access denied (401)", False),
        (refused("503 Busy", "ServerBusy"), "a server that is busy or not well (ServerBusy)", True),
        (refused("429 Too Many", ""), "a server that is busy or not well (429)", True),
        (refused("400 Bad Request", "<b>"), "the answer 400", False),
        (exceptions.PermissionDeniedError("x"), "access denied", False),
        (exceptions.GenericError("x: HTTP error: error sending request"), "no server at the endpoint", True),
        (exceptions.GenericError("Error performing token request: 403"), "no credentials", False),
        (exceptions.GenericError("Invalid Access Key: Invalid symbol"), "no credentials", False),
        (FileNotFoundError("Object at location a not found"), "no container", False),
        (exceptions.BaseError("x"), "wrong settings (BaseError)", False),
    ],
)
def test_errors_say_what_was_found_and_never_repeat_a_request(
    error: Exception, expected: str, is_temporary: bool
) -> None:
    found = azure_error(error, parse_cloud_uri(PLACE), "listing: ")
    assert str(found).startswith(f"listing: found {expected}")
    assert SECRET not in str(found)
    assert isinstance(found, CloudUnavailableError) is is_temporary
    assert isinstance(found, ObjectStoreError)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)


@pytest.mark.parametrize("endpoint", ["ftp://server", "server", f"https://user:{SECRET}@server", f"https://h?{SECRET}"])
def test_wrong_endpoints_are_refused(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
    with pytest.raises(CloudError, match="AZURE_STORAGE_ENDPOINT") as found:
        azure_client(parse_cloud_uri(PLACE))
    assert SECRET not in str(found.value)


def test_connections_without_encryption_to_other_machines_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(cloud_storage, "warn_unencrypted", lambda what, *_: warned.append(what))
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://server:10000/account1")
    azure_client(parse_cloud_uri(PLACE))
    assert warned == ["the object store http://server:10000/account1"]


def test_containers_have_one_client_each() -> None:
    client = azure_client(parse_cloud_uri(f"{PLACE}/a"))
    assert azure_client(parse_cloud_uri(f"{PLACE}/b")) is client
    assert azure_client(parse_cloud_uri(PLACE.replace("logs", "other"))) is not client
    assert "chinacloudapi" in str(parse_cloud_uri(PLACE.replace("windows.net", "chinacloudapi.cn")).suffix)


def test_filesystems_of_a_scheme_are_equal_and_only_read() -> None:
    (first, path), (second, _) = open_filesystem(f"{PLACE}/a"), open_filesystem(f"{PLACE}/b")
    assert first == second
    assert f"abfss://{path}" == f"{PLACE}/a"
    with pytest.raises(NotImplementedError, match="read-only"):
        first.delete_file(path)


def _client_of_child() -> None:
    azure_client(parse_cloud_uri(PLACE))


def test_forked_processes_create_their_own_clients() -> None:
    azure_client(parse_cloud_uri(PLACE))
    child = multiprocessing.get_context("fork").Process(target=_client_of_child)
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize(
    "text", ["token request: HTTP error: error sending request", "token request: status code: 503"]
)
def test_a_server_of_tokens_that_cannot_be_reached_is_asked_later(text: str) -> None:
    error = azure_error(exceptions.GenericError(text), parse_cloud_uri(PLACE), "")
    assert isinstance(error, CloudUnavailableError)
    assert "AZURE_STORAGE_ACCOUNT_KEY" in str(error)


def test_an_object_that_is_replaced_is_read_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(azure_storage, "azure_client", lambda *_: store)
    obstore.put(store, "log.json", b"old")
    file = AzureStorage(PLACE).open("log.json")
    obstore.put(store, "log.json", b"a longer one")
    assert file.read() == b"a longer one"
    file.seek(2)
    obstore.put(store, "log.json", b"another one")
    with pytest.raises(CloudUnavailableError, match="was replaced while it was read"):
        file.read(3)
