"""Groups of tests against real servers: one process runs all tests of a group, so its fixtures are created once.

A group is a file, or a folder whose tests share a server, or the tests of a folder that share one of several servers.
pytest-xdist's own groups (`--dist loadgroup`) have no effect since pytest 9.2, which ignores changes of a test's id:
tests would be distributed over all processes, and each would start its own servers.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

FOLDER = "tests/integration/"
MAX_WITH_SPARK = 3
"""How many processes start a session of Spark, whose JVM takes half a minute of processor time until it is warm."""
LONGEST = (
    "hbase",
    "remoting",
    "killed/test_killed_archive.py",
    "spark/test_cluster.py",
    "spark/test_archive.py",
    "spark/test_connect.py",
    "spark/test_follow.py",
    "test_guard_real_broker.py",
    "broker/test_timers.py",
    "copies[hdfs]",
    "spark/test_stream.py",
    "replay/test_killed_replays.py",
    "broker/test_java_clients.py",
    "s3/test_lake.py",
    "copies[s3]",
    "spark/test_audit_twins.py",
    "spark/test_source.py",
    "spark/test_query_engines.py",
    "spark/test_stream_kills.py",
    "broker/test_replication.py",
    "spark/test_signals.py",
    "copies[azure]",
    "verify/test_on_spark.py",
    "s3/test_faults.py",
    "rebuild/test_real_brokers.py",
    "broker/test_java_consumers.py",
    "broker/test_jmq_clients.py",
    "test_broker_lite_store.py",
    "lag/test_real_groups.py",
    "test_kubernetes_examples.py",
    "lag/test_what_waits.py",
    "replay/test_redriven.py",
)
"""Groups that take most of a minute, or more, in any run, start first.

None of them runs alone at the end while other processes are idle.
"""
_ROOT = Path(__file__).parents[2]
_USES_SPARK = re.compile(r"\bspark: SparkSession\b|>>> .*\bspark\.")  # in a test, or in a doctest
_WITH_ONE_SERVER = ("hbase", "remoting")
"""Folders whose tests share a server that takes long to start."""
_WITH_SEVERAL_SERVERS = re.compile(r"(?P<folder>copies)/.*\[(?:.*-)?(?P<server>s3|azure|gcs|hdfs)[]-]")
"""Folders whose tests share several servers, and the parameter of a test that names its server."""
_APART = (
    "killed/test_killed_archive.py",
    "rebuild/test_real_brokers.py",
    "broker/test_java_consumers.py",
    "broker/test_jmq_clients.py",
    "test_broker_lite_store.py",
)
"""Long files whose tests only share what all processes share, so each test is a group."""


def file_group(nodeid: str) -> str:
    """Return the file of a test, or its folder if that shares a server, with the server's name if there are several."""
    found = _WITH_SEVERAL_SERVERS.match(nodeid.removeprefix(FOLDER))
    if found is not None:
        return f"{found['folder']}[{found['server']}]"
    path = nodeid.partition("::")[0].removeprefix(FOLDER)
    folder = path.partition("/")[0]
    return folder if folder in _WITH_ONE_SERVER else path


def group(nodeid: str) -> str:
    """Return the name of the group that one process runs."""
    name = file_group(nodeid)
    return nodeid if name in _APART else name


def place(nodeid: str) -> int:
    """Return the position of a test's group in the order of starts."""
    name = file_group(nodeid)
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@cache
def uses_spark(name: str) -> bool:
    """Return whether a test of a group uses the session of Spark of its process."""
    path = name.partition("::")[0].partition("[")[0]
    root = next((place for place in (_ROOT / FOLDER / path, _ROOT / path) if place.exists()), _ROOT / path)
    files = [root] if root.is_file() else root.glob("test_*.py")
    return any(_USES_SPARK.search(file.read_text()) for file in files)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Scheduler that gives each group of tests to one process, and groups with Spark to few processes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._with_spark: set[object] = set()

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """Give the next group to a process; the longest go first, so that none of them runs alone at the end."""
        has_spark = node in self._with_spark
        if has_spark or len(self._with_spark) == MAX_WITH_SPARK:
            chosen = next((name for name in self.workqueue if uses_spark(name) == has_spark), None)
            if chosen is not None:
                self.workqueue.move_to_end(chosen, last=False)
        if uses_spark(next(iter(self.workqueue))):
            self._with_spark.add(node)
        super()._assign_work_unit(node)
