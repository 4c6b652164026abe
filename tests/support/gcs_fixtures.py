"""Fixtures for a server of Google Cloud Storage's protocol and its buckets, which a conftest or a test imports."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from commitlake.connectors.storage import gcs_clients
from tests.servers.gcs import GcsServer


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """Yield the server."""
    with GcsServer(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(autouse=True)
def gcs_environment(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a user's environment: the server and the key file, and no other settings."""
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in gcs_server.environment().items():
        monkeypatch.setenv(name, value)
    gcs_clients.forget_client()
    yield
    gcs_clients.forget_client()


@pytest.fixture
def copy(gcs_server: GcsServer) -> str:
    """Create an empty bucket; return the URI of a prefix in it."""
    name = f"logs-{secrets.token_hex(6)}"
    gcs_server.create_bucket(name)
    return f"gs://{name}/brokers/copy"
