"""A real S3 server, shared by this folder's tests; each test has its own bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commitlake.connectors.storage.s3_options import S3Options
from tests.servers.fault_proxy import FaultProxy
from tests.servers.s3 import S3Server
from tests.support.s3_fixtures import bucket, s3_environment, s3_server

__all__ = ["bucket", "s3_environment", "s3_server"]  # fixtures


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of the server, so far without faults."""
    with FaultProxy(s3_server.address) as running:
        yield running


@pytest.fixture
def behind_proxy(proxy: FaultProxy) -> S3Options:
    """The server, reached through the proxy."""
    return S3Options(proxy.endpoint, virtual_hosts=False)
