"""Signed evidence of a job's work: the option, the key, and the documents."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commitlake.jobs.cli.options import Options, option

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from commitlake.connectors.lake.lake import Lake


@dataclass(frozen=True, kw_only=True)
class EvidenceArgument(Options):
    """The option `--evidence-key`, which names the file with the private key for signing evidence documents."""

    evidence_key: str | None = option(
        "sign a record of what was done with this private key, in the table evidence ('commitlake evidence key' "
        "creates a key; its text may be in COMMITLAKE_EVIDENCE_SECRET instead)",
        metavar="FILE",
    )


def read_evidence_key(arguments: EvidenceArgument) -> Ed25519PrivateKey | None:
    """Return the signing key; None if no evidence is wanted.

    Raises:
        EvidenceError: if the key cannot be used.
    """
    if not arguments.evidence_key and not os.environ.get("COMMITLAKE_EVIDENCE_SECRET"):
        return None  # cryptography is loaded only if it is needed
    from commitlake.pipelines.evidence.signing_keys import read_private_key

    return read_private_key(arguments.evidence_key, os.environ)


def write_evidence(
    lake: Lake, private_key: Ed25519PrivateKey, kind: str, document_facts: Iterable[dict[str, Any]]
) -> str | None:
    """Sign and append one evidence document for each item of `document_facts`, and return a line about the last one.

    Args:
        private_key: the key from `read_evidence_key`.
        kind: kind of the documents.
        document_facts: facts of each document.

    Raises:
        EvidenceError: if the chain is damaged, or other processes append first too often.
    """
    from commitlake.pipelines.evidence.chain import append_evidence

    version = importlib.metadata.version("commitlake")
    newest = None
    for fact in document_facts:
        newest = append_evidence(lake, private_key, kind, fact, version)
    return None if newest is None else f"evidence: document {newest.chain_number} has the SHA-256 {newest.hash}"


def last_number_with_evidence(lake: Lake, kind: str) -> int | None:
    """Return the number of the newest archive run, erasure or purge with an evidence document, or None."""
    from commitlake.pipelines.evidence.chain import read_newest_document

    document = read_newest_document(lake, kind)
    return None if document is None else document.subject_number
