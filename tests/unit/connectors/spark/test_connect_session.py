"""Progress and tags of a session of Spark Connect, as far as they can be tested without a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from commitlake.connectors.spark import connect_session
from commitlake.connectors.spark.connect_session import ConnectSession, is_connect, open_connect_session
from commitlake.schemas.errors import UnavailableError, UsageError
from tests.servers.process import free_ports


def stages(*counts: tuple[int, int]) -> list[Any]:
    """Return stages with these numbers of finished tasks, as the server reports them."""
    return [SimpleNamespace(num_completed_tasks=done, num_tasks=known) for done, known in counts]


def test_the_last_report_of_each_operation_counts_and_ended_ones_are_done() -> None:
    session = Mock()
    count = ConnectSession(session).task_counter()
    assert count() == (0, 0)
    (report,) = session.registerProgressHandler.call_args.args
    report(stages=stages((0, 4)), inflight_tasks=2, operation_id="a", done=False)
    report(stages=stages((4, 4), (1, 2)), inflight_tasks=1, operation_id="a", done=False)
    report(stages=stages((0, 10)), inflight_tasks=1, operation_id="b", done=False)
    assert count() == (5, 16)
    report(stages=None, inflight_tasks=0, operation_id="a", done=True)
    assert count() == (6, 16)


def test_cores_are_counted_once() -> None:
    session = Mock()
    session.range.return_value.selectExpr.return_value.selectExpr.return_value.collect.return_value = [{"cores": 12}]
    control = ConnectSession(session)
    assert [control.cores(), control.cores()] == [12, 12]
    session.range.assert_called_once()


def test_a_server_that_has_exited_can_no_longer_cancel() -> None:
    session = Mock()
    session.interruptTag.side_effect = PySparkException("no server")
    ConnectSession(session).cancel_jobs("tag")
    session.interruptTag.assert_called_once_with("tag")


def test_a_session_with_its_own_jvm_is_none_of_spark_connect() -> None:
    assert not is_connect(Mock())


@pytest.mark.parametrize(
    "url",
    [
        "host:15002", "http://host", "sc://host:port", "sc://", "sc://[", "\x00", "sc://host;token=hidden",
        "sc://hidden@host",
    ],
)  # fmt: skip
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="expected sc://HOST:PORT") as error:
        open_connect_session(url)
    assert "hidden" not in str(error.value)


def test_a_server_that_does_not_answer_is_reported_at_once_without_its_token() -> None:
    port = free_ports(1)
    with pytest.raises(UnavailableError, match=f"answers at 127.0.0.1:{port}: Connection refused") as error:
        open_connect_session(f"sc://127.0.0.1:{port}/;token=hidden")
    assert "hidden" not in str(error.value)


@pytest.fixture
def another_server() -> Iterator[int]:
    """The port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_url_that_pyspark_refuses_is_not_shown(another_server: int) -> None:
    with pytest.raises(UsageError, match="expected sc://HOST:PORT") as error:
        open_connect_session(f"sc://127.0.0.1:{another_server}/;token=hidden==")
    assert "hidden" not in str(error.value)


def test_a_server_of_another_kind_is_reported_within_seconds(
    another_server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_session, "_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(UnavailableError, match="is not a Spark Connect server"):
        open_connect_session(f"sc://127.0.0.1:{another_server}")
