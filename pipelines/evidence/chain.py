"""The table `evidence` of a lake: read its documents in order, and add the next one.

Two writers at the same time cannot both write document n: the commit is a compare-and-set on the number. The second
writer signs its document again, as the successor of the first writer's.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts, to_utc_times
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.evidence.documents import (
    Document,
    EvidenceColumns,
    EvidenceError,
    parse_document,
    sign_document,
)
from commitlake.schemas.tables.archive_runs import EVIDENCE
from commitlake.schemas.times import format_iso_time

APPLICATION_ID = "commitlake.evidence"
_MAX_TRIES = 50
_SCHEMA = arrow_schema(EVIDENCE)
_TEXT = "coalesce(document, '') AS document"


class _DocumentedWork(NamedTuple):
    """Kind of work that evidence documents describe, such as archive runs, and the table that lists this work.

    Attributes:
        kind: kind of the documents.
        name: name of the work.
        table: table of the lake that has it.
        number: column of its number.
        id: column of its random id.
        at: column of its time.
        where: condition for its rows.
    """

    kind: str
    name: str
    table: str
    number: str
    id: str
    at: str
    where: str


_SUBJECTS = (
    _DocumentedWork("archive", "run", "archive_runs", "sequence", "run_id", "finished_at", "true"),
    _DocumentedWork("erasure", "erasure", "erasures", "number", "erasure_id", "at", "event = 'erased'"),
    _DocumentedWork("purge", "the purge of erasure", "erasures", "number", "erasure_id", "at", "event = 'purged'"),
)
_STATISTICS = ("number", "at", "kind", "key_id")


def read_documents(lake: Lake) -> Iterator[tuple[EvidenceColumns, str]]:
    """Yield a lake's evidence documents with their unsigned columns, in the order of their numbers."""
    table = lake.find("evidence")
    if table is not None:
        sql = f"SELECT number, at, kind, key_id, {_TEXT} FROM evidence ORDER BY number"
        for batch in run_sql(table, "evidence", sql, sorts_large_result=True):
            times = [
                None if at is None else format_iso_time(at, "milliseconds") for at in to_utc_times(batch.column("at"))
            ]
            columns = (batch.column(name).to_pylist() for name in ("number", "kind", "key_id", "document"))
            for at, number, kind, key_id, text in zip(times, *columns, strict=True):
                yield EvidenceColumns(number, at, kind, key_id), text


def highest_written_number(lake: Lake) -> int:
    """Return the highest number that an evidence document ever had, from the table's Delta log; 0 for none."""
    table = lake.find("evidence")
    return 0 if table is None else table.transaction_version(APPLICATION_ID) or 0


def find_undocumented_work(lake: Lake, newest_numbers: Mapping[str, int], newest_document_time: str) -> Iterator[str]:
    """Yield a sentence for each kind of work, such as archive runs, whose newest item has no evidence document.

    The kinds are archive runs, erasures and purges.

    Archive runs, erasures and purges are signed in order, and a run with a key also signs older ones that lack a
    document. So only the newest ones can lack one: because no key was used since, or because the last documents were
    cut off.

    Args:
        newest_numbers: number of the newest archive run, erasure and purge that has a document, by kind; kinds without
            one may be missing.
        newest_document_time: time of the newest document, ISO 8601. Work of a kind without any document counts if it
            is newer.
    """
    for kind, name, uri, number_of, _, at_of, where in _SUBJECTS:
        table = lake.find(uri)
        if table is None:
            continue
        sql = f"SELECT max({number_of}) AS number, max({at_of}) AS at FROM {uri} WHERE {where}"
        number, done_at = (column[0].as_py() for column in run_sql(table, uri, sql).read_all().columns)
        is_newer = (
            done_at is not None
            and bool(newest_document_time)
            and format_iso_time(done_at, "milliseconds") > newest_document_time
        )
        is_signed = is_newer or (kind == "purge" and "erasure" in newest_numbers)
        if number is not None and number > newest_numbers.get(kind, 0 if is_signed else number):
            yield (
                f"{name} {number} in the table {uri} has no document: the last documents were cut off, or it was made "
                "without --evidence-key"
            )


