"""`ship` to HDFS, and jobs that read it: a real NameNode and DataNode, kills, restarts and wrong settings."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.files.segment_files import open_remote
from commitlake.connectors.reading.files.shipped import resolve_filesystem
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.shipping.storage import StorageTarget
from commitlake.connectors.shipping.target import ShipError, ShipNameError, ShipUnavailableError
from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.hdfs_clients import HdfsClient, forget_clients
from commitlake.connectors.storage.hdfs_files import list_versions, version_path
from commitlake.connectors.storage.hdfs_storage import TEMPORARY, HdfsStorage
from commitlake.connectors.storage.uris import parse_hdfs_uri
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.store import SourceStore
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segments import segment_name
from commitlake.schemas.shipped import LOG_MANIFEST, Part, ShippedFile, parse_manifest, part_name
from tests.servers.cutting_proxy import CuttingProxy
from tests.servers.hdfs import HdfsCluster
from tests.support.kills import kill_count
from tests.support.logs import closed_segment, messages, new_message, open_segment, write_store
from tests.support.shipped_archives import (
    check_copy_is_archived_alike,
    check_copy_is_verified_alike,
    check_fetched_copy_is_read_alike,
    check_large_segments_are_read_alike,
)
from tests.support.store_formats import JMQ, ROCKETMQ, StoreFormat
from tests.support.waiting import let_pass, wait_until

pytestmark = pytest.mark.usefixtures("usual_priority")

SIZE = 20 << 20  # three blocks
SMALL = 1 << 20
FIRST = f"commitlog/{segment_name(0)}"


def large_messages(count: int) -> list[Any]:
    """Return messages of about 1 MiB."""
    chance = random.Random(count)
    return [new_message(number, body=chance.randbytes(1 << 20)) for number in range(count)]


def target_of(copy: str) -> StorageTarget:
    """Return a claimed target."""
    target = StorageTarget(HdfsStorage(copy))
    target.claim()
    return target


def agent_of(store: Path, target: StorageTarget) -> ShipAgent:
    """Return an agent."""
    return ShipAgent(SourceStore(str(store)), target, ShipSettings("b"))


def files_in(copy: str) -> dict[str, bytes]:
    """Return the files below a folder."""
    uri = parse_hdfs_uri(copy)
    client = HdfsClient(uri)
    found = {}
    for status in client.list_files(uri.key("")):
        reader = client.open(status.path)
        found[status.path.removeprefix(f"{uri.key('')}/")] = client.read(reader, 0, len(reader), status.path)
    return found


def put_file(copy: str, name: str, data: bytes) -> None:
    """Write a file that no agent has written."""
    uri = parse_hdfs_uri(copy)
    client = HdfsClient(uri)
    client.make_folder(uri.key(name).rpartition("/")[0])
    client.rename(client.write_new("/tmp", [data]), uri.key(name), replace=True)


@pytest.mark.long("archives four times; the short run reads copies by dump, and archives those in other targets")
@pytest.mark.parametrize("layout", [pytest.param(ROCKETMQ, id="rocketmq"), pytest.param(JMQ, id="jmq")])
def test_archive_of_the_copy_equals_that_of_the_store(copy: str, tmp_path: Path, layout: StoreFormat) -> None:
    check_copy_is_archived_alike(copy, tmp_path, layout)


@pytest.mark.long("large segments of a copy in Azure are read alike each time")
def test_large_segments_are_read_alike(copy: str, tmp_path: Path) -> None:
    check_large_segments_are_read_alike(copy, tmp_path)


def test_file_is_made_of_its_parts(copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    target, agent = target_of(copy), None
    for count in (1, 2, 9, 17):
        write_store(store, [(0, open_segment(all_messages[:count], SIZE))])
        agent = agent or agent_of(store, target)
        agent.ship_round()
    closed = closed_segment(all_messages, SIZE)
    write_store(store, [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    assert agent is not None
    agent.ship_round()
    found = files_in(copy)
    assert found[FIRST] == closed
    assert not any(FIRST in name or TEMPORARY in name for name in found if name != FIRST)
    client = HdfsClient(parse_hdfs_uri(copy))
    root = parse_hdfs_uri(copy).key("")
    assert client.status(f"{root}/shipped/parts/of-{FIRST}") is None  # a folder, too, costs memory of the NameNode
    assert len(list_versions(client, f"{root}/{LOG_MANIFEST}")) == 2


@pytest.mark.long("rarely broken: a file in HDFS is changed by hand only")
def test_no_file_is_made_of_a_part_that_was_changed(copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    write_store(store, [(0, open_segment(all_messages[:17], SIZE))])
    agent = agent_of(store, target_of(copy))
    agent.ship_round()
    parts = sorted(name for name in files_in(copy) if "/parts/" in name)
    put_file(copy, parts[-1], bytes(len(files_in(copy)[parts[-1]])))
    write_store(store, [(0, closed_segment(all_messages, SIZE)), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    with pytest.raises(ShipError, match="the file was changed"):
        agent.ship_round()
    assert FIRST not in files_in(copy)


@pytest.mark.kills
@pytest.mark.long("each killed process takes seconds; an agent continues in other tests, too")
def test_copy_is_complete_after_kills(copy: str, tmp_path: Path) -> None:
    segments = [(SIZE * number, closed_segment(large_messages(18), SIZE, SIZE * number)) for number in range(3)]
    last = open_segment(messages(2000), SIZE, 3 * SIZE)
    store = write_store(tmp_path / "store", [*segments, (3 * SIZE, last)])
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "ship", "--store", str(store), "--once", "--to", copy]
    chance = random.Random(3)
    killed = 0
    for _ in range(kill_count(6)):
        with subprocess.Popen([*command, "--rate", "20M"], stderr=subprocess.DEVNULL) as process:
            let_pass(chance.uniform(1.0, 4.0), "the agent ships until it is killed")
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
    assert subprocess.run(command, check=False).returncode == 0
    found = files_in(copy)
    for base, data in segments:
        assert found[f"commitlog/{segment_name(base)}"] == data
    parts = sorted(name for name in found if "of-commitlog" in name)
    assert b"".join(found[name] for name in parts) == last.rstrip(b"\0")
    assert not any(TEMPORARY in name for name in found)
    assert killed > 1


@pytest.mark.long(
    "each lost answer costs seconds; a manifest of an agent that is sure of the old one is tried each time"
)
def test_lost_answers_change_nothing(hdfs_cluster: HdfsCluster, copy: str, tmp_path: Path) -> None:
    closed = closed_segment(messages(100), SMALL)
    store = write_store(tmp_path / "store", [(0, closed), (SMALL, open_segment(messages(3), SMALL, SMALL))])
    with CuttingProxy(hdfs_cluster.address) as proxy:
        through_proxy = copy.replace(f":{hdfs_cluster.address[1]}", f":{proxy.port}")
        target = target_of(through_proxy)
        agent = agent_of(store, target)
        methods = ("create", "addBlock", "complete", "rename2", "getListing", "getBlockLocations", "delete", "mkdirs")
        for method in methods:
            proxy.lose(method, times=1)
        agent.ship_round()
        assert set(proxy.lost) == set(methods)
        assert target.read_manifest(LOG_MANIFEST) is not None
        # The last request of a manifest alone: the one that decides.
        for _ in range(2):
            proxy.lose("rename2", times=1)
            target.replace_manifest(LOG_MANIFEST, target.read_manifest(LOG_MANIFEST) or b"")
    forget_clients()
    assert files_in(copy)[FIRST] == closed
    assert [segment.file_size for segment in find_stores(copy, formats=COMMITLOGS)[0].segments] == [SMALL, SMALL]


@pytest.mark.long("starts a NameNode and a DataNode again")
@pytest.mark.parametrize("name", ["namenode", "datanode"])
def test_agent_continues_when_a_server_is_back(hdfs_cluster: HdfsCluster, copy: str, tmp_path: Path, name: str) -> None:
    segments = [(SIZE * number, closed_segment(large_messages(18), SIZE, SIZE * number)) for number in range(2)]
    store = write_store(tmp_path / "store", [*segments, (2 * SIZE, open_segment(messages(3), SIZE, 2 * SIZE))])
    begun = threading.Event()
    agent = ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b"), on_progress=lambda _: begun.set())
    failed: list[BaseException] = []

    def ship_round() -> None:
        try:
            agent.ship_round()
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=ship_round)
    thread.start()
    assert begun.wait(60)
    hdfs_cluster.kill_one(name)
    let_pass(2, "requests fail meanwhile")
    hdfs_cluster.start_one(name)
    thread.join(200)
    assert not thread.is_alive()
    assert not failed
    found = files_in(copy)
    for base, data in segments:
        assert found[f"commitlog/{segment_name(base)}"] == data


def test_second_agent_ends_the_first(copy: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    first, second = (agent_of(store, target_of(copy)) for _ in range(2))
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


def delete_folder(copy: str, name: str = "") -> None:
    """Delete a folder with all that is in it."""
    uri = parse_hdfs_uri(copy)
    assert HdfsClient(uri).once(lambda client: client.delete(uri.key(name), True), "")


@pytest.mark.parametrize("has_listed", [True, False])
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
def test_agent_whose_copy_was_replaced_writes_no_manifest(
    copy: str, monkeypatch: pytest.MonkeyPatch, has_listed: bool, count: int
) -> None:
    first, second = target_of(copy), target_of(copy)
    assert first.read_manifest(LOG_MANIFEST) is None
    for number in range(3):
        first.replace_manifest(LOG_MANIFEST, b"%d" % number)

    def replace_copy() -> None:
        delete_folder(copy)
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
    uri = parse_hdfs_uri(copy)
    assert list_versions(HdfsClient(uri), uri.key(LOG_MANIFEST)) == [count - 1, count]
    second.replace_manifest(LOG_MANIFEST, b"new")
    assert second.read_manifest(LOG_MANIFEST) == b"new"


def test_paths_of_another_kind_are_named(copy: str) -> None:
    target, part = target_of(copy), Part(0, 4, 0)
    file = ShippedFile(FIRST, 4, parts=(part,))
    put_file(copy, f"{part_name(FIRST, part)}/x", b"x")
    with pytest.raises(ShipError, match="of-commitlog") as found:
        target.seal(file)
    assert not isinstance(found.value, ShipUnavailableError)
    with pytest.raises(ShipNameError, match="a name that is too long"):
        target.put(f"config/{300 * 'a'}", b"x")
    put_file(f"{copy}-2", LOG_MANIFEST, b"{}")  # as a tool copies it from another kind of file system
    with pytest.raises(ShipError, match=r"log\.json is a file, expected a folder"):
        target_of(f"{copy}-2").read_manifest(LOG_MANIFEST)


def test_segment_that_is_sealed_while_it_is_read_is_read_on(copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    write_store(store, [(0, open_segment(all_messages[:9], SIZE))])
    agent = agent_of(store, target_of(copy))
    agent.ship_round()
    closed = closed_segment(all_messages, SIZE)
    file = open_remote(*resolve_filesystem(f"{copy}/{FIRST}"))
    client, root = HdfsClient(parse_hdfs_uri(copy), attempts=1), parse_hdfs_uri(copy).key("")
    name = min(name for name in files_in(copy) if FIRST in name)
    part = client.open(f"{root}/{name}")
    window = np.zeros(1000, np.uint8)
    for position in (0, 5000):
        assert file.read_into(window, position) == 1000
        assert window.tobytes() == closed[position : position + 1000]
    write_store(store, [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    agent.ship_round()

    def is_deleted() -> bool:
        try:
            client.read(part, 5000, 5001, name)
        except CloudUnavailableError:
            return True
        return False

    wait_until(is_deleted, look_seconds=0.5)  # its blocks, by the DataNode
    assert file.read_into(window, 6000) == 1000
    assert window.tobytes() == closed[6000:7000]
    file.close()


def test_of_two_agents_at_once_one_continues(copy: str) -> None:
    first = target_of(copy)
    first.read_manifest(LOG_MANIFEST)
    first.replace_manifest(LOG_MANIFEST, b"0")
    targets = [target_of(copy) for _ in range(4)]
    for target in targets:
        target.read_manifest(LOG_MANIFEST)
    barrier = threading.Barrier(len(targets))
    won: list[int] = []

    def replace(number: int) -> None:
        barrier.wait()
        try:
            targets[number].replace_manifest(LOG_MANIFEST, b"of %d" % number)
        except ShipError as error:
            assert error.exit_code is ExitCode.REFUSED
            return
        won.append(number)

    threads = [threading.Thread(target=replace, args=(number,)) for number in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert first.read_manifest(LOG_MANIFEST) == b"of %d" % won[0]


@pytest.mark.long("ships many small files, twice")
def test_names_that_hdfs_does_not_have_are_skipped(
    copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ROCKETMQ.write(tmp_path / "store", 60)
    queue = next(store.glob("consumequeue/*/0/*")).read_bytes()
    for topic in ("of: two", "t %41#?\n\x1b[31mü", ".snapshot"):
        (store / "consumequeue" / topic / "0").mkdir(parents=True)
        (store / "consumequeue" / topic / "0" / segment_name(0)).write_bytes(queue)
    (store / "config" / "a:b.json").write_text("{}")
    assert ship.main(["--store", str(store), "--broker", "b", "--to", copy, "--once"]) == 3
    told = capsys.readouterr().err
    assert told.count("HDFS has no files with such a name") == 3
    assert "a:b.json" in told
    assert "\x1b" not in told
    folder = tmp_path / "folder"
    assert ship.main(["--store", copy, "--to", str(folder), "--once"]) == 0
    assert (folder / "consumequeue" / "t %41#?\n\x1b[31mü" / "0" / segment_name(0)).exists()
    assert not (folder / "consumequeue" / "of: two").exists()


@pytest.mark.long("checks of what lies in the target are the agent's, and tried with other targets")
def test_foreign_files_are_refused_or_left_alone(copy: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    put_file(copy, "shipped/parts/notes", b"x")
    put_file(f"{copy}-2", FIRST, b"x")
    agent_of(store, target_of(copy)).ship_round()
    uri = parse_hdfs_uri(copy)
    assert files_in(copy)["shipped/parts/notes"] == b"x"
    newest = version_path(LOG_MANIFEST, list_versions(HdfsClient(uri), uri.key(LOG_MANIFEST))[-1])
    assert parse_manifest(files_in(copy)[newest], newest).broker == "b"
    with pytest.raises(ShipError, match="no agent has shipped"):
        agent_of(store, target_of(f"{copy}-2")).ship_round()


@pytest.mark.long("wrong settings are named by the same jobs for S3 each time")
def test_wrong_settings_are_named(
    hdfs_cluster: HdfsCluster,
    copy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = str(write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))]))
    assert ship.main(["--store", store, "--to", copy, "--once"]) == 0
    path = copy.removeprefix(hdfs_cluster.uri)

    def both(place: str, code: int, expected: str) -> None:
        for main, arguments in ((ship.main, ["--store", store, "--to", place, "--once"]), (dump.main, [place])):
            forget_clients()
            capsys.readouterr()
            assert main([*arguments, "--verbose"]) == code
            told = capsys.readouterr().err
            assert expected in told
            assert "hunter2" not in told
            assert "Traceback" not in told

    both(f"hdfs://127.0.0.1:9{path}", 1, "no connection to the NameNode '127.0.0.1:9'")
    both(f"hdfs://no-such-host.invalid:8020{path}", 1, "no connection to the NameNode 'no-such-host.invalid:8020'")
    both(f"hdfs://nameservice{path}", 2, "no nameservice 'nameservice' in the settings of Hadoop")
    both(f"hdfs://me:hunter2@127.0.0.1:9{path}", 2, "holds credentials")
    both(f"{copy}/a:b", 2, "expected hdfs://host:port/folder or hdfs://nameservice/folder")
    both(f"hdfs://{path}", 2, "expected hdfs://host:port/folder or hdfs://nameservice/folder")
    monkeypatch.setenv("HADOOP_USER_NAME", "mallory")
    both(copy, 2, "access denied (Permission denied: user=mallory")
    monkeypatch.delenv("HADOOP_USER_NAME")
    forget_clients()
    assert dump.main([f"{copy}/missing"]) == 2
    assert f"{copy}/missing" in capsys.readouterr().err


def test_jobs_find_copies_and_stores_of_a_nameservice(
    hdfs_cluster: HdfsCluster,
    copy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs_cluster.configuration))
    place = copy.replace(hdfs_cluster.uri, "hdfs://tests")
    for name in ("x", "y"):
        root = write_store(tmp_path / name, [(0, open_segment(messages(9), SIZE))])
        assert ship.main(["--store", str(root), "--broker", name, "--to", f"{place}/{name}", "--once"]) == 0
    put_file(place, f"z/{FIRST}", closed_segment(large_messages(18), SIZE))
    for each in (f"{place}/x", f"{place}/x/commitlog", f"{place}/*", f"{place}/{{broker}}"):
        found = find_stores(each, formats=COMMITLOGS)
        assert [store.broker for store in found] == (["x"] if "/x" in each else ["x", "y", "z"])
        assert {segment.file_size for store in found for segment in store.segments} == {SIZE}
    for name, count in (("x", 9), ("z", 18)):
        capsys.readouterr()
        assert dump.main([f"{place}/{name}", "--quiet"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count


@pytest.mark.long("copies in other places are verified each time")
def test_copy_is_verified_as_the_store(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_copy_is_verified_alike(copy, tmp_path, ROCKETMQ, capsys)


@pytest.mark.long("what these jobs say of other copies is tried each time")
def test_fetched_copy_is_read_alike(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_fetched_copy_is_read_alike(copy, tmp_path, capsys)
