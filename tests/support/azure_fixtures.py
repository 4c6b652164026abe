"""Fixtures for a server of Azure's blob protocol and its containers, which a conftest or a test imports."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from commitlake.connectors.storage import azure_storage
from tests.servers.azure import AzureServer


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Yield the server; a test that kills it must start it again."""
    with AzureServer(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture(autouse=True)
def azure_environment(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a user's environment: the server and the key, and no other credentials."""
    for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in azure_server.environment().items():
        monkeypatch.setenv(name, value)
    azure_storage.forget_clients()
    yield
    azure_storage.forget_clients()


@pytest.fixture
def copy(azure_server: AzureServer) -> str:
    """Create an empty container; return the URI of a prefix in it."""
    name = f"logs-{secrets.token_hex(6)}"
    azure_server.create_container(name)
    return azure_server.uri(name, "brokers/copy")
