"""Faults of networks and servers: after each of them the bytes are right, or there is a clear error."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from commitlake.connectors.lake.packs.errors import PackError, PackStoreError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.pack_stores import PackStore, open_pack_store
from commitlake.connectors.storage import s3_clients, s3_storage
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.s3_storage import PART_BYTES, open_upload
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.process import free_ports
from tests.servers.s3 import S3Server
from tests.support.packs import NAME
from tests.support.waiting import let_pass, wait_until

SMALL = random.Random(1).randbytes(100_000)
LARGE = random.Random(2).randbytes(3 * PART_BYTES + 12345)


@pytest.fixture
def store(bucket: str, behind_proxy: S3Options) -> PackStore:
    """A store behind the proxy."""
    return open_pack_store(PackLocation(f"s3://{bucket}/bodies", behind_proxy))


@pytest.fixture
def plain(bucket: str, s3_server: S3Server) -> PackStore:
    """The same store without the proxy, to see its real content."""
    return open_pack_store(PackLocation(f"s3://{bucket}/bodies", S3Options(s3_server.endpoint, virtual_hosts=False)))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report permanent errors after few attempts."""
    monkeypatch.setattr(s3_clients, "_clients", {})
    monkeypatch.setattr(s3_storage, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr(s3_storage, "_ANSWERS", 2)


def write(store: PackStore, content: bytes) -> None:
    """Write a pack of any bytes."""
    with store.open_write(NAME) as output:
        for start in range(0, len(content), 1 << 20):
            output.write(memoryview(content)[start : start + (1 << 20)])


def is_there(store: PackStore) -> bool:
    """Return whether the pack exists."""
    return next(store.list_packs(), None) is not None


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.ANSWER_503, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        pytest.param(Fault.DROP_REQUEST, marks=pytest.mark.long("a lost answer, which is harder, is tried each time")),
        Fault.LOSE_ANSWER,
    ],
)
@pytest.mark.parametrize(
    ("content", "request_line", "times"),
    [
        (SMALL, "^PUT", 3),
        (LARGE, r"^POST .*\?uploads", 2),  # the failed upload stays unfinished, and is not visible
        (LARGE, "^PUT .*partNumber=2", 3),
        (LARGE, "^PUT .*partNumber=4", 2),
        (LARGE, r"^POST .*\?uploadId=", 2),
        (LARGE, "", 4),
    ],
)
def test_a_write_succeeds_after_temporary_faults(
    fault: Fault,
    content: bytes,
    request_line: str,
    times: int,
    store: PackStore,
    plain: PackStore,
    proxy: FaultProxy,
) -> None:
    proxy.inject(fault, times, request_line)
    write(store, content)
    assert plain.read_range(NAME, 0, len(content) + 1) == content


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "fault", [Fault.ANSWER_503, Fault.DROP_REQUEST, Fault.LOSE_ANSWER, Fault.CUT_BODY, Fault.SLOW_ANSWER]
)
def test_a_read_succeeds_after_temporary_faults(
    fault: Fault, times: int, store: PackStore, plain: PackStore, proxy: FaultProxy
) -> None:
    write(plain, SMALL)
    proxy.inject(fault, times, "^GET")
    assert store.read_range(NAME, 1000, 50_000) == SMALL[1000:51_000]
    assert store.size(NAME) == len(SMALL)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.ANSWER_503, "found a server that is too busy or not well .SlowDown., also when asked again"),
        (Fault.DROP_REQUEST, "found a connection that broke off"),
        (Fault.LOSE_ANSWER, "found a connection that broke off"),
        (Fault.CUT_BODY, "found a connection that broke off"),
    ],
)
def test_a_permanent_fault_is_an_error(
    fault: Fault, words: str, store: PackStore, plain: PackStore, proxy: FaultProxy
) -> None:
    write(plain, SMALL)
    proxy.inject(fault, 1000)
    with pytest.raises(PackError, match=words):
        store.read_range(NAME, 0, 50_000)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.ANSWER_503, marks=pytest.mark.long("a dropped request ends a write alike, each time")),
        Fault.DROP_REQUEST,
    ],
)
@pytest.mark.parametrize(
    ("content", "request_line"),
    [(SMALL, "^PUT"), (LARGE, "uploads"), (LARGE, "partNumber=3"), (LARGE, r"^POST .*\?uploadId=")],
)
def test_a_write_that_fails_leaves_no_pack_and_no_upload(
    fault: Fault, content: bytes, request_line: str, store: PackStore, plain: PackStore, proxy: FaultProxy,
    s3_server: S3Server, bucket: str,
) -> None:  # fmt: skip
    proxy.inject(fault, 1000, request_line)
    with pytest.raises(PackStoreError, match=rf"bodies in s3://{bucket}/bodies: expected .* to be written, found a "):
        write(store, content)
    assert not is_there(plain)
    assert "Uploads" not in s3_server.client().list_multipart_uploads(Bucket=bucket)


