"""Runner of one target's cases, with a limit on the growth of memory."""

from __future__ import annotations

import logging
import random
import resource
from collections.abc import Callable, Mapping

from tests.fuzz.jmq_runs import PlantedJmq
from tests.fuzz.layouts import JmqLayouts, Layouts
from tests.fuzz.stores import JmqStores, Stores
from tests.fuzz.targets import Frames, Requests, Target
from tests.fuzz.whole_runs import PlantedMessages, SentMessages

TARGETS: Mapping[str, Callable[[random.Random], Target]] = {
    "frames": Frames, "requests": Requests, "layouts": Layouts, "jmq-layouts": JmqLayouts, "stores": Stores,
    "jmq-stores": JmqStores, "planted-messages": PlantedMessages, "sent-messages": SentMessages,
    "planted-jmq": PlantedJmq,
}  # fmt: skip
MEMORY_MIB = 96
"""Memory that the cases of one target may take beyond that of the first case."""
_MEMORY_MIB_OF = {"planted-messages": 2048, "sent-messages": 2048, "planted-jmq": 2048}
"""Larger stores take more, up to the largest that the target makes."""
_QUIETER = {
    "commitlake.broker_lite": logging.ERROR,
    "commitlake.broker_lite.delivery": logging.CRITICAL,
    "commitlake.broker_lite.stores.rocketmq": logging.CRITICAL,
    "commitlake.connectors": logging.CRITICAL,
}
"""Loggers of faults that are caused here on purpose; unexpected errors of handlers are still reported."""
_FIRST = 2000
_STEP = 500


class CaseError(Exception):
    """A case with forbidden behaviour."""


def run_cases(name: str, seed: int, cases: int, advance: Callable[[int], object] = lambda _: None) -> int:
    """Run cases of a target.

    Args:
        name: the target's name.
        seed: seed of all random choices.
        cases: number of cases.
        advance: called with the number of cases of each step.

    Returns:
        MiB by which the process has grown after the first cases.

    Raises:
        CaseError: for the first case that raises, or if memory grows beyond `MEMORY_MIB`.
    """
    target = TARGETS[name](random.Random(f"{name} {seed}"))
    base = 0
    levels = {logger_name: logging.getLogger(logger_name).level for logger_name in _QUIETER}
    for logger_name, level in _QUIETER.items():
        logging.getLogger(logger_name).setLevel(level)
    try:
        for number in range(cases):
            try:
                target.try_one()
                if number == cases - 1:
                    target.finish()
            except Exception as error:
                raise CaseError(f"{name}, seed {seed}, case {number}: {type(error).__name__}: {error}") from error
            if (number + 1) % _STEP == 0:
                advance(_STEP)
                if number < _FIRST:
                    base = _peak_mib()
                elif (grown := _peak_mib() - base) > _MEMORY_MIB_OF.get(name, MEMORY_MIB):
                    raise CaseError(f"{name}, seed {seed}: {grown} MiB more after {number + 1} cases")
    finally:
        target.close()
        for logger_name, level in levels.items():
            logging.getLogger(logger_name).setLevel(level)
    return max(0, _peak_mib() - base) if base else 0


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
