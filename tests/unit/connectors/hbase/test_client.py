"""The client against answers that a real HBase gives too rarely to wait for: moving regions, broken connections."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import happybase
import pytest
from Hbase_thrift import IllegalArgument
from Hbase_thrift import IOError as HBaseIOError
from thriftpy2.transport import TTransportException

from commitlake.connectors.hbase import client as client_module
from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError, HBaseRefusedError
from commitlake.connectors.hbase.options import HBaseOptions

_JAVA = "org.apache.hadoop.hbase"


class _Server:
    """Answers calls from a list, an exception by raising it; a region server as Thrift shows it."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.connections = 0
        self.pauses: list[float] = []

    def connect(self, *_: object, **__: object) -> Any:
        self.connections += 1
        return SimpleNamespace(client=self, close=lambda: None)

    def __getattr__(self, _: str) -> Callable[..., Any]:
        def call(*_: object) -> Any:
            answer = self.answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> _Server:
    """A server without answers; pauses take no time."""
    made = _Server([])
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        made.pauses.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(happybase, "Connection", made.connect)
    monkeypatch.setattr(client_module, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock.now))
    return made


def _error(name: str) -> HBaseIOError:
    return HBaseIOError(f"{_JAVA}.{name}: said the server\n\tat some.java.Line(1)".encode())


@pytest.mark.parametrize(
    "name", ["NotServingRegionException", "exceptions.RegionMovedException", "RegionTooBusyException",
             "ipc.ServerNotRunningYetException", "client.RetriesExhaustedException"],
)  # fmt: skip
def test_a_region_that_moves_is_waited_for(server: _Server, name: str) -> None:
    server.answers = [_error(name), _error(name), None]
    client = Client(HBaseOptions())
    client.write([(b"k", b"m:v", b"1")], 1)
    assert (client.retries, server.connections) == (2, 1)


@pytest.mark.parametrize(
    "error", [TTransportException(4, "TSocket read 0 bytes"), BrokenPipeError(), TimeoutError("timed out"), EOFError()]
)
def test_a_broken_connection_is_replaced(server: _Server, error: Exception) -> None:
    server.answers = [error, [b"messages"]]
    client = Client(HBaseOptions())
    assert client.list_tables() == ["messages"]
    assert (client.retries, server.connections) == (1, 2)


def test_pauses_grow_and_end(server: _Server) -> None:
    server.answers = [[], *[_error("NotServingRegionException")] * 1000]
    client = Client(HBaseOptions(retry_seconds=60))
    client.list_tables()
    with pytest.raises(HBaseError, match=r"gave no answer to 'get' .* within 60 s: .*NotServingRegionException: "):
        client.get([b"k"], b"m:v")
    assert sum(server.pauses) <= 60
    assert server.pauses[0] <= 0.1
    assert 2.5 <= server.pauses[-1] <= 5


def test_the_first_connection_has_a_shorter_timeout(monkeypatch: pytest.MonkeyPatch, server: _Server) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TTransportException(1, "Could not connect to ('hbase', 9090)")

    monkeypatch.setattr(happybase, "Connection", refuse)
    with pytest.raises(HBaseError, match=r"hbase:9090 .* within 5 s: Could not connect to"):
        Client(HBaseOptions(host="hbase", connect_seconds=5)).list_tables()
    assert sum(server.pauses) <= 5


@pytest.mark.parametrize(
    "error",
    [
        _error("TableNotFoundException"),
        _error("security.AccessDeniedException"),
        _error("regionserver.NoSuchColumnFamilyException"),
        IllegalArgument(b"Row key is invalid"),
    ],
)
def test_a_permanent_error_is_raised_at_once(server: _Server, error: Exception) -> None:
    server.answers = [error]
    with pytest.raises(HBaseRefusedError, match="refused 'write' of the table commitlake_messages: "):
        Client(HBaseOptions()).write([(b"k", b"m:v", b"1")], 1)
    assert server.pauses == []


def test_a_scan_continues_after_the_last_row_that_arrived(server: _Server) -> None:
    def row(key: bytes) -> Any:
        return SimpleNamespace(row=key, columns={b"m:v": SimpleNamespace(value=b"1")})

    scanner, closed = 7, None
    server.answers = [
        scanner, [row(b"a"), row(b"b")], closed,
        scanner, TimeoutError("timed out"), OSError(),  # to close the scanner fails, too
        scanner, [row(b"c")], closed,
    ]  # fmt: skip
    pages = list(Client(HBaseOptions()).scan(b"", b"z", page_rows=2))
    assert [[one.key for one in page] for page in pages] == [[b"a", b"b"], [b"c"]]
