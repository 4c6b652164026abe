"""Appends to the tables that follow `messages` by its sequence number: `quarantine` and `archive_runs`.

Writing one of them again under the same number changes nothing.
"""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.pandas.types import to_arrow_schema

from connectors.lake.archive_log import APPLICATION_ID
from schemas.tables.archive_runs import ARCHIVE_RUNS


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
