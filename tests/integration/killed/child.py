"""A run of `archive` or `topics` in a process of its own, to be killed: it prints a line, and waits for input.

    python -m tests.integration.killed.child spark|threads STORE LAKE [STEP]
    python -m tests.integration.killed.child topics TOPICS_FILE LAKE [STEP]

STORE is a folder, or `namesrv:HOST:PORT` for brokers to pull from. With a step, the process and its JVM kill themselves
there. With the step "disk full", no task can make a file longer than 100 KB, as if that were all that is left. With the
step "one commit", the run makes a single commit; otherwise, one after each MiB of the log.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.topics.command import main as topics
from commitlake.pipelines.archive.commit_series import archive_concurrently
from commitlake.pipelines.archive.from_broker.pull_task_input import BrokerSource
from commitlake.pipelines.archive.run import Config, plan_work
from commitlake.pipelines.quality.great_expectations_loading import load_ignoring_errors, skip_unused_packages
from commitlake.schemas.errors import ExitCode
from tests.support.process_trees import kill_tree

Step = tuple[str, str, str] | tuple[str, str, str, int]
"""Module and name of a function, when the process ends, and at which call."""
STEPS: dict[str, Step] = {
    "before the tables are there": ("commitlake.pipelines.archive.run", "open_messages_for_append", "before"),
    "before the first task": ("commitlake.pipelines.archive.run", "open_messages_for_append", "after"),
    "before the commit": ("commitlake.pipelines.archive.run", "commit_run", "before"),
    "after the commit": ("commitlake.pipelines.archive.run", "commit_run", "after"),
    "after the second commit": ("commitlake.pipelines.archive.run", "commit_run", "after", 2),
    "before the quarantine": ("commitlake.connectors.lake.archive_run_completion", "append_files", "before"),
    "after the quarantine": ("commitlake.connectors.lake.archive_run_completion", "append_files", "after"),
    "before the run is told": ("commitlake.connectors.lake.archive_run_completion", "_append_run", "before"),
    "after the run": ("commitlake.connectors.lake.archive_run_completion", "_append_run", "after"),
    "before the keys are committed": (
        "commitlake.pipelines.message_keys.table_update",
        "commit_with_transaction",
        "before",
    ),
    "after the keys": ("commitlake.pipelines.message_keys.table_update", "commit_with_transaction", "after"),
    "before the edges are committed": ("commitlake.pipelines.edges.table_update", "commit_with_transaction", "before"),
    "after the edges": ("commitlake.pipelines.edges.table_update", "commit_with_transaction", "after"),
}
_TOPICS = "commitlake.pipelines.topics.table_update"
TOPIC_STEPS: dict[str, Step] = {
    "after the rows": (_TOPICS, "commit_with_transaction", "after"),
    "before the misfits": (_TOPICS, "commit_with_transaction", "before", 2),
    "after the misfits": (_TOPICS, "commit_with_transaction", "after", 2),
    "before the rows": (_TOPICS, "commit_with_transaction", "before"),
    "before the third commit": (_TOPICS, "commit_with_transaction", "before", 3),
    "after the third commit": (_TOPICS, "commit_with_transaction", "after", 3),
    "after the schema": (_TOPICS, "record_topic_schema", "after"),
}
"""Steps of `topics` over two topics that both have new rows and misfits; those with most to lose come first."""


DISK_FULL = "disk full"
ONE_COMMIT = "one commit"
TOPICS = "topics"
NAME_SERVER = "namesrv:"
_ROOM = 100_000


def limit_files(process: int) -> None:
    """Limit the size of a process's files."""
    resource.prlimit(process, resource.RLIMIT_FSIZE, (_ROOM, _ROOM))


def limit_workers() -> None:
    """Limit the files of Spark's workers: all descendants of this process except the JVM."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            parents[int(status.parent.name)] = int(fields["PPid"])
    for process in parents:
        above = process
        while above in parents and above != os.getpid():
            above = parents[above]
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        if above == os.getpid() and b"pyspark.daemon" in command:
            limit_files(process)


def die() -> None:
    """End this process and its JVM as a power cut would."""
    kill_tree(os.getpid())


def arm(step: str) -> None:
    """End the process when a function is called, for the first time or a later one."""
    module_name, name, when, *count = (STEPS | TOPIC_STEPS)[step]
    calls = iter(range(1, count[0] if count else 1))
    module = importlib.import_module(module_name)
    function: Callable[..., Any] = getattr(module, name)

    def last(*arguments: Any, **named: Any) -> Any:
        if next(calls, None) is not None:
            return function(*arguments, **named)
        if when == "before":
            die()
        value = function(*arguments, **named)
        die()
        return value

    setattr(module, name, last)


@contextmanager
def spark_runner(step: str | None) -> Iterator[Runner]:
    """Start Spark and its workers, which have the step's limits."""
    from commitlake.connectors.spark.runner import SparkRunner
    from commitlake.jobs.arguments.runner import get_spark_session

    spark = get_spark_session("killed")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()
    if step == DISK_FULL:
        limit_workers()
    yield SparkRunner(spark)
    spark.stop()


@contextmanager
def thread_runner(step: str | None) -> Iterator[Runner]:
    """Run tasks on threads of this process, which has the step's limits."""
    if step == DISK_FULL:
        limit_files(os.getpid())
    yield ThreadRunner()


def config_of(store: str, lake: str, commit_bytes: int | None = None) -> Config:
    """Return the configuration: a store's files, or messages pulled from brokers."""
    config = Config(store, Lake(lake), "a", max_partition_bytes=1 << 20, parser_version="1", commit_bytes=commit_bytes)
    if not store.startswith(NAME_SERVER):
        return config
    return replace(config, store="", source=BrokerSource(ClientOptions(store.removeprefix(NAME_SERVER))))


def update_topics(topics_file: str, lake: str) -> None:
    """Run `commitlake topics`, which takes the session that there is, and print its time."""
    started = time.monotonic()
    with redirect_stdout(sys.stderr):
        code = topics(["--lake", lake, "--topics-file", topics_file, "--quiet"])
    assert code == ExitCode.OK, code
    print(f"done {time.monotonic() - started}", flush=True)


def main() -> None:
    """Start, wait, archive or update topics, and print the result."""
    where, store, lake, *steps = sys.argv[1:]
    step = steps[0] if steps else None
    if where != TOPICS:
        with skip_unused_packages():  # most kills would hit a run while it loads what judges it
            load_ignoring_errors()
    with {"spark": spark_runner, TOPICS: spark_runner, "threads": thread_runner}[where](step) as runner:
        if step in STEPS or step in TOPIC_STEPS:
            arm(step)
        print("ready", flush=True)
        sys.stdin.readline()
        if where == TOPICS:
            update_topics(store, lake)
            return
        config = config_of(store, lake, None if step == ONE_COMMIT else 1 << 20)
        result = archive_concurrently(runner, config, plan_work(config))
        print(f"done {result.seconds}", flush=True)


if __name__ == "__main__":
    main()
