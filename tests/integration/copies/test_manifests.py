"""Manifests of copies: of several agents one continues, also after lost answers, pauses and deletions of the copy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlake.connectors.shipping.ship_target import ShipError, ShipUnavailableError
from commitlake.connectors.shipping.storage_target import StorageTarget
from commitlake.connectors.storage import azure_storage, s3_storage
from commitlake.connectors.storage.hdfs_clients import HdfsClient
from commitlake.connectors.storage.hdfs_files import list_versions
from commitlake.connectors.storage.hdfs_storage import HdfsStorage
from commitlake.connectors.storage.uris import parse_hdfs_uri
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.shipped_manifest import LOG_MANIFEST
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.copies import SIZE, agent_of, target_of
from tests.support.copy_places import AzurePlace, GcsPlace, HdfsPlace, S3Place, at, each_place
from tests.support.logs import messages, open_segment, write_store

pytestmark = pytest.mark.usefixtures("usual_priority")

AGENTS, ROUNDS = 8, 3


@pytest.mark.some_cases(1)
@each_place()
def test_second_agent_ends_the_first(copy: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    first, second = (agent_of(store, target_of(copy)) for _ in range(2))
    second.ship_round()
    with pytest.raises(ShipError, match="another agent"):
        first.ship_round()


@each_place()
def test_manifest_replaces_only_the_version_that_was_read(copy: str) -> None:
    first, second = target_of(copy), target_of(copy)
    assert first.read_manifest(LOG_MANIFEST) is None
    assert second.read_manifest(LOG_MANIFEST) is None
    first.replace_manifest(LOG_MANIFEST, b"1")
    with pytest.raises(ShipError, match="another agent"):
        second.replace_manifest(LOG_MANIFEST, b"2")
    assert target_of(copy).read_manifest(LOG_MANIFEST) == b"1"
    second.replace_manifest(LOG_MANIFEST, b"1")  # as after a lost answer
    second.replace_manifest(LOG_MANIFEST, b"3")
    with pytest.raises(ShipError, match="another agent"):
        first.replace_manifest(LOG_MANIFEST, b"4")
    assert first.read_manifest(LOG_MANIFEST) == b"3"


@each_place(
    long={
        S3Place: "the server refuses all puts but one; what an agent makes of that is tried each time",
        AzurePlace: "the server refuses all puts but one; what an agent makes of that is tried each time",
    }
)
def test_of_many_agents_at_once_one_continues(copy: str) -> None:
    targets = [target_of(copy) for _ in range(AGENTS)]
    barrier = threading.Barrier(AGENTS)
    for round_number in range(ROUNDS):
        for target in targets:
            target.read_manifest(LOG_MANIFEST)

        def replaced(number: int, round_number: int = round_number) -> bytes | None:
            data = f"{round_number}-{number}".encode()
            barrier.wait()
            try:
                targets[number].replace_manifest(LOG_MANIFEST, data)
            except ShipError as error:
                assert error.exit_code is ExitCode.REFUSED
                return None
            return data

        with ThreadPoolExecutor(AGENTS) as agents:
            done = [data for data in agents.map(replaced, range(AGENTS)) if data]
        assert done == [targets[0].read_manifest(LOG_MANIFEST)]


@each_place(
    without={
        GcsPlace: "its client retries for minutes",
        HdfsPlace: "its protocol is not HTTP; the test of lost answers has its methods",
    }
)
def test_manifest_whose_answer_was_lost_before_a_long_outage_is_replaced(
    proxy: FaultProxy, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (s3_storage, azure_storage):
        monkeypatch.setattr(module, "MAX_ATTEMPTS", 1)
    target, other = target_of(copy), target_of(copy)
    assert target.read_manifest(LOG_MANIFEST) is None
    for data in (b"1", b"2"):  # the second one is refused, and this answer is lost, too
        proxy.inject(Fault.LOSE_ANSWER, request="^PUT .*log[.]json")
        with pytest.raises(ShipUnavailableError):
            target.replace_manifest(LOG_MANIFEST, data)
        assert other.read_manifest(LOG_MANIFEST) == b"1"
    target.replace_manifest(LOG_MANIFEST, b"3")
    assert other.read_manifest(LOG_MANIFEST) == b"3"
    proxy.inject(Fault.LOSE_ANSWER, request="^PUT .*log[.]json")
    with pytest.raises(ShipUnavailableError):
        target.replace_manifest(LOG_MANIFEST, b"4")
    other.read_manifest(LOG_MANIFEST)
    other.replace_manifest(LOG_MANIFEST, b"other")
    for _ in range(2):
        with pytest.raises(ShipError, match="another agent"):
            target.replace_manifest(LOG_MANIFEST, b"5")
    assert other.read_manifest(LOG_MANIFEST) == b"other"


def sleep_before_writing(monkeypatch: pytest.MonkeyPatch, target: StorageTarget, action: Callable[[], object]) -> None:
    """Let others do something after a target has listed the versions of its manifest, and before it writes the next."""
    storage = target._storage
    assert isinstance(storage, HdfsStorage)
    write = storage._write_once

    def write_later(path: str, pieces: Iterable[bytes], *, replace: bool) -> None:
        monkeypatch.setattr(storage, "_write_once", write)
        action()
        write(path, pieces, replace=replace)

    monkeypatch.setattr(storage, "_write_once", write_later)


@pytest.mark.parametrize("has_listed", [True, False])
@at(HdfsPlace)
def test_agent_that_slept_replaces_nothing(copy: str, monkeypatch: pytest.MonkeyPatch, has_listed: bool) -> None:
    sleeper, other = target_of(copy), target_of(copy)
    for target in (sleeper, other):
        assert target.read_manifest(LOG_MANIFEST) is None

    def replace_often() -> None:
        for number in range(5):
            other.replace_manifest(LOG_MANIFEST, b"%d" % number)

    if has_listed:
        sleep_before_writing(monkeypatch, sleeper, replace_often)
    else:
        replace_often()
    with pytest.raises(ShipError, match="another agent"):
        sleeper.replace_manifest(LOG_MANIFEST, b"old")
    uri = parse_hdfs_uri(copy)
    folder = uri.key(LOG_MANIFEST)
    # Version 1 was deleted, so the sleeper's rename succeeds, if it has seen that there is none.
    assert list_versions(HdfsClient(uri), folder) == ([1, 4, 5] if has_listed else [4, 5])
    assert target_of(copy).read_manifest(LOG_MANIFEST) == b"4"
    other.replace_manifest(LOG_MANIFEST, b"5")
    assert list_versions(HdfsClient(uri), folder) == [5, 6]


@pytest.mark.parametrize("has_listed", [True, False])
@pytest.mark.parametrize("count", [2, 3])
@at(HdfsPlace)
def test_agent_whose_copy_was_replaced_writes_no_manifest(
    copy: str, monkeypatch: pytest.MonkeyPatch, has_listed: bool, count: int
) -> None:
    first, second, uri = target_of(copy), target_of(copy), parse_hdfs_uri(copy)
    assert first.read_manifest(LOG_MANIFEST) is None
    for number in range(3):
        first.replace_manifest(LOG_MANIFEST, b"%d" % number)

    def replace_copy() -> None:
        assert HdfsClient(uri).send_once(lambda client: client.delete(uri.key(""), True), "")
        second.claim()
        assert second.read_manifest(LOG_MANIFEST) is None
        for number in range(count):
            second.replace_manifest(LOG_MANIFEST, b"%d" % number)

    if has_listed:
        sleep_before_writing(monkeypatch, first, replace_copy)
    else:
        replace_copy()
    with pytest.raises(ShipError, match="or the copy was deleted"):
        first.replace_manifest(LOG_MANIFEST, b"old")
    assert list_versions(HdfsClient(uri), uri.key(LOG_MANIFEST)) == [count - 1, count]
    second.replace_manifest(LOG_MANIFEST, b"new")
    assert second.read_manifest(LOG_MANIFEST) == b"new"
