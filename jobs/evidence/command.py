"""Create keys for evidence, and verify a chain of evidence.

    commitlake evidence key --out ~/.config/commitlake/evidence.pem
    commitlake evidence verify --lake /data/lake --public-key evidence.pem.pub

`archive`, `audit` and `erase` with --evidence-key sign a record of their work: a JSON document with inputs, counts,
checksums, and the hash of the previous document. The documents are rows of the table `evidence`; `evidence show` prints
them as lines, and `verify` checks a lake or a file of such lines. It reports changed, missing and reordered documents,
and unknown keys. Whether the newest documents are missing is found by comparison with a lake: with its archive runs and
erasures, and with the number of documents that the log of the table has. A file is compared if --lake is given, too;
without it, only --head detects it, with the SHA-256 that the job printed. Documents of another lake are found by the
ids of its runs and erasures. Exit codes: 0 if the chain is valid; 2 for a
wrong file, lake or key; 3 if the chain is not valid.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.s3 import S3Arguments
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import (
    argument,
    cannot_be_used_with,
    drop_conflicting_variable,
    flag,
    only_for_actions,
    option,
    repeated,
    requires_one_of,
    rules_for_values,
)
from commitlake.jobs.cli.terminal import print_line
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from commitlake.pipelines.evidence.documents import EvidenceColumns

DESCRIPTION = (
    "Create a key for evidence, and verify a chain of evidence: signed documents about archive runs, audits and "
    "erasures, each with the hash of the one before."
)
EXAMPLES = (
    ("evidence key --out ~/.config/commitlake/evidence.pem", "a private key, and evidence.pem.pub for verification"),
    ("evidence verify --lake /data/lake --public-key evidence.pem.pub", "verify all documents of a lake"),
    ("evidence show --lake /data/lake", "print the documents as lines, to keep them elsewhere"),
    ("evidence verify evidence.jsonl --public-key evidence.pem.pub", "verify a file with such lines"),
    ("evidence verify evidence.jsonl --lake /data/lake --public-key evidence.pem.pub", "and that none is missing"),
)
KEY, VERIFY, SHOW = "key", "verify", "show"
_TRUSTED = "without a trusted key a signature proves nothing: use FILE.pub from 'commitlake evidence key'"
_OF_LAKE = "it prints the documents of a lake"
_SHOWN = 20
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def _parse_sha256(text: str) -> str:
    if _SHA256.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"expected 64 hexadecimal digits, found {text[:80]!a}")
    return text.lower()


@dataclass(frozen=True, kw_only=True)
class EvidenceCommand(Command, S3Arguments, after={S3Arguments: "lake"}):
    """The command `evidence`, which creates a signing key, or verifies a chain of signed documents."""

    NAME = "evidence"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    action: str = argument(
        "what to do",
        is_optional=False,
        choices=(KEY, VERIFY, SHOW),
        rules=(
            *rules_for_values(KEY, rules=requires_one_of("out", hint="name a file outside of every repository")),
            *rules_for_values(
                VERIFY, rules=(*requires_one_of("file", "lake"), *requires_one_of("public_key", hint=_TRUSTED))
            ),
            *rules_for_values(
                SHOW, rules=(*requires_one_of("lake", hint=_OF_LAKE), *cannot_be_used_with("file", hint=_OF_LAKE))
            ),
        ),
    )
    file: str | None = argument("verify: file of documents, one per line", metavar="FILE")
    lake: str | None = option("verify and show: a folder, s3://bucket/prefix, or catalog.schema", metavar="PLACE")
    out: str | None = option(
        "key: file for the private key; the public key is written to FILE.pub",
        metavar="FILE",
        rules=only_for_actions(KEY),
    )
    public_key: tuple[str, ...] = repeated("verify: a trusted public key", metavar="FILE")
    head: str | None = option("verify: expected SHA-256 of the newest document", parse=_parse_sha256, metavar="SHA256")
    from_any: bool = flag("verify: the first document may have any number")

    def run(self) -> ExitCode:
        """Run the chosen action: create a key, or verify a chain of evidence documents."""
        return _run_action(self)

    def resolve_options(self) -> Self:
        """Return the options; if a document file is given, drop a lake that only the environment names."""
        return drop_conflicting_variable(self, "file", "lake")


def _run_action(command: EvidenceCommand) -> ExitCode:
    if command.action == KEY:
        from commitlake.pipelines.evidence.signing_keys import write_key_pair

        key_id = write_key_pair(Path(command.out or "").expanduser())
        print_line(f"{command.out}: private key; {command.out}.pub: public key, with the id {key_id}")
        return ExitCode.OK
    if command.action == SHOW:
        for _, text in _read_documents(command):
            print(text)
        return ExitCode.OK
    return _verify_chain(command)


def _verify_chain(command: EvidenceCommand) -> ExitCode:
    from commitlake.pipelines.evidence.verifying import verify_chain

    first = None if command.from_any else 1
    keys, documents = _read_public_keys(command), _read_documents(command)
    found = verify_chain(
        documents,
        keys,
        newest_hash=command.head,
        first_number=first,
        least_newest_number=_newest_document_number(command),
    )
    if command.lake:
        from commitlake.pipelines.evidence.chain import find_undocumented_work, find_work_missing_in_lake

        lake = open_lake_argument(command)
        for text in find_work_missing_in_lake(lake, found.newest, found.newest_ids):
            found.add_problem("lake", text)
        if command.head is None:
            for text in find_undocumented_work(lake, found.newest, found.at):
                found.add_problem("no document", text)
    for finding in found.findings[:_SHOWN]:
        print(f"WRONG ({finding.code}): {finding.text}")
    if len(found.findings) > _SHOWN:
        print(f"… and {len(found.findings) - _SHOWN:,} more")
    kinds = ", ".join(f"{count:,} of {kind}" for kind, count in sorted(found.kinds.items()))
    if not found.documents and not found.findings:
        raise JobError(
            "there are no evidence documents to verify",
            "archive, audit and erase write them with --evidence-key",
        )
    if found.findings:
        print(
            f"{format_count(len(found.findings), 'finding')} in {format_count(found.documents, 'document')} "
            f"({kinds or 'none can be read'})"
        )
        return ExitCode.DAMAGE
    print(f"valid: {format_count(found.documents, 'document')} ({kinds}); the newest has the SHA-256 {found.head}")
    if not command.lake and command.head is None:
        print("documents that were cut off at the end would not be noticed: give --lake or --head, too")
    return ExitCode.OK


def _newest_document_number(command: EvidenceCommand) -> int:
    """Return the highest number of an evidence document ever added to the lake; 0 without a lake."""
    if not command.lake:
        return 0
    from commitlake.pipelines.evidence.chain import highest_written_number

    return highest_written_number(open_lake_argument(command))


def _read_public_keys(command: EvidenceCommand) -> dict[str, Ed25519PublicKey]:
    from commitlake.pipelines.evidence.documents import compute_key_id
    from commitlake.pipelines.evidence.signing_keys import read_public_key

    keys = [read_public_key(path) for path in command.public_key]
    return {compute_key_id(key): key for key in keys}


def _read_documents(command: EvidenceCommand) -> Iterator[tuple[EvidenceColumns | None, str]]:
    if command.file:
        yield from _read_documents_in_file(command.file)
        return
    from commitlake.pipelines.evidence.chain import read_documents

    lake = open_lake_argument(command)
    lake.table("messages")  # raises an error if this is not a lake
    yield from read_documents(lake)


def _read_documents_in_file(name: str) -> Iterator[tuple[None, str]]:
    from commitlake.pipelines.evidence.documents import MAX_BYTES

    try:
        with Path(name).open("rb") as file:
            while line := file.readline(MAX_BYTES + 2):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                if text:
                    yield None, text.decode("utf-8", "surrogateescape")
    except OSError as error:
        raise JobError(f"{name}: the file of evidence documents cannot be read: {error.strerror}") from None


build_parser, main = EvidenceCommand.parser, EvidenceCommand.main
