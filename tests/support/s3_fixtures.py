"""Fixtures for an S3 server and its buckets, which a conftest or a test imports."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.servers.s3 import S3Server


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
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """Create an empty bucket."""
    name = f"bucket-{secrets.token_hex(6)}"
    s3_server.client().create_bucket(Bucket=name)
    return name
