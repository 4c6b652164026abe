"""The table of evidence: one chain, also with several writers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from deltalake import DeltaTable

from commitlake.pipelines.evidence.chain import append_evidence, read_documents, read_newest_document
from commitlake.pipelines.evidence.documents import EvidenceError, compute_key_id
from commitlake.pipelines.evidence.verifying import verify_chain
from tests.support.erased_lakes import write_lake
from tests.support.lakes import GrowingLake

KEY = Ed25519PrivateKey.generate()


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake without evidence."""
    return write_lake(tmp_path, runs=1)


def add(growing: GrowingLake, count: int, kind: str = "audit") -> None:
    for number in range(count):
        append_evidence(growing.lake, KEY, kind, {"number": number}, "1")


def test_two_writers_at_the_same_time_make_one_chain(growing: GrowingLake) -> None:
    threads = [threading.Thread(target=add, args=(growing, 5)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = verify_chain(read_documents(growing.lake), {compute_key_id(KEY.public_key()): KEY.public_key()})
    assert (found.documents, found.findings) == (10, [])


def test_the_newest_document_of_a_kind_is_found(growing: GrowingLake) -> None:
    assert read_newest_document(growing.lake) is None
    add(growing, 2, "archive")
    add(growing, 1)
    newest, archived = read_newest_document(growing.lake), read_newest_document(growing.lake, "archive")
    assert newest is not None
    assert archived is not None
    assert (newest.chain_number, archived.chain_number) == (3, 2)
    assert read_newest_document(growing.lake, "purge") is None


def test_a_row_without_a_document_is_named(growing: GrowingLake) -> None:
    add(growing, 2)
    DeltaTable(growing.lake.uri("evidence")).update(predicate="number = 2", updates={"document": "NULL"})
    found = verify_chain(read_documents(growing.lake), {compute_key_id(KEY.public_key()): KEY.public_key()})
    assert len(found.findings) > 0
    with pytest.raises(EvidenceError, match="a JSON object on one line"):
        read_newest_document(growing.lake)


def test_a_chain_without_its_newest_document_is_not_continued(growing: GrowingLake) -> None:
    add(growing, 2)
    DeltaTable(growing.lake.uri("evidence")).delete("number = 2")
    with pytest.raises(EvidenceError, match="the newest one is document 2, found 1"):
        add(growing, 1)
