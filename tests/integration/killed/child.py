"""An archive run in a process of its own, to be killed: it says when it is about to begin, and waits for a word.

    python -m tests.integration.killed.child STORE LAKE [STEP]

With a step, the process and its JVM kill themselves there.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from connectors.archive.run import Config, run_archive
from connectors.spark_session import get_session

STEPS = {
    "before the tables are there": ("connectors.archive.run", "open_for_append", "before"),
    "before the first task": ("connectors.archive.run", "open_for_append", "after"),
    "before the commit": ("connectors.archive.run", "commit_run", "before"),
    "behind the commit": ("connectors.archive.run", "commit_run", "after"),
    "before the quarantine": ("connectors.lake.follower", "append_files", "before"),
    "behind the quarantine": ("connectors.lake.follower", "append_files", "after"),
    "before the run is told": ("connectors.lake.follower", "_append_run", "before"),
    "behind the run": ("connectors.lake.follower", "_append_run", "after"),
    "before the keys are committed": ("connectors.message_keys.follow", "advance", "before"),
    "behind the keys": ("connectors.message_keys.follow", "advance", "after"),
}


def die() -> None:
    """End this process and its JVM as a power cut would."""
    os.killpg(0, signal.SIGKILL)


def arm(step: str) -> None:
    """Let a function be the last one that is called."""
    module_name, name, when = STEPS[step]
    module = importlib.import_module(module_name)
    function: Callable[..., Any] = getattr(module, name)

    def last(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            die()
        value = function(*arguments, **named)
        die()
        return value

    setattr(module, name, last)


def main() -> None:
    """Start, wait, archive, say so."""
    store, lake, *steps = sys.argv[1:]
    spark = get_session("killed")
    spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()  # the workers are there, too
    for step in steps:
        arm(step)
    print("ready", flush=True)
    sys.stdin.readline()
    result = run_archive(spark, Config(store, lake, "a", max_partition_bytes=1 << 20, parser_version="1"))
    print(f"done {result.seconds}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
