"""`ship` to a real object store: kills, foreign objects, servers that fail, and credentials that are never shown."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.shipping.storage import StorageTarget
from commitlake.connectors.shipping.target import ShipError, ShipUnavailableError
from commitlake.connectors.storage import s3_clients, s3_storage
from commitlake.connectors.storage.s3_clients import s3_options
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.s3_storage import MIN_COPIED_BYTES, S3Storage
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from commitlake.jobs.verify import command as verify
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.store import SourceStore
from commitlake.schemas.layouts.segments import segment_name
from commitlake.schemas.shipped import LOG_MANIFEST
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.s3 import S3Server
from tests.support.indexed_stores import write_indexed_store
from tests.support.kills import kill_count
from tests.support.logs import closed_segment, messages, new_message, open_segment, write_store
from tests.support.shipped_archives import (
    check_copy_is_archived_alike,
    check_copy_is_verified_alike,
    check_fetched_copy_is_read_alike,
    check_large_segments_are_read_alike,
)
from tests.support.store_damages import DAMAGES
from tests.support.store_formats import JMQ, ROCKETMQ, StoreFormat
from tests.support.waiting import let_pass

pytestmark = pytest.mark.usefixtures("usual_priority")

SIZE = 12 << 20
FIRST = f"commitlog/{segment_name(0)}"
EACH_LAYOUT = pytest.mark.parametrize(
    "layout",
    [
        pytest.param(ROCKETMQ, id="rocketmq"),
        pytest.param(JMQ, id="jmq", marks=pytest.mark.long("the target does not look into files")),
    ],
)


def large_messages(count: int) -> list[object]:
    """Return messages of about 1 MiB."""
    chance = random.Random(count)
    return [new_message(number, body=chance.randbytes(1 << 20)) for number in range(count)]


def target_of(bucket: str, options: S3Options | None = None) -> StorageTarget:
    """Return a claimed target in a bucket."""
    target = StorageTarget(S3Storage(f"s3://{bucket}/copy", options or s3_options()))
    target.claim()
    return target


def objects_in(server: S3Server, bucket: str) -> dict[str, bytes]:
    """Return the objects below the prefix."""
    client = server.client()
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=bucket).get("Contents", ())]
    return {key.removeprefix("copy/"): client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def test_file_is_made_of_small_and_large_parts(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = ShipSettings("b", part_bytes=MIN_COPIED_BYTES, full_part_bytes=MIN_COPIED_BYTES, merged_count=3)
    all_messages = large_messages(10)
    target = target_of(bucket)
    agent: ShipAgent | None = None
    for count in range(1, 10):
        write_store(store, [(0, open_segment(all_messages[:count], SIZE))])  # type: ignore[arg-type]
        agent = agent or ShipAgent(SourceStore(str(store)), target, settings)
        agent.ship_round()
    closed = closed_segment(all_messages, SIZE)  # type: ignore[arg-type]
    write_store(store, [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    assert agent is not None
    agent.ship_round()
    found = objects_in(s3_server, bucket)
    assert found[FIRST] == closed
    assert not any(FIRST in name for name in found if name != FIRST)
    assert agent.counts.sent_bytes < 2 * SIZE


@pytest.mark.kills
def test_copy_is_complete_after_kills(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    segments = [(SIZE * number, closed_segment(large_messages(9), SIZE, SIZE * number)) for number in range(3)]  # type: ignore[arg-type]
    last = open_segment(messages(2000), SIZE, 3 * SIZE)
    store = write_store(tmp_path / "store", [*segments, (3 * SIZE, last)])
    command = [
        sys.executable,
        "-m",
        "commitlake.jobs.cli.main",
        "ship",
        "--store",
        str(store),
        "--once",
        "--rate",
        "30M",
    ]
    chance = random.Random(3)
    killed = 0
    for _ in range(kill_count(5)):
        with subprocess.Popen([*command, "--to", f"s3://{bucket}/copy"], stderr=subprocess.DEVNULL) as process:
            let_pass(chance.uniform(0.6, 1.6), "the agent ships until it is killed")
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
    assert subprocess.run([*command, "--to", f"s3://{bucket}/copy"], check=False).returncode == 0
    found = objects_in(s3_server, bucket)
    for base, data in segments:
        assert found[f"commitlog/{segment_name(base)}"] == data
    parts = sorted(name for name in found if "of-commitlog" in name)
    assert b"".join(found[name] for name in parts) == last.rstrip(b"\0")
    assert not s3_server.client().list_multipart_uploads(Bucket=bucket).get("Uploads")
    assert killed > 2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.ANSWER_503, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        pytest.param(Fault.DROP_REQUEST, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        Fault.LOSE_ANSWER,
    ],
)
def test_faults_of_single_requests_change_nothing(
    s3_server: S3Server, behind_proxy: S3Options, proxy: FaultProxy, bucket: str, tmp_path: Path, fault: Fault
) -> None:
    closed = closed_segment(large_messages(9), SIZE)  # type: ignore[arg-type]
    store = write_store(tmp_path / "store", [(0, closed), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    for request in ("^PUT .*log[.]json", "^PUT .*/parts/", "^PUT .*partNumber", "^POST .*uploadId", "^DELETE"):
        proxy.inject(fault, times=2, request=request)
    target = target_of(bucket, behind_proxy)
    ShipAgent(SourceStore(str(store)), target, ShipSettings("b")).ship_round()
    assert objects_in(s3_server, bucket)[FIRST] == closed


def test_second_agent_ends_the_first(bucket: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    first, second = (ShipAgent(SourceStore(str(store)), target_of(bucket), ShipSettings("b")) for _ in range(2))
    second.ship_round()
    with pytest.raises(ShipError, match="another agent"):
        first.ship_round()


def test_manifest_whose_answer_was_lost_before_a_long_outage_is_replaced(
    behind_proxy: S3Options, proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_storage, "MAX_ATTEMPTS", 1)
    target, other = target_of(bucket, behind_proxy), target_of(bucket)
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


def test_foreign_objects_are_refused_or_left_alone(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    client = s3_server.client()
    client.put_object(Bucket=bucket, Key="copy/shipped/parts/notes", Body=b"x")
    client.put_object(Bucket=bucket, Key="other/commitlog/x", Body=b"x")
    ShipAgent(SourceStore(str(store)), target_of(bucket), ShipSettings("b")).ship_round()
    assert {"shipped/parts/notes", "other/commitlog/x", LOG_MANIFEST} <= set(objects_in(s3_server, bucket))
    client.put_object(Bucket=bucket, Key="taken/commitlog/00000000000000000000", Body=b"x")
    with pytest.raises(ShipError, match="no agent has shipped"):
        ShipAgent(
            SourceStore(str(store)), StorageTarget(S3Storage(f"s3://{bucket}/taken", s3_options())), ShipSettings("b")
        ).ship_round()


def test_wrong_credentials_bucket_and_server_are_named(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))]))
    assert ship.main(["--store", store, "--to", "s3://no-such-bucket/copy", "--once"]) == 2
    assert "no bucket 'no-such-bucket'" in capsys.readouterr().err
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    s3_clients._forget()
    assert ship.main(["--store", store, "--to", f"s3://{bucket}/copy", "--once", "--verbose"]) == 2
    told = capsys.readouterr().err
    assert "credentials that the server refuses" in told
    assert "a-wrong-secret" not in told
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    assert ship.main(["--store", store, "--to", f"s3://{bucket}/copy", "--once"]) == 1
    assert "no server at the endpoint" in capsys.readouterr().err
    s3_clients._forget()


@EACH_LAYOUT
def test_archive_of_the_copy_equals_that_of_the_store(
    s3_server: S3Server, bucket: str, tmp_path: Path, layout: StoreFormat
) -> None:
    check_copy_is_archived_alike(f"s3://{bucket}/copy", tmp_path, layout)


def test_large_segments_are_read_alike(bucket: str, tmp_path: Path) -> None:
    check_large_segments_are_read_alike(f"s3://{bucket}/copy", tmp_path)


def test_jobs_find_copies_without_a_complete_segment(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("x", "y"):
        root = write_store(tmp_path / name, [(0, open_segment(messages(9), SIZE))])
        assert ship.main(["--store", str(root), "--broker", name, "--to", f"s3://{bucket}/{name}", "--once"]) == 0
    for place in (f"s3://{bucket}/x", f"s3://{bucket}/x/commitlog", f"s3://{bucket}/*", f"s3://{bucket}/{{broker}}"):
        found = find_stores(place, formats=COMMITLOGS)
        assert [store.broker for store in found] == (["x"] if "/x" in place else ["x", "y"])
        assert {segment.file_size for store in found for segment in store.segments} == {SIZE}
    capsys.readouterr()
    assert dump.main([f"s3://{bucket}/x", "--quiet"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 9


@EACH_LAYOUT
def test_copy_is_verified_as_the_store(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: StoreFormat
) -> None:
    check_copy_is_verified_alike(f"s3://{bucket}/copy", tmp_path, layout, capsys)


@pytest.mark.long("tasks in other processes read a copy each time")
def test_copy_is_verified_on_spark(bucket: str, tmp_path: Path) -> None:
    place = f"s3://{bucket}/copy"
    store = write_indexed_store(tmp_path / "broker-a" / "store")
    DAMAGES["rocketmq"].clear_entry(store, 5)
    assert ship.main(["--store", str(store), "--to", place, "--once"]) == 0
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "verify", place, "--format", "json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    (report,) = json.loads(done.stdout)["rows"]
    assert report["counts"] == {"queue_missing_entry": 1, "index_not_copied": 1}
    assert report["records"] == 600


def test_copy_that_was_changed_ends_verify(
    s3_server: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, place = write_indexed_store(tmp_path / "broker-a" / "store"), f"s3://{bucket}/copy"
    assert ship.main(["--store", str(store), "--to", place, "--once"]) == 0
    path = DAMAGES["rocketmq"].queue_file(store, 0)[0].relative_to(store)
    s3_server.client().delete_object(Bucket=bucket, Key=f"copy/{path}")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    assert verify.main([place, "--processes", "1", "--local", "--s3-endpoint", s3_server.endpoint]) == 2
    assert f"{place}/{path}: expected 320 bytes, found no such object: the copy was changed" in capsys.readouterr().err


def test_fetched_copy_is_read_alike(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_fetched_copy_is_read_alike(f"s3://{bucket}/copy", tmp_path, capsys)
