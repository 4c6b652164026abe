"""A server of each place for copies, shared by the tests of that place; each test has a place of its own in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.fault_proxy import FaultProxy
from tests.support.copy_places import CopyPlace


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CopyPlace]:
    """The place that a test's mark names; a test that kills its server must start it again."""
    kind: type[CopyPlace] = request.param
    started = kind(tmp_path_factory.mktemp(kind.name))
    with started.server:
        yield started


@pytest.fixture(autouse=True)
def users_environment(place: CopyPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a user's environment: the server and its credentials, and nothing that leads elsewhere."""
    place.use(monkeypatch)
    yield
    place.forget_clients()


@pytest.fixture
def copy(place: CopyPlace) -> str:
    """Return the URI of a copy that does not exist yet, in a bucket, a container or a folder of its own."""
    return place.new_copy()


@pytest.fixture
def odd_copy(place: CopyPlace, copy: str) -> str:
    """Return the URI of a copy whose prefix has characters to which URLs give a meaning, if the place has them."""
    return f"{copy}/{place.odd_prefix}" if place.odd_prefix else copy


@pytest.fixture
def proxy(place: CopyPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy in front of the server, so far without faults, through which all requests go."""
    with FaultProxy(place.server.address) as running:
        place.use(monkeypatch, running.endpoint)
        yield running
