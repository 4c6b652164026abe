"""Tests of `commitlake dump` on small stores: rows, messages on standard error, and exit codes."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores, segment_size
from commitlake.jobs.dump import command as dump
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq import consumequeue, indexfile
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, compression_bits
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.tables.messages import SOURCE
from tests.support.logs import (
    BROKER_HOST,
    START_MS,
    closed_segment,
    messages,
    new_message,
    open_segment,
    records,
    write_store,
)

pytestmark = pytest.mark.usefixtures("own_folder")

SIZE = 8192
ROOT = Path(__file__).parents[4]
COLUMNS = {field.name for field in SOURCE} - {"body", "_corrupt_record"}


@dataclasses.dataclass(frozen=True)
class Dumped:
    """Result of one run of `dump`."""

    code: int
    rows: list[dict[str, object]]
    stderr: list[str]

    def column(self, name: str) -> list[object]:
        """Return one column of all rows."""
        return [row[name] for row in self.rows]


Dump = Callable[..., Dumped]


@pytest.fixture
def run_dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    """A function that runs `dump` with these arguments."""

    def run(*arguments: object) -> Dumped:
        capsys.readouterr()
        code = dump.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Dumped(int(code), [json.loads(line) for line in out.split("\n") if line], err.splitlines())

    return run


def store_of(tmp_path: Path, *segments: bytes) -> Path:
    """Write a store with these consecutive segments, each of `SIZE` except a shorter last one."""
    return write_store(tmp_path / "store", [(SIZE * number, data) for number, data in enumerate(segments)])


def offsets_of(sent: Sequence[NewMessage], base_offset: int = 0) -> list[int]:
    """Return the physical offsets of messages."""
    offset, out = base_offset, []
    for record in records(sent, base_offset):
        out.append(offset)
        offset += len(record)
    return out


# --- records ---


def test_a_row_has_every_column_of_the_table_and_three_more(tmp_path: Path, run_dump: Dump) -> None:
    dumped = run_dump(store_of(tmp_path, open_segment(messages(3), SIZE)))
    assert dumped.code == 0
    assert [set(row) for row in dumped.rows] == [COLUMNS | {"segment", "magic", "body_sha256"}] * 3


def test_a_row_has_every_field_of_its_record(tmp_path: Path, run_dump: Dump) -> None:
    sent = new_message(
        7,
        topic="订单",
        body="Körper".encode(),
        flag=-5,
        reconsume_times=3,
        prepared_transaction_offset=4711,
        sys_flag=0x8,
        born_host=Host.of("2001:db8::1", 65535),
        properties=(("KEYS", "a b"), ("UNIQ_KEY", "U1"), ("TAGS", "T"), ("_SYS_MSG_PRIORITY_", "4"), ("ö", "=;")),
    )
    (record,) = records([sent], SIZE)
    root = write_store(tmp_path / "broker-a" / "store", [(SIZE, open_segment([sent], SIZE, SIZE))])
    (row,) = run_dump(root).rows
    known = {
        "broker": "broker-a",
        "physical_offset": SIZE,
        "size": len(record),
        "topic": "订单",
        "queue_id": 3,
        "queue_offset": 0,
        "msg_id": f"{BROKER_HOST.address.hex()}{BROKER_HOST.port:08x}{SIZE:016x}".upper(),
        "unique_key": "U1",
        "keys": ["a", "b"],
        "tags": "T",
        "kind": "normal",
        "born_timestamp": START_MS + 7,
        "store_timestamp": START_MS + 1000,
        "born_host": "[2001:db8::1]:65535",
        "store_host": "10.0.0.1:10911",
        "sys_flag": 0x8 | 0x10,
        "flag": -5,
        "reconsume_times": 3,
        "prepared_transaction_offset": 4711,
        "body_size": 7,
        "body_crc": zlib.crc32("Körper".encode()) & 0x7FFFFFFF,
        "body_codec": "none",
        "properties": dict(sent.properties),
        "format": "rocketmq",
        "origin_topic": "订单",
        "producer_group": None,
        "segment": segment_name(SIZE),
        "magic": int(Magic.V1),
        "body_sha256": hashlib.sha256("Körper".encode()).hexdigest(),
    }
    assert {name: row[name] for name in known} == known
    assert set(row) - set(known) == {"priority"}


def test_columns_of_missing_properties_are_null(tmp_path: Path, run_dump: Dump) -> None:
    (row,) = run_dump(store_of(tmp_path, open_segment([new_message(properties=())], SIZE))).rows
    assert [row[name] for name in ("keys", "tags", "unique_key", "priority")] == [None] * 4
    assert row["properties"] == {}


def test_rows_of_all_segments_are_in_physical_order(tmp_path: Path, run_dump: Dump) -> None:
    parts = [messages(10, seed=seed) for seed in (1, 2, 3)]
    root = store_of(
        tmp_path,
        closed_segment(parts[0], SIZE),
        closed_segment(parts[1], SIZE, SIZE),
        open_segment(parts[2], SIZE, 2 * SIZE),
    )
    dumped = run_dump(root)
    assert dumped.column("physical_offset") == [
        offset for number, part in enumerate(parts) for offset in offsets_of(part, SIZE * number)
    ]
    assert dumped.column("segment") == [segment_name(SIZE * number) for number in range(3) for _ in range(10)]
    assert dumped.column("body_sha256") == [hashlib.sha256(sent.body).hexdigest() for part in parts for sent in part]


def test_long_topics_have_the_second_magic(tmp_path: Path, run_dump: Dump) -> None:
    topic = "%RETRY%" + "g" * 200
    dumped = run_dump(store_of(tmp_path, open_segment([new_message(0), new_message(1, topic=topic)], SIZE)))
    assert dumped.column("magic") == [int(Magic.V1), int(Magic.V2)]
    assert dumped.rows[1]["topic"] == topic
    assert dumped.rows[1]["kind"] == "retry"


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", "normal"),
        ("SCHEDULE_TOPIC_XXXX", "delay"),
        ("%RETRY%g", "retry"),
        ("%DLQ%g", "dlq"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "half"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "op"),
        ("RMQ_SYS_TRACE_TOPIC", "trace"),
        ("rmq_sys_wheel_timer", "timer"),
        ("rmq_sys_anything", "system"),
        ("../../etc/passwd", "normal"),
    ],
)
def test_the_kind_follows_from_the_stored_topic(tmp_path: Path, run_dump: Dump, topic: str, kind: str) -> None:
    (row,) = run_dump(store_of(tmp_path, open_segment([new_message(topic=topic)], SIZE))).rows
    assert (row["topic"], row["kind"]) == (topic, kind)


def test_a_row_with_control_characters_is_one_line(tmp_path: Path, run_dump: Dump) -> None:
    nasty = 'a\nb\r\u2028"\\\x1b[2J\0😀'
    dumped = run_dump(store_of(tmp_path, open_segment([new_message(properties=(("k", nasty),))], SIZE)))
    assert dumped.column("properties") == [{"k": nasty}]


def test_the_broker_can_be_named(tmp_path: Path, run_dump: Dump) -> None:
    root = store_of(tmp_path, open_segment(messages(1), SIZE))
    assert run_dump(root, "--broker", "b-1").column("broker") == ["b-1"]


@pytest.mark.parametrize("inside", ["", "commitlog", "commitlog/"])
def test_the_store_or_its_commitlog_can_be_given(tmp_path: Path, run_dump: Dump, inside: str) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    assert len(run_dump(f"{root}/{inside}").rows) == 2


# --- bodies ---


def compressed(text: bytes, codec: str) -> bytes:
    """Compress a body as producers do."""
    if codec == "none":
        return text
    if codec == "zlib":
        return zlib.compress(text)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(text)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("codec", ["none", "zlib", "lz4", "zstd"])
def test_bodies_are_printed_as_stored_in_base64_or_decompressed_as_text(
    tmp_path: Path, run_dump: Dump, codec: str
) -> None:
    text = "Grüße, 世界! " * 40
    stored = compressed(text.encode(), codec)
    sent = new_message(body=stored, sys_flag=compression_bits(BodyCodec(codec)))
    root = store_of(tmp_path, open_segment([sent], SIZE))
    (as_stored,) = run_dump(root, "--body-as", "base64").rows
    assert base64.b64decode(str(as_stored["body"])) == stored
    assert as_stored["body_codec"] == codec
    assert as_stored["body_size"] == len(stored)
    (as_text,) = run_dump(root, "--body-as", "text").rows
    assert as_text["body"] == text
    assert as_text["body_sha256"] == as_stored["body_sha256"] == hashlib.sha256(stored).hexdigest()
    assert "body" not in run_dump(root, "--body-as", "none").rows[0]


def test_text_of_a_body_that_cannot_be_decompressed_is_null(tmp_path: Path, run_dump: Dump) -> None:
    sent = [
        new_message(0, body=b"not zlib", sys_flag=compression_bits(BodyCodec.ZLIB)),
        new_message(1, body=b"no codec", sys_flag=0x701),
        new_message(2, body=b"\xff plain"),
        new_message(3, body=b""),
    ]
    dumped = run_dump(store_of(tmp_path, open_segment(sent, SIZE)), "--body-as", "text")
    assert dumped.column("body") == [None, None, "\ufffd plain", ""]
    assert dumped.column("body_codec") == ["zlib", "unknown", "none", "none"]
    assert [bool(row.get("body_error")) for row in dumped.rows] == [True, True, False, False]
    assert dumped.stderr[0].startswith("damage: 2 bodies cannot be decompressed")
    assert dumped.code == 3


# --- how it ends ---


def test_zeros_after_the_last_record_are_not_damage(tmp_path: Path, run_dump: Dump) -> None:
    sent = messages(4)
    end = sum(len(record) for record in records(sent))
    dumped = run_dump(store_of(tmp_path, open_segment(sent, SIZE)))
    assert dumped.code == 0
    (line,) = dumped.stderr
    assert line.startswith(
        f"4 records; stopped in segment {segment_name(0)} at physical offset {end}: only zeros follow"
    )


def test_a_full_last_segment_is_reported(tmp_path: Path, run_dump: Dump) -> None:
    dumped = run_dump(store_of(tmp_path, closed_segment(messages(4), SIZE)))
    assert dumped.code == 0
    assert "the segment is full (BLANK)" in dumped.stderr[-1]


def test_a_file_that_ends_after_a_whole_record_is_reported(tmp_path: Path, run_dump: Dump) -> None:
    data = b"".join(records(messages(4)))
    dumped = run_dump(store_of(tmp_path, data))
    assert (dumped.code, len(dumped.rows)) == (0, 4)
    assert dumped.stderr[-1].endswith(f"at physical offset {len(data)}: the file ends after a whole record")


@pytest.mark.parametrize("left", [4, 7, 8, 50, 90])
def test_a_torn_tail_is_reported_but_is_not_damage(tmp_path: Path, run_dump: Dump, left: int) -> None:
    *whole, last = records(messages(5))
    start = sum(len(record) for record in whole)
    torn = (b"".join(whole) + last[:left]).ljust(SIZE, b"\0")
    dumped = run_dump(store_of(tmp_path, torn))
    assert dumped.code == 0
    assert len(dumped.rows) == 4
    assert f"stopped in segment {segment_name(0)} at physical offset {start}" in dumped.stderr[-1]
    assert "torn" in dumped.stderr[-1]
    assert "expected" in dumped.stderr[-1]
    assert len(dumped.stderr) == 1


def test_a_torn_tail_before_a_preallocated_segment_is_not_damage(tmp_path: Path, run_dump: Dump) -> None:
    *whole, last = records(messages(5))
    torn = (b"".join(whole) + last[:90]).ljust(SIZE, b"\0")
    dumped = run_dump(store_of(tmp_path, torn, bytes(SIZE)))
    assert (dumped.code, len(dumped.rows)) == (0, 4)
    assert f"segment {segment_name(0)}" in dumped.stderr[-1]
    assert "torn" in dumped.stderr[-1]


def test_a_preallocated_segment_is_not_a_gap(tmp_path: Path, run_dump: Dump) -> None:
    dumped = run_dump(store_of(tmp_path, closed_segment(messages(5), SIZE), bytes(SIZE)))
    assert (dumped.code, len(dumped.rows)) == (0, 5)
    (line,) = dumped.stderr
    assert line.startswith(f"5 records; stopped in segment {segment_name(SIZE)} at physical offset {SIZE}: only zeros")


def test_a_store_of_zeros_has_no_record_and_no_damage(tmp_path: Path, run_dump: Dump) -> None:
    dumped = run_dump(store_of(tmp_path, bytes(SIZE)))
    assert (dumped.code, dumped.rows) == (0, [])
    assert dumped.stderr[-1].startswith("0 records; stopped")


def test_a_store_of_an_empty_file_has_no_record_and_no_damage(tmp_path: Path, run_dump: Dump) -> None:
    dumped = run_dump(store_of(tmp_path, b""))
    assert (dumped.code, dumped.rows) == (0, [])
    assert dumped.stderr[-1].startswith("0 records; stopped")


# --- damage ---


def test_a_flipped_bit_is_reported_and_loses_only_its_record(tmp_path: Path, run_dump: Dump) -> None:
    sent = [new_message(number) for number in range(8)]
    offsets = offsets_of(sent)
    data = bytearray(open_segment(sent, SIZE))
    data[offsets[3] + 88] ^= 1
    dumped = run_dump(store_of(tmp_path, bytes(data)))
    assert dumped.code == 3
    assert dumped.column("physical_offset") == offsets[:3] + offsets[4:]
    size = offsets[4] - offsets[3]
    assert dumped.stderr[0].startswith(
        f"damage: segment {segment_name(0)}, physical offset {offsets[3]} to {offsets[4]} ({size} bytes): "
        "body_crc: expected "
    )
    assert ", found " in dumped.stderr[0]
    assert dumped.stderr[-1].startswith("7 records, 1 damaged range; stopped in segment")


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (0, b"\xff\xff\xff\xff", "total_size"),
        (0, b"\x7f\xff\xff\xff", "total_size"),
        (0, b"\0\0\0\x01", "total_size"),
        (4, b"\xde\xad\xbe\xef", "magic"),
        (28, b"\0\0\0\0\0\0\0\x01", "physical_offset"),
        (84, b"\x7f\xff\xff\xff", "part_lengths"),
    ],
)
def test_a_wrong_header_field_is_named(
    tmp_path: Path, run_dump: Dump, position: int, value: bytes, reason: str
) -> None:
    sent = [new_message(number) for number in range(6)]
    offsets = offsets_of(sent)
    data = bytearray(open_segment(sent, SIZE))
    data[offsets[2] + position : offsets[2] + position + len(value)] = value
    dumped = run_dump(store_of(tmp_path, bytes(data)))
    assert dumped.code == 3
    assert dumped.column("physical_offset") == offsets[:2] + offsets[3:]
    assert f"physical offset {offsets[2]} to {offsets[3]}" in dumped.stderr[0]
    assert f" {reason}: expected " in dumped.stderr[0]


def test_several_bad_ranges_are_reported_in_order(tmp_path: Path, run_dump: Dump) -> None:
    sent = [new_message(number) for number in range(10)]
    offsets = offsets_of(sent)
    data = bytearray(open_segment(sent, SIZE))
    for number in (1, 4, 8):
        data[offsets[number] + 88] ^= 1
    dumped = run_dump(store_of(tmp_path, bytes(data)))
    assert (dumped.code, len(dumped.rows), len(dumped.stderr)) == (3, 7, 4)
    for number, sentence in zip((1, 4, 8), dumped.stderr, strict=False):
        assert f"physical offset {offsets[number]} to" in sentence


def test_a_missing_segment_is_reported_as_a_gap(tmp_path: Path, run_dump: Dump) -> None:
    first, last = messages(5), messages(5, seed=2)
    root = write_store(
        tmp_path / "store",
        [
            (0, closed_segment(first, SIZE)),
            (2 * SIZE, closed_segment(last, SIZE, 2 * SIZE)),
            (3 * SIZE, open_segment([], SIZE)),
        ],
    )
    dumped = run_dump(root)
    assert (dumped.code, len(dumped.rows)) == (3, 10)
    (damage,) = dumped.stderr[:-1]
    assert f"physical offset {SIZE} to {2 * SIZE} ({SIZE} bytes): missing_segment" in damage
    assert segment_name(SIZE) in damage


def test_segments_before_the_oldest_are_not_a_gap(tmp_path: Path, run_dump: Dump) -> None:
    root = write_store(tmp_path / "store", [(5 * SIZE, open_segment(messages(3), SIZE, 5 * SIZE))])
    dumped = run_dump(root)
    assert (dumped.code, len(dumped.rows)) == (0, 3)


def test_zeros_before_a_later_segment_are_a_hole(tmp_path: Path, run_dump: Dump) -> None:
    root = store_of(tmp_path, open_segment(messages(3), SIZE), open_segment(messages(4), SIZE, SIZE))
    dumped = run_dump(root)
    assert (dumped.code, len(dumped.rows)) == (3, 7)
    end = sum(len(record) for record in records(messages(3)))
    assert f"physical offset {end} to {SIZE}" in dumped.stderr[0]
    assert "hole" in dumped.stderr[0]


@pytest.mark.parametrize("kept", [0, 5, 8, 100, 500])
def test_a_truncated_segment_loses_only_its_truncated_records(tmp_path: Path, run_dump: Dump, kept: int) -> None:
    first = [new_message(number) for number in range(6)]
    root = store_of(
        tmp_path,
        closed_segment(first, SIZE)[:kept],
        closed_segment(messages(4), SIZE, SIZE),
        open_segment(messages(4), SIZE, 2 * SIZE),
    )
    dumped = run_dump(root)
    starts = offsets_of(first)
    whole = [start for start, end in pairwise(starts) if end <= kept]
    assert dumped.code == 3
    assert dumped.column("physical_offset")[: len(whole)] == whole
    assert len(dumped.rows) == len(whole) + 8
    damage = dumped.stderr[:-1]
    assert f"to {SIZE} (" in damage[-1]


def test_a_record_copied_into_a_body_is_not_read_twice(tmp_path: Path, run_dump: Dump) -> None:
    (inner,) = records([new_message(99)])
    dumped = run_dump(store_of(tmp_path, open_segment([new_message(0, body=inner), new_message(1)], SIZE)))
    assert dumped.column("keys") == [["order-0"], ["order-1"]]
    assert dumped.code == 0


def test_foreign_files_in_the_folder_are_ignored(tmp_path: Path, run_dump: Dump) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    (root / "commitlog" / "README").write_text("hello")
    (root / "commitlog" / f"{segment_name(SIZE)}.bak").write_bytes(b"x")
    assert len(run_dump(root).rows) == 2


# --- wrong paths ---


def assert_refused(dumped: Dumped, *words: str) -> None:
    """Check for exit code 2, empty standard output, and an error with these words."""
    assert dumped.code == 2
    assert dumped.rows == []
    text = "\n".join(dumped.stderr)
    assert text.startswith("commitlake dump: error: ")
    assert "Traceback" not in text
    for word in words:
        assert word in text


def test_a_missing_path_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    assert_refused(run_dump(tmp_path / "nowhere"), "nowhere does not exist", "expected", "commitlog")


def test_a_store_without_a_segment_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert_refused(run_dump(tmp_path / "store"), "contains no segment")


def test_a_folder_that_is_not_a_store_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    assert_refused(run_dump(tmp_path / "photos"), "is not a store", "'commitlog'")


def test_a_file_in_place_of_a_store_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    assert_refused(run_dump(root / "commitlog" / segment_name(0)), "is a file", "store folder")


def test_a_glob_of_several_stores_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    for name in ("a", "b"):
        write_store(tmp_path / "brokers" / name, [(0, open_segment(messages(2), SIZE))])
    assert_refused(run_dump(tmp_path / "brokers" / "*"), "matches 2 stores", "one by one")


def test_a_glob_of_one_store_is_dumped(tmp_path: Path, run_dump: Dump) -> None:
    write_store(tmp_path / "brokers" / "a", [(0, open_segment(messages(2), SIZE))])
    assert run_dump(tmp_path / "brokers" / "*").column("broker") == ["a", "a"]


def test_a_glob_without_a_match_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    assert_refused(run_dump(tmp_path / "nothing" / "*"), "no store matches")


def test_a_missing_store_argument_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([]) == 2
    assert "no store is named" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "a"], "--topic needs --consumequeue"),
        (["--queue", "0"], "--queue needs --consumequeue"),
        (["--index-slots", "5"], "--index-slots needs --index"),
        (["--index-slots", "5", "--index-entries", "20"], "--index-slots needs --index"),
        (["--broker-conf", "broker.conf"], "--broker-conf has no effect without --index"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, run_dump: Dump, arguments: list[str], words: str
) -> None:
    assert_refused(run_dump(store_of(tmp_path, open_segment(messages(2), SIZE)), *arguments), words)


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """A function that removes the read permission of a path for readers other than root."""
    changed: list[tuple[Path, int]] = []

    def forbid(path: Path) -> Path:
        changed.append((path, path.stat().st_mode))
        path.chmod(0)
        return path

    yield forbid
    for path, mode in reversed(changed):
        path.chmod(mode)


def dump_as_nobody(readable: Path, *arguments: str) -> tuple[int, str, str]:
    """Run `dump` in a process that drops root's rights after reading a world-readable store."""
    # The user `nobody` may not be able to read Python's library, so a first run imports all modules.
    program = (
        "import contextlib, io, os, sys\n"
        "from commitlake.jobs.dump import command as dump\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        "    dump.main(['/nowhere'])\n"
        "    assert dump.main([sys.argv[1]]) == 0\n"
        "if os.geteuid() == 0:\n"
        "    os.setgroups([])\n"
        "    os.setegid(65534)\n"
        "    os.seteuid(65534)\n"
        "sys.exit(dump.main(sys.argv[2:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(readable), *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def open_tmp_path(tmp_path: Path) -> Path:
    """A folder that every user may enter, unlike those of pytest."""
    for folder in (tmp_path, *tmp_path.parents):
        mode = folder.stat().st_mode
        if mode & 0o055 != 0o055:
            folder.chmod(mode | 0o055)
    return tmp_path


@pytest.mark.parametrize("what", ["commitlog", f"commitlog/{segment_name(0)}", "."])
def test_a_store_without_read_permission_is_refused(
    open_tmp_path: Path, forbidden: Callable[[Path], Path], what: str
) -> None:
    root = store_of(open_tmp_path, open_segment(messages(2), SIZE))
    readable = write_store(open_tmp_path / "readable", [(0, open_segment(messages(2), SIZE))])
    forbidden(root / what)
    code, out, err = dump_as_nobody(readable, str(root))
    assert (code, out) == (2, ""), err
    assert err.startswith("commitlake dump: error: ")
    assert "cannot be read by this user" in err
    assert "Traceback" not in err


def test_a_world_readable_store_is_read_by_another_user(open_tmp_path: Path) -> None:
    root = store_of(open_tmp_path, open_segment(messages(2), SIZE))
    code, out, err = dump_as_nobody(root, str(root))
    assert (code, len(out.splitlines())) == (0, 2), err


# --- queues ---


def queue_file(entries: Sequence[consumequeue.ConsumeQueueEntry], size: int = 10) -> bytes:
    """Return a queue file with room for this number of entries."""
    return b"".join(map(consumequeue.serialize_entry, entries)).ljust(size * 20, b"\0")


def entries_of(count: int, first: int = 0) -> list[consumequeue.ConsumeQueueEntry]:
    """Return entries that differ by their number."""
    return [consumequeue.ConsumeQueueEntry(number * 300, 300, number - 2) for number in range(first, first + count)]


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    """A store with three queues: one of two files, one in a second topic, one that is empty."""
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    for path, data in (
        ("orders/0/" + segment_name(0), queue_file(entries_of(10))),
        ("orders/0/" + segment_name(200), queue_file(entries_of(3, 10))),
        ("orders/10/" + segment_name(0), queue_file(entries_of(2))),
        ("orders/9/" + segment_name(0), queue_file(entries_of(1))),
        ("%RETRY%g/0/" + segment_name(0), queue_file(entries_of(1))),
        ("empty/0/" + segment_name(0), queue_file([])),
    ):
        (root / "consumequeue" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "consumequeue" / path).write_bytes(data)
    return root


def test_queue_entries_are_ordered_by_topic_queue_and_offset(queues: Path, run_dump: Dump) -> None:
    dumped = run_dump(queues, "--consumequeue")
    places = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in dumped.rows]
    assert places == [
        ("%RETRY%g", 0, 0),
        *(("orders", 0, number) for number in range(13)),
        ("orders", 9, 0),
        ("orders", 10, 0),
        ("orders", 10, 1),
    ]
    assert (dumped.code, dumped.stderr) == (0, ["17 entries"])


