"""A chain of evidence: any change is reported with the number of the document."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commitlake.pipelines.evidence.documents import (
    MAX_BYTES,
    Document,
    EvidenceError,
    compute_key_id,
    parse_document,
    sign_document,
)
from commitlake.pipelines.evidence.verifying import MAX_FINDINGS, Verification, verify_chain

AT = datetime.datetime(2026, 11, 20, 14, 0, tzinfo=datetime.UTC)
KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
KEYS = {compute_key_id(KEY.public_key()): KEY.public_key()}


def chain(count: int, key: Ed25519PrivateKey = KEY, lake: str = "lake-1") -> list[Document]:
    """Return a chain of documents."""
    documents: list[Document] = []
    for number in range(count):
        before = documents[-1] if documents else None
        facts = {"sequence": number + 1, "messages": 10 * number}
        documents.append(sign_document(key, before, "archive", facts, lake_id=lake, program_version="1", signed_at=AT))
    return documents


def verified(texts: list[str], **named: object) -> Verification:
    return verify_chain([(None, text) for text in texts], KEYS, **named)  # type: ignore[arg-type]


def texts_of(documents: list[Document]) -> list[str]:
    return [document.text for document in documents]


def codes(texts: list[str]) -> list[str]:
    return [finding.code for finding in verified(texts).findings]


def test_an_unchanged_chain_has_no_finding() -> None:
    documents = chain(5)
    found = verified(texts_of(documents), newest_hash=documents[-1].hash)
    assert found.findings == []
    assert (found.documents, found.head, found.kinds) == (5, documents[-1].hash, {"archive": 5})


def edited(text: str, change: Callable[[dict[str, object]], object]) -> str:
    """A document with a changed payload, written as documents are."""
    value = json.loads(text)
    change(value["payload"])
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("place", range(4))
def test_a_changed_document_and_its_successor_are_reported(place: int) -> None:
    texts = texts_of(chain(4))
    texts[place] = edited(texts[place], lambda payload: payload.update(facts={"messages": 11}))
    found = verified(texts).findings
    assert found[0].code == "changed"
    assert f"document {place + 1}: the signature was not made by the key" in found[0].text
    assert [finding.code for finding in found[1:]] == (["chain"] if place < 3 else [])


def test_missing_documents_are_reported() -> None:
    texts = texts_of(chain(6))
    found = verified([texts[0], texts[1], texts[4], texts[5]]).findings
    assert [(finding.code, finding.text) for finding in found] == [
        ("missing", "documents 3 to 4 are missing, between 2 and 5")
    ]
    assert codes(texts[1:]) == ["missing"]
    assert verified(texts[1:], first_number=None).findings == []


def test_missing_newest_documents_are_found_by_the_head() -> None:
    documents = chain(4)
    assert codes(texts_of(documents[:3])) == []
    (finding,) = verified(texts_of(documents[:3]), newest_hash=documents[3].hash).findings
    assert finding.code == "head"
    assert "of document 3" in finding.text


def test_missing_newest_documents_are_found_by_the_last_number() -> None:
    texts = texts_of(chain(3))
    assert verified(texts, least_newest_number=3).findings == []
    found = verified(texts[:2], least_newest_number=3)
    assert [finding.code for finding in found.findings] == ["missing"]
    assert "document 3 is missing at the end" in found.findings[0].text
    assert [finding.code for finding in verified([], least_newest_number=3).findings] == ["missing"]


def test_documents_in_another_order_are_reported() -> None:
    texts = texts_of(chain(4))
    found = verified([texts[0], texts[2], texts[1], texts[3]]).findings
    assert [finding.code for finding in found] == ["missing", "order"]
    assert "document 2 is stored after document 3" in found[1].text


def test_a_repeated_document_is_reported() -> None:
    texts = texts_of(chain(3))
    assert [finding.text for finding in verified([*texts, texts[2]]).findings] == [
        "document 3 appears twice: the second one is the same"
    ]


def test_an_unknown_key_is_reported() -> None:
    (finding,) = verified(texts_of(chain(1, OTHER))).findings
    assert finding.code == "unknown key"
    assert compute_key_id(OTHER.public_key()) in finding.text
    assert compute_key_id(KEY.public_key()) in finding.text


def test_a_document_of_another_chain_is_reported() -> None:
    """Signed by the same key, with the number that comes next."""
    own, other = chain(3), chain(4, lake="lake-2")
    assert codes(texts_of([*own, other[3]])) == ["lake", "chain"]


def test_a_signature_by_another_key_than_named_is_invalid() -> None:
    (document,) = chain(1, OTHER)
    text = document.text.replace(document.key_id, compute_key_id(KEY.public_key()))
    assert codes([text]) == ["changed"]


def test_a_document_stored_under_another_number_is_reported() -> None:
    first, second = chain(2)
    found = verify_chain(
        [(first.evidence_columns, first.text), (second.evidence_columns._replace(number=3), second.text)], KEYS
    )
    assert [finding.text for finding in found.findings] == ["document 2 is stored as document 3"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "7" * 5000,
        "[" * 100_000,
        '{"key":"a","payload":{},"signature":""}',
        '{"key":"a","key":"b","payload":{},"signature":""}',
        "\udcff",
        chain(1)[0].text.replace('"program":"1"', '"program":"\udcff"'),
        chain(1)[0].text.replace('"key":"', '"key":"\udcff'),
        '{"a":NaN}',
        "x" * (MAX_BYTES + 1),
    ],
)  # fmt: skip
def test_other_texts_are_an_evidence_error(text: str) -> None:
    with pytest.raises(EvidenceError):
        parse_document(text)
    assert codes([text]) == ["unreadable"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("number", 0), ("number", "1"), ("number", 10**30), ("number", True), ("previous", "x"), ("version", 2),
     ("format", "other")],
)  # fmt: skip
def test_a_payload_of_other_values_is_unreadable(name: str, value: object) -> None:
    (document,) = chain(1)
    assert codes([edited(document.text, lambda payload: payload.update({name: value}))]) == ["unreadable"]


def test_a_document_with_other_blanks_is_unreadable() -> None:
    (document,) = chain(1)
    assert codes([json.dumps(json.loads(document.text))]) == ["unreadable"]


def test_every_single_changed_character_is_found() -> None:
    first, second = chain(2)
    for place in range(len(first.text)):
        changed = first.text[:place] + chr(ord(first.text[place]) ^ 1) + first.text[place + 1 :]
        assert codes([changed, second.text]), f"character {place}"


def test_after_many_findings_the_rest_is_not_read() -> None:
    read = []

    def endless() -> Iterator[tuple[None, str]]:
        while True:
            read.append(1)
            yield None, "{}"

    found = verify_chain(endless(), KEYS, newest_hash="0" * 64, least_newest_number=7)
    assert len(found.findings) == MAX_FINDINGS + 1
    assert (found.findings[-1].code, found.findings[-1].text) == (
        "too many", f"the documents after the first {MAX_FINDINGS:,} were not read",
    )  # fmt: skip
    assert len(read) == MAX_FINDINGS + 1


@pytest.mark.parametrize(
    "change", [{"at": "2026-11-20T14:00:00.001Z"}, {"at": None}, {"kind": "audit"}, {"key_id": "0"}]
)
def test_a_column_that_differs_from_its_document_is_reported(change: dict[str, str | None]) -> None:
    (document,) = chain(1)
    assert verify_chain([(document.evidence_columns, document.text)], KEYS).findings == []
    (finding,) = verify_chain([(document.evidence_columns._replace(**change), document.text)], KEYS).findings  # type: ignore[arg-type]
    assert (finding.code, f"in the column {next(iter(change))}, found" in finding.text) == ("column", True)
