"""Rows of a consume log are its intact records, for any ends of files and windows and any bytes between records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.jmq import consume_log_rows
from commitlake.connectors.formats.jmq.consume_log_rows import read_consume_files
from commitlake.connectors.log_format.recorded_deliveries import CONSUMPTION_ROWS, ConsumeLogPart
from commitlake.schemas.layouts.jmq.consume_records import (
    FOLDER,
    MAGIC,
    Consumption,
    DeliveryOutcome,
    serialize_consumption,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.safe_store_files import UnsafeFileError
from commitlake.schemas.tables.edges import CONSUMPTIONS

FILE_BYTES = 4096
WORDS = {DeliveryOutcome.CONSUMED: "success", DeliveryOutcome.FAILED: "failed", DeliveryOutcome.GIVEN_UP: "dead"}


def consumption(number: int, topic: str = "orders", app: str = "mail") -> Consumption:
    return Consumption(
        topic=topic,
        queue_id=number % 4,
        queue_offset=number // 4,
        journal_offset=1000 * number,
        app=app,
        outcome=DeliveryOutcome(1 + number % 3),
        consume_timestamp=1_700_000_000_000 + number,
        attempt=1 + number % 5,
        client_address=Host.of(f"10.0.0.{number % 250}", 1024 + number),
    )


def random_consumptions(count: int, seed: int = 1) -> list[Consumption]:
    """Return consumptions with texts of all lengths, also such as look like the beginning of a record."""
    chance = random.Random(seed)
    texts = ["", "orders", "x" * 255, "é" * 127, (chr(MAGIC >> 8) + chr(MAGIC & 0xFF)) * 20]
    return [consumption(number, chance.choice(texts), chance.choice(texts)) for number in range(count)]


def write_files(root: Path, consumptions: Sequence[Consumption]) -> list[int]:
    """Write consumptions to files as a broker does, and return the offset of each record."""
    files, offsets = [bytearray()], []
    for one in consumptions:
        record = serialize_consumption(one)
        if len(files[-1]) + len(record) > FILE_BYTES:
            files[-1] += bytes(FILE_BYTES - len(files[-1]))
            files.append(bytearray())
        offsets.append((len(files) - 1) * FILE_BYTES + len(files[-1]))
        files[-1] += record
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(files):
        path_of(root, number).write_bytes(data.ljust(FILE_BYTES, b"\0"))
    return offsets


def path_of(root: Path, number: int) -> Path:
    return root / FOLDER / segment_name(number * FILE_BYTES)


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def read(root: Path | str, start: int | None = None) -> tuple[list[dict[str, Any]], int | None, list[str]]:
    """Return the rows, the offset to continue at, and the problems."""
    parts: list[ConsumeLogPart] = list(read_consume_files(str(root), "broker-a", start))
    rows = pa.Table.from_batches([part.rows for part in parts], CONSUMPTION_ROWS).to_pylist()
    return rows, parts[-1].end if parts else start, [problem for part in parts for problem in part.problems]


def expected(one: Consumption, offset: int) -> dict[str, object]:
    return {
        "broker": "broker-a",
        "consume_offset": offset,
        "topic": one.topic,
        "queue_id": one.queue_id,
        "queue_offset": one.queue_offset,
        "physical_offset": one.journal_offset,
        "consumer_group": one.app,
        "attempt": one.attempt - 1,
        "outcome": WORDS[one.outcome],
        "client_host": str(one.client_address),
    }


def without_time(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "event_timestamp"} for row in rows]


@pytest.mark.parametrize("window_bytes", [600, 1000, FILE_BYTES, 1 << 20])
def test_each_record_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int) -> None:
    monkeypatch.setattr(consume_log_rows, "WINDOW_BYTES", window_bytes)
    consumptions = random_consumptions(200)
    offsets = write_files(tmp_path, consumptions)
    rows, end, problems = read(tmp_path)
    assert without_time(rows) == [expected(one, offset) for one, offset in zip(consumptions, offsets, strict=True)]
    assert [row["event_timestamp"].timestamp() * 1000 for row in rows] == [
        one.consume_timestamp for one in consumptions
    ]
    assert end == offsets[-1] + len(serialize_consumption(consumptions[-1]))
    assert problems == []
    for number in (0, 57, 199):
        assert without_time(read(tmp_path, offsets[number])[0]) == without_time(rows[number:])
    assert read(tmp_path, end) == ([], end, [])


def test_a_log_at_a_uri_has_the_same_rows_and_problems(tmp_path: Path) -> None:
    consumptions = random_consumptions(100)
    offsets = write_files(tmp_path, consumptions)
    path_of(tmp_path, 1).unlink()
    change(path_of(tmp_path, 2), 0, b"\xff" * 40)
    (tmp_path / FOLDER / "note.txt").write_text("no segment")
    uri = tmp_path.as_uri()
    rows, end, problems = read(uri)
    assert (rows, end) == read(tmp_path)[:2]
    assert 0 < len(rows) < 100
    assert problems == [problem.replace(str(tmp_path), uri) for problem in read(tmp_path)[2]]
    assert len(problems) == 2
    assert read(uri, offsets[-1])[0] == rows[-1:]
    assert read((tmp_path / "empty").as_uri()) == ([], None, [])


def test_a_growing_log_is_read_on(tmp_path: Path) -> None:
    consumptions = random_consumptions(100)
    seen, end = [], None
    for count in (1, 1, 2, 30, 31, 99, 100):
        write_files(tmp_path, consumptions[:count])
        rows, end, problems = read(tmp_path, end)
        assert problems == []
        seen += rows
    assert len(seen) == 100
    assert seen == read(tmp_path)[0]


def test_a_damaged_record_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    offsets = write_files(tmp_path, [consumption(number) for number in range(200)])
    for number in (0, 5, 6, 100):
        change(path_of(tmp_path, offsets[number] // FILE_BYTES), offsets[number] % FILE_BYTES + 20, b"\xff")
    rows, _, problems = read(tmp_path)
    assert [row["consume_offset"] for row in rows] == [
        offset for number, offset in enumerate(offsets) if number not in {0, 5, 6, 100}
    ]
    size = len(serialize_consumption(consumption(5)))
    assert [problem.partition(": expected consume records")[0] for problem in problems] == [
        f"{path_of(tmp_path, 0)}: bytes 0 to {size - 1}",
        f"{path_of(tmp_path, 0)}: bytes {offsets[5]} to {offsets[7] - 1}",
        f"{path_of(tmp_path, 1)}: bytes {offsets[100] - FILE_BYTES} to {offsets[101] - FILE_BYTES - 1}",
    ]
    assert all(problem.endswith("…") for problem in problems)


def test_bytes_after_the_last_record_are_a_problem_once_a_newer_file_exists(tmp_path: Path) -> None:
    offsets = write_files(tmp_path, [consumption(number) for number in range(3)])
    end = offsets[-1] + len(serialize_consumption(consumption(2)))
    change(path_of(tmp_path, 0), end, b"half a record")
    assert read(tmp_path)[1:] == (end, [])
    path_of(tmp_path, 1).write_bytes(bytes(FILE_BYTES))
    rows, position, problems = read(tmp_path, end)
    assert (rows, position) == ([], FILE_BYTES)
    assert [problem.partition(":")[0] for problem in problems] == [str(path_of(tmp_path, 0))]
    assert f"bytes {end} to {FILE_BYTES - 1}" in problems[0]


def test_missing_files_and_a_truncated_log_are_reported(tmp_path: Path) -> None:
    offsets = write_files(tmp_path, [consumption(number) for number in range(300)])
    path_of(tmp_path, 1).unlink()
    change_size(path_of(tmp_path, 2), 1000)
    rows, _, problems = read(tmp_path)
    kept = [offset for offset in offsets if offset < FILE_BYTES or offset >= 3 * FILE_BYTES]
    assert set(kept) <= {row["consume_offset"] for row in rows}
    missing = [
        f"bytes {start} to {end - 1} are missing"
        for start, end in ((FILE_BYTES, 2 * FILE_BYTES), (2 * FILE_BYTES + 1000, 3 * FILE_BYTES))
    ]
    assert [problem.split(": ")[1] for problem in problems if " are missing: " in problem] == missing
    path_of(tmp_path, 0).unlink()
    assert read(tmp_path)[0][0]["consume_offset"] == 2 * FILE_BYTES  # those that expired before a first run
    again = read(tmp_path, 1 << 40)
    assert again[:2] == ([], 1 << 40)
    assert again[2][-1].endswith(f"bytes, found {FILE_BYTES}: the log was cut or replaced")


def change_size(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def test_many_problems_are_summed_up(tmp_path: Path) -> None:
    offsets = write_files(tmp_path, [consumption(number) for number in range(80)])
    for offset in offsets[:60:2]:
        change(path_of(tmp_path, 0), offset + 4, b"\x09")
    _, _, problems = read(tmp_path)
    assert len(problems) == consume_log_rows.MAX_PROBLEMS + 1
    assert problems[-1].endswith("more ranges like these after them")


def test_impossible_times_and_attempts_are_not_errors(tmp_path: Path) -> None:
    odd = [
        replace(consumption(1), consume_timestamp=moment, attempt=attempt)
        for moment, attempt in ((-1, 0), (2**63 - 1, 65_535), (0, 1))
    ]
    write_files(tmp_path, odd)
    rows, _, problems = read(tmp_path)
    assert [row["attempt"] for row in rows] == [0, 65_534, 0]
    assert [row["event_timestamp"] is None for row in rows] == [True, True, False]
    assert problems == []


def test_a_link_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, [consumption(1)])
    path_of(tmp_path, 0).rename(tmp_path / "elsewhere")
    path_of(tmp_path, 0).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError):
        read(tmp_path)


def test_rows_have_the_columns_of_the_table() -> None:
    assert arrow_schema(CONSUMPTIONS).equals(CONSUMPTION_ROWS)


def test_a_store_without_a_consume_log_has_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path) == ([], None, [])