def test_a_queue_entry_has_offset_size_and_tags_code(queues: Path, run_dump: Dump) -> None:
    rows = run_dump(queues, "--consumequeue", "--topic", "orders", "--queue", "0").rows
    assert rows[11] == {
        "topic": "orders",
        "queue_id": 0,
        "queue_offset": 11,
        "physical_offset": 3300,
        "size": 300,
        "tags_code": 9,
    }


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--topic", "orders"], 16),
        (["--topic", "%RETRY%g"], 1),
        (["--queue", "0"], 14),
        (["--queue", "10"], 2),
        (["--topic", "orders", "--queue", "9"], 1),
    ],
)
def test_topic_and_queue_select_entries(queues: Path, run_dump: Dump, arguments: list[str], count: int) -> None:
    dumped = run_dump(queues, "--consumequeue", *arguments)
    assert (len(dumped.rows), dumped.code) == (count, 0)


@pytest.mark.parametrize("topic", ["../consumequeue/orders", "nothing"])
def test_a_topic_without_queues_is_named_by_a_warning(queues: Path, run_dump: Dump, topic: str) -> None:
    dumped = run_dump(queues, "--consumequeue", "--topic", topic)
    warning, count = dumped.stderr
    assert f"warning: the store has no queue of a topic '{topic}'" in warning
    assert (dumped.rows, count, dumped.code) == ([], "0 entries", 0)