def test_nothing_can_be_written_after_an_upload_was_aborted(s3_server: S3Server, bucket: str) -> None:
    client = s3_server.client()
    with suppress(KeyError), open_upload(client, {"Bucket": bucket, "Key": "data"}) as upload:
        upload.write(LARGE)
        raise KeyError
    with pytest.raises(ValueError, match="the upload of data was aborted"):
        upload.write(LARGE)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)


@pytest.mark.usefixtures("hasty")
def test_a_pack_with_lost_answers_is_complete_after_a_second_write(
    store: PackStore, plain: PackStore, proxy: FaultProxy
) -> None:
    proxy.inject(Fault.LOSE_ANSWER, 2, "^PUT")
    with pytest.raises(PackStoreError, match="broke off"):
        write(store, SMALL)
    assert is_there(plain)  # the server had done it
    write(store, SMALL)
    assert plain.read_range(NAME, 0, len(SMALL) + 1) == SMALL


def test_a_pack_of_another_upload_does_not_hide_a_failed_upload(
    store: PackStore, plain: PackStore, s3_server: S3Server, bucket: str
) -> None:
    """A completion is refused because someone ended the upload, while another's pack of that name is there."""
    write(plain, LARGE)
    with pytest.raises(PackStoreError, match="NoSuchUpload"), store.open_write(NAME) as output:  # noqa: PT012
        output.write(memoryview(LARGE))
        client = s3_server.client()
        uploads = partial(client.list_multipart_uploads, Bucket=bucket)
        wait_until(lambda: bool(uploads().get("Uploads")))
        (found,) = uploads()["Uploads"]
        upload = {"Bucket": bucket, "Key": found["Key"], "UploadId": found["UploadId"]}
        wait_until(lambda: len(client.list_parts(**upload).get("Parts", ())) == len(LARGE) // PART_BYTES)
        client.abort_multipart_upload(**upload)


def test_an_answer_without_a_range_is_refused(store: PackStore, plain: PackStore, proxy: FaultProxy) -> None:
    write(plain, SMALL)
    proxy.inject(Fault.WRONG_RANGE, 1)
    with pytest.raises(PackError, match="expected an answer with the bytes 10 to 29, found an answer without a range"):
        store.read_range(NAME, 10, 20)


@pytest.mark.usefixtures("hasty")
def test_an_endpoint_without_a_server_is_an_error(bucket: str) -> None:
    options = S3Options(f"http://127.0.0.1:{free_ports(1)}", virtual_hosts=False)
    store = open_pack_store(PackLocation(f"s3://{bucket}", options))
    calls: list[Callable[[], object]] = [store.check_writable, lambda: store.size(NAME), lambda: write(store, SMALL)]
    for call in calls:
        with pytest.raises(PackStoreError, match=r"found no server at the endpoint\. Is the endpoint right"):
            call()


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["put", "parts"])
def test_a_write_succeeds_after_a_restart_of_the_server(content: bytes, s3_server: S3Server, plain: PackStore) -> None:
    half, killed = len(content) // 2, threading.Event()

    def write_slowly() -> None:
        with plain.open_write(NAME) as output:
            output.write(memoryview(content)[:half])
            killed.wait()
            output.write(memoryview(content)[half:])

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write_slowly)
        let_pass(0.2, "the first half is on its way")
        s3_server.kill()
        killed.set()
        let_pass(0.5, "the second half finds no server")
        s3_server.start()  # not in a thread: the server is to end with the one that starts it
        writing.result()
    assert plain.read_range(NAME, 0, len(content) + 1) == content


def test_a_pack_survives_a_kill_of_the_server(s3_server: S3Server, plain: PackStore) -> None:
    write(plain, LARGE)
    s3_server.kill()
    s3_server.start()
    assert plain.read_range(NAME, 0, len(LARGE) + 1) == LARGE
