"""Current speed of this machine, for limits of processor time.

Even processor time depends on the machine: on its clock, and on other work on the same core. A limit in seconds that
holds on one machine fails on another, so tests multiply it by `slowness`.
"""

from __future__ import annotations

import json
import time

_TEXT = json.dumps({str(number): [number, "value"] for number in range(10_000)})
_REFERENCE_SECONDS = 0.005
"""Processor time of `_work` on an idle server of 2024."""


def slowness() -> float:
    """Return how much longer a fixed task takes now than on an idle server of 2024, as a factor of at least 1."""
    return max(1.0, *(_work_seconds() / _REFERENCE_SECONDS for _ in range(3)))


def _work_seconds() -> float:
    began = time.thread_time()
    _work()
    return time.thread_time() - began


def _work() -> int:
    """Parse, allocate and loop, as parsers do."""
    return sum(len(value) for value in json.loads(_TEXT).values())