def test_fillers_of_a_queue_that_begins_late_are_not_printed(tmp_path: Path, run_dump: Dump) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    folder = root / "consumequeue" / "t" / "0"
    folder.mkdir(parents=True)
    (folder / segment_name(0)).write_bytes(queue_file([consumequeue.PRE_BLANK] * 3 + entries_of(2)))
    assert run_dump(root, "--consumequeue").column("queue_offset") == [3, 4]


def test_the_whole_entries_of_a_truncated_queue_file_are_printed(tmp_path: Path, run_dump: Dump) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    folder = root / "consumequeue" / "t" / "0"
    folder.mkdir(parents=True)
    (folder / segment_name(0)).write_bytes(queue_file(entries_of(5))[:70])
    assert run_dump(root, "--consumequeue").column("queue_offset") == [0, 1, 2]


def test_a_store_without_queues_or_index_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    assert_refused(run_dump(root, "--consumequeue"), "no folder 'consumequeue'")
    assert_refused(run_dump(root, "--index"), "no folder 'index'")


# --- index ---


def index_file(
    geometry: indexfile.Geometry, entries: Sequence[indexfile.IndexFileEntry], count: int | None = None
) -> bytes:
    """Return an index file with these entries from number 1 on, and `count` or the true count in its header."""
    data = bytearray(geometry.file_size)
    written = len(entries) + 1 if count is None else count
    data[:40] = indexfile.serialize_header(
        indexfile.Header(START_MS, START_MS + 9000, 0, 900, len(entries), written),
    )
    for number, entry in enumerate(entries, 1):
        position = geometry.entry_position(number)
        data[position : position + 20] = indexfile.serialize_entry(entry)
    return bytes(data)


