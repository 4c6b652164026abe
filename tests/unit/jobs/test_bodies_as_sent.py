"""Each place that hands out a body gives it as its producer sent it, and names one that cannot be decompressed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies, decompress_bodies
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import BodyError
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_snapshot
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.dlq import command as dlq
from commitlake.jobs.dump import command as dump
from commitlake.jobs.query import command as query
from commitlake.pipelines.replay.message_changes import decode_messages
from commitlake.pipelines.replay.plan_part_rows import COLUMNS, read_bodies_from_packs
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, compression_bits
from commitlake.schemas.tables.messages import SOURCE
from tests.support.lakes import GrowingLake, prepared_lake
from tests.support.logs import new_message

SENT = '{"order":4711,"items":[' + "1," * 400 + "1]}"
BODIES = {
    "plain": (SENT.encode(), BodyCodec.NONE),
    "zlib": (zlib.compress(SENT.encode()), BodyCodec.ZLIB),
    "lz4": (pa.compress(SENT.encode(), "lz4", asbytes=True), BodyCodec.LZ4),
    "zstd": (pa.compress(SENT.encode(), "zstd", asbytes=True), BodyCodec.ZSTD),
    "broken": (b"not zlib", BodyCodec.ZLIB),
    "bomb": (zlib.compress(bytes(65 << 20), 9), BodyCodec.ZLIB),
}
EXPECTED = {key: None if key in {"broken", "bomb"} else SENT for key in BODIES}
Found = Iterator[tuple[str, str | None, bool]]
"""Key, body as text, and whether an error names it."""


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of dead letters, one for each of `BODIES`."""
    return prepared_lake(tmp_path, _archive)


def _archive(growing: GrowingLake) -> None:
    growing.write([
        new_message(number, topic="%DLQ%g", queue_id=0, body=body, sys_flag=compression_bits(codec),
                    properties=(("KEYS", key), ("RETRY_TOPIC", "orders")))
        for number, (key, (body, codec)) in enumerate(BODIES.items())
    ])  # fmt: skip
    growing.archive()


def of_query(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Found:
    code = query.main(["--lake", growing.lake.root, "--topic", "%DLQ%g", "--format", "jsonl", "--body"])
    yield from _of_rows(code, capsys)


def of_sql(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Found:
    sql = "SELECT keys, body() FROM messages"
    yield from _of_rows(query.main(["--lake", growing.lake.root, "--format", "jsonl", "--sql", sql]), capsys)


def of_dump(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Found:
    yield from _of_rows(dump.main([str(growing.store), "--body-as", "text"]), capsys)


def _of_rows(code: int, capsys: pytest.CaptureFixture[str]) -> Found:
    out, err = capsys.readouterr()
    assert code == ExitCode.DAMAGE
    assert "2 bodies" in err
    for row in map(json.loads, out.splitlines()):
        yield row["keys"][0], row["body"], row["body"] is None


def of_grep(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Found:
    options = ["--topic", "%DLQ%g", "--format", "jsonl", "--grep", "4711.*1]"]
    assert query.main(["--lake", growing.lake.root, *options]) == ExitCode.DAMAGE
    out, err = capsys.readouterr()
    assert "2 bodies" in err
    found = {json.loads(line)["keys"][0] for line in out.splitlines()}
    yield from ((key, SENT if key in found else None, key not in found) for key in BODIES)


def of_dead_letters(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Found:
    file = Path(growing.lake.root).parent / "letters.jsonl"
    options = ["--group", "g", "--body", "--no-shape", "--out", str(file)]
    dlq.main(["export", "--lake", growing.lake.root, *options])
    capsys.readouterr()
    for row in map(json.loads, file.read_text().splitlines()):
        yield row["keys"][0], row["body"], row["body_error"] is not None


def of_python(growing: GrowingLake, _: object) -> Found:
    lake = commitlake.open(growing.lake.root)
    for key in BODIES:
        (record,) = lake.records(key=key)
        try:
            yield key, (lake.body(record) or b"").decode(), False
        except BodyError:
            yield key, None, True


def of_stories(growing: GrowingLake, _: object) -> Found:
    for key in BODIES:
        for step in commitlake.open(growing.lake.root).lineage(key=key, bodies=True).steps:
            if step.record is not None:
                body = step.record.body
                yield key, None if body is None else body.decode(), step.record.body_problem is not None


def of_source(growing: GrowingLake, _: object) -> Found:
    """The column `body` of a Spark source, named without the option `body`."""
    options = ReadOptions(path=str(growing.store), mode=Mode.PERMISSIVE, formats=COMMITLOGS)
    stores = find_stores(str(growing.store), formats=COMMITLOGS)
    schema = arrow_schema(SOURCE)
    splits = plan_snapshot(stores, take_snapshot(stores), options, Filters.of_batch(options)).splits
    for split in splits:
        for batch in read_split(split, Request.of(options, Filters.of_batch(options), schema)):
            for row in batch.to_pylist():
                body = row["body"]
                yield row["keys"][0], None if body is None else body.decode(), row["_corrupt_record"] is not None


def of_spark(growing: GrowingLake, _: object) -> Found:
    """`with_bodies`, in a task."""
    rows = growing.lake.table("messages").to_pyarrow_table().combine_chunks()
    for batch in rows.to_batches():
        for stored in batches_with_bodies(batch, open_pack_store(growing.lake.packs), FrameCache()):
            for part in decompress_bodies(stored, 64 << 20):
                for row in part.to_pylist():
                    body = row["body"]
                    yield row["keys"][0], None if body is None else body.decode(), row["body_error"] is not None


def of_replay(growing: GrowingLake, _: object) -> Found:
    """The function of `replay --transform`."""
    rows = growing.lake.table("messages").to_pyarrow_table().select(COLUMNS)
    made, errors = decode_messages(rows, read_bodies_from_packs(rows, open_pack_store(growing.lake.packs)))
    for row, error in zip(made.to_pylist(), errors, strict=True):
        yield row["keys"][0], row["body"].decode() or None, error is not None


PLACES = [
    of_query, of_sql, of_dump, of_grep, of_dead_letters, of_python, of_stories, of_source, of_spark, of_replay,
]  # fmt: skip


@pytest.mark.some_cases(4)
@pytest.mark.parametrize("place", PLACES)
def test_a_body_is_as_it_was_sent_and_one_that_cannot_be_decompressed_is_named(
    place: Callable[..., Found], growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(place(growing, capsys))
    assert {key: body for key, body, _ in found} == EXPECTED
    assert {key for key, _, is_named in found if is_named} == {"broken", "bomb"}
