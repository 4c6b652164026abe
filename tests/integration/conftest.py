"""Real servers for the integration tests: slow ones are started once per session.

Four processes run the tests on two cores, because often two of them wait for a server. One process runs all tests of a
file, or of a folder whose tests share a server. A test that measures seconds is marked `timed`, and runs by itself
before a release.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from xdist.remote import Producer

from tests.servers import rocketmq
from tests.servers.recording import RecordedStore, recorded
from tests.servers.rocketmq import VERSIONS, BrokerOptions, RocketMQ, StartBroker
from tests.servers.spark_classes import class_archive, quick_start
from tests.support.server_groups import GroupScheduling, place
from tests.support.waiting import wait_until

FOLDER = Path(__file__).parent
LOCK_TIMEOUT_SECONDS = 400  # within a test's own limit
VERSION_FIXTURES = ("rocketmq_version", "client_version")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Let one process run each group of tests."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(
    wrapper=True, tryfirst=True
)  # before tests are chosen by their marks, and after they are sorted by fixtures
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Leave the older RocketMQ versions of most tests to the long run, and put long groups of tests first.

    Args:
        items: all that pytest runs, of other folders too.
    """
    for item in items:
        call = getattr(item, "callspec", None)
        versions = {call.params.get(name) for name in VERSION_FIXTURES} if call is not None else set()
        is_old = item.path.is_relative_to(FOLDER) and versions & set(VERSIONS[1:])
        if is_old and item.get_closest_marker("each_version") is None:
            item.add_marker(pytest.mark.long("the same path as with the newest RocketMQ"))
    yield
    # Unit tests with Spark come last: they use the JVMs that the others have started.
    items.sort(key=lambda item: place(item.nodeid) if item.path.is_relative_to(FOLDER) else sys.maxsize)


@pytest.fixture(scope="session", params=VERSIONS)
def rocketmq_version(request: pytest.FixtureRequest) -> str:
    """Each RocketMQ version; a test that uses it directly or indirectly runs once with each."""
    return str(request.param)


@pytest.fixture(scope="session")
def rocketmq_jars(rocketmq_version: str) -> Path:
    """The folder with the version's jars."""
    return rocketmq.rocketmq_jars(rocketmq_version)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process of the run holds a lock, and hold it.

    Raises:
        TimeoutError: if that takes longer than a test may.
    """
    with path.open("w") as lock:

        def is_taken() -> bool:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False

        wait_until(is_taken, LOCK_TIMEOUT_SECONDS, look_seconds=0.2)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of a run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def recorded_store(rocketmq_version: str, shared_folder: Path) -> RecordedStore:
    """A store that a real broker of the version wrote, with a record of every kind. Read only."""
    with alone(shared_folder / f"recorded-{rocketmq_version}.lock"):
        return recorded(rocketmq_version, shared_folder / "recorded")


@pytest.fixture(scope="session", autouse=True)
def quick_jvms() -> Iterator[str]:
    """Start every JVM of Spark with its classes from an archive; gives the value of SPARK_SUBMIT_OPTS."""
    with pytest.MonkeyPatch.context() as environment:
        options = quick_start(class_archive())
        environment.setenv("SPARK_SUBMIT_OPTS", options)
        yield options


@pytest.fixture
def start_broker(tmp_path: Path, shared_folder: Path) -> Iterator[StartBroker]:
    """A function that starts a name server and a broker on a given store; both end with the test.

    Its arguments are `version, store, options=None, broker_port=None`; the file sizes in the
    options must be the store's.
    """
    ports: set[int] = set()
    with ExitStack() as running:

        def start(
            version: str,
            store: Path,
            options: BrokerOptions | None = None,
            broker_port: int | None = None,
        ) -> RocketMQ:
            if broker_port is not None and broker_port not in ports:
                # All copies of a store are served at the port that is in its message ids.
                running.enter_context(alone(shared_folder / f"port-{broker_port}.lock"))
                ports.add(broker_port)
            folder = tmp_path / f"rocketmq-{version}-{store.name}"
            servers = RocketMQ(version, folder, store=store, options=options, broker_port=broker_port)
            # Killed, not stopped: a test that needs a clean stop calls it.
            running.callback(servers.kill)
            return servers.start()

        yield start
