"""Places in Google Cloud Storage, its client and its errors; no server is contacted here."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import urllib3
from google.api_core import exceptions as api_exceptions
from google.auth import compute_engine
from google.auth import exceptions as auth_exceptions
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from requests.adapters import HTTPAdapter

from commitlake.connectors.reading.time_bounds import _READERS
from commitlake.connectors.storage import cloud_storage, gcs_clients
from commitlake.connectors.storage.errors import CloudError, CloudUnavailableError, ObjectStoreError
from commitlake.connectors.storage.filesystem import open_filesystem
from commitlake.connectors.storage.gcs_clients import forget_client, gcs_bucket, gcs_error
from commitlake.connectors.storage.uris import check_scheme, is_azure_or_google, is_google, parse_cloud_uri
from commitlake.schemas.shipped_manifest import make_fetch_hint
from tests.support.certificates import Certificates

PLACE = "gs://logs"
api: Any = api_exceptions  # its functions have no types
auth: Any = auth_exceptions
SECRET = "ya29.secret"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An emulator, which needs no credentials, and no settings from outside."""
    for name in ("COMMITLAKE_GCS_ENDPOINT", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    forget_client()
    yield
    forget_client()


@pytest.mark.parametrize(
    ("uri", "prefix", "key"),
    [
        (PLACE, "", "x"),
        (f"{PLACE}/", "", "x"),
        (f"{PLACE}/a/b/", "a/b", "a/b/x"),
        (f"{PLACE}/a b/%RETRY%g/ü#1", "a b/%RETRY%g/ü#1", "a b/%RETRY%g/ü#1/x"),
        ("GS://logs", "", "x"),
    ],
)
def test_a_uri_is_a_bucket_and_a_prefix(uri: str, prefix: str, key: str) -> None:
    found = parse_cloud_uri(uri)
    assert (found.container, found.prefix, found.key("x")) == ("logs", prefix, key)
    assert parse_cloud_uri(str(found)) == found
    check_scheme(uri)
    assert is_azure_or_google(uri)
    assert is_google(uri)
    assert not is_google("s3://logs/a")
    assert "commitlake ship" in make_fetch_hint(f"{found}/commitlog")


@pytest.mark.parametrize(
    "uri",
    [
        "gs://",
        "gs:///a",
        "gs://Logs/a",
        "gs://a",
        "gs://bucket:80/a",
        "gs://-bucket/a",
        f"{PLACE}/a//b",
        f"{PLACE}/../b",
    ],
)
def test_other_forms_are_refused(uri: str) -> None:
    with pytest.raises(CloudError, match="expected gs://bucket/prefix"):
        parse_cloud_uri(uri)


def test_credentials_in_a_uri_are_refused_and_not_repeated() -> None:
    for uri in (f"gs://user:{SECRET}@bucket/a", f"gs://bucket/a?x=1&sig={SECRET}"):
        with pytest.raises(CloudError, match="holds credentials") as found:
            parse_cloud_uri(uri)
        assert SECRET not in str(found.value)


def answered(status: int, reason: str = "") -> Any:
    """Return an error of the package, whose text has an answer with a token."""
    errors = [{"reason": reason, "message": SECRET}] if reason else []
    return api.from_http_status(status, f"GET https://storage/b?token={SECRET}", errors=errors)


def failed_response(status: int) -> requests.Response:
    """Return an answer."""
    response = requests.Response()
    response.status_code = status
    return response


@pytest.mark.parametrize(
    ("error", "expected", "is_temporary"),
    [
        (answered(404, "notFound"), "no bucket 'logs'", False),
        (answered(403, "forbidden"), "access denied (forbidden)", False),
        (answered(401), "access denied (401)", False),
        (answered(503, "backendError"), "a server that is busy or not well (backendError)", True),
        (answered(429), "a server that is busy or not well (429)", True),
        (api.RetryError("x", answered(503)), "a server that is busy or not well (503)", True),
        (answered(400, f"<{SECRET}>"), "the answer 400", False),
        (answered(412, "conditionNotMet"), "the answer conditionNotMet", False),
        (InvalidResponse(failed_response(500), SECRET), "a server that is busy or not well (500)", True),
        (DataCorruption(failed_response(200), SECRET), "bytes whose checksum is wrong", True),
        (requests.exceptions.SSLError(SECRET), "a certificate that is not trusted", False),
        (requests.ConnectionError(SECRET), "no server at the endpoint", True),
        (requests.Timeout(SECRET), "no server at the endpoint", True),
        (requests.exceptions.ChunkedEncodingError(SECRET), "no server at the endpoint", True),
        (urllib3.exceptions.ProtocolError(SECRET), "no server at the endpoint", True),
        (http.client.IncompleteRead(b""), "no server at the endpoint", True),
        (api.RetryError("x", requests.ConnectionError(SECRET)), "no server at the endpoint", True),
        (auth.DefaultCredentialsError(SECRET), "no credentials that can be used (DefaultCredentialsError)", False),
        (auth.RefreshError(SECRET), "no credentials that can be used, because their server refuses", False),
        (
            auth.RefreshError(SECRET, retryable=True),
            "no credentials that can be used, because their server cannot",
            True,
        ),
        (auth.TransportError(SECRET), "no credentials that can be used, because their server cannot", True),
        (ValueError(SECRET), "wrong settings (ValueError)", False),
        (PermissionError(SECRET), "wrong settings (PermissionError)", False),
    ],
)
def test_errors_say_what_was_found_and_never_repeat_a_request(
    error: Exception, expected: str, is_temporary: bool
) -> None:
    found = gcs_error(error, parse_cloud_uri(PLACE), "listing: ")
    assert str(found).startswith(f"listing: found {expected}")
    assert SECRET not in str(found)
    assert isinstance(found, CloudUnavailableError) is is_temporary
    assert isinstance(found, ObjectStoreError)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)


