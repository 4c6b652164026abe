"""Appends to the lake's Delta tables.

The commit to `messages` is the archive's commit point: rows, sequence number and end offsets in one Delta commit, see
`archive_log`. The other tables follow it by its sequence number; writing one of them again under the same number
changes nothing.
"""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass

import pyarrow as pa
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.pandas.types import to_arrow_schema

from connectors.lake.archive_log import APPLICATION_ID, ArchiveCommit, commits_after
from schemas.tables.archive_runs import ARCHIVE_RUNS
from schemas.tables.messages import PARTITION_COLUMNS

_CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,  # both made the table
    ProtocolChangedException,
)


class ConcurrentArchiveError(Exception):
    """Another run has written to this lake since this one read how far it had come; nothing of this one was kept."""


def append_messages(messages: DataFrame, messages_uri: str, commit: ArchiveCommit) -> None:
    """Append rows and progress in one commit, or neither.

    Args:
        messages: a table of `MESSAGES`.
        messages_uri: path or URI of the Delta table; made where there is none.
        commit: this run's; its sequence is one more than the newest that this run has seen.

    Raises:
        ConcurrentArchiveError: if another run wrote that sequence number first.
    """
    writer = messages.write.format("delta").mode("append").partitionBy(*PARTITION_COLUMNS)
    try:
        _with_sequence(writer, commit.sequence).option("userMetadata", commit.to_metadata()).save(messages_uri)
    except _CONFLICTS as error:
        raise ConcurrentArchiveError(f"another run wrote archive commit {commit.sequence} at the same time") from error
    # Delta passes over a sequence number that it already has without an error.
    written = commits_after(messages_uri, commit.sequence - 1)
    if not written or written[0].run_id != commit.run_id:
        raise ConcurrentArchiveError(f"another run wrote archive commit {commit.sequence} first")


def append_quarantine(quarantine: DataFrame, quarantine_uri: str, sequence: int) -> None:
    """Append a run's bad ranges, once.

    Args:
        quarantine: a table of `QUARANTINE`.
        quarantine_uri: path or URI of the Delta table; made where there is none.
        sequence: the run's.
    """
    _with_sequence(quarantine.write.format("delta").mode("append"), sequence).save(quarantine_uri)


def _with_sequence(writer: DataFrameWriter, sequence: int) -> DataFrameWriter:
    return writer.option("txnAppId", APPLICATION_ID).option("txnVersion", sequence)


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A row of `archive_runs`: what one run did, once all of it is done."""

    sequence: int
    run_id: str
    started_at: datetime.datetime
    finished_at: datetime.datetime
    stores: int
    messages: int
    bytes: int
    refused: int
    recovered: bool
    parser_version: str


def append_run(run: ArchiveRun, runs_uri: str) -> None:
    """Say that a run is finished; until then the next one makes good what follows the commit."""
    row = pa.Table.from_pylist([asdict(run)], schema=to_arrow_schema(ARCHIVE_RUNS, timezone="UTC"))
    transaction = CommitProperties(app_transactions=[Transaction(APPLICATION_ID, run.sequence)])
    write_deltalake(runs_uri, row, mode="append", commit_properties=transaction)
