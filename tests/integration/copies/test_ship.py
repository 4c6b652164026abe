"""`ship` to object stores and HDFS: real servers, kills, faults, and files of others."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.shipping.ship_target import ShipError, ShipNameError, ShipUnavailableError
from commitlake.jobs.ship import command as ship
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, Part, ShippedFile, parse_manifest, part_name
from tests.servers.cutting_proxy import CuttingProxy
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.copies import FIRST, SIZE, SMALL, agent_of, large_messages, target_of
from tests.support.copy_places import AzurePlace, CopyPlace, GcsPlace, HdfsPlace, S3Place, at, each_place
from tests.support.kills import kill_count
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.store_formats import ROCKETMQ
from tests.support.waiting import let_pass

pytestmark = pytest.mark.usefixtures("usual_priority")


@each_place()
def test_file_is_made_of_its_parts(place: CopyPlace, copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    target, agent = target_of(copy), None
    for count in (1, 2, 3, 4, 9, 17):
        write_store(store, [(0, open_segment(all_messages[:count], SIZE))])
        agent = agent or agent_of(store, target, place.settings)
        agent.ship_round()
    closed = closed_segment(all_messages, SIZE)
    write_store(store, [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    assert agent is not None
    agent.ship_round()
    found = place.files(copy)
    assert found[FIRST] == closed
    assert not any(FIRST in name for name in found if name != FIRST)
    assert place.unfinished(copy) == []
    assert agent.counts.sent_bytes < 2 * SIZE


@at(GcsPlace)
def test_file_is_made_of_many_parts_on_the_server(
    place: CopyPlace, copy: str, tmp_path: Path, proxy: FaultProxy
) -> None:
    store, size = tmp_path / "store", 3 << 20
    settings = ShipSettings("b", part_bytes=64 << 10, full_part_bytes=32 << 10)  # so more than 32 parts
    closed = closed_segment(large_messages(40, 70 << 10), size)
    write_store(store, [(0, closed), (size, open_segment(messages(3), size, size))])
    agent_of(store, target_of(copy), settings).ship_round()
    assert len([line for line in proxy.seen if "/compose?" in line]) == 3
    assert not [line for line in proxy.seen if line.startswith("GET") and "commitlog" in line and "media" in line]
    found = place.files(copy)
    assert found[FIRST] == closed
    assert not any(FIRST in name for name in found if name != FIRST)


@each_place(
    long={HdfsPlace: "rarely broken: a file in HDFS is changed by hand only"},
    without={S3Place: "the server joins parts by their names, which have their checksums"},
)
def test_no_file_is_made_of_a_part_that_was_changed(place: CopyPlace, copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    write_store(store, [(0, open_segment(all_messages[:17], SIZE))])
    agent = agent_of(store, target_of(copy))
    agent.ship_round()
    last = max(name for name in place.files(copy) if "/parts/" in name)
    place.put(copy, last, bytes(len(place.files(copy)[last])))
    closed = closed_segment(all_messages, SIZE)
    write_store(store, [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    with pytest.raises(ShipError, match="the file was changed"):
        agent.ship_round()
    assert FIRST not in place.files(copy)
    if place.keeps_checksums:
        agent_of(store, target_of(copy)).ship_round()  # it sends the part again
        assert place.files(copy)[FIRST] == closed


@pytest.mark.kills
@each_place(
    long={
        AzurePlace: "an agent that ships to S3 is killed each time",
        HdfsPlace: "each killed process takes seconds; an agent continues in other tests, too",
    }
)
def test_copy_is_complete_after_kills(place: CopyPlace, copy: str, tmp_path: Path) -> None:
    segments = [(SIZE * number, closed_segment(large_messages(18), SIZE, SIZE * number)) for number in range(3)]
    last = open_segment(messages(2000), SIZE, 3 * SIZE)
    store = write_store(tmp_path / "store", [*segments, (3 * SIZE, last)])
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "ship", "--store", str(store), "--once", "--to", copy]
    chance = random.Random(3)
    killed = 0
    for _ in range(kill_count(place.kills.number)):
        with subprocess.Popen([*command, "--rate", place.kills.rate], stderr=subprocess.DEVNULL) as process:
            let_pass(chance.uniform(*place.kills.after), "the agent ships until it is killed")
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
    assert subprocess.run(command, check=False).returncode == 0
    found = place.files(copy)
    for base, data in segments:
        assert found[f"commitlog/{segment_name(base)}"] == data
    parts = sorted(name for name in found if "of-commitlog" in name)
    assert b"".join(found[name] for name in parts) == last.rstrip(b"\0")
    assert place.unfinished(copy) == []
    assert killed >= place.kills.least


@each_place(without={HdfsPlace: "its protocol is not HTTP; the test of lost answers has its methods"})
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.ANSWER_503, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        pytest.param(Fault.DROP_REQUEST, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        Fault.LOSE_ANSWER,
    ],
)
def test_faults_of_single_requests_change_nothing(
    place: CopyPlace, copy: str, tmp_path: Path, proxy: FaultProxy, fault: Fault
) -> None:
    closed = closed_segment(large_messages(18), SIZE)
    store = write_store(tmp_path / "store", [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    for request in place.requests:
        proxy.inject(fault, times=place.fault_count, request=request)
    agent_of(store, target_of(copy)).ship_round()
    assert find_stores(copy, formats=COMMITLOGS)[0].segments[0].file_size == SIZE
    assert proxy.unused == 0
    found = place.files(copy)
    assert found[FIRST] == closed
    assert not any(FIRST in name for name in found if name != FIRST)


@pytest.mark.long(
    "each lost answer costs seconds; a manifest of an agent that is sure of the old one is tried each time"
)
@at(HdfsPlace)
def test_lost_answers_change_nothing(place: CopyPlace, copy: str, tmp_path: Path) -> None:
    closed = closed_segment(messages(100), SMALL)
    store = write_store(tmp_path / "store", [(0, closed), (SMALL, open_segment(messages(3), SMALL, SMALL))])
    with CuttingProxy(place.server.address) as proxy:
        through_proxy = copy.replace(f":{place.server.address[1]}", f":{proxy.port}")
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
    place.forget_clients()
    assert place.files(copy)[FIRST] == closed
    assert [segment.file_size for segment in find_stores(copy, formats=COMMITLOGS)[0].segments] == [SMALL, SMALL]


@pytest.mark.long("starts a NameNode and a DataNode again")
@pytest.mark.parametrize("name", ["namenode", "datanode"])
@at(HdfsPlace)
def test_agent_continues_when_a_server_is_back(place: HdfsPlace, copy: str, tmp_path: Path, name: str) -> None:
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
    place.server.kill_one(name)
    let_pass(2, "requests fail meanwhile")
    place.server.start_one(name)
    thread.join(200)
    assert not thread.is_alive()
    assert not failed
    found = place.files(copy)
    for base, data in segments:
        assert found[f"commitlog/{segment_name(base)}"] == data


@each_place(long={HdfsPlace: "checks of what lies in the target are the agent's, and tried with other targets"})
def test_foreign_files_are_refused_or_left_alone(place: CopyPlace, copy: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    place.put(copy, "shipped/parts/notes", b"x")
    place.put(f"{copy}-2", FIRST, b"x")
    if place.has_folder_objects:
        place.put(copy, "commitlog/", b"")
    agent_of(store, target_of(copy)).ship_round()
    assert place.files(copy)["shipped/parts/notes"] == b"x"
    assert place.files(f"{copy}-2") == {FIRST: b"x"}
    assert parse_manifest(target_of(copy).read_manifest(LOG_MANIFEST) or b"", LOG_MANIFEST).broker == "b"
    assert [store.broker for store in find_stores(copy, formats=COMMITLOGS)] == ["b"]
    with pytest.raises(ShipError, match="no agent has shipped"):
        agent_of(store, target_of(f"{copy}-2")).ship_round()
    if place.has_folder_objects:
        place.put(f"{copy}-2", "commitlog/", b"")
        with pytest.raises(ShipError, match="no agent has shipped"):
            agent_of(store, target_of(f"{copy}-2")).ship_round()


@at(HdfsPlace)
def test_paths_of_another_kind_are_named(place: CopyPlace, copy: str) -> None:
    target, part = target_of(copy), Part(0, 4, 0)
    file = ShippedFile(FIRST, 4, parts=(part,))
    place.put(copy, f"{part_name(FIRST, part)}/x", b"x")
    with pytest.raises(ShipError, match="of-commitlog") as found:
        target.seal(file)
    assert not isinstance(found.value, ShipUnavailableError)
    with pytest.raises(ShipNameError, match="a name that is too long"):
        target.write_file(f"config/{300 * 'a'}", b"x")
    place.put(f"{copy}-2", LOG_MANIFEST, b"{}")  # as a tool copies it from another kind of file system
    with pytest.raises(ShipError, match=r"expected a folder, but .*log\.json is a file"):
        target_of(f"{copy}-2").read_manifest(LOG_MANIFEST)


@pytest.mark.long("ships many small files, twice")
@at(HdfsPlace)
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
    assert told.count("HDFS does not allow this as the name of a file") == 3
    assert "a:b.json" in told
    assert "\x1b" not in told
    folder = tmp_path / "folder"
    assert ship.main(["--store", copy, "--to", str(folder), "--once"]) == 0
    assert (folder / "consumequeue" / "t %41#?\n\x1b[31mü" / "0" / segment_name(0)).exists()
    assert not (folder / "consumequeue" / "of: two").exists()
