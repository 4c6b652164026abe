"""Rows of listed records, and rows by keys, are those that a scan gives, in every mode."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import DamagedLogError, IndexMismatchError
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_read
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.splits import ListedSplit
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY
from commitlake.schemas.tables.messages import SOURCE
from tests.support.indexed_stores import RARE, STORED_MS, plan_of, read_by_scan, read_splits, unique_key
from tests.support.logs import new_message, open_segment, write_store

pytestmark = pytest.mark.usefixtures("nothing_to_seek")


def rows(root: Path, *columns: str, **options: object) -> list[dict[str, object]]:
    """Return the rows of a read, without Spark."""
    parsed = ReadOptions.parse(
        {"path": str(root), **{name: str(value) for name, value in options.items()}}, formats=COMMITLOGS
    )
    schema: pa.Schema = arrow_schema(SOURCE.select_columns(columns) if columns else SOURCE)
    filters = Filters.of_batch(parsed)
    request = Request(schema, parsed.mode, filters, max_batch_bytes=parsed.max_batch_bytes)
    return [
        row
        for split in plan_read(parsed, filters).splits
        for batch in read_split(split, request)
        for row in batch.to_pylist()
    ]


@pytest.mark.some_cases(6)
@pytest.mark.parametrize("window", [100, 5000, 1 << 22])
@pytest.mark.parametrize(
    "options",
    [
        {"topics": RARE},
        {"topics": RARE, "queueIds": "1,2"},
        {"topics": RARE, "keys": "group-20"},
        {"topics": "rare,topic-1", "keys": f"{unique_key(40)},order-61"},
        {"topics": RARE, "startingTimestamp": STORED_MS + 200_000, "endingTimestamp": STORED_MS + 300_000},
        {"topics": RARE, "startingOffset": 20_000, "endingOffset": 90_000},
    ],
)
def test_rows_are_those_of_a_scan(plain: Path, options: dict[str, object], window: int) -> None:
    found = rows(plain, **options, maxBatchBytes=window)
    assert found == rows(plain, **options, useIndexes="false")
    assert [row["physical_offset"] for row in found] == [
        message.physical_offset for message in read_by_scan(plain, **options)
    ]
    assert found


def test_keys_are_filtered_also_when_not_selected(plain: Path) -> None:
    found = rows(plain, "tags", topics=RARE, keys="order-40", useIndexes="false")
    assert found == [{"tags": "tag-0"}]


def damage_a_body(root: Path) -> int:
    """Flip a bit in the body of a message of the topic; return its physical offset."""
    split = next(split for split in plan_of(root, topics=RARE).splits if isinstance(split, ListedSplit))
    message = next(message for message in read_splits([split]) if message.body)
    path = Path(split.path)
    data = bytearray(path.read_bytes())
    data[message.physical_offset - split.base_offset + 88] ^= 1
    path.write_bytes(bytes(data))
    return message.physical_offset


def test_a_damaged_body_is_handled_according_to_the_mode(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    intact = rows(store, topics=RARE)
    offset = damage_a_body(store)
    with pytest.raises(DamagedLogError, match=rf"physical offset {offset}, to .*body_crc: expected \d+, found"):
        rows(store, topics=RARE)
    for mode in (Mode.PERMISSIVE, Mode.DROPMALFORMED):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = rows(store, topics=RARE, mode=mode)
        assert found == [row for row in intact if row["physical_offset"] != offset]
        assert "dropped 1 body_crc" in caplog.text


@pytest.mark.parametrize("mode", list(Mode))
def test_a_wrong_index_is_an_error_in_every_mode(store: Path, mode: Mode) -> None:
    for path in (path for path in (store / "consumequeue" / RARE).rglob("0*") if path.is_file()):
        data = path.read_bytes()
        entries = [data[at : at + ENTRY.size] for at in range(0, len(data), ENTRY.size)]
        path.write_bytes(b"".join([*entries[1:3], *entries[1:]])[: len(data)])  # queue offsets one too high
    with pytest.raises(IndexMismatchError, match="useIndexes=false"):
        rows(store, topics=RARE, mode=mode)


def test_keys_are_found_in_properties_that_are_not_utf8(tmp_path: Path) -> None:
    sent = [new_message(number, properties=(("KEYS", "order-1 Muenchen"), ("x", "y"))) for number in range(3)]
    sent.append(new_message(3, properties=(("KEYS", "order-2 Muenster"),)))
    data = open_segment(sent, 4096).replace(b"Muenchen", b"M\xfcnchen1").replace(b"Muenster", b"M\xfcnster1")
    root = write_store(tmp_path, [(0, data)])
    options = {"topics": "orders", "mode": "PERMISSIVE"}
    assert len(rows(root, "keys", "_corrupt_record", **options, keys="order-1")) == 3
    assert len(rows(root, "keys", "_corrupt_record", **options, keys="M\ufffdnchen1,order-3")) == 3
    (row,) = rows(root, "keys", "_corrupt_record", **options, keys="order-2")
    assert row["keys"] == ["order-2", "M\ufffdnster1"]
    assert row["_corrupt_record"]["reason"] == "properties_encoding"  # type: ignore[index]
