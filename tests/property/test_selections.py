"""Any selection means the same messages to DataFusion and to the reader of logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import example, given

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import selection_conditions
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.reading.planning import plan_read
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.messages import SOURCE
from tests.support.hypothesis_profiles import load
from tests.support.lakes import GrowingLake
from tests.support.selected_messages import (
    CONDITIONS,
    READER_CONDITIONS,
    is_selected,
    random_messages,
    selections,
    stored_after_ms,
)

load()


@dataclass(frozen=True, repr=False)
class Archived:
    """A store and its lake."""

    store: Path
    table: DeltaTable
    rows: Sequence[Mapping[str, Any]]

    def meant(self, wanted: Selection) -> list[int]:
        """Return the offsets of the messages that a selection means."""
        return sorted(row["physical_offset"] for row in self.rows if is_selected(row, wanted))


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    growing = GrowingLake(tmp_path_factory.mktemp("selections"))
    growing.write(random_messages(), stored_after_ms)
    growing.archive()
    table = DeltaTable(growing.lake.uri("messages"))
    return Archived(growing.store, table, table.to_pyarrow_table().to_pylist())


@given(wanted=selections(CONDITIONS))
@example(wanted=Selection(topics=["a\0b"], tags=["\udcff"]))
@example(wanted=Selection(topics=[str(number) for number in range(50)] + ["plain"]))
def test_datafusion_finds_the_messages_that_are_meant(archived: Archived, wanted: Selection) -> None:
    where = " AND ".join(["true", *selection_conditions(wanted)])
    found = run_sql(archived.table, "messages", f"SELECT physical_offset FROM messages WHERE {where}").read_all()
    assert sorted(found.column(0).to_pylist()) == archived.meant(wanted)


@given(wanted=selections(READER_CONDITIONS))
@example(wanted=Selection(topics=["\udcff", "plain"], keys=["\ud800", "it's"]))
def test_the_reader_of_logs_finds_the_messages_that_are_meant(archived: Archived, wanted: Selection) -> None:
    options, filters = ReadOptions(path=str(archived.store), formats=COMMITLOGS), Filters.of(wanted)
    request = Request.of(
        options, filters, arrow_schema(SOURCE.select_columns(["physical_offset", "keys", "unique_key"]))
    )
    found = [
        offset
        for split in plan_read(options, filters).splits
        for batch in read_split(split, request)
        for offset in batch.column("physical_offset").to_pylist()
    ]
    assert sorted(found) == archived.meant(wanted)
