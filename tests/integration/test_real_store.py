"""Stores of real brokers: our readers agree with RocketMQ's own decoder, field by field."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import BodyForm, Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.dump import command as dump
from commitlake.schemas.layouts.rocketmq import indexfile
from commitlake.schemas.layouts.rocketmq.consumequeue import tags_code
from commitlake.schemas.tables.messages import SOURCE
from tests.servers.recording import RECORDING_OPTIONS, RecordedStore, has_pop
from tests.support.index_times import check_index_times

Row = dict[str, Any]
Dump = Callable[..., tuple[int, list[Row], list[str]]]
COLUMNS = [field.name for field in SOURCE if field.name not in ("body", "_corrupt_record")]
SLOTS, ENTRIES = RECORDING_OPTIONS.max_hash_slot_num or 0, RECORDING_OPTIONS.max_index_num or 0
INDEX = ["--index-slots", str(SLOTS), "--index-entries", str(ENTRIES)]
MILLISECOND = 1000


@pytest.fixture
def run_dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    """A function that runs `dump`: exit code, rows, and lines of standard error."""

    def run(*arguments: object) -> tuple[int, list[Row], list[str]]:
        capsys.readouterr()
        code = int(dump.main([str(argument) for argument in arguments]))
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.split("\n") if line], err.splitlines()

    return run


def without_keys(row: Row, *names: str) -> Row:
    """Return a row without some columns."""
    return {name: value for name, value in row.items() if name not in names}


def compiled_rows(store: Path, mode: Mode = Mode.FAILFAST, body: BodyForm | None = None) -> list[Row]:
    """Return the rows of the compiled reader, with times as ms and maps as dictionaries."""
    (found,) = find_stores(str(store), "b", formats=COMMITLOGS)
    names = [*COLUMNS, *(["body"] if body else []), *(["_corrupt_record"] if mode is Mode.PERMISSIVE else [])]
    schema = arrow_schema(SOURCE.select_columns(names))
    request = Request(schema, mode, body=body or BodyForm.STORED)
    rows: list[Row] = []
    for split in plan_splits(found, take_snapshot([found]).ranges["b"], 1 << 20):
        for batch in read_split(split, request):
            times = {
                name: batch.column(name).cast("int64").to_pylist() for name in ("born_timestamp", "store_timestamp")
            }
            for number, row in enumerate(batch.to_pylist()):
                row |= {name: micros(values[number]) for name, values in times.items()}
                row["properties"] = None if row["properties"] is None else dict(row["properties"])
                rows.append(row)
    return rows


def micros(value: int | None) -> int | None:
    """Convert microseconds to milliseconds."""
    return None if value is None else value // MILLISECOND


# --- field by field ---


def test_dump_agrees_with_rocketmqs_decoder(recorded_store: RecordedStore, run_dump: Dump) -> None:
    code, rows, said = run_dump(recorded_store.store)
    assert code == 0
    assert said[-1].startswith(f"{len(recorded_store.decoded):,} records; stopped in segment ")
    assert len(rows) == len(recorded_store.decoded)
    for ours, theirs in zip(rows, recorded_store.decoded, strict=True):
        assert {name: ours[name] for name in without_keys(theirs, "unique_key", "keys")} == without_keys(
            theirs, "unique_key", "keys"
        )
        assert (ours["keys"] or []) == (theirs["keys"] or [])
        assert (ours["keys"] is None) == ("KEYS" not in theirs["properties"])
    assert set(recorded_store.decoded[0]) <= set(rows[0])


def test_unique_keys_equal_rocketmqs_except_for_batches(recorded_store: RecordedStore, run_dump: Dump) -> None:
    _, rows, _ = run_dump(recorded_store.store)
    sent = {row["unique_key"] for row in recorded_store.sent}
    other = [
        (ours, theirs)
        for ours, theirs in zip(rows, recorded_store.decoded, strict=True)
        if ours["unique_key"] != theirs["unique_key"]
    ]
    for ours, theirs in other:
        # A broker that takes a batch appends the batch's own key to each message; RocketMQ shows the last.
        assert ours["topic"] == "EveryBatch"
        assert ours["unique_key"] in sent
        assert theirs["unique_key"] not in sent
    assert {row["unique_key"] for row in recorded_store.sent if row["offset_msg_id"]} <= {r["unique_key"] for r in rows}


def test_times_hosts_and_ids_have_their_form(recorded_store: RecordedStore, run_dump: Dump) -> None:
    _, rows, _ = run_dump(recorded_store.store)
    hosts = {row["store_host"] for row in rows}
    port = recorded_store.broker_port
    assert f"127.0.0.1:{port}" in hosts
    assert (f"[::1]:{port}" in hosts) == recorded_store.has_ipv6
    assert {len(row["msg_id"]) for row in rows} == ({32, 56} if recorded_store.has_ipv6 else {32})
    assert all(row["store_timestamp"] > 1_600_000_000_000 for row in rows)


def test_the_compiled_reader_agrees_with_dump(recorded_store: RecordedStore, run_dump: Dump) -> None:
    _, rows, _ = run_dump(recorded_store.store, "--broker", "b")
    assert compiled_rows(recorded_store.store) == [{name: row[name] for name in COLUMNS} for row in rows]


def test_the_store_has_every_kind_of_record(recorded_store: RecordedStore, run_dump: Dump) -> None:
    _, rows, _ = run_dump(recorded_store.store)
    kinds = Counter(row["kind"] for row in rows)
    wanted = {"normal", "delay", "retry", "dlq", "half", "op", "trace", "system"}
    assert wanted | ({"timer"} if has_pop(recorded_store.version) else set()) <= set(kinds)
    assert kinds["normal"] > 1500


# --- bodies ---


def test_bodies_equal_the_sent_bodies(recorded_store: RecordedStore, run_dump: Dump) -> None:
    digests = {row["unique_key"]: row["body_sha256"] for row in recorded_store.sent}
    codecs = set()
    for row in compiled_rows(recorded_store.store, body=BodyForm.DECOMPRESSED):
        if row["unique_key"] in digests and row["kind"] not in ("op", "trace"):
            assert hashlib.sha256(row["body"]).hexdigest() == digests[row["unique_key"]]
            codecs.add(row["body_codec"])
    # 4.9.7 has the same three codecs as 5.5.0.
    assert codecs == {"none", "zlib", "lz4", "zstd"}


def test_dumped_bodies_equal_the_sent_bodies(recorded_store: RecordedStore, run_dump: Dump) -> None:
    digests = {row["unique_key"]: row["body_sha256"] for row in recorded_store.sent}
    _, stored, _ = run_dump(recorded_store.store, "--body-as", "base64")
    _, readable, _ = run_dump(recorded_store.store, "--body-as", "text")
    for as_stored, as_text in zip(stored, readable, strict=True):
        body = base64.b64decode(as_stored["body"])
        assert (len(body), hashlib.sha256(body).hexdigest()) == (as_stored["body_size"], as_stored["body_sha256"])
        wanted = digests.get(as_stored["unique_key"])
        if wanted and "\ufffd" not in as_text["body"] and as_stored["kind"] not in ("op", "trace"):
            assert hashlib.sha256(as_text["body"].encode()).hexdigest() == wanted


# --- queues and index ---


def test_the_queues_point_at_their_records(recorded_store: RecordedStore, run_dump: Dump) -> None:
    records = {row["physical_offset"]: row for row in recorded_store.decoded}
    code, entries, said = run_dump(recorded_store.store, "--consumequeue")
    assert (code, said) == (0, [f"{len(entries):,} entries"])
    assert len(entries) > 1500
    for entry in entries:
        record = records[entry["physical_offset"]]
        assert entry["size"] == record["size"]
        assert (entry["topic"], entry["queue_id"]) == (record["topic"], record["queue_id"])
        if record["topic"] == "SCHEDULE_TOPIC_XXXX":
            assert entry["tags_code"] >= record["store_timestamp"]  # the time of delivery
        else:
            assert entry["tags_code"] == tags_code(record["tags"])
        if entry["queue_offset"] != record["queue_offset"]:
            assert record["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"


def test_every_record_is_in_its_queue_once_and_in_order(recorded_store: RecordedStore, run_dump: Dump) -> None:
    _, entries, _ = run_dump(recorded_store.store, "--consumequeue")
    queues = defaultdict(list)
    for entry in entries:
        queues[entry["topic"], entry["queue_id"]].append(entry)
    for queue in queues.values():
        assert [entry["queue_offset"] for entry in queue] == list(range(len(queue)))
        assert all(before["physical_offset"] < after["physical_offset"] for before, after in pairwise(queue))
    queued = {entry["physical_offset"] for entry in entries}
    missing = [row for row in recorded_store.decoded if row["physical_offset"] not in queued]
    assert missing == []


def test_one_queue_can_be_dumped(recorded_store: RecordedStore, run_dump: Dump) -> None:
    _, entries, _ = run_dump(recorded_store.store, "--consumequeue", "--topic", "EveryVolume", "--queue", "1")
    expected = [
        row["physical_offset"]
        for row in recorded_store.decoded
        if (row["topic"], row["queue_id"]) == ("EveryVolume", 1)
    ]
    assert [entry["physical_offset"] for entry in entries] == expected


def test_the_index_points_at_records_that_have_the_key(recorded_store: RecordedStore, run_dump: Dump) -> None:
    records = {row["physical_offset"]: row for row in recorded_store.decoded}
    code, entries, said = run_dump(recorded_store.store, "--index", *INDEX)
    assert (code, said) == (0, [f"{len(entries):,} entries"])
    found: dict[int, set[int]] = defaultdict(set)
    for entry in entries:
        record = records[entry["physical_offset"]]
        assert entry["key_hash"] in {indexfile.key_hash(record["topic"], key) for key in indexed_keys(record)}
        assert entry["slot"] == entry["key_hash"] % SLOTS
        found[entry["physical_offset"]].add(entry["key_hash"])
    check_index_times(
        (entry["entry"], records[entry["physical_offset"]]["store_timestamp"], entry["store_timestamp"])
        for entry in entries
    )
    assert [entry["physical_offset"] for entry in entries] == sorted(entry["physical_offset"] for entry in entries)
    for row in recorded_store.sent:
        if row["kind"] in ("plain", "keys"):
            record = next(r for r in recorded_store.decoded if r["msg_id"] == row["offset_msg_id"])
            hashes = {indexfile.key_hash(record["topic"], key) for key in row["keys"] or []}
            assert hashes <= found[record["physical_offset"]]


def indexed_keys(record: Row) -> Iterable[str]:
    """Yield every key under which a broker may enter a record."""
    properties = record["properties"]
    yield from properties.get("KEYS", "").split(" ")
    for name in ("UNIQ_KEY", "TAGS"):
        if name in properties:
            yield properties[name] if name == "UNIQ_KEY" else indexfile.tags_index_key(properties[name])


# --- damage ---


def intact(rows: Sequence[Row], start: int, end: int) -> list[Row]:
    """Return the records that do not touch a stretch of the log."""
    return [row for row in rows if row["physical_offset"] + row["size"] <= start or row["physical_offset"] >= end]


def dumped(run_dump: Dump, store: Path) -> list[Row]:
    """Return the rows of a dump, with a broker name that does not depend on the folder."""
    return run_dump(store, "--broker", "b")[1]


@pytest.fixture
def copied(recorded_store: RecordedStore, tmp_path: Path) -> Path:
    """The store's log in a folder of the test's own."""
    return recorded_store.copy_to(tmp_path / "b" / "store")


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long("bits of other records")) for seed in range(2, 6))]
)
def test_a_flipped_bit_loses_at_most_one_record(
    recorded_store: RecordedStore, copied: Path, run_dump: Dump, seed: int
) -> None:
    whole = dumped(run_dump, recorded_store.store)
    chance = random.Random(seed)
    hit = chance.choice(whole[:-1])
    at = hit["physical_offset"] + chance.randrange(hit["size"])
    flip(copied, int(hit["segment"]), at, 1 << chance.randrange(8))
    rows = {row["physical_offset"]: row for row in dumped(run_dump, copied)}
    others = [row for row in whole if row is not hit]
    assert [rows.get(row["physical_offset"]) for row in others] == others
    assert len(rows) <= len(whole)
    compiled = {row["physical_offset"]: row for row in compiled_rows(copied, Mode.PERMISSIVE) if row["size"]}
    assert set(compiled) == set(rows)


def flip(store: Path, base_offset: int, at: int, bits: int) -> None:
    """Flip bits of the byte at a physical offset."""
    path = store / "commitlog" / f"{base_offset:020d}"
    data = bytearray(path.read_bytes())
    data[at - base_offset] ^= bits
    path.write_bytes(data)


@pytest.mark.parametrize("part", ["body", "size", "magic"])
def test_damage_is_reported_and_every_other_record_is_read(
    recorded_store: RecordedStore, copied: Path, run_dump: Dump, part: str
) -> None:
    whole = dumped(run_dump, recorded_store.store)
    hit = next(row for row in whole[100:] if row["topic"] == "EveryVolume" and row["sys_flag"] == 0)
    start = hit["physical_offset"]
    position = {"body": 88, "size": 0, "magic": 5}[part]
    flip(copied, int(hit["segment"]), start + position, 0x40)
    code, rows, said = run_dump(copied, "--broker", "b")
    assert code == 3
    assert rows == [row for row in whole if row is not hit]
    assert f"physical offset {start} to {start + hit['size']}" in said[0]
    notes = [row for row in compiled_rows(copied, Mode.PERMISSIVE) if not row["size"]]
    assert [(row["_corrupt_record"]["start"], row["_corrupt_record"]["end"]) for row in notes] == [
        (start, start + hit["size"])
    ]


def test_a_range_of_zeros_loses_only_the_records_in_it(
    recorded_store: RecordedStore, copied: Path, run_dump: Dump
) -> None:
    whole = dumped(run_dump, recorded_store.store)
    start = whole[200]["physical_offset"] + 30
    end = whole[203]["physical_offset"] + 40
    base = int(whole[200]["segment"])
    path = copied / "commitlog" / whole[200]["segment"]
    data = bytearray(path.read_bytes())
    data[start - base : end - base] = bytes(end - start)
    path.write_bytes(data)
    code, rows, _ = run_dump(copied, "--broker", "b")
    assert (code, rows) == (3, intact(whole, start, end))


def test_a_cut_file_loses_only_the_records_after_the_cut(
    recorded_store: RecordedStore, copied: Path, run_dump: Dump
) -> None:
    whole = dumped(run_dump, recorded_store.store)
    names = sorted({row["segment"] for row in whole})
    first = [row for row in whole if row["segment"] == names[0]]
    cut = first[-5]["physical_offset"] + 50
    path = copied / "commitlog" / names[0]
    with path.open("r+b") as file:
        file.truncate(cut)
    code, rows, said = run_dump(copied, "--broker", "b")
    assert code == 3
    assert rows == [row for row in whole if row not in first[-5:]]
    assert f"to {int(names[1])} (" in said[-2]


def test_a_deleted_segment_is_a_gap(recorded_store: RecordedStore, copied: Path, run_dump: Dump) -> None:
    whole = dumped(run_dump, recorded_store.store)
    name = sorted({row["segment"] for row in whole})[1]
    (copied / "commitlog" / name).unlink()
    code, rows, said = run_dump(copied, "--broker", "b")
    assert code == 3
    assert rows == [row for row in whole if row["segment"] != name]
    assert f"missing_segment: expected the segment {name}" in said[0]


def test_a_torn_end_is_not_damage(recorded_store: RecordedStore, copied: Path, run_dump: Dump) -> None:
    whole = dumped(run_dump, recorded_store.store)
    last = whole[-1]
    path = copied / "commitlog" / last["segment"]
    data = bytearray(path.read_bytes())
    torn = last["physical_offset"] - int(last["segment"]) + 60
    data[torn:] = bytes(len(data) - torn)
    path.write_bytes(data)
    code, rows, said = run_dump(copied, "--broker", "b")
    assert (code, rows) == (0, whole[:-1])
    assert f"at physical offset {last['physical_offset']}: torn or damaged end" in said[-1]
