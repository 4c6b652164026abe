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
    """A problem in a chain of evidence documents, such as a wrong signature or a missing number.

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
    """Result of checking a chain of evidence documents.

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

    def add_problem(self, code: str, text: str) -> None:
        """Add a problem that was found, with its code and a sentence."""
        self.findings.append(ChainProblem(code, text))


def verify_chain(
    texts: Iterable[tuple[EvidenceColumns | None, str]],
    keys: Mapping[str, Ed25519PublicKey],
    *,
    newest_hash: str | None = None,
    first_number: int | None = 1,
    least_newest_number: int = 0,
) -> Verification:
    """Check the signatures, numbers and hashes of a chain of evidence documents, given in order.

    Args:
        texts: for each document, the columns with which it is stored (None if it is in a file) and its text.
        keys: the known keys, by id.
        newest_hash: hash of the newest document; without it, missing documents at the end can only be detected by
            comparison with a lake.
        first_number: number of the first document; None if it may be any.
        least_newest_number: smallest number that the newest document may have.
    """
    found = Verification()
    before: Document | None = None
    for line, (kept_as, text) in enumerate(texts, 1):
        if len(found.findings) >= MAX_FINDINGS:
            found.add_problem("too many", f"the documents after the first {found.documents:,} were not read")
            return found
        found.documents += 1
        try:
            document = parse_document(text)
        except EvidenceError as error:
            name = f"in line {line}" if kept_as is None or kept_as.number is None else kept_as.number
            found.add_problem("unreadable", f"document {name}: {error}")
            continue
        kind = str(document.payload["kind"])
        found.kinds[kind] = found.kinds.get(kind, 0) + 1
        # Equal numbers, too: a document that was signed twice for the same work is no older one.
        if (subject := document.subject_number) is not None and subject >= found.newest.get(kind, 0):
            found.newest[kind], found.newest_ids[kind] = subject, document.subject_id
        _check_signature(found, document, keys)
        if kept_as is not None:
            _check_stored_columns(found, document, kept_as)
        _check_number(found, document, before, first_number)
        # A document out of place is not the reference for the next one, so that it causes one finding, not many.
        if before is None or document.chain_number > before.chain_number:
            before = document
    found.head = before.hash if before else None
    found.at = before.evidence_columns.at or "" if before else ""
    newest = before.chain_number if before else 0
    if least_newest_number > newest:
        found.add_problem(
            "missing",
            f"{_document_range_text(newest + 1, least_newest_number)} missing at the end: the log of the table "
            f"mentions document {least_newest_number}",
        )
    if newest_hash is not None and found.head != newest_hash:
        shown = f"{found.head}, of document {before.chain_number}" if before else "none"
        found.add_problem("head", f"expected the newest document to have the SHA-256 {newest_hash}, found {shown}")
    return found


def _check_signature(verification: Verification, document: Document, keys: Mapping[str, Ed25519PublicKey]) -> None:
    key = keys.get(document.key_id)
    if key is None:
        known = ", ".join(sorted(keys)) or "none"
        verification.add_problem(
            "unknown key",
            f"document {document.chain_number} is signed by the key {document.key_id}; known are: {known}",
        )
        return
    try:
        document.check_signature(key)
    except SignatureError as error:
        verification.add_problem("changed", str(error))


def _check_stored_columns(verification: Verification, document: Document, stored_columns: EvidenceColumns) -> None:
    if stored_columns.number != document.chain_number:
        verification.add_problem(
            "place", f"document {document.chain_number} is stored as document {stored_columns.number}"
        )
    for name, stored, signed in zip(EvidenceColumns._fields, stored_columns, document.evidence_columns, strict=True):
        if name != "number" and stored != signed:
            verification.add_problem(
                "column", f"document {document.chain_number}: expected {signed} in the column {name}, found {stored}"
            )


def _check_number(
    verification: Verification, document: Document, previous_document: Document | None, first_number: int | None
) -> None:
    number = document.chain_number
    if previous_document is None:
        if first_number is not None and number > first_number:
            verification.add_problem(
                "missing", f"{_document_range_text(first_number, number - 1)} missing: the first one is {number}"
            )
        if number == 1 and document.previous_hash is not None:
            verification.add_problem("chain", "document 1 refers to a previous document, expected none")
        return
    if document.payload["lake"] != previous_document.payload["lake"]:
        verification.add_problem(
            "lake", f"document {number} belongs to another lake than document {previous_document.chain_number}"
        )
    if number == previous_document.chain_number:
        same = "the same" if document.hash == previous_document.hash else "another one"
        verification.add_problem("twice", f"document {number} appears twice: the second one is {same}")
    elif number < previous_document.chain_number:
        verification.add_problem(
            "order", f"document {number} is stored after document {previous_document.chain_number}: expected it before"
        )
    elif number > previous_document.chain_number + 1:
        verification.add_problem(
            "missing",
            f"{_document_range_text(previous_document.chain_number + 1, number - 1)} missing, between "
            f"{previous_document.chain_number} and {number}",
        )
    elif document.previous_hash != previous_document.hash:
        verification.add_problem(
            "chain",
            f"document {number} refers to {document.previous_hash} as the previous document, expected "
            f"{previous_document.hash}, "
            f"the SHA-256 of document {previous_document.chain_number}",
        )


def _document_range_text(first: int, last: int) -> str:
    return f"document {first} is" if first == last else f"documents {first} to {last} are"