INDEXED = [
    indexfile.IndexFileEntry(indexfile.key_hash("orders", f"order-{n}"), n * 300, n, max(0, n - 1)) for n in range(5)
]


def store_with_index(tmp_path: Path, **files: bytes) -> Path:
    """Write a store with these index files."""
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    (root / "index").mkdir()
    for name, data in files.items():
        (root / "index" / name).write_bytes(data)
    return root


def test_index_entries_have_their_place_and_time(tmp_path: Path, run_dump: Dump) -> None:
    geometry = indexfile.Geometry(10, 40)
    files = {"20260102000000000": index_file(geometry, INDEXED), "20260101000000000": index_file(geometry, INDEXED[:2])}
    dumped = run_dump(store_with_index(tmp_path, **files), "--index")
    assert (dumped.code, dumped.stderr) == (0, ["7 entries"])
    assert dumped.column("file") == ["20260101000000000"] * 2 + ["20260102000000000"] * 5
    hashed = indexfile.key_hash("orders", "order-3")
    assert dumped.rows[5] == {
        "file": "20260102000000000",
        "entry": 4,
        "slot": hashed % 10,
        "key_hash": hashed,
        "physical_offset": 900,
        "store_timestamp": START_MS + 3000,
        "previous_entry": 2,
    }


def test_index_entries_beyond_the_count_in_the_header_are_read(tmp_path: Path, run_dump: Dump) -> None:
    data = index_file(indexfile.Geometry(10, 40), INDEXED, count=2)
    assert len(run_dump(store_with_index(tmp_path, **{"20260101000000000": data}), "--index").rows) == 5


