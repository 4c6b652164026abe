"""`ship` to Azure's object store, and jobs that read it: a real server, kills, faults and wrong settings."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import obstore
import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.shipping.storage import StorageTarget
from commitlake.connectors.shipping.target import ShipError, ShipUnavailableError
from commitlake.connectors.storage import azure_storage
from commitlake.connectors.storage.azure_storage import AzureStorage, azure_client, forget_clients
from commitlake.connectors.storage.uris import parse_cloud_uri
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.store import SourceStore
from commitlake.schemas.layouts.segments import segment_name
from commitlake.schemas.shipped import LOG_MANIFEST
from tests.servers.azure import AzureServer
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.kills import kill_count
from tests.support.logs import closed_segment, messages, new_message, open_segment, write_store
from tests.support.shipped_archives import (
    check_copy_is_archived_alike,
    check_copy_is_verified_alike,
    check_fetched_copy_is_read_alike,
    check_large_segments_are_read_alike,
)
from tests.support.store_formats import JMQ, ROCKETMQ, StoreFormat
from tests.support.waiting import let_pass

pytestmark = pytest.mark.usefixtures("usual_priority")

SIZE = 20 << 20  # more than two blocks of an upload
FIRST = f"commitlog/{segment_name(0)}"


def large_messages(count: int) -> list[Any]:
    """Return messages of about 1 MiB."""
    chance = random.Random(count)
    return [new_message(number, body=chance.randbytes(1 << 20)) for number in range(count)]


def target_of(copy: str) -> StorageTarget:
    """Return a claimed target."""
    target = StorageTarget(AzureStorage(copy))
    target.claim()
    return target


def objects_in(copy: str) -> dict[str, bytes]:
    """Return the objects below a prefix."""
    uri = parse_cloud_uri(copy)
    client = azure_client(uri)
    keys = [str(each["path"]) for page in obstore.list(client, uri.prefix) for each in page]
    return {key.removeprefix(f"{uri.prefix}/"): bytes(obstore.get(client, key).bytes()) for key in keys}


def put_object(copy: str, name: str, data: bytes) -> None:
    """Write an object that no agent has written."""
    uri = parse_cloud_uri(copy)
    obstore.put(azure_client(uri), uri.key(name), data)


@pytest.mark.long("a copy in S3 is archived each time")
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(ROCKETMQ, id="rocketmq"),
        pytest.param(JMQ, id="jmq"),
    ],
)
def test_archive_of_the_copy_equals_that_of_the_store(copy: str, tmp_path: Path, layout: StoreFormat) -> None:
    check_copy_is_archived_alike(copy, tmp_path, layout)


def test_large_segments_are_read_alike(copy: str, tmp_path: Path) -> None:
    check_large_segments_are_read_alike(copy, tmp_path)


def test_file_is_made_of_its_parts(copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    target, agent = target_of(copy), None
    for count in (1, 2, 9, 17):
        write_store(store, [(0, open_segment(all_messages[:count], SIZE))])
        agent = agent or ShipAgent(SourceStore(str(store)), target, ShipSettings("b"))
        agent.ship_round()
    closed = closed_segment(all_messages, SIZE)
    write_store(store, [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    assert agent is not None
    agent.ship_round()
    found = objects_in(copy)
    assert found[FIRST] == closed
    assert not any(FIRST in name for name in found if name != FIRST)


def test_no_object_is_made_of_a_part_that_was_changed(copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    write_store(store, [(0, open_segment(all_messages[:17], SIZE))])
    agent = ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b"))
    agent.ship_round()
    last = max(name for name in objects_in(copy) if "/parts/" in name)
    put_object(copy, last, bytes(len(objects_in(copy)[last])))
    write_store(store, [(0, closed_segment(all_messages, SIZE)), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    with pytest.raises(ShipError, match="the file was changed"):
        agent.ship_round()
    assert FIRST not in objects_in(copy)


@pytest.mark.long("an agent that ships to S3 is killed each time")
@pytest.mark.kills
def test_copy_is_complete_after_kills(copy: str, tmp_path: Path) -> None:
    segments = [(SIZE * number, closed_segment(large_messages(18), SIZE, SIZE * number)) for number in range(3)]
    last = open_segment(messages(2000), SIZE, 3 * SIZE)
    store = write_store(tmp_path / "store", [*segments, (3 * SIZE, last)])
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "ship", "--store", str(store), "--once", "--to", copy]
    chance = random.Random(3)
    killed = 0
    for _ in range(kill_count(6)):
        with subprocess.Popen([*command, "--rate", "30M"], stderr=subprocess.DEVNULL) as process:
            let_pass(chance.uniform(0.6, 2.6), "the agent ships until it is killed")
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
    assert subprocess.run(command, check=False).returncode == 0
    found = objects_in(copy)
    for base, data in segments:
        assert found[f"commitlog/{segment_name(base)}"] == data
    parts = sorted(name for name in found if "of-commitlog" in name)
    assert b"".join(found[name] for name in parts) == last.rstrip(b"\0")
    assert killed > 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.ANSWER_503, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        pytest.param(Fault.DROP_REQUEST, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        Fault.LOSE_ANSWER,
    ],
)
def test_faults_of_single_requests_change_nothing(
    azure_server: AzureServer, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    closed = closed_segment(large_messages(18), SIZE)
    store = write_store(tmp_path / "store", [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    with FaultProxy(azure_server.address) as proxy, monkeypatch.context() as environment:
        for name, value in azure_server.environment(proxy.endpoint).items():
            environment.setenv(name, value)
        forget_clients()
        for request in ("^PUT .*log[.]json", "^PUT .*/parts/", "^PUT .*comp=block&", "^PUT .*comp=blocklist", "^POST"):
            proxy.inject(fault, times=2, request=request)
        ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b")).ship_round()
        assert find_stores(copy, formats=COMMITLOGS)[0].segments[0].file_size == SIZE
        assert len(proxy.seen) > 10
    forget_clients()
    assert objects_in(copy)[FIRST] == closed


def test_second_agent_ends_the_first(copy: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    first, second = (ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b")) for _ in range(2))
    second.ship_round()
    with pytest.raises(ShipError, match="another agent"):
        first.ship_round()


def test_manifest_replaces_only_the_version_that_was_read(copy: str) -> None:
    first, second = target_of(copy), target_of(copy)
    assert first.read_manifest(LOG_MANIFEST) is None
    assert second.read_manifest(LOG_MANIFEST) is None
    first.replace_manifest(LOG_MANIFEST, b"1")
    with pytest.raises(ShipError, match="another agent"):
        second.replace_manifest(LOG_MANIFEST, b"2")
    second.replace_manifest(LOG_MANIFEST, b"1")  # as after a lost answer
    second.replace_manifest(LOG_MANIFEST, b"3")
    with pytest.raises(ShipError, match="another agent"):
        first.replace_manifest(LOG_MANIFEST, b"4")
    assert first.read_manifest(LOG_MANIFEST) == b"3"


def test_manifest_whose_answer_was_lost_before_a_long_outage_is_replaced(
    azure_server: AzureServer, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure_storage, "MAX_ATTEMPTS", 1)
    with FaultProxy(azure_server.address) as proxy, monkeypatch.context() as environment:
        for name, value in azure_server.environment(proxy.endpoint).items():
            environment.setenv(name, value)
        forget_clients()
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
    forget_clients()


def test_foreign_objects_are_refused_or_left_alone(copy: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    put_object(copy, "shipped/parts/notes", b"x")
    put_object(f"{copy}-2", "commitlog/00000000000000000000", b"x")
    ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b")).ship_round()
    assert {"shipped/parts/notes", LOG_MANIFEST} <= set(objects_in(copy))
    with pytest.raises(ShipError, match="no agent has shipped"):
        ShipAgent(SourceStore(str(store)), target_of(f"{copy}-2"), ShipSettings("b")).ship_round()


def test_wrong_settings_are_named(
    copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))]))
    container = parse_cloud_uri(copy).container
    missing = copy.replace(container, "no-such-container")

    def both(place: str, code: int, expected: str) -> None:
        for main, arguments in ((ship.main, ["--store", store, "--to", place, "--once"]), (dump.main, [place])):
            forget_clients()
            capsys.readouterr()
            assert main([*arguments, "--verbose"]) == code
            told = capsys.readouterr().err
            assert expected in told
            assert "d3Jvbmc=" not in told
            assert "Traceback" not in told

    both(missing, 2, "no container 'no-such-container'")
    both(copy.replace(".dfs", ""), 2, "expected abfss://container@account.dfs.core.windows.net/prefix")
    both(f"{copy}?sig=d3Jvbmc=", 2, "holds credentials")
    both("wasbs://bucket/copy", 2, "wasbs://")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    both(copy, 2, "access denied")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "not base64: d3Jvbmc=")
    both(copy, 2, "no credentials that can be used")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "ftp://server")
    both(copy, 2, "AZURE_STORAGE_ENDPOINT")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9/account")
    both(copy, 1, "no server at the endpoint")


def test_jobs_find_copies_and_stores(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("x", "y"):
        root = write_store(tmp_path / name, [(0, open_segment(messages(9), SIZE))])
        assert ship.main(["--store", str(root), "--broker", name, "--to", f"{copy}/{name}", "--once"]) == 0
    put_object(copy, FIRST.replace("commitlog", "z/commitlog"), closed_segment(large_messages(18), SIZE))
    for place in (f"{copy}/x", f"{copy}/x/commitlog", f"{copy}/*", f"{copy}/{{broker}}"):
        found = find_stores(place, formats=COMMITLOGS)
        assert [store.broker for store in found] == (["x"] if "/x" in place else ["x", "y", "z"])
        assert {segment.file_size for store in found for segment in store.segments} == {SIZE}
    for name, count in (("x", 9), ("z", 18)):
        capsys.readouterr()
        assert dump.main([f"{copy}/{name}", "--quiet"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count


@pytest.mark.long("a copy in S3 is verified each time")
def test_copy_is_verified_as_the_store(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_copy_is_verified_alike(copy, tmp_path, ROCKETMQ, capsys)


@pytest.mark.long("what these jobs say of a copy in S3 is tried each time")
def test_fetched_copy_is_read_alike(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_fetched_copy_is_read_alike(copy, tmp_path, capsys)
