"""Half messages in flight, distinguished from finished ones by the op records."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.lag_places import lag_rows, places_of, put_offsets, stored
from tests.support.lakes import GrowingLake

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
LOG = [
    *(stored(HALF, number, UNIQ_KEY=f"U{number}") for number in range(4)),
    stored(OP, 10, b"0"),
    stored(OP, 11, b"2,"),  # from here on the broker has not come to them
    stored(HALF, 100, UNIQ_KEY="U4"),
    stored(HALF, 101, UNIQ_KEY="U5"),
    stored(HALF, 102, UNIQ_KEY="U6"),
    stored(OP, 103, b"3,4,"),
    # 7: U1 once more, whose producer is asked next; 8: U5 once more, because it was too young; both count once
    stored(HALF, 200, UNIQ_KEY="U1", TRANSACTION_CHECK_TIMES="1"),
    stored(HALF, 201, UNIQ_KEY="U5", TRAN_PREPARED_QUEUE_OFFSET="5"),
    stored(GIVEN_UP, 300, UNIQ_KEY="U6"),
    # after the offsets were written
    stored(OP, 601, b"1,7,"),
    stored(HALF, 602, UNIQ_KEY="U9"),
]


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Halves that are finished, in flight, stored again and given up."""
    growing = GrowingLake(tmp_path_factory.mktemp("halves"))
    growing.write(LOG)
    put_offsets(growing.store, "consumerOffset.json", {f"{HALF}@{GROUP}": {0: 1}, f"{OP}@{GROUP}": {0: 1}})
    places_of(growing)
    return growing


def half_row(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    (row,) = (row for row in lag_rows(capsys, *arguments, code=code) if row["kind"] == "half")
    return row


@pytest.mark.parametrize("place", ["lake", "store"])
def test_a_half_without_an_op_record_is_in_flight_once(
    place: str, growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    where = growing.lake.root if place == "lake" else str(growing.store)
    row = half_row(capsys, f"--{place}", where)
    assert (row["messages_min"], row["messages_max"]) == (2, 2)  # U1 and U5
    assert row["time_lag_s_max"] == row["time_lag_s_min"] == 599.0  # since U1 was stored first
    assert "without an op record" in row["notes"][0]


def test_a_half_is_finished_if_an_op_record_names_its_first_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([*LOG[:-2], stored(OP, 500, b"5")])
    put_offsets(growing.store, "consumerOffset.json", {f"{HALF}@{GROUP}": {0: 1}, f"{OP}@{GROUP}": {0: 1}})
    assert half_row(capsys, "--store", str(growing.store))["messages_max"] == 1


def test_halves_whose_keys_differ_only_after_a_nul_count_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([stored(HALF, second, UNIQ_KEY=f"U{chr(0) * second}") for second in range(3)])
    put_offsets(growing.store, "consumerOffset.json", {f"{HALF}@{GROUP}": {0: 0}, f"{OP}@{GROUP}": {0: 0}})
    assert half_row(capsys, "--store", str(growing.store))["messages_max"] == 3


def test_op_records_without_bodies_give_bounds(
    growing: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Path(shutil.copytree(growing.lake.root, tmp_path / "lake"))
    shutil.rmtree(lake / "bodies")
    row = half_row(capsys, "--lake", str(lake))
    assert (row["messages_min"], row["messages_max"]) == (0, 5)  # 1, 3, 4, 5 and not 6, which was given up
    assert "2 op records have no body here, so it is not known which half messages they finish" in row["notes"]


def test_halves_missing_from_the_lake_give_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing._queues[HALF, 0] = 3  # what came before was deleted
    growing.write([stored(HALF, 1, UNIQ_KEY="U3"), stored(HALF, 2, UNIQ_KEY="U4"), stored(OP, 3, b"4,")])
    put_offsets(growing.store, "consumerOffset.json", {f"{HALF}@{GROUP}": {0: 1}, f"{OP}@{GROUP}": {0: 0}})
    row = half_row(capsys, "--store", str(growing.store))
    assert (row["messages_min"], row["messages_max"]) == (1, None)
    assert "2 half messages after the broker's offset are missing here and may be in flight" in row["notes"]


def test_there_is_no_row_without_a_half_in_flight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([stored(HALF, 1, UNIQ_KEY="U0"), stored(OP, 3, b"0,")])
    put_offsets(growing.store, "consumerOffset.json", {f"{HALF}@{GROUP}": {0: 0}, f"{OP}@{GROUP}": {0: 0}})
    assert [row["kind"] for row in lag_rows(capsys, "--store", str(growing.store))] == []