def test_an_index_of_another_geometry_needs_its_numbers(tmp_path: Path, run_dump: Dump) -> None:
    data = index_file(indexfile.Geometry(7, 9), INDEXED)
    root = store_with_index(tmp_path, **{"20260101000000000": data})
    assert_refused(run_dump(root, "--index"), "--index-slots", "--index-entries", "20260101000000000")
    dumped = run_dump(root, "--index", "--index-slots", 7, "--index-entries", 9)
    assert dumped.column("slot") == [entry.key_hash % 7 for entry in INDEXED]
    assert_refused(run_dump(root, "--index", "--index-slots", 7, "--index-entries", 10), "expected", "found")
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=7\nmaxIndexNum=9\n")
    assert run_dump(root, "--index", "--broker-conf", conf).rows == dumped.rows


def test_a_truncated_index_file_is_refused(tmp_path: Path, run_dump: Dump) -> None:
    for size in (0, 10, 39, 40, 100):
        data = index_file(indexfile.Geometry(10, 40), INDEXED)[:size]
        root = store_with_index(tmp_path / str(size), **{"20260101000000000": data})
        assert_refused(run_dump(root, "--index"), "20260101000000000")


def test_an_empty_index_has_no_entries(tmp_path: Path, run_dump: Dump) -> None:
    dumped = run_dump(store_with_index(tmp_path), "--index")
    assert (dumped.code, dumped.rows, dumped.stderr) == (0, [], ["0 entries"])


