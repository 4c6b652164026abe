"""A document of evidence: a JSON object on one line, signed by Ed25519.

    {"key": KEY_ID, "payload": {…}, "signature": BASE64}

    payload    the content: `format`, `version`, `chain_number` from 1, `previous_hash` (SHA-256 of the text of the
    previous
               document, null for the first), `kind`, `at` (UTC), `lake` (id of the table messages), `program`, `facts`
    key        the first 16 bytes of the SHA-256 of the public key, as 32 hexadecimal digits
    signature  Ed25519 signature of `_PREFIX` and the text of the payload

Both texts are canonical: keys are sorted, there are no blanks, and characters are not escaped. A document in another
form, or with a repeated key, is refused. Each document therefore has exactly one text and one hash.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, int_in_range
from commitlake.schemas.times import format_iso_time

FORMAT, VERSION = "commitlake-evidence", 1
MAX_BYTES = 4 << 20
"""Maximum size of a document: whoever can write to a lake could make it too long to read."""
_PREFIX = b"commitlake evidence 1\n"
_HASH = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"format", "version", "number", "previous", "kind", "at", "lake", "program", "facts"}
_SHOWN = 60


class EvidenceError(CommitLakeError):
    """Error because a key cannot be used or a document is invalid."""

    exit_code = ExitCode.USAGE


class SignatureError(EvidenceError):
    """Error because a document's content does not match its signature."""


class EvidenceColumns(NamedTuple):
    """Unsigned columns of `evidence` that repeat parts of the document in the same row.

    Attributes:
        number: the document's number.
        at: its time, with milliseconds, as in the document.
        kind: its subject.
        key_id: id of the key that signed it.
    """

    number: int | None
    at: str | None
    kind: str | None
    key_id: str | None


