"""Slices that real brokers wrote, read by both readers, compared with RocketMQ's own decoding; no server needed."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.formats.rocketmq.record_rules import to_message_row
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, parse_message, serialize_message
from commitlake.schemas.layouts.rocketmq.scan import SegmentScanner, SizeLimits, SpanKind
from commitlake.schemas.tables.messages import SOURCE

FOLDER = Path(__file__).parent
SEGMENT_BYTES = 1 << 20
Row = dict[str, Any]


@dataclass(frozen=True)
class Slice:
    """A run of records, and RocketMQ's decoding of each."""

    name: str
    base_offset: int
    position: int
    data: bytes
    decoded: list[Row]

    @property
    def start(self) -> int:
        """Physical offset of the first record."""
        return self.base_offset + self.position

    def split(self, path: Path) -> Split:
        """Write the slice to a segment file at its original position; return it as a split."""
        with path.open("wb") as file:
            file.seek(self.position)
            file.write(self.data)
        end = self.start + len(self.data)
        return Split("b", str(path), self.base_offset, self.start, end, self.base_offset + SEGMENT_BYTES, end, ROCKETMQ)


def load(path: Path) -> Slice:
    """Read a slice from its two files."""
    _, _, segment, position = path.stem.split("-")
    lines = path.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    return Slice(path.stem, int(segment), int(position), path.read_bytes(), [json.loads(line) for line in lines])


SLICES = [load(path) for path in sorted(FOLDER.glob("*.bin"))]
each_slice = pytest.mark.parametrize("golden", SLICES, ids=[golden.name for golden in SLICES])


def comparable(row: Row) -> Row:
    """Return a decoding without values written in two ways: IPv6 addresses, and a batch's key (see `unique_key`)."""
    row = dict(row)
    for name in ("born_host", "store_host"):
        address, _, port = row[name].rpartition(":")
        row[name] = (ipaddress.ip_address(address.strip("[]")).exploded, port)
    del row["segment"], row["unique_key"]
    return row


def test_slices_match_their_recorded_digests() -> None:
    lines = (FOLDER / "SHA256SUMS").read_text().splitlines()
    known = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert {f"{golden.name}.bin": hashlib.sha256(golden.data).hexdigest() for golden in SLICES} == known
    assert len(SLICES) == 4


@each_slice
def test_plain_reader_agrees_with_rocketmqs_decoder(golden: Slice) -> None:
    position = 0
    for expected in golden.decoded:
        parsed = parse_message(golden.data, position)
        assert parsed is not None
        message, size = parsed
        row = {**to_message_row(message, "b"), "segment": expected["segment"]}
        found = {name: row[name] for name in expected}
        assert comparable(found) == comparable(expected)
        own = [value for key, value in message.property_pairs if key == "UNIQ_KEY"]
        assert expected["unique_key"] == (own[-1] if own else None)
        assert row["unique_key"] == (own[0] if own else None)
        position += size
    assert position == len(golden.data)


@each_slice
def test_compiled_reader_agrees_with_rocketmqs_decoder(golden: Slice, tmp_path: Path) -> None:
    schema = arrow_schema(SOURCE)
    rows = [
        row
        for batch in read_split(golden.split(tmp_path / "segment"), Request(schema, max_batch_bytes=4096))
        for row in batch.to_pylist()
    ]
    assert len(rows) == len(golden.decoded)
    for row, expected in zip(rows, golden.decoded, strict=True):
        row["born_timestamp"] = round(row["born_timestamp"].timestamp() * 1000)
        row["store_timestamp"] = round(row["store_timestamp"].timestamp() * 1000)
        row["properties"] = dict(row["properties"])
        row["body_sha256"] = hashlib.sha256(row["body"]).hexdigest()
        row |= {"segment": expected["segment"], "magic": expected["magic"]}
        assert comparable({name: row[name] for name in expected}) == comparable(expected)


@each_slice
def test_serialized_messages_equal_the_brokers_bytes(golden: Slice) -> None:
    position, with_last_separator = 0, 0
    while position < len(golden.data):
        parsed = parse_message(golden.data, position)
        assert parsed is not None
        message, size = parsed
        sent = NewMessage(
            topic=message.topic,
            body=message.body,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            queue_id=message.queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            properties=message.property_pairs,
        )
        written = serialize_message(
            sent,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            store_timestamp=message.store_timestamp,
            store_host=message.store_host,
        )
        if message.raw_properties.endswith(b"\x02") or not message.raw_properties:
            with_last_separator += 1
            assert written == golden.data[position : position + size]
        position += size
    assert with_last_separator or "4.9.7" in golden.name


@each_slice
def test_a_damaged_record_loses_only_itself(golden: Slice, tmp_path: Path) -> None:
    chance = random.Random(golden.name)
    split = golden.split(tmp_path / "segment")
    schema = arrow_schema(SOURCE)
    offsets = [row["physical_offset"] for row in golden.decoded]
    for number in chance.sample(range(len(offsets)), 20):
        data = bytearray(golden.data)
        victim = golden.decoded[number]
        at = victim["physical_offset"] - golden.start
        data[at + chance.choice([*range(12), *range(28, 36)])] ^= 0xFF  # size, magic, CRC, physical offset
        Path(split.path).write_bytes(bytes(golden.position) + data)
        batches = read_split(split, Request(schema, Mode.PERMISSIVE))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["physical_offset"] for row in rows if row["size"]] == offsets[:number] + offsets[number + 1 :]
        (bad,) = [row["_corrupt_record"] for row in rows if not row["size"]]
        assert (bad["start"], bad["end"]) == (victim["physical_offset"], victim["physical_offset"] + victim["size"])


@each_slice
def test_slice_cut_anywhere_keeps_its_whole_records(golden: Slice) -> None:
    ends = [row["physical_offset"] + row["size"] for row in golden.decoded]
    for length in range(0, len(golden.data), 97):
        bounds = SizeLimits(golden.base_offset + SEGMENT_BYTES, golden.start + length)
        spans = list(SegmentScanner(golden.start, bounds).feed(golden.data[:length]))
        kept = [span.end for span in spans if span.kind is SpanKind.RECORD]
        assert kept == [end for end in ends if end <= golden.start + length]
