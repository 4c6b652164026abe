"""Arguments of `AnalysisLake.replay`."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from commitlake.pipelines.analysis.replay_arguments import make_named_replay, open_sending_runner
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.named_replay import NamedReplay
from commitlake.pipelines.replay.plan import QueueMapping
from commitlake.schemas.errors import UsageError


def make(**others: Any) -> NamedReplay:
    arguments: dict[str, Any] = {
        "name": "again", "namesrv": "127.0.0.1:9876", "to_topic": None, "queues": "same", "rate": None, "speed": None,
        "pause_if_lag": None, "target_timeout": "10 minutes", "include_replayed": False, "again": False,
        "verify": True, "dry_run": False,
    }  # fmt: skip
    return make_named_replay(**(arguments | others))


def test_arguments_become_a_request() -> None:
    made = make(queues="key", rate=5, pause_if_lag=("billing", 0), target_timeout=datetime.timedelta(seconds=3))
    assert (made.mapping, made.rate, made.speed, made.lag_limit) == (QueueMapping.KEY, 5.0, None, ("billing", 0))
    assert made.target_timeout == datetime.timedelta(seconds=3)
    assert make(namesrv=None, dry_run=True).name_servers is None


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"name": ""}, "name: expected the name of a replay, 1 to 64 letters, digits, '-' and '_', found ''"),
        ({"name": 7}, "name: expected the name of a replay, 1 to 64 letters"),
        ({"queues": "any"}, "queues: expected one of same, key, sharding-key, found 'any'"),
        ({"namesrv": None}, "namesrv: expected the name servers of the target, found none"),
        ({"to_topic": ""}, "to_topic: expected a text, found ''"),
        ({"rate": 0}, "rate: expected a number above 0, found 0"),
        ({"rate": float("nan")}, "rate: expected a number above 0, found nan"),
        ({"speed": True}, "speed: expected a number above 0, found True"),
        ({"pause_if_lag": "billing>5"}, "pause_if_lag: expected a pair of a group's name and a number of messages"),
        ({"target_timeout": "soon"}, "target_timeout: expected whole seconds"),
    ],
)
def test_bad_arguments_are_refused(others: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=f"^{text}"):
        make(**others)


def test_sessions_that_cannot_send_are_refused() -> None:
    session: Any = SimpleNamespace(conf=SimpleNamespace(get={"spark.speculation": "true"}.get))
    with pytest.raises(UsageError, match=r"^speed cannot be used with tasks on Spark"):
        open_sending_runner(session, make(speed=2.0))
    with pytest.raises(ReplayError, match=r"^expected spark\.speculation=false, found true"):
        open_sending_runner(session, make())