# --- as a process ---


def big_store(tmp_path: Path) -> Path:
    """Write a store with more rows than a pipe can buffer."""
    size = 1 << 20
    return write_store(tmp_path / "store", [(0, open_segment(messages(2500, max_body=20), size))])


def test_a_reader_that_closes_the_pipe_ends_the_dump_without_an_error(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "commitlake.jobs.cli.main", "dump", str(big_store(tmp_path))],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["physical_offset"] == 0
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


def test_a_pipe_closed_before_a_short_dump_ends_it_without_an_error(tmp_path: Path) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    command = f"{sys.executable} -m commitlake.jobs.cli.main dump {root} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 141
    assert "BrokenPipe" not in done.stderr
    assert "Traceback" not in done.stderr


def test_dump_does_not_import_spark_or_other_large_packages(tmp_path: Path) -> None:
    root = store_of(tmp_path, open_segment(messages(2), SIZE))
    program = (
        "import sys\nfrom commitlake.jobs.cli import main as cli\ncode = cli.main(sys.argv[1:])\n"
        "heavy = {'pyspark', 'deltalake', 'pandas', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\nsys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "dump", str(root)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_dump_and_the_store_agree_on_the_segment_size(tmp_path: Path) -> None:
    root = store_of(tmp_path, closed_segment(messages(2), SIZE), open_segment(messages(2), SIZE, SIZE)[:100])
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    assert segment_size(store) == SIZE


def test_queues_in_rocksdb_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(2), 1 << 14))])
    (store / "consumequeue").mkdir()
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    assert dump.main([str(store), "--consumequeue"]) == 4
    assert "the queues are in RocksDB, which CommitLake cannot read" in capsys.readouterr().err