@dataclass(frozen=True)
class Document:
    """Signed document of the evidence chain, about one archive run, audit, erasure or purge.

    Attributes:
        text: the text.
        payload: its content.
        key_id: id of the key that signed it.
        signature: 64 bytes.
    """

    text: str
    payload: dict[str, Any]
    key_id: str
    signature: bytes

    @property
    def chain_number(self) -> int:
        """Position of the document in the chain, from 1."""
        return int(self.payload["number"])

    @property
    def subject_number(self) -> int | None:
        """Number of the archive run, erasure or purge that the document is about; None for an audit."""
        facts = self.payload["facts"]
        found = facts.get("sequence", facts.get("number")) if isinstance(facts, dict) else None
        return int_in_range(found, 0, INT64_MAX)

    @property
    def subject_id(self) -> str | None:
        """Random id of the archive run or erasure that the document is about; None if it has none."""
        # Numbers begin at 1 in each lake; only the id tells two lakes apart.
        facts = self.payload["facts"]
        found = facts.get("run_id", facts.get("erasure_id")) if isinstance(facts, dict) else None
        return found if isinstance(found, str) else None

    @property
    def previous_hash(self) -> str | None:
        """SHA-256 of the previous document in the chain."""
        return None if self.payload["previous"] is None else str(self.payload["previous"])

    @property
    def evidence_columns(self) -> EvidenceColumns:
        """Columns of the table `evidence` for this document."""
        return EvidenceColumns(self.chain_number, str(self.payload["at"]), str(self.payload["kind"]), self.key_id)

    @property
    def hash(self) -> str:
        """SHA-256 of the document's text, to which the next document refers."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def check_signature(self, public_key: Ed25519PublicKey) -> None:
        """Raise an error if the document was not signed with the given key.

        Raises:
            SignatureError: if the signature is invalid.
        """
        try:
            # The prefix keeps a signature for another purpose from being used as one of a document.
            public_key.verify(self.signature, _PREFIX + _canonical_json(self.payload).encode())
        except InvalidSignature:
            raise SignatureError(
                f"document {self.chain_number}: the signature was not made by the key {self.key_id} for this content: "
                "the document was changed"
            ) from None


def compute_key_id(public_key: Ed25519PublicKey) -> str:
    """Return the id by which documents name a public key."""
    return hashlib.sha256(public_key.public_bytes_raw()).hexdigest()[:32]


def sign_document(
    private_key: Ed25519PrivateKey,
    previous_document: Document | None,
    kind: str,
    facts: dict[str, Any],
    *,
    lake_id: str,
    program_version: str,
    signed_at: datetime.datetime,
) -> Document:
    """Create and sign the document that follows `previous_document` in the chain.

    Args:
        previous_document: the newest document; None for the first one.
        kind: its subject: archive, audit, erasure or purge.
        facts: JSON values; numbers are integers.
        lake_id: id of the table `messages`.
        program_version: version of CommitLake.
        signed_at: the time, UTC.
    """
    payload = {
        "format": FORMAT,
        "version": VERSION,
        "number": 1 if previous_document is None else previous_document.chain_number + 1,
        "previous": None if previous_document is None else previous_document.hash,
        "kind": kind,
        "at": format_iso_time(signed_at, "milliseconds"),
        "lake": lake_id,
        "program": program_version,
        "facts": facts,
    }
    signature = private_key.sign(_PREFIX + _canonical_json(payload).encode())
    key_id = compute_key_id(private_key.public_key())
    text = _canonical_json({"key": key_id, "payload": payload, "signature": base64.b64encode(signature).decode()})
    return Document(text, payload, key_id, signature)


def parse_document(text: str) -> Document:
    """Parse the text of a document without checking its signature.

    Raises:
        EvidenceError: if the text is not a document.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise EvidenceError(
            f"expected an evidence document in UTF-8, found an invalid byte at position {error.start:,}"
        ) from None
    if size > MAX_BYTES:
        raise EvidenceError(f"expected an evidence document of at most {MAX_BYTES:,} bytes, found a larger one")
    try:
        value = json.loads(text)
        # Another text of the same content would have another hash, and a repeated key would hide the first value.
        is_canonical = _canonical_json(value) == text
    except (ValueError, RecursionError) as error:
        raise EvidenceError(
            f"expected an evidence document, a JSON object on one line, found {_shorten_text(text)}: "
            f"{_shorten_text(str(error))}"
        ) from None
    if not isinstance(value, dict) or value.keys() != {"key", "payload", "signature"}:
        raise EvidenceError(
            f"expected an evidence document, a JSON object with key, payload and signature, found {_shorten_text(text)}"
        )
    if not is_canonical:
        raise EvidenceError(
            "the evidence document is not in canonical form: expected JSON with sorted keys, each of them once, and "
            "without blanks"
        )
    payload = value["payload"]
    if not isinstance(payload, dict) or payload.keys() != _FIELDS:
        raise EvidenceError(
            f"expected an evidence document with a payload of {', '.join(sorted(_FIELDS))}, found "
            f"{_shorten_text(repr(payload))}"
        )
    if (payload["format"], payload["version"]) != (FORMAT, VERSION):
        found = _shorten_text(repr((payload["format"], payload["version"])))
        raise EvidenceError(
            f"expected a document of the format {FORMAT}, version {VERSION}, found {found}: another program or another "
            "version wrote it"
        )
    if int_in_range(payload["number"], 1, INT64_MAX) is None:
        raise EvidenceError(
            f"number: expected a whole number of at least 1, found {_shorten_text(repr(payload['number']))}"
        )
    previous = payload["previous"]
    if previous is not None and not (isinstance(previous, str) and _HASH.fullmatch(previous)):
        raise EvidenceError(f"previous: expected 64 hexadecimal digits or null, found {_shorten_text(repr(previous))}")
    return Document(text, payload, str(value["key"]), _parse_signature(value["signature"]))


def _parse_signature(value: object) -> bytes:
    try:
        signature = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        signature = b""
    if len(signature) != 64:
        raise EvidenceError(f"signature: expected 64 bytes in base64, found {_shorten_text(repr(value))}")
    return signature


def _canonical_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _shorten_text(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
