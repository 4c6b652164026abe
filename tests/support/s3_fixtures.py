"""Fixtures for an S3 server and its buckets, which a conftest or a test imports."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.servers.s3 import UNSET, S3Server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Yield the server; a test that kills it must start it again."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(autouse=True)
def s3_environment(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a user's environment: the server and its credentials, and no profile."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """Create an empty bucket."""
    name = f"bucket-{secrets.token_hex(6)}"
    s3_server.client().create_bucket(Bucket=name)
    return name
