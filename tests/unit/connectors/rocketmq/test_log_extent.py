"""Tests of the end of a broker's log: it is the end at the first request, once the broker's queues have reached it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import ProtocolError, RefusedError, UnreachableError
from commitlake.connectors.rocketmq.log_extent import LogExtent, log_extent
from commitlake.schemas.remoting.codes import ResponseCode


class AnsweringAdmin(Admin):
    """A client that gives answers one after another."""

    def __init__(self, answers: Sequence[dict[str, str] | RefusedError]) -> None:
        """Start without any request."""
        self.answers = list(answers)
        self.now = 0.0

    def runtime_info(self, broker_name: str) -> dict[str, str]:
        """Give the next answer, the last one again and again."""
        assert broker_name == "broker-a"
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


def extent(*answers: dict[str, str] | RefusedError) -> LogExtent:
    """Return the extent found from the answers within a second."""
    admin = AnsweringAdmin(answers)
    return log_extent(admin, "broker-a", 1.0, lambda: admin.now, admin.sleep)


def answer_of(begin: int, end: int, behind: int = 0) -> dict[str, str]:
    """Return an answer with this extent."""
    return {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}


def test_the_first_end_is_used_once_the_queues_have_reached_it() -> None:
    assert extent(answer_of(7, 100)) == (7, 100)
    assert extent(answer_of(7, 100, 30), answer_of(7, 150, 60), answer_of(7, 200, 100)) == (7, 100)
    assert extent(answer_of(-1, 0)) == (0, 0)
    with pytest.raises(
        UnreachableError, match="queues contain all messages up to physical offset 100 within 1 s, but they are 1 bytes"
    ):
        extent(answer_of(7, 100, 1))


def test_only_a_starting_broker_without_an_answer_is_asked_again() -> None:
    starting = RefusedError("127.0.0.1:1", ResponseCode.SYSTEM_ERROR, "null")
    assert extent(starting, starting, answer_of(0, 5)) == (0, 5)
    with pytest.raises(RefusedError, match="null"):
        extent(starting)
    with pytest.raises(RefusedError, match="no right"):
        extent(RefusedError("127.0.0.1:1", ResponseCode.NO_PERMISSION, "no right"), answer_of(0, 5))
    with pytest.raises(ProtocolError, match=r"expected the field commitLogMaxOffset .*, found 'x'"):
        extent(answer_of(0, 5) | {"commitLogMaxOffset": "x"})
