"""Checks of a chain of documents. Each finding names the number of its document.

unreadable   invalid, or not in canonical form
unknown key  signed by a key that is not among the given ones
changed      its signature does not match its content
missing      numbers are missing
order        it is stored before a document with a smaller number
twice        its number appears a second time
chain        it refers to a different previous document
lake         it belongs to another lake than the first document, or the given lake does not have its run or erasure
place        the table stores it under another number
column       the table stores it with another time, kind or key; these columns are not signed
head         the newest document is not the expected one
no document  a newer archive run or erasure of the lake has no document: the last documents may have been cut off
too many     after 1,000 findings the rest is not read
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from commitlake.pipelines.evidence.documents import (
    Document,
    EvidenceColumns,
    EvidenceError,
    SignatureError,
    parse_document,
)


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """A problem in a chain of documents.

    Attributes:
        code: the first column of the module's docstring.
        text: description in words.
    """

    code: str
    text: str


MAX_FINDINGS = 1000
"""Number of findings after which the remaining documents are not read: the file may be endless, or something else."""


@dataclass
class Verification:
    """The result of checking a chain.

    Attributes:
        documents: number of documents read.
        findings: all problems.
        head: hash of the newest document.
        at: time of the newest document, ISO 8601.
        kinds: number of documents of each kind.
        newest: number of the newest archive run, erasure or purge that has a document, by kind.
        newest_ids: random id of this run or erasure, by kind; None if its document does not have it.
    """

    documents: int = 0
    findings: list[ChainProblem] = field(default_factory=list)
    head: str | None = None
    at: str = ""
    kinds: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    newest_ids: dict[str, str | None] = field(default_factory=dict)

    def add(self, code: str, text: str) -> None:
        """Add a problem that was found, with its code and a sentence."""
        self.findings.append(ChainProblem(code, text))


def verify_chain(
    texts: Iterable[tuple[EvidenceColumns | None, str]],
    keys: Mapping[str, Ed25519PublicKey],
    *,
    head: str | None = None,
    first: int | None = 1,
    last: int = 0,
) -> Verification:
    """Check the signatures, numbers and hashes of a chain of documents, in the given order.

    Args:
        texts: for each document, the columns with which it is stored (None if it is in a file) and its text.
        keys: the known keys, by id.
        head: hash of the newest document; without it, missing documents at the end can only be detected by comparison
            with a lake.
        first: number of the first document; None if it may be any.
        last: smallest number that the newest document may have.
    """
    found = Verification()
    before: Document | None = None
    for line, (kept_as, text) in enumerate(texts, 1):
        if len(found.findings) >= MAX_FINDINGS:
            found.add("too many", f"the documents after the first {found.documents:,} were not read")
            return found
        found.documents += 1
        try:
            document = parse_document(text)
        except EvidenceError as error:
            name = f"in line {line}" if kept_as is None or kept_as.number is None else kept_as.number
            found.add("unreadable", f"document {name}: {error}")
            continue
        kind = str(document.payload["kind"])
        found.kinds[kind] = found.kinds.get(kind, 0) + 1
        if (subject := document.subject) is not None and subject >= found.newest.get(kind, 0):
            found.newest[kind], found.newest_ids[kind] = subject, document.subject_id
        _check_signature(found, document, keys)
        if kept_as is not None:
            _check_columns(found, document, kept_as)
        _check_number(found, document, before, first)
        if before is None or document.number > before.number:
            before = document
    found.head = before.hash if before else None
    found.at = before.evidence_columns.at or "" if before else ""
    newest = before.number if before else 0
    if last > newest:
        found.add(
            "missing",
            f"{_range_text(newest + 1, last)} missing at the end: the log of the table mentions document {last}",
        )
    if head is not None and found.head != head:
        shown = f"{found.head}, of document {before.number}" if before else "none"
        found.add("head", f"expected the newest document to have the SHA-256 {head}, found {shown}")
    return found


def _check_signature(found: Verification, document: Document, keys: Mapping[str, Ed25519PublicKey]) -> None:
    key = keys.get(document.key_id)
    if key is None:
        known = ", ".join(sorted(keys)) or "none"
        found.add(
            "unknown key", f"document {document.number} is signed by the key {document.key_id}; known are: {known}"
        )
        return
    try:
        document.check_signature(key)
    except SignatureError as error:
        found.add("changed", str(error))


def _check_columns(found: Verification, document: Document, kept_as: EvidenceColumns) -> None:
    if kept_as.number != document.number:
        found.add("place", f"document {document.number} is stored as document {kept_as.number}")
    for name, stored, signed in zip(EvidenceColumns._fields, kept_as, document.evidence_columns, strict=True):
        if name != "number" and stored != signed:
            found.add("column", f"document {document.number}: expected {signed} in the column {name}, found {stored}")


def _check_number(found: Verification, document: Document, before: Document | None, first: int | None) -> None:
    number = document.number
    if before is None:
        if first is not None and number > first:
            found.add("missing", f"{_range_text(first, number - 1)} missing: the first one is {number}")
        if number == 1 and document.previous is not None:
            found.add("chain", "document 1 refers to a previous document, expected none")
        return
    if document.payload["lake"] != before.payload["lake"]:
        found.add("lake", f"document {number} belongs to another lake than document {before.number}")
    if number == before.number:
        same = "the same" if document.hash == before.hash else "another one"
        found.add("twice", f"document {number} appears twice: the second one is {same}")
    elif number < before.number:
        found.add("order", f"document {number} is stored after document {before.number}: expected it before")
    elif number > before.number + 1:
        found.add(
            "missing", f"{_range_text(before.number + 1, number - 1)} missing, between {before.number} and {number}"
        )
    elif document.previous != before.hash:
        found.add(
            "chain",
            f"document {number} refers to {document.previous} as the previous document, expected {before.hash}, "
            f"the SHA-256 of document {before.number}",
        )


def _range_text(first: int, last: int) -> str:
    return f"document {first} is" if first == last else f"documents {first} to {last} are"