def find_work_missing_in_lake(
    lake: Lake, newest_numbers: Mapping[str, int], newest_ids: Mapping[str, str | None]
) -> Iterator[str]:
    """Yield a sentence for each kind of work, such as archive runs, whose newest documented item the lake lacks.

    The kinds are archive runs, erasures and purges.

    So the documents are those of another lake, or this lake was replaced by an older copy.

    Args:
        newest_numbers: number of the newest archive run, erasure and purge that has a document, by kind.
        newest_ids: its random id, by kind; None if its document does not have it.
    """
    for kind, name, uri, number_of, id_of, _, where in _SUBJECTS:
        wanted, table = newest_ids.get(kind), lake.find(uri)
        if wanted is None or table is None:
            continue
        number = newest_numbers[kind]
        sql = f"SELECT {number_of} AS number, {id_of} AS id FROM {uri} WHERE {where} AND {number_of} >= {number}"
        rows = rows_to_dicts(run_sql(table, uri, sql).read_all())
        ids = {str(row["id"]) for row in rows if row["number"] == number}
        # A lake that has newer work, but none of this number, has dropped old rows, and is not an older copy.
        if wanted in ids or (rows and not ids):
            continue
        found = f"the one of this number has the id {min(ids)}" if ids else "it is newer than all of them"
        yield (
            f"{name} {number} with the id {wanted} is not in the table {uri} of the lake: {found}. The documents are "
            "those of another lake, or the lake was replaced by an older copy"
        )


def read_newest_document(lake: Lake, kind: str | None = None) -> Document | None:
    """Return the newest evidence document, of one kind or of any; None if there is none.

    Raises:
        EvidenceError: if it cannot be read.
    """
    return _read_newest_in_table(lake.find("evidence"), kind)


def _read_newest_in_table(table: DeltaTable | None, kind: str | None = None) -> Document | None:
    if table is None:
        return None
    where = "" if kind is None else f" WHERE kind = '{kind}'"
    sql = f"SELECT {_TEXT} FROM evidence{where} ORDER BY number DESC LIMIT 1"
    answer = run_sql(table, "evidence", sql).read_all()
    return parse_document(answer.column(0)[0].as_py()) if answer.num_rows else None


def append_evidence(
    lake: Lake, private_key: Ed25519PrivateKey, kind: str, facts: dict[str, Any], program_version: str
) -> Document:
    """Sign a document with the given facts as the next one of the chain, and add it to the table `evidence`.

    Args:
        kind: archive, audit, erasure or purge.
        facts: facts about the run.
        program_version: version of CommitLake.

    Raises:
        EvidenceError: if the newest document cannot be read, or other writers were first too many times.
    """
    for _ in range(_MAX_TRIES):
        # Opened again for each attempt, because the loser of a race must sign the winner's successor.
        table = lake.find("evidence")
        before = _read_newest_in_table(table)
        number = None if table is None else table.transaction_version(APPLICATION_ID)
        # The log's number survives if rows are lost or deleted; a document in their place would hide the loss.
        if (before.chain_number if before else 0) != (number or 0):
            raise EvidenceError(
                f"{lake.uri('evidence')}: documents are missing: expected that the newest one is document "
                f"{number or 0}, found {before.chain_number if before else 'none'}. 'commitlake evidence verify' lists "
                "the missing ones"
            )
        at = datetime.datetime.now(datetime.UTC)
        # A repair that creates the table messages again gives it another id; the chain keeps its first one.
        lake_id = str(before.payload["lake"] if before else lake.table("messages").metadata().id)
        document = sign_document(
            private_key, before, kind, facts, lake_id=lake_id, program_version=program_version, signed_at=at
        )
        row = {
            "number": document.chain_number,
            "at": at,
            "kind": kind,
            "key_id": document.key_id,
            "document": document.text,
        }
        rows = pa.Table.from_pylist([row], schema=_SCHEMA)
        name = f"part-{secrets.token_hex(16)}.zstd.parquet"
        file = write_plain_file(rows, lake, "evidence", name, statistics=_STATISTICS)
        if commit_with_transaction(lake, "evidence", [file], APPLICATION_ID, (number, document.chain_number)):
            return document
    raise EvidenceError(
        f"{lake.uri('evidence')}: another process added a document first at each of {_MAX_TRIES} attempts. "
        "Run the command again"
    )
