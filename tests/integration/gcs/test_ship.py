"""`ship` to Google Cloud Storage, and jobs that read it: a server of its protocol, kills, faults and wrong settings."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.shipping.storage import StorageTarget
from commitlake.connectors.shipping.target import ShipError
from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.filesystem import open_filesystem
from commitlake.connectors.storage.gcs_clients import forget_client, gcs_bucket
from commitlake.connectors.storage.gcs_storage import GcsStorage
from commitlake.connectors.storage.uris import parse_cloud_uri
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.store import SourceStore
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segments import segment_name
from commitlake.schemas.shipped import LOG_MANIFEST
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.gcs import GcsServer, other_key
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

pytestmark = [
    pytest.mark.usefixtures("usual_priority"),
    pytest.mark.long("its server is built for minutes; ship to Azure has the same steps each time"),
]

SIZE = 20 << 20  # its largest part is sent by an upload of more than one request
FIRST = f"commitlog/{segment_name(0)}"
SECRET = "not-a-real-secret"
ODD = "a b/%41+&=#ü"
"""A prefix with characters that URLs give a meaning to, and one that is not ASCII."""


def large_messages(count: int, size: int = 1 << 20) -> list[Any]:
    """Return messages with large bodies."""
    chance = random.Random(count)
    return [new_message(number, body=chance.randbytes(size)) for number in range(count)]


def target_of(copy: str) -> StorageTarget:
    """Return a claimed target."""
    target = StorageTarget(GcsStorage(copy))
    target.claim()
    return target


def objects_in(copy: str) -> dict[str, bytes]:
    """Return the objects below a prefix."""
    uri = parse_cloud_uri(copy)
    blobs = list(gcs_bucket(uri).list_blobs(prefix=f"{uri.prefix}/"))
    return {blob.name.removeprefix(f"{uri.prefix}/"): blob.download_as_bytes() for blob in blobs}


def put_object(copy: str, name: str, data: bytes) -> None:
    """Write an object that no agent has written."""
    uri = parse_cloud_uri(copy)
    gcs_bucket(uri).blob(uri.key(name)).upload_from_string(data)


def test_records_of_the_copy_are_those_of_the_store(
    copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "b" / "store")  # of the broker b
    store = ROCKETMQ.open(Path(root))
    for part in range(2):  # the copy is read as it grows
        ROCKETMQ.fill(store, 30, 30 * part)
        store.flush()
        assert ship.main(["--store", root, "--to", f"{copy}/{ODD}", "--once"]) == 0
        dumped = []
        for place in (root, f"{copy}/{ODD}"):
            capsys.readouterr()
            assert dump.main([place, "--quiet"]) == 0
            dumped.append(capsys.readouterr().out.splitlines())
        assert dumped[0] == dumped[1]
        assert len(dumped[0]) == 30 * (part + 1)
    store.close()


@pytest.mark.parametrize("layout", [pytest.param(ROCKETMQ, id="rocketmq"), pytest.param(JMQ, id="jmq")])
def test_archive_of_the_copy_equals_that_of_the_store(copy: str, tmp_path: Path, layout: StoreFormat) -> None:
    check_copy_is_archived_alike(f"{copy}/{ODD}", tmp_path, layout)


def test_large_segments_are_read_alike(copy: str, tmp_path: Path) -> None:
    check_large_segments_are_read_alike(f"{copy}/{ODD}", tmp_path)


def test_file_is_made_of_its_parts_on_the_server(
    gcs_server: GcsServer, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, size = tmp_path / "store", 3 << 20
    settings = ShipSettings("b", part_bytes=64 << 10, full_part_bytes=32 << 10)  # so more than 32 parts
    closed = closed_segment(large_messages(40, 70 << 10), size)
    write_store(store, [(0, closed), (size, open_segment(messages(3), size, size))])
    with FaultProxy(gcs_server.address) as proxy, monkeypatch.context() as environment:
        environment.setenv("COMMITLAKE_GCS_ENDPOINT", proxy.endpoint)
        forget_client()
        ShipAgent(SourceStore(str(store)), target_of(copy), settings).ship_round()
        assert len([line for line in proxy.seen if "/compose?" in line]) == 3
        assert not [line for line in proxy.seen if line.startswith("GET") and "commitlog" in line and "media" in line]
    forget_client()
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
    ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b")).ship_round()  # it sends the part again
    assert objects_in(copy)[FIRST] == closed_segment(all_messages, SIZE)


@pytest.mark.kills
def test_copy_is_complete_after_kills(copy: str, tmp_path: Path) -> None:
    segments = [(SIZE * number, closed_segment(large_messages(18), SIZE, SIZE * number)) for number in range(3)]
    last = open_segment(messages(2000), SIZE, 3 * SIZE)
    store = write_store(tmp_path / "store", [*segments, (3 * SIZE, last)])
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "ship", "--store", str(store), "--once", "--to", copy]
    chance = random.Random(3)
    killed = 0
    for _ in range(kill_count(3)):
        with subprocess.Popen([*command, "--rate", "30M"], stderr=subprocess.DEVNULL) as process:
            let_pass(chance.uniform(1.0, 3.0), "the agent ships until it is killed")
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
        Fault.ANSWER_503,
        Fault.DROP_REQUEST,
        Fault.LOSE_ANSWER,
    ],
)
def test_faults_of_single_requests_change_nothing(
    gcs_server: GcsServer, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    closed = closed_segment(large_messages(18), SIZE)
    store = write_store(tmp_path / "store", [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    requests = ("^POST .*=multipart.*[?&]ifGenerationMatch", "^POST .*=multipart", "^POST .*=resumable", "^PUT ",
                "^POST .*/compose", "^DELETE")  # fmt: skip
    with FaultProxy(gcs_server.address) as proxy, monkeypatch.context() as environment:
        environment.setenv("COMMITLAKE_GCS_ENDPOINT", proxy.endpoint)
        forget_client()
        for request in requests:
            proxy.inject(fault, request=request)
        ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b")).ship_round()
        assert find_stores(copy, formats=COMMITLOGS)[0].segments[0].file_size == SIZE
        assert proxy.unused == 0
    forget_client()
    found = objects_in(copy)
    assert found[FIRST] == closed
    assert not any(FIRST in name for name in found if name != FIRST)


def test_answers_that_are_not_the_range_are_not_read(
    gcs_server: GcsServer, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(256)) * 4096
    put_object(copy, "log", data)
    with FaultProxy(gcs_server.address) as proxy, monkeypatch.context() as environment:
        environment.setenv("COMMITLAKE_GCS_ENDPOINT", proxy.endpoint)
        forget_client()
        filesystem, path = open_filesystem(f"{copy}/log")
        with filesystem.open_input_file(path) as file:
            file.seek(100)
            proxy.inject(Fault.CUT_BODY, request="^GET .*alt=media")
            assert file.read(10000) == data[100:10100]
            assert proxy.unused == 0
            proxy.inject(Fault.IGNORE_RANGE, request="^GET .*alt=media")
            with pytest.raises(CloudUnavailableError, match=f"expected 10000 bytes at 10100, found {len(data)}"):
                file.read(10000)
    forget_client()


def test_an_object_that_is_replaced_is_read_whole_or_not_at_all(copy: str) -> None:
    put_object(copy, "log.json", b"old")
    filesystem, path = open_filesystem(f"{copy}/log.json")
    with filesystem.open_input_file(path) as file:
        put_object(copy, "log.json", b"a longer one")
        assert file.read(100) == b"a longer one"
        file.seek(2)
        put_object(copy, "log.json", b"another one")
        with pytest.raises(CloudUnavailableError, match="was replaced while it was read"):
            file.read(3)


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
    assert second.read_manifest(LOG_MANIFEST) == b"1"
    second.replace_manifest(LOG_MANIFEST, b"3")
    with pytest.raises(ShipError, match="another agent"):
        first.replace_manifest(LOG_MANIFEST, b"4")
    assert first.read_manifest(LOG_MANIFEST) == b"3"


def test_one_of_many_agents_replaces_a_manifest(copy: str) -> None:
    targets = [target_of(copy) for _ in range(8)]
    for round_number in range(3):
        for target in targets:
            target.read_manifest(LOG_MANIFEST)

        def replaced(number: int, round_number: int = round_number) -> bytes | None:
            data = f"{round_number}-{number}".encode()
            try:
                targets[number].replace_manifest(LOG_MANIFEST, data)
            except ShipError as error:
                assert error.exit_code is ExitCode.REFUSED
                return None
            return data

        with ThreadPoolExecutor(len(targets)) as agents:
            done = [data for data in agents.map(replaced, range(len(targets))) if data]
        assert done == [targets[0].read_manifest(LOG_MANIFEST)]


def test_foreign_objects_are_refused_or_left_alone(copy: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    put_object(copy, "shipped/parts/notes", b"x")
    put_object(copy, "commitlog/", b"")  # as some tools create folders
    put_object(f"{copy}-2", "commitlog/00000000000000000000", b"x")
    ShipAgent(SourceStore(str(store)), target_of(copy), ShipSettings("b")).ship_round()
    assert {"shipped/parts/notes", LOG_MANIFEST} <= set(objects_in(copy))
    assert [store.broker for store in find_stores(copy, formats=COMMITLOGS)] == ["b"]
    with pytest.raises(ShipError, match="no agent has shipped"):
        ShipAgent(SourceStore(str(store)), target_of(f"{copy}-2"), ShipSettings("b")).ship_round()
    put_object(f"{copy}-2", "commitlog/", b"")
    with pytest.raises(ShipError, match="no agent has shipped"):
        ShipAgent(SourceStore(str(store)), target_of(f"{copy}-2"), ShipSettings("b")).ship_round()


def test_wrong_settings_are_named(
    gcs_server: GcsServer,
    copy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = str(write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))]))

    def both(place: str, code: int, expected: str) -> None:
        for main, arguments in ((ship.main, ["--store", store, "--to", place, "--once"]), (dump.main, [place])):
            forget_client()
            capsys.readouterr()
            assert main([*arguments, "--verbose"]) == code
            told = capsys.readouterr().err
            assert expected in told
            assert "PRIVATE KEY" not in told
            assert SECRET not in told
            assert "Traceback" not in told

    both(copy.replace("logs-", "no-such-"), 2, "no bucket 'no-such-")
    both("gs://Not_a_bucket/a", 2, "expected gs://bucket/prefix")
    both(f"gs://user:{SECRET}@bucket/a", 2, "holds credentials")
    with FaultProxy(gcs_server.address) as proxy, monkeypatch.context() as environment:
        environment.setenv("COMMITLAKE_GCS_ENDPOINT", proxy.endpoint)
        proxy.inject(Fault.ANSWER_403, times=100)
        both(copy, 2, "access denied (forbidden)")
    with FaultProxy(gcs_server.address) as proxy, monkeypatch.context() as environment:  # a role that only reads
        environment.setenv("COMMITLAKE_GCS_ENDPOINT", proxy.endpoint)
        proxy.inject(Fault.ANSWER_403, times=100, request="^POST")
        forget_client()
        assert ship.main(["--store", store, "--to", copy, "--once"]) == 2
        assert "access denied (403). Give the service account the role" in capsys.readouterr().err
    with monkeypatch.context() as environment:
        environment.setenv("COMMITLAKE_GCS_ENDPOINT", "http://127.0.0.1:9")
        forget_client()
        capsys.readouterr()
        assert dump.main([copy]) == 1
        assert "no server at the endpoint" in capsys.readouterr().err
        environment.setenv("COMMITLAKE_GCS_ENDPOINT", f"https://user:{SECRET}@server")
        both(copy, 2, "COMMITLAKE_GCS_ENDPOINT")
    key_file = gcs_server.write_key("away.json", other_key())
    key_file.write_text(json.dumps({**json.loads(key_file.read_text()), "token_uri": "http://127.0.0.1:9/token"}))
    with monkeypatch.context() as environment:
        environment.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
        forget_client()
        capsys.readouterr()
        assert dump.main([copy]) == 1
        assert "no credentials that can be used, because their server cannot be reached" in capsys.readouterr().err
    for key, expected in (
        (
            gcs_server.write_key("other.json", other_key()),
            "no credentials that can be used, because their server refuses",
        ),
        (gcs_server.write_key("broken.json", SECRET), "no credentials that can be used"),
        (tmp_path / "missing.json", "no credentials that can be used (DefaultCredentialsError)"),
        (tmp_path, "GOOGLE_APPLICATION_CREDENTIALS"),
    ):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
        both(copy, 2, expected)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    both(copy, 2, "no credentials that can be used (DefaultCredentialsError)")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint)  # no credentials are needed
    monkeypatch.delenv("COMMITLAKE_GCS_ENDPOINT")
    forget_client()
    assert ship.main(["--store", store, "--to", copy, "--once"]) == 0


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


def test_copy_is_verified_as_the_store(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_copy_is_verified_alike(copy, tmp_path, ROCKETMQ, capsys)


def test_fetched_copy_is_read_alike(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_fetched_copy_is_read_alike(copy, tmp_path, capsys)
