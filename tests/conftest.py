"""Fixtures of unit and integration tests."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from commitlake.connectors.runtime.fork_server import start_fork_server
from tests.support.memory_folder import memory_folder
from tests.support.signals import MarkedProcess


class _RefuseFoldersAsPackages(MetaPathFinder):
    """Finder that refuses to import the repository's folders as top-level packages.

    The tests' path has the repository's root, where `import jobs` would find a second copy of what is
    `commitlake.jobs` everywhere else, and what is not there once the package is installed from a wheel.
    """

    _FOLDERS = frozenset({"broker_lite", "connectors", "jobs", "pipelines", "schemas"})

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Refuse the repository's folders; return None for other modules, which the next finder looks for."""
        if fullname in self._FOLDERS:
            raise ModuleNotFoundError(f"import commitlake.{fullname}, not {fullname}", name=fullname)
        return None


sys.meta_path.insert(0, _RefuseFoldersAsPackages())

# A shell's background job ignores Ctrl-C, and one under `nohup` SIGHUP. So would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# readline, which pytest imports, sets it to 80 for processes that are started, as xdist's workers: tables would be
# narrower in them than in a pipe.
os.environ.pop("COLUMNS", None)

# The tests' processes share two cores, and lakes of a few rows: a thread more would only be waited for.
os.environ.setdefault("TOKIO_WORKER_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the files of tests in memory where TEST_IN_MEMORY asks for it and the machine allows it.

    A third of the time of small tests is the disk's: they write and delete hundreds of thousands of files.
    """
    given = config.option.basetemp is not None or "PYTEST_DEBUG_TEMPROOT" in os.environ
    if "TEST_IN_MEMORY" in os.environ and not given and (folder := memory_folder()) is not None:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)


def pytest_sessionstart() -> None:
    """Start the server that forks the processes of jobs, with the packages loaded that judge archive runs.

    Only processes of a large run start it: it finds its modules from the repository's folder, and tests change folders.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.support.loaded_judge"])
        with pytest.MonkeyPatch.context() as environment:
            # Python 3.11 passes the server this process's path, and does not use it.
            environment.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
            start_fork_server()


@pytest.hookimpl(tryfirst=True)  # before `-m` is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a test that `some_cases` leaves out; refuse a mark `long` without a reason.

    The cases that run each time are spread over those that are not long anyway.
    """
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("some_cases")
        if mark is not None and item.get_closest_marker("long") is None:
            cases.setdefault((item.nodeid.split("[")[0], mark.args[0]), []).append(item)
    for (_, count), found in cases.items():
        each_time = {number * len(found) // count for number in range(count)}
        for number, item in enumerate(found):
            if number not in each_time:
                item.add_marker(pytest.mark.long("one case of several, see some_cases"))
    for item in items:
        for reason in item.iter_markers("long"):
            if len(reason.args) != 1 or not isinstance(reason.args[0], str):
                raise pytest.UsageError(f'{item.nodeid}: expected @pytest.mark.long("the reason"), found {reason}')


def pytest_collection_finish() -> None:
    """Leave what was collected out of the garbage collector's work: ten thousand tests are looked through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_priority() -> Iterator[None]:
    """Fail a test that lowers the priority of the tests' process, because all later tests would be slow."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    yield
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


@pytest.fixture
def usual_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `commitlake ship` keep the priority of the tests' process."""
    monkeypatch.setattr("commitlake.jobs.ship.run.lower_priority", lambda: None)


@pytest.fixture
def without_collection() -> Iterator[None]:
    """Disable garbage collection, so that objects of other tests do not affect measured times."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def started() -> Iterator[list[MarkedProcess]]:
    """Processes that end with the test."""
    processes: list[MarkedProcess] = []
    yield processes
    for each in processes:
        each.left()
        each.process.communicate()
