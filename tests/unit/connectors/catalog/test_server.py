"""Tests of the catalog's address and token in the environment."""

from __future__ import annotations

import pytest

from commitlake.connectors.catalog.names import CatalogError
from commitlake.connectors.catalog.server import CatalogServer, configured_catalog_server

SECRET = "dapi-secret-0123"


def test_without_an_address_there_is_no_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", SECRET)
    assert configured_catalog_server() is None


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://Catalog.Example.org", "https://catalog.example.org"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_open_source_server_needs_no_token(given: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_CATALOG_URL", given)
    assert configured_catalog_server() == CatalogServer(url)


@pytest.mark.parametrize("given", ["https://adb-1.2.azuredatabricks.net/", "adb-1.2.azuredatabricks.net"])
def test_databricks_hosts_may_lack_their_scheme(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", given)
    with pytest.raises(CatalogError, match="DATABRICKS_TOKEN is not set"):
        configured_catalog_server()
    monkeypatch.setenv("DATABRICKS_TOKEN", SECRET)
    assert configured_catalog_server() == CatalogServer("https://adb-1.2.azuredatabricks.net", SECRET)


def test_a_token_goes_only_with_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", "https://one.example.org")
    monkeypatch.setenv("DATABRICKS_TOKEN", SECRET)
    monkeypatch.setenv("UNITY_CATALOG_URL", "https://two.example.org")
    assert configured_catalog_server() == CatalogServer("https://two.example.org", "")


@pytest.mark.parametrize(
    "given",
    [
        "catalog",
        "ftp://host",
        "https://",
        "https://host/path",
        "https://host:port",
        "https://ho st",
        "https://host:99999",
        "//host",
    ],
)
def test_other_addresses_are_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_CATALOG_URL", given)
    with pytest.raises(CatalogError, match="expected https://HOST"):
        configured_catalog_server()


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_CATALOG_URL", f"https://user:{SECRET}@host")
    with pytest.raises(CatalogError) as refused:
        configured_catalog_server()
    monkeypatch.setenv("UNITY_CATALOG_URL", "https://host")
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", f"{SECRET}\nX-Header: 1")
    with pytest.raises(CatalogError) as malformed:
        configured_catalog_server()
    for text in (str(refused.value), str(malformed.value), repr(CatalogServer("https://host", SECRET))):
        assert SECRET not in text


@pytest.mark.parametrize(
    ("url", "is_local"),
    [("http://localhost:1", True), ("http://127.1.2.3", True), ("http://[::1]:8", True), ("https://host", False)],
)
def test_a_server_on_this_machine_is_known(url: str, is_local: bool) -> None:
    assert CatalogServer(url).is_local is is_local
