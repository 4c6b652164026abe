"""Packs in a real object store: it behaves like a local folder."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import pickle
import random
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from commitlake.connectors.lake.packs.errors import PackError, PackNameError, PackStoreError
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.packs.names import pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore, open_pack_store
from commitlake.connectors.lake.packs.reader import read_bodies, read_body
from commitlake.connectors.lake.packs.writer import open_pack_writer
from commitlake.connectors.storage import s3_clients
from commitlake.connectors.storage.s3_storage import PART_BYTES
from tests.servers.s3 import S3Server
from tests.support.packs import NAME, TOKEN, append, folder_store, ref_of

DATE = datetime.date(2026, 11, 20)
OTHER = pack_name(DATE, "broker/b", 0, 5, TOKEN)


@pytest.fixture
def store(bucket: str) -> PackStore:
    """A store below a prefix."""
    return open_pack_store(pack_location(f"s3://{bucket}/lake/bodies"))


def write(store: PackStore, content: bytes, name: str = NAME, piece: int = 1 << 20) -> None:
    """Write a pack of any bytes, in pieces."""
    with store.open_write(name) as output:
        for start in range(0, len(content), piece):
            output.write(memoryview(content)[start : start + piece])


def keys_of(server: S3Server, bucket: str) -> list[str]:
    """Return all keys in a bucket."""
    return [found["Key"] for found in server.client().list_objects_v2(Bucket=bucket).get("Contents", ())]


def uploads_of(server: S3Server, bucket: str) -> list[str]:
    """Return the keys of unfinished uploads."""
    return [found["Key"] for found in server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", ())]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 1])
def test_a_pack_reads_back_equal(store: PackStore, size: int, s3_server: S3Server, bucket: str) -> None:
    content = random.Random(size).randbytes(size)
    write(store, content, piece=300_001)
    assert store.size(NAME) == size
    assert store.read_range(NAME, 0, size + 1) == content
    assert uploads_of(s3_server, bucket) == []


def test_the_key_of_a_pack_begins_with_its_date(store: PackStore, s3_server: S3Server, bucket: str) -> None:
    write(store, b"x", OTHER)
    assert keys_of(s3_server, bucket) == [f"lake/bodies/{OTHER}"]
    assert OTHER.startswith("store_date=2026-11-20/broker=broker%2Fb/")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_whole_bucket_may_be_a_root(scheme: str, s3_server: S3Server, bucket: str) -> None:
    store = open_pack_store(pack_location(f"{scheme}://{bucket}"))
    write(store, b"x")
    assert keys_of(s3_server, bucket) == [NAME]
    assert [found.name for found in store.list_packs()] == [NAME]


def test_ranges_end_where_the_pack_ends(store: PackStore) -> None:
    write(store, b"0123456789")
    assert store.read_range(NAME, 2, 3) == b"234"
    assert store.read_range(NAME, 8, 1 << 60) == b"89"
    assert store.read_range(NAME, 10, 1) == b""
    assert store.read_range(NAME, 5, 0) == b""
    assert store.read_range(NAME, (1 << 63) - 1, 1) == b""


def test_a_body_is_read_by_one_ranged_get(bucket: str, proxy: object, behind_proxy: object) -> None:
    store = open_pack_store(PackLocation(f"s3://{bucket}/bodies", behind_proxy))  # type: ignore[arg-type]
    bodies = [random.Random(number).randbytes(5000) for number in range(100)]
    with open_pack_writer(store, NAME, frame_bytes=20_000) as writer:
        append(writer, bodies)
    refs = writer.finish()
    del proxy.seen[:]  # type: ignore[attr-defined]
    assert read_body(store, ref_of(refs, 57)) == bodies[57]
    assert len(proxy.seen) == 1  # type: ignore[attr-defined]
    assert read_bodies(store, NAME, refs).to_pylist() == bodies


@pytest.mark.parametrize("size", [10, 2 * PART_BYTES + 5])
def test_a_pack_replaces_one_of_its_name(store: PackStore, size: int) -> None:
    for letter in (b"a", b"b", b"b"):
        write(store, letter * size)
    assert store.read_range(NAME, 0, size + 1) == b"b" * size


def test_two_writers_of_one_name_do_not_conflict(store: PackStore) -> None:
    content = bytes(PART_BYTES + 5)
    with store.open_write(NAME) as one, store.open_write(NAME) as other:
        one.write(memoryview(content))
        other.write(memoryview(content))
    assert store.read_range(NAME, 0, 2 * PART_BYTES) == content


@pytest.mark.parametrize("size", [10, 2 * PART_BYTES + 5])
def test_a_failed_writer_leaves_no_object_and_no_upload(
    store: PackStore, size: int, s3_server: S3Server, bucket: str
) -> None:
    def fail() -> None:
        with store.open_write(NAME) as output:
            output.write(memoryview(bytes(size)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert keys_of(s3_server, bucket) == uploads_of(s3_server, bucket) == []


def test_a_killed_writer_leaves_an_upload_that_can_be_ended(store: PackStore, s3_server: S3Server, bucket: str) -> None:
    def die() -> None:
        with store.open_write(NAME) as output:
            output.write(memoryview(bytes(3 * PART_BYTES)))
            os._exit(9)

    process = multiprocessing.get_context("fork").Process(target=die)
    process.start()
    process.join()
    assert process.exitcode == 9
    assert keys_of(s3_server, bucket) == []
    assert uploads_of(s3_server, bucket) == [f"lake/bodies/{NAME}"]
    now = datetime.datetime.now(datetime.UTC)
    assert store.delete_unfinished_packs(now - datetime.timedelta(hours=1)) == 0  # its writer may still be alive
    assert store.delete_unfinished_packs(now + datetime.timedelta(hours=1)) == 1
    assert uploads_of(s3_server, bucket) == []


def test_memory_is_limited_to_a_few_parts_for_any_size_of_a_pack(store: PackStore) -> None:
    piece = memoryview(bytes(1 << 18))
    write(store, b"warm")
    tracemalloc.start()
    with store.open_write(NAME) as output:
        for _ in range(12 * PART_BYTES // len(piece)):
            output.write(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3.5 * PART_BYTES
    assert store.size(NAME) == 12 * PART_BYTES


def test_a_pickled_store_works_after_a_fork_and_in_threads(store: PackStore) -> None:
    write(store, b"0123456789")
    again: PackStore = pickle.loads(pickle.dumps(store))
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: again.read_range(NAME, 2, 3), range(50))) == {b"234"}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.starmap(again.read_range, [(NAME, 2, 3)] * 4) == [b"234"] * 4


def test_a_pickled_location_works_in_another_environment(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    location = pack_location(f"s3://{bucket}/bodies")
    write(open_pack_store(location), b"x")
    sent = pickle.dumps(location)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert open_pack_store(pickle.loads(sent)).read_range(NAME, 0, 9) == b"x"
    assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in sent


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_packs_are_listed_and_deleted_as_in_a_folder(
    kind: str, store: PackStore, s3_server: S3Server, bucket: str, tmp_path: object
) -> None:
    chosen: PackStore = store if kind == "s3" else folder_store(str(tmp_path))
    assert list(chosen.list_packs()) == []
    names = [pack_name(DATE, "broker-a", start, start + 5, TOKEN) for start in range(1005)] if kind == "s3" else []
    names = sorted({*names, NAME, OTHER})
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: write(chosen, b"12345", name), names))
    s3_server.client().put_object(Bucket=bucket, Key="lake/bodies/store_date=notes.txt", Body=b"another's")
    found = list(chosen.list_packs())
    assert [pack.name for pack in found] == names
    assert {pack.size for pack in found} == {5}
    assert {pack.store_date for pack in found} == {None, DATE}
    now = datetime.datetime.now(datetime.UTC)
    assert all(abs((now - pack.modified).total_seconds()) < 600 for pack in found)
    chosen.delete([name for name in names if name != OTHER])
    chosen.delete([NAME])  # no longer exists
    assert [pack.name for pack in chosen.list_packs()] == [OTHER]
    if kind == "s3":
        assert keys_of(s3_server, bucket) == [f"lake/bodies/{OTHER}", "lake/bodies/store_date=notes.txt"]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", NAME + "\0"])
def test_methods_refuse_names_that_are_not_of_packs(name: str, store: PackStore) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.size(name),
        lambda: store.read_range(name, 0, 6),
        lambda: store.delete([name]),
        lambda: store.open_write(name).__enter__(),
    ]
    for call in calls:
        with pytest.raises(PackNameError):
            call()


def test_the_error_for_a_missing_pack_suggests_that_it_expired(store: PackStore) -> None:
    for call in (lambda: store.size(NAME), lambda: store.read_range(NAME, 0, 1), lambda: store.read_range(NAME, 0, 0)):
        with pytest.raises(PackError, match=r"expected an object in s3://.*, found none\. Has it expired"):
            call()


def test_a_missing_bucket_is_an_error() -> None:
    store = open_pack_store(pack_location("s3://nobodys-bucket/bodies"))
    calls: list[Callable[[], object]] = [
        store.check_writable,
        lambda: store.size(NAME),
        lambda: store.read_range(NAME, 0, 1),
        lambda: write(store, b"x"),
        lambda: write(store, bytes(2 * PART_BYTES)),
        lambda: list(store.list_packs()),
        lambda: store.delete([NAME]),
        lambda: store.delete_unfinished_packs(datetime.datetime.now(datetime.UTC)),
    ]
    for call in calls:
        with pytest.raises(PackStoreError, match=r"found no bucket 'nobodys-bucket'\. Create the bucket"):
            call()


def test_an_existing_bucket_passes_the_check(store: PackStore) -> None:
    store.check_writable()


@pytest.mark.parametrize(
    ("variable", "code"),
    [("AWS_ACCESS_KEY_ID", "XAdminUserNotFound"), ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch")],
)
def test_the_error_for_wrong_credentials_does_not_contain_them(
    variable: str, code: str, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setenv(variable, "wrongwrongwrong")
    monkeypatch.setattr(s3_clients, "_clients", {})  # as in a new process
    store = open_pack_store(pack_location(f"s3://{bucket}/bodies"))
    calls: list[Callable[[], object]] = [store.check_writable, lambda: store.size(NAME), lambda: write(store, b"x")]
    for call in calls:
        with pytest.raises(PackStoreError, match=rf"credentials that the server refuses \({code}\)") as raised:
            call()
        for secret in (s3_server.secret_key, s3_server.access_key, "wrongwrongwrong"):
            assert secret not in f"{raised.value} {raised.value!r} {raised.value.__cause__!r}"


def test_missing_credentials_are_an_error(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr(s3_clients, "_clients", {})
    with pytest.raises(PackStoreError, match=r"found no credentials\. Set AWS_ACCESS_KEY_ID"):
        open_pack_store(pack_location(f"s3://{bucket}/bodies")).check_writable()


def test_a_body_is_compared_with_its_crc_when_read(store: PackStore) -> None:
    with open_pack_writer(store, NAME) as writer:
        append(writer, [b"body"])
    refs = writer.finish()
    with pytest.raises(PackError, match="expected a body with the CRC 1 "):
        read_bodies(store, NAME, refs, np.array([1]))
