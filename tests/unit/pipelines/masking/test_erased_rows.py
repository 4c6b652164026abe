"""Values that an erasure removes from rows of messages, and values that it keeps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.erasures import MARKER, ErasedMessages, parse_erased_messages
from commitlake.pipelines.erasure.selection import ROWS
from commitlake.pipelines.masking.erased_rows import CHANGED_COLUMNS, erase_rows
from commitlake.pipelines.masking.erasure_rows import CHECKSUMS, ErasureWriter, make_erasure_rows
from commitlake.schemas.tables.erasures import ErasureEvent
from commitlake.schemas.tables.profile import CHECKSUM_COLUMNS, COLUMN_CHECKSUMS
from tests.support.erased_lakes import write_lake


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    """The rows of a lake, in the log's order."""
    growing = write_lake(tmp_path, runs=1)
    table = DeltaTable(growing.lake.uri("messages")).to_pyarrow_table()
    found = table.select(ROWS.names).sort_by("physical_offset").combine_chunks()
    return pa.table([found.column(name).cast(ROWS.field(name).type) for name in ROWS.names], schema=ROWS)


def places(rows: pa.Table, *numbers: int) -> ErasedMessages:
    chosen = rows.select(["broker", "physical_offset"]).take(list(numbers))
    named = chosen.append_column("erasure_id", pa.array(["E"] * len(numbers)))
    return parse_erased_messages(named.append_column("number", pa.array([1] * len(numbers), pa.int64())), 1)


def test_only_the_stated_columns_of_those_rows_change(rows: pa.Table) -> None:
    after, hits = erase_rows(rows, places(rows, 3, 17))
    assert hits.tolist() == [3, 17]
    assert after.schema == rows.schema
    before_rows, after_rows = rows.to_pylist(), after.to_pylist()
    for number, (before, changed) in enumerate(zip(before_rows, after_rows, strict=True)):
        differing = {name for name in before if before[name] != changed[name]}
        assert differing == (set(CHANGED_COLUMNS) if number in (3, 17) else set())
    assert dict(after_rows[17]["properties"])[MARKER] == "E"


def test_erasing_again_changes_nothing(rows: pa.Table) -> None:
    after, _ = erase_rows(rows, places(rows, 3))
    again, hits = erase_rows(after, places(rows, 3))
    assert not len(hits)
    assert again.equals(after)


def test_rows_with_dictionaries_are_erased_in_the_same_way(rows: pa.Table) -> None:
    encoded = rows
    for name in ("broker", "topic", "tags", "kind"):
        place = encoded.schema.get_field_index(name)
        encoded = encoded.set_column(place, name, encoded.column(name).dictionary_encode())
    after, hits = erase_rows(encoded, places(rows, 5))
    assert hits.tolist() == [5]
    plain, _ = erase_rows(rows, places(rows, 5))
    assert after.to_pylist() == plain.to_pylist()


def test_other_checksums_than_those_of_the_tombstones_do_not_change() -> None:
    for checksum in COLUMN_CHECKSUMS:
        changes = {name.partition(".")[0] for name in checksum.columns} & set(CHANGED_COLUMNS)
        assert bool(changes) == (checksum.name in CHECKSUMS)
    assert set(CHECKSUM_COLUMNS) & set(CHANGED_COLUMNS) == {"body_crc"}


def test_tombstones_have_no_erased_value(rows: pa.Table) -> None:
    after, _ = erase_rows(rows, places(rows, 17))
    before, after = (each.slice(17, 1).combine_chunks() for each in (rows, after))
    (row,) = make_erasure_rows(
        before, after, ["E"], [1], ErasureEvent.MESSAGE, ErasureWriter(0, "host 1", "1")
    ).to_pylist()
    assert "CANARY" not in repr(row)
    assert row["row_before"] != row["row_after"]
    assert row["lake_before"] != row["lake_after"]
    assert row["body_ref"]["pack"] == before.column("body_ref")[0].as_py()["pack"]
