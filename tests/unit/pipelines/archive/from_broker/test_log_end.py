"""A run ends where the log ended at the first question, once the broker's queues have come that far."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import ProtocolError, RefusedError, UnreachableError
from commitlake.pipelines.archive.from_broker.log_end import LogExtent, log_extent
from commitlake.schemas.remoting.codes import ResponseCode


class Told(Admin):
    """A client that gives answers one after another."""

    def __init__(self, answers: Sequence[dict[str, str] | RefusedError]) -> None:
        """Nothing is asked yet."""
        self.answers = list(answers)
        self.now = 0.0

    def runtime(self, broker_name: str) -> dict[str, str]:
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
    """What is made of the answers, within a second."""
    admin = Told(answers)
    return log_extent(admin, "broker-a", 1.0, lambda: admin.now, admin.sleep)


def told(begin: int, end: int, behind: int = 0) -> dict[str, str]:
    """An answer."""
    return {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}


def test_the_first_end_counts_once_the_queues_are_there() -> None:
    assert extent(told(7, 100)) == (7, 100)
    assert extent(told(7, 100, 30), told(7, 150, 60), told(7, 200, 100)) == (7, 100)
    assert extent(told(-1, 0)) == (0, 0)
    with pytest.raises(UnreachableError, match="queues to reach physical offset 100 within 1 s, found them 1 bytes"):
        extent(told(7, 100, 1))


def test_a_broker_that_does_not_tell_is_asked_again_only_where_it_has_just_started() -> None:
    starting = RefusedError("127.0.0.1:1", ResponseCode.SYSTEM_ERROR, "null")
    assert extent(starting, starting, told(0, 5)) == (0, 5)
    with pytest.raises(RefusedError, match="null"):
        extent(starting)
    with pytest.raises(RefusedError, match="no right"):
        extent(RefusedError("127.0.0.1:1", ResponseCode.NO_PERMISSION, "no right"), told(0, 5))
    with pytest.raises(ProtocolError, match=r"expected a number commitLogMaxOffset .*, found 'x'"):
        extent(told(0, 5) | {"commitLogMaxOffset": "x"})