def refused_token(monkeypatch: pytest.MonkeyPatch, status: int | None) -> Any:
    """Return the error of a machine's credentials whose metadata server has a status, or does not answer."""

    def request(**_: object) -> Any:
        if status is None:
            raise auth.TransportError(requests.ConnectionError(SECRET))
        return SimpleNamespace(status=status, headers={}, data=SECRET.encode())

    with monkeypatch.context() as quick:
        quick.setattr("time.sleep", lambda _: None)
        credentials: Any = compute_engine.Credentials()  # type: ignore[no-untyped-call]
        with pytest.raises(auth.RefreshError) as found:
            credentials.refresh(request)
    return found.value


@pytest.mark.parametrize(
    ("status", "is_temporary"), [(None, True), (503, True), (502, True), (404, False), (403, False)]
)
def test_metadata_servers_that_are_away_are_asked_again(
    monkeypatch: pytest.MonkeyPatch, status: int | None, is_temporary: bool
) -> None:
    error = refused_token(monkeypatch, status)
    for wrapped in (error, api.RetryError("x", error)):
        found = gcs_error(wrapped, parse_cloud_uri(PLACE), "")
        assert isinstance(found, CloudUnavailableError) is is_temporary
        assert SECRET not in str(found)
    errors = [error, error]

    def request() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    retried = gcs_clients.TIMEOUTS["retry"].with_delay(0.001, 0.001)(request)
    if is_temporary:
        assert retried() == "answer"
    else:
        with pytest.raises(auth.RefreshError):
            retried()
        assert len(errors) == 1


@pytest.mark.parametrize("endpoint", ["ftp://server", "server", f"https://user:{SECRET}@server", f"https://h?{SECRET}"])
@pytest.mark.parametrize("variable", ["COMMITLAKE_GCS_ENDPOINT", "STORAGE_EMULATOR_HOST"])
def test_wrong_endpoints_are_refused(endpoint: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, endpoint)
    with pytest.raises(CloudError, match="COMMITLAKE_GCS_ENDPOINT") as found:
        gcs_bucket(parse_cloud_uri(PLACE))
    assert SECRET not in str(found.value)


def test_connections_without_encryption_to_other_machines_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(cloud_storage, "warn_unencrypted", lambda what, *_: warned.append(what))
    monkeypatch.setenv("COMMITLAKE_GCS_ENDPOINT", "http://server:4443")
    gcs_bucket(parse_cloud_uri(PLACE))
    assert warned == ["the object store http://server:4443"]


def test_key_files_that_cannot_be_used_are_named_without_their_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    broken = {"type": "service_account", "private_key": SECRET, "client_email": "a@b", "token_uri": "https://a"}
    for number, content in enumerate((SECRET, "{}", json.dumps(broken), json.dumps({"type": "service_account"}))):
        path = tmp_path / str(number)
        path.write_text(content)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        with pytest.raises(CloudError, match="GOOGLE_APPLICATION_CREDENTIALS") as found:
            gcs_bucket(parse_cloud_uri(PLACE))
        assert SECRET not in str(found.value)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    with pytest.raises(CloudError, match="no credentials that can be used"):
        gcs_bucket(parse_cloud_uri(PLACE))


def test_buckets_share_a_client() -> None:
    first, second = gcs_bucket(parse_cloud_uri(f"{PLACE}/a")), gcs_bucket(parse_cloud_uri("gs://other/a"))
    assert first.client is second.client
    assert (first.name, second.name) == ("logs", "other")


def test_each_reading_thread_can_keep_its_connection() -> None:
    session = gcs_bucket(parse_cloud_uri(PLACE)).client._http
    for url in ("https://storage.googleapis.com/", "http://127.0.0.1:9/"):
        assert session.get_adapter(url)._pool_maxsize > _READERS


def test_client_certificate_of_the_machine_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    paths = {"cert_path": str(certificates.path("client")), "key_path": str(certificates.path("client.key"))}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"cert_configs": {"workload": paths}}))
    monkeypatch.setenv("GOOGLE_API_CERTIFICATE_CONFIG", str(config))
    session = gcs_bucket(parse_cloud_uri(PLACE)).client._http
    adapter = session.get_adapter("https://storage.googleapis.com/")
    assert session.is_mtls
    assert type(adapter) is not HTTPAdapter
    assert adapter.poolmanager.connection_pool_kw["ssl_context"] is not None
    assert adapter._pool_maxsize > _READERS


def test_filesystems_of_the_scheme_are_equal_and_only_read() -> None:
    (first, path), (second, _) = open_filesystem(f"{PLACE}/a"), open_filesystem("gs://other/b")
    assert first == second
    assert first != open_filesystem("abfss://logs@account1.dfs.core.windows.net/a")[0]
    assert f"gs://{path}" == f"{PLACE}/a"
    with pytest.raises(NotImplementedError, match="read-only"):
        first.delete_file(path)


def _client_of_child(parents: int) -> None:
    assert id(gcs_bucket(parse_cloud_uri(PLACE)).client) != parents


def test_forked_processes_create_their_own_clients() -> None:
    client = gcs_bucket(parse_cloud_uri(PLACE)).client
    child = multiprocessing.get_context("fork").Process(target=_client_of_child, args=(id(client),))
    child.start()
    child.join(60)
    assert child.exitcode == 0
