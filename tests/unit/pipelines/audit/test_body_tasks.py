"""Messages are compared with their bodies pack by pack; those whose bodies may have expired are left out."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.erasures import NOTHING_ERASED
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.body_tasks import COLUMNS, PackedMessages
from commitlake.pipelines.audit.message_rows import MessageRows, RowCriteria
from tests.support.profiles import SCHEMA, Row, message

OLD, DAY = datetime.date(2026, 11, 19), datetime.date(2026, 11, 20)
UNDATED = "store_date=__HIVE_DEFAULT_PARTITION__/p"


def packed(pack: str | None, number: int = 0) -> Row:
    place = {"frame_offset": 0, "frame_length": 99, "offset": 0, "length": 50}
    return message(number, body_ref=None if pack is None else {"pack": pack, **place})


def written(folder: Path, rows: Sequence[Row], dates: Sequence[datetime.date | None]) -> AddedFile:
    """Write a data file of `messages`."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    pq.write_table(table.append_column("store_date", pa.array(dates, pa.date32())), folder / "file.parquet")
    return AddedFile(str(folder / "file.parquet"), "file.parquet", None, 1, len(rows))


def messages_in(folder: Path, kept_since: datetime.date | None = None) -> PackedMessages:
    schema = SCHEMA.append(pa.field("store_date", pa.date32()))
    table = TableRows(str(folder), None, pa.schema([schema.field(name) for name in COLUMNS]))
    return PackedMessages(MessageRows(table, RowCriteria(AuditSpan())), kept_since, NOTHING_ERASED)


@pytest.mark.parametrize(
    ("pack", "date", "is_kept"),
    [
        ("store_date=2026-11-19/p", DAY, False),
        ("store_date=2026-11-20/p", OLD, True),
        (UNDATED, OLD, False),
        (UNDATED, DAY, True),
        (UNDATED, None, False),
        (None, OLD, True),  # has no body
    ],
)
def test_bodies_expire_by_the_date_of_their_pack_or_message(
    tmp_path: Path, pack: str | None, date: datetime.date | None, is_kept: bool
) -> None:
    file = written(tmp_path, [packed(pack)], [date])
    assert messages_in(tmp_path, DAY).count_by_window(file).num_rows == is_kept
    assert messages_in(tmp_path).count_by_window(file).num_rows == 1
    assert sum(rows.num_rows for rows, _ in messages_in(tmp_path, DAY).divide_by_pack(3, file)) == is_kept


def test_messages_of_a_pack_are_together_and_those_without_one_are_spread(tmp_path: Path) -> None:
    packs = [f"store_date=2026-11-20/{number % 5}" for number in range(50)]
    rows = [packed(pack, number) for number, pack in enumerate([*packs, *[None] * 50])]
    ((found, numbers),) = messages_in(tmp_path).divide_by_pack(8, written(tmp_path, rows, [DAY] * 100))
    assert found.column("pack").to_pylist() == [*packs, *[None] * 50]
    assert len({*zip(packs, numbers[:50].tolist(), strict=True)}) == 5
    assert set(np.unique(numbers[50:]).tolist()) == {*range(8)}
