"""The request and the runner of `AnalysisLake.replay`, from its arguments."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from commitlake.pipelines.analysis.rates_arguments import make_window
from commitlake.pipelines.replay.named_replay import NamedReplay, check_replay_name
from commitlake.pipelines.replay.plan import QueueMapping
from commitlake.pipelines.replay.sending.tasks import check_no_speculation
from commitlake.schemas.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from commitlake.connectors.runtime.runner import Runner

_MAX_NUMBER = 1e9


def make_named_replay(
    name: str,
    namesrv: str | None,
    to_topic: str | None,
    queues: str,
    rate: float | None,
    speed: float | None,
    pause_if_lag: tuple[str, int] | None,
    target_timeout: datetime.timedelta | str,
    *,
    include_replayed: bool,
    again: bool,
    verify: bool,
    dry_run: bool,
) -> NamedReplay:
    """Check the arguments of `AnalysisLake.replay`, and return them as one object.

    Raises:
        UsageError: if an argument is not valid, or messages are to be sent without name servers.
    """
    check_replay_name(name)
    if queues not in list(QueueMapping):
        raise UsageError(f"queues: expected one of {', '.join(QueueMapping)}, found {queues!r:.80}")
    if not dry_run and not namesrv:
        raise UsageError("namesrv: expected the name servers of the target, found none")
    for text_name, text in (("namesrv", namesrv), ("to_topic", to_topic)):
        if text is not None and (not isinstance(text, str) or not text):
            raise UsageError(f"{text_name}: expected a text, found {text!r:.80}")
    return NamedReplay(
        name=name,
        name_servers=namesrv,
        target_topic=to_topic,
        mapping=QueueMapping(queues),
        rate=_check_number("rate", rate),
        speed=_check_number("speed", speed),
        lag_limit=_check_lag_limit(pause_if_lag),
        target_timeout=make_window(target_timeout, "target_timeout"),
        includes_replayed=include_replayed,
        accepts_unfinished=again,
        verifies=verify,
    )


def open_sending_runner(spark: SparkSession, request: NamedReplay) -> Runner:
    """Return a Spark runner for the tasks that send the messages of a replay.

    Raises:
        UsageError: if the messages are to be sent at the pace at which they were stored.
        ReplayError: if Spark would start second attempts of tasks.
    """
    from commitlake.connectors.spark.runner import SparkRunner  # noqa: PLC0415 (loads Spark)
    from commitlake.connectors.spark.worker_check import choose_python  # noqa: PLC0415 (loads Spark)

    if request.speed:
        raise UsageError(
            "speed cannot be used with tasks on Spark, because only a single sender can keep to the pace at which the "
            "messages were stored: leave it out, or open the lake without a session"
        )
    check_no_speculation(spark)
    choose_python(spark)
    return SparkRunner(spark)


def _check_number(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_NUMBER:
        raise UsageError(f"{name}: expected a number above 0, found {value!r:.80}")
    return float(value)


def _check_lag_limit(value: tuple[str, int] | None) -> tuple[str, int] | None:
    if value is None:
        return None
    match value:
        case (str() as group, int() as messages) if group and messages >= 0 and not isinstance(messages, bool):
            return group, messages
    raise UsageError(f"pause_if_lag: expected a pair of a group's name and a number of messages, found {value!r:.80}")
