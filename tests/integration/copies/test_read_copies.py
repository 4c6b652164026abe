"""Copies in object stores and HDFS are read like their stores by archive, verify, dump and rebuild, byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.files.read_ahead import ReadAhead
from commitlake.connectors.reading.files.segment_files import OpenSegment, RemoteSegment, open_remote
from commitlake.connectors.reading.files.shipped_stores import resolve_filesystem
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.filesystem import open_filesystem
from commitlake.connectors.storage.hdfs_clients import HdfsClient
from commitlake.connectors.storage.uris import parse_hdfs_uri, parse_s3_uri
from commitlake.jobs.archive import command as archive
from commitlake.jobs.dump import command as dump
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.ship import command as ship
from commitlake.jobs.verify import command as verify
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import segment_name
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.archived import TABLES, rows_of
from tests.support.copies import FIRST, SIZE, SMALL, agent_of, large_messages, target_of
from tests.support.copy_places import AzurePlace, CopyPlace, GcsPlace, HdfsPlace, S3Place, at, each_place
from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.rebuilt_stores import files_of
from tests.support.store_damages import DAMAGES
from tests.support.store_formats import JMQ, ROCKETMQ, StoreFormat
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("usual_priority")

_SEGMENT_BYTES, _WINDOW_BYTES = 32 << 20, 4 << 20
EACH_LAYOUT = pytest.mark.parametrize(
    "layout",
    [
        pytest.param(ROCKETMQ, id="rocketmq"),
        pytest.param(JMQ, id="jmq", marks=pytest.mark.long("the target does not look into files")),
    ],
)


@pytest.mark.long("copies are archived as they grow each time")
@each_place()
def test_records_of_the_copy_are_those_of_the_store(
    odd_copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "b" / "store")  # of the broker b
    store = ROCKETMQ.open(Path(root))
    for part in range(2):  # the copy is read as it grows
        ROCKETMQ.fill(store, 30, 30 * part)
        store.flush()
        assert ship.main(["--store", root, "--to", odd_copy, "--once"]) == 0
        dumped = []
        for place in (root, odd_copy):
            capsys.readouterr()
            assert dump.main([place, "--quiet"]) == 0
            dumped.append(capsys.readouterr().out.splitlines())
        assert dumped[0] == dumped[1]
        assert len(dumped[0]) == 30 * (part + 1)
    store.close()


@each_place(
    long={
        AzurePlace: "a copy in S3 is archived each time",
        HdfsPlace: "archives four times; the short run archives copies in S3",
    }
)
@EACH_LAYOUT
def test_archive_of_the_copy_equals_that_of_the_store(odd_copy: str, tmp_path: Path, layout: StoreFormat) -> None:
    store = layout.open(tmp_path / "store")
    for part in range(2):  # the copy is archived as it grows
        layout.fill(store, 30, 30 * part)
        store.flush()
        layout.note_progress(store)
        assert ship.main(["--store", str(tmp_path / "store"), "--broker", "b", "--to", odd_copy, "--once"]) == 0
        for place, lake in ((str(tmp_path / "store"), "of-store"), (odd_copy, "of-copy")):
            assert archive.main(["--store", place, "--broker", "b", "--lake", str(tmp_path / lake), "--local"]) == 0
    store.close()
    assert len(rows_of(tmp_path / "of-store", "messages")) == 60
    for table in TABLES:
        found = rows_of(tmp_path / "of-copy", table)
        expected = rows_of(tmp_path / "of-store", table)
        if table == "store_config":  # about the size of IndexFiles, because the newest one is not copied
            expected = [row for row in expected if not str(row["name"]).startswith("index_")]
        assert found == expected, table


@each_place(
    long={AzurePlace: "a copy in S3 is verified each time", HdfsPlace: "copies in other places are verified each time"}
)
@EACH_LAYOUT
def test_copy_is_verified_as_the_store(
    copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: StoreFormat
) -> None:
    """The copy of a damaged store has the same findings, except the note on the IndexFile that is not copied."""
    damages = DAMAGES[layout.name]
    write = write_indexed_store if layout is ROCKETMQ else write_jmq_store
    store = write(tmp_path / "store")
    damages.patch_field(store, damages.record(store), "body_crc", 1)
    damages.clear_entry(store, 5)
    damages.queue_file(store, damages.queue_file_entries)[0].unlink()
    assert ship.main(["--store", str(store), "--broker", "b", "--to", copy, "--once"]) == 0
    found = []
    for root in (str(store), copy):
        capsys.readouterr()
        options = ["--broker", "b", "--local", "--processes", "1", "--format", "json"]
        assert verify.main([root, *options]) == ExitCode.DAMAGE
        (report,) = json.loads(capsys.readouterr().out)["rows"]
        assert report.pop("root") == root
        found.append(report)
    of_store, of_copy = found
    assert {"log_bad_crc", "queue_missing_entry", "queue_missing_file"} <= of_store["counts"].keys()
    if layout is ROCKETMQ:
        assert of_copy["counts"].pop("index_not_copied") == 1
        assert of_copy["findings"].pop()["code"] == "index_not_copied"
        assert of_copy.pop("index_files") + 1 == of_store.pop("index_files")
    for finding in (*of_copy["findings"], *of_store["findings"]):  # what to do depends on the place
        assert finding.pop("action")
        assert finding.pop("commands") is not None
    assert of_copy == of_store


@each_place(
    long={
        AzurePlace: "what these jobs say of a copy in S3 is tried each time",
        HdfsPlace: "what these jobs say of other copies is tried each time",
    }
)
def test_fetched_copy_is_read_alike(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, fetched = ROCKETMQ.write(tmp_path / "broker-a" / "store", 60), tmp_path / "fetched"
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    capsys.readouterr()
    assert rebuild.main([copy, "--in-place", "--local"]) == ExitCode.USAGE
    assert f"commitlake ship --store {copy} --to FOLDER --once" in capsys.readouterr().err
    assert ship.main(["--store", copy, "--to", str(fetched), "--once"]) == 0
    for name in ("commitlog", "config"):
        for path in (fetched / name).iterdir():
            assert path.read_bytes() == (store / name / path.name).read_bytes()
    printed, rebuilt = [], []
    for number, place in enumerate((copy, str(fetched))):
        capsys.readouterr()
        assert dump.main([place, "--consumequeue", "--topic", "orders"]) == 0
        printed.append(capsys.readouterr().out)
        out = tmp_path / f"rebuilt-{number}"
        assert rebuild.main([place, "--out", str(out), "--processes", "1", "--local", "--quiet"]) == 0
        rebuilt.append({name: data for name, data in files_of(out).items() if not name.startswith((".", "index"))})
    assert printed[0] == printed[1] != ""
    assert rebuilt[0] == rebuilt[1] != {}


@each_place(long={HdfsPlace: "large segments of a copy in Azure are read alike each time"})
def test_large_segments_are_read_alike(odd_copy: str, tmp_path: Path) -> None:
    """A closed segment and an open one are read in parallel ranges."""
    large = large_messages(30)
    closed = closed_segment(large, _SEGMENT_BYTES)
    written = {0: closed, _SEGMENT_BYTES: open_segment(large[:20], _SEGMENT_BYTES, _SEGMENT_BYTES)}
    store = write_store(tmp_path / "store", list(written.items()))
    assert ship.main(["--store", str(store), "--broker", "b", "--to", odd_copy, "--once"]) == 0
    for base_offset, expected in written.items():
        window = np.empty(_WINDOW_BYTES, np.uint8)
        with OpenSegment(f"{odd_copy}/commitlog/{segment_name(base_offset)}") as file:
            assert isinstance(file, RemoteSegment)
            ahead = ReadAhead(file)
            for start in range(0, _SEGMENT_BYTES, _WINDOW_BYTES - 1000):
                data = expected[start : start + _WINDOW_BYTES]
                assert ahead.read_into(window[: len(data)], start, _SEGMENT_BYTES) == len(data)
                assert window[: len(data)].tobytes() == data, start


@each_place()
def test_jobs_find_copies_and_stores(
    place: CopyPlace, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = place.other_uri(copy, monkeypatch).rpartition("/")[0]  # in S3, the whole bucket
    for name in ("x", "y"):
        root = write_store(tmp_path / name, [(0, open_segment(messages(9), SMALL))])
        assert ship.main(["--store", str(root), "--broker", name, "--to", f"{parent}/{name}", "--once"]) == 0
    place.put(f"{parent}/z", FIRST, closed_segment(messages(100), SMALL))
    for each in (f"{parent}/x", f"{parent}/x/commitlog", f"{parent}/*", f"{parent}/{{broker}}"):
        found = find_stores(each, formats=COMMITLOGS)
        assert [store.broker for store in found] == (["x"] if "/x" in each else ["x", "y", "z"])
        assert {segment.file_size for store in found for segment in store.segments} == {SMALL}
    for name, count in (("x", 9), ("z", 100)):
        capsys.readouterr()
        assert dump.main([f"{parent}/{name}", "--quiet"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count


@pytest.mark.long("tasks in other processes read a copy each time")
@at(S3Place)
def test_copy_is_verified_on_spark(copy: str, tmp_path: Path) -> None:
    store = write_indexed_store(tmp_path / "broker-a" / "store")
    DAMAGES["rocketmq"].clear_entry(store, 5)
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "verify", copy, "--format", "json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    (report,) = json.loads(done.stdout)["rows"]
    assert report["counts"] == {"queue_missing_entry": 1, "index_not_copied": 1}
    assert report["records"] == 600


@at(S3Place)
def test_copy_that_was_changed_ends_verify(
    place: S3Place, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_indexed_store(tmp_path / "broker-a" / "store")
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    path, uri = DAMAGES["rocketmq"].queue_file(store, 0)[0].relative_to(store), parse_s3_uri(copy)
    place.server.client().delete_object(Bucket=uri.bucket, Key=uri.key(str(path)))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    assert verify.main([copy, "--processes", "1", "--local", "--s3-endpoint", place.server.endpoint]) == 2
    assert f"{copy}/{path}: expected 320 bytes, found no such object: the copy was changed" in capsys.readouterr().err


@at(GcsPlace)
def test_answers_that_are_not_the_range_are_not_read(place: CopyPlace, copy: str, proxy: FaultProxy) -> None:
    data = bytes(range(256)) * 4096
    place.put(copy, "log", data)
    filesystem, path = open_filesystem(f"{copy}/log")
    with filesystem.open_input_file(path) as file:
        file.seek(100)
        proxy.inject(Fault.CUT_BODY, request="^GET .*alt=media")
        assert file.read(10000) == data[100:10100]
        assert proxy.unused == 0
        proxy.inject(Fault.IGNORE_RANGE, request="^GET .*alt=media")
        with pytest.raises(
            CloudUnavailableError, match=f"expected 10000 bytes from position 10100 on, found {len(data)}"
        ):
            file.read(10000)


@at(GcsPlace)
def test_an_object_that_is_replaced_is_read_whole_or_not_at_all(place: CopyPlace, copy: str) -> None:
    place.put(copy, "log.json", b"old")
    filesystem, path = open_filesystem(f"{copy}/log.json")
    with filesystem.open_input_file(path) as file:
        place.put(copy, "log.json", b"a longer one")
        assert file.read(100) == b"a longer one"
        file.seek(2)
        place.put(copy, "log.json", b"another one")
        with pytest.raises(CloudUnavailableError, match="was replaced while it was read"):
            file.read(3)


@at(HdfsPlace)
def test_segment_that_is_sealed_while_it_is_read_is_read_on(place: CopyPlace, copy: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    all_messages = large_messages(18)
    write_store(store, [(0, open_segment(all_messages[:9], SIZE))])
    agent = agent_of(store, target_of(copy))
    agent.ship_round()
    closed = closed_segment(all_messages, SIZE)
    file = open_remote(*resolve_filesystem(f"{copy}/{FIRST}"))
    client, root = HdfsClient(parse_hdfs_uri(copy), attempts=1), parse_hdfs_uri(copy).key("")
    name = min(name for name in place.files(copy) if FIRST in name)
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
