"""Tests of the interface of places for files, with obstore's store in memory; other adapters have their own tests."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from commitlake.connectors.storage import azure_storage
from commitlake.connectors.storage.adapter_choice import is_storage_uri, open_storage
from commitlake.connectors.storage.azure_storage import AzureStorage
from commitlake.connectors.storage.errors import CloudUnavailableError, ObjectStoreError
from commitlake.connectors.storage.storage import FileContent, ReplacedError, Storage
from commitlake.schemas.safe_store_files import UnsafeFileError
from commitlake.schemas.shipped_manifest import Part

PLACE = "abfss://logs@account1.dfs.core.windows.net/copy"
NAME = "shipped/log.json"


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The objects of the container."""
    store = MemoryStore()
    monkeypatch.setattr(azure_storage, "azure_client", lambda *_: store)
    return store


@pytest.fixture
def storage(objects: MemoryStore) -> Storage:
    """A prefix in the container."""
    return AzureStorage(PLACE)


def sent(*contents: bytes) -> Callable[[bytes], bool]:
    """Return whether this process has sent some content."""
    return contents.__contains__


def test_a_file_is_read_whole_and_by_ranges(storage: Storage) -> None:
    assert storage.get("a/b", 3) is None
    assert storage.get_range("a/b", 0, 3) is None
    assert storage.head("a/b") is None
    storage.put("a/b", b"abc")
    assert [storage.get_range("a/b", *each) for each in ((0, 2), (1, 9), (3, 1), (9, 1))] == [b"ab", b"bc", b"", b""]
    found, content = storage.head("a/b"), storage.get("a/b", 3)
    assert found is not None
    assert content is not None
    assert (found.size, content.data) == (3, b"abc")
    with pytest.raises(ObjectStoreError, match=f"{PLACE}/a/b: expected at most 2 bytes, found more"):
        storage.get("a/b", 2)
    storage.delete("a/b")
    storage.delete("a/b")
    assert storage.head("a/b") is None


def test_names_are_those_in_a_folder_and_below_it(objects: MemoryStore, storage: Storage) -> None:
    for name in ("a/1", "a/b/2", "ab/3"):
        storage.put(name, b"")
    obstore.put(objects, "copy-2/a/4", b"")
    assert sorted(storage.names("a")) == ["a/1", "a/b/2"]
    assert list(storage.names("a", 1)) == ["a/1"]
    assert list(storage.names("c")) == []


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/./b"])
def test_names_outside_the_place_are_refused(storage: Storage, name: str) -> None:
    for request in (
        storage.head,
        storage.delete,
        lambda name: storage.put(name, b""),
        lambda name: storage.get(name, 1),
    ):
        with pytest.raises(UnsafeFileError):
            request(name)


def test_a_version_is_replaced_by_one_process(storage: Storage) -> None:
    first = storage.replace(NAME, b"1", None, sent(b"1"))
    assert storage.get(NAME, 9) == first
    second = storage.replace(NAME, b"2", first.version, sent(b"2"))
    for version in (None, first.version):
        with pytest.raises(ReplacedError):
            storage.replace(NAME, b"3", version, sent(b"3"))
    storage.delete(NAME)
    with pytest.raises(ReplacedError):
        storage.replace(NAME, b"3", second.version, sent(b"1", b"3"))
    assert storage.get(NAME, 9) is None


def test_a_version_whose_answer_was_lost_is_found(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    put_if = storage.put_if

    def lose(*arguments: Any) -> None:
        put_if(*arguments)
        raise CloudUnavailableError("the answer is lost")

    with monkeypatch.context() as context:
        context.setattr(storage, "put_if", lose)
        with pytest.raises(CloudUnavailableError):
            storage.replace(NAME, b"1", None, sent(b"1"))
    written = storage.get(NAME, 9)
    assert storage.replace(NAME, b"1", None, sent(b"1")) == written  # the same content again
    assert storage.replace(NAME, b"2", None, sent(b"1", b"2")) == written  # another one, which replaces it next
    assert isinstance(written, FileContent)
    assert storage.replace(NAME, b"2", written.version, sent(b"1", b"2")).data == b"2"


def test_a_file_is_made_of_parts_that_are_right(storage: Storage) -> None:
    pieces = [b"abc", b"de", b"f"]
    parts, offset = [], 0
    for piece in pieces:
        parts.append(Part(offset, len(piece), zlib.crc32(piece)))
        storage.put(f"parts/{offset}", piece)
        offset += len(piece)
    storage.compose("whole", parts, lambda part: f"parts/{part.offset}")
    content = storage.get("whole", 9)
    assert content is not None
    assert content.data == b"abcdef"
    for change in (b"xy", None):
        storage.delete("parts/3") if change is None else storage.put("parts/3", change)
        with pytest.raises(ObjectStoreError, match=r"parts/3: expected 2 bytes with its CRC-32: the file was changed"):
            storage.compose("other", parts, lambda part: f"parts/{part.offset}")
    assert storage.head("other") is None


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("s3://bucket/copy", "S3Storage"),
        ("S3A://bucket/copy", "S3Storage"),
        ("gs://bucket/copy", "GcsStorage"),
        (PLACE, "AzureStorage"),
        ("hdfs://host:8020/copy", "HdfsStorage"),
    ],
)
def test_the_scheme_decides_on_the_adapter(uri: str, kind: str) -> None:
    assert is_storage_uri(uri)
    found = open_storage(uri)
    assert type(found).__name__ == kind
    assert found.uri_of("a/b") == f"{found.text}/a/b"
    assert not any(map(is_storage_uri, ("/data", "file:///data", "dbfs:/data", "wasbs://a/b")))
