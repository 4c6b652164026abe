"""Arrow batches with references become batches with bodies, as in a task, without Spark."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from commitlake.connectors.lake.packs import body_batches, spark_reader
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies, decompress_bodies
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.names import pack_name
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.schemas.layouts.rocketmq.commitlog import body_crc
from commitlake.schemas.tables.messages import BODY_PLACE, BODY_REF
from commitlake.schemas.tables.spark_schemas import spark_field
from tests.support.packs import NAME, TOKEN, MemoryStore, packed

OTHER = pack_name(None, "broker-b", 0, 1 << 27, TOKEN)
COLUMNS = StructType([StructField("n", LongType()), spark_field(BODY_REF), StructField("body_crc", IntegerType())])
SCHEMA = to_arrow_schema(COLUMNS)
BODIES = [b"one", b"", b"three", b"four"]
Row = dict[str, Any]


@pytest.fixture
def store() -> MemoryStore:
    """Two packs with the same bodies, two frames each."""
    pack, _ = packed(BODIES, 8)
    return MemoryStore(**{NAME: pack, OTHER: pack})


def rows_of(pack: str) -> list[Row]:
    """Return the rows of a pack of the store."""
    _, refs = packed(BODIES, 8)
    places = zip(refs.frame_offsets, refs.frame_lengths, refs.offsets, refs.lengths, strict=True)
    return [
        {"n": row, "body_ref": dict(zip(BODY_PLACE.names, (pack, *map(int, place)), strict=True)), "body_crc": crc}
        for row, (place, crc) in enumerate(zip(places, map(body_crc, BODIES), strict=True))
    ]


def read(store: MemoryStore, *batches: list[Row]) -> list[list[Row]]:
    """Return the rows of the resulting batches."""
    cache = FrameCache()
    given = [pa.RecordBatch.from_pylist(rows, SCHEMA) for rows in batches]
    found = [part for batch in given for part in batches_with_bodies(batch, store, cache)]
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.names == [*SCHEMA.names, "body"]
    return [batch.to_pylist() for batch in found]


def bodies_of(batches: list[list[Row]]) -> list[list[bytes | None]]:
    """Return the column `body` of each batch."""
    return [[row["body"] for row in batch] for batch in batches]


def test_rows_keep_their_columns_and_order(store: MemoryStore) -> None:
    rows = rows_of(NAME) + rows_of(OTHER)
    (found,) = read(store, rows)
    assert found == [row | {"body": body} for row, body in zip(rows, BODIES * 2, strict=True)]
    assert len(store.reads) == 2


def test_rows_without_a_reference_have_no_body(store: MemoryStore) -> None:
    nothing: Row = {"n": 9, "body_ref": None, "body_crc": None}
    no_pack: Row = {"n": 9, "body_ref": dict.fromkeys(BODY_PLACE.names), "body_crc": 5}
    first, second, *_ = rows_of(NAME)
    assert bodies_of(read(store, [nothing, first, no_pack, nothing, second, nothing])) == [
        [None, b"one", None, None, b"", None]
    ]
    assert bodies_of(read(store, [nothing])) == [[None]]


def test_an_unknown_crc_is_not_compared(store: MemoryStore) -> None:
    (row, *_) = rows_of(NAME)
    assert bodies_of(read(store, [row | {"body_crc": None}])) == [[b"one"]]
    with pytest.raises(PackError, match="CRC 7 "):
        read(store, [row | {"body_crc": 7}])


def test_a_frame_used_by_several_batches_is_read_once(store: MemoryStore) -> None:
    assert bodies_of(read(store, *[[row] for row in rows_of(NAME)])) == [[body] for body in BODIES]
    assert sum(length for _, _, length in store.reads) == len(store.packs[NAME])


def test_batches_are_cut_where_bodies_exceed_the_limit(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_batches, "BATCH_BYTES", 4)
    rows = rows_of(NAME) + rows_of(OTHER)
    assert bodies_of(read(store, rows)) == [[b"one", b""], [b"three"], [b"four"], [b"one", b""], [b"three"], [b"four"]]


def test_a_batch_without_rows_gives_no_batch(store: MemoryStore) -> None:
    assert read(store, []) == []


def test_a_slice_of_a_batch_is_read(store: MemoryStore) -> None:
    batch = pa.RecordBatch.from_pylist(rows_of(NAME), SCHEMA).slice(2, 2)
    (found,) = batches_with_bodies(batch, store, FrameCache())
    assert found.column("body").to_pylist() == BODIES[2:]


@pytest.mark.parametrize("field", BODY_PLACE.names[1:])
def test_a_reference_with_a_hole_is_an_error(store: MemoryStore, field: str) -> None:
    (row, *_) = rows_of(NAME)
    with pytest.raises(PackError, match=f"expected a body_ref with a {field}, found null"):
        read(store, [row | {"body_ref": row["body_ref"] | {field: None}}])


@pytest.mark.parametrize("length", [-5, -(1 << 31), (1 << 31) - 1])
def test_a_wrong_length_is_an_error(store: MemoryStore, length: int) -> None:
    rows = rows_of(NAME)
    rows[2]["body_ref"]["length"] = length
    with pytest.raises(PackError, match=r"not negative, found -|found one that ends at 21474836"):
        read(store, rows)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (COLUMNS.fields[:2], "column body_crc: expected int, found no such column"),
        (COLUMNS.fields[::2], "column body_ref: expected struct<pack:string,.*>, found no such column"),
        ([*COLUMNS.fields[:2], StructField("body_crc", StringType())], "expected int, found string"),
        (COLUMNS.fields, "column body_codec: expected string, found no such column; as_stored=True returns"),
        ([*COLUMNS.fields, StructField("body", BinaryType())], "the DataFrame has a column body already"),
        ([*COLUMNS.fields, StructField("body_error", StringType())], "the DataFrame has a column body_error already"),
    ],
)
def test_tables_that_do_not_fit_are_refused(columns: list[StructField], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spark_reader._check_columns(StructType(columns), as_stored=False)


def test_bodies_are_decompressed_and_one_that_cannot_be_is_null_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long, bomb = b'{"order":1}' * 90, zlib.compress(bytes(9 << 20), 9)
    stored = [b"plain", zlib.compress(long), bomb, b"not zlib", pa.compress(long, "lz4", asbytes=True), None, b"new"]
    codecs = ["none", "zlib", "zlib", "zlib", "lz4", "none", "brotli"]
    columns = {"n": range(7), "body_codec": codecs, "body": pa.array(stored, pa.binary())}
    batch = pa.RecordBatch.from_pydict(columns)
    for limit in (64 << 20, 900):  # all in one batch, or cut after each large body
        monkeypatch.setattr(body_batches, "BATCH_BYTES", limit)
        found = [row for part in decompress_bodies(batch, 1 << 20) for row in part.to_pylist()]
        assert [row["n"] for row in found] == list(range(7))
        assert [row["body"] for row in found] == [b"plain", long, None, None, long, None, None]
        assert [bool(row["body_error"]) for row in found] == [False, False, True, True, False, False, True]
    assert "more than the limit of 1048576 bytes" in found[2]["body_error"]
