"""The warning of connections without TLS."""

from __future__ import annotations

import pytest

from commitlake.connectors import unencrypted_connections
from commitlake.connectors.unencrypted_connections import warn_unencrypted


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unencrypted_connections, "_warned", set())


def test_a_remote_server_causes_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        warn_unencrypted("the broker 10.0.0.1:10911", "10.0.0.1", "Use tls.properties.")
    (said,) = caplog.messages
    assert said.startswith("the broker 10.0.0.1:10911 is reached without TLS: ")
    assert said.endswith(" Use tls.properties.")


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_a_local_server_causes_no_warning(host: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_unencrypted(f"a server at {host}", host, "")
    assert caplog.messages == []
