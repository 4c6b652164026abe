"""Tests of `commitlake offsets` from a lake and from a store, without a broker."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.lag.command import main as lag
from commitlake.jobs.offsets.command import main
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, archive_store
from tests.support.logs import new_message

BEFORE, AFTER = 2, 8
"""Seconds after midnight of the two snapshots; message n of `orders` is stored n seconds after midnight."""


def at(seconds: float) -> str:
    """Return a time this number of seconds after midnight."""
    return datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000 + seconds, datetime.UTC).isoformat()


def orders(seconds: Iterable[float], topic: str = "orders") -> list[NewMessage]:
    """Return messages of one queue."""
    return [
        new_message(
            number, topic=topic, queue_id=0, born_timestamp=MIDNIGHT_MS + int(1000 * second),
            properties=(("TAGS", "paid" if number % 2 else "open"),),
        )
        for number, second in enumerate(seconds)
    ]  # fmt: skip


def take_snapshot(growing: GrowingLake, seconds: float, offsets: dict[str, dict[int, int]]) -> None:
    """Add a snapshot of offsets, taken this number of seconds after midnight."""
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"offsetTable": offsets}))
    os.utime(path, (MIDNIGHT_MS / 1000 + seconds,) * 2)
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Ten orders, a second apart, a retry, and two snapshots of groups that consume them."""
    growing = GrowingLake(tmp_path_factory.mktemp("offsets"))
    growing.write([*orders(range(10)), *orders([9.5], "%RETRY%billing")])
    growing.archive()
    put = {"%RETRY%billing@billing": {0: 0}}
    take_snapshot(growing, BEFORE, {"orders@billing": {0: 1}, "orders@back": {0: 9}, "orders@shipping": {0: 2}} | put)
    take_snapshot(growing, AFTER, {"orders@billing": {0: 7}, "orders@back": {0: 3}, "orders@shipping": {0: 2}} | put)
    return growing


@pytest.fixture(params=["lake", "store"])
def place(request: pytest.FixtureRequest, growing: GrowingLake) -> list[str]:
    """The same messages in a lake and in a store."""
    return ["--lake", growing.lake.root] if request.param == "lake" else ["--store", str(growing.store)]


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """Return the printed rows by topic."""
    capsys.readouterr()
    assert main([*arguments, "--json", "--quiet"]) == code
    return {row["topic"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}


def test_an_offset_at_a_snapshot_is_exact(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "--lake", growing.lake.root, "--group", "billing", "--at", at(AFTER))
    row = rows["orders"]
    assert (row["offset"], row["offset_max"], row["current"], row["notes"]) == (7, 7, 7, [])
    assert (row["messages_min"], row["messages_max"]) == (0, 3)  # its filter is not known
    assert row["next_message_time"] == "2023-11-15T00:00:07Z"
    assert rows["%RETRY%billing"]["offset"] == 0


def test_between_snapshots_the_messages_that_were_stored_bound_the_offset(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    row = rows_of(capsys, "--lake", growing.lake.root, "--group", "billing", "--at", at(4.5))["orders"]
    assert (row["offset"], row["offset_min"], row["offset_max"]) == (1, 1, 5)  # not 7: two were not stored yet
    assert "between the snapshots of 2023-11-15T00:00:02Z and 2023-11-15T00:00:08Z" in row["notes"][0]
    moved = rows_of(capsys, "--lake", growing.lake.root, "--group", "shipping", "--at", at(4.5))["orders"]
    assert (moved["offset"], moved["offset_max"]) == (2, 2)  # it was the same before and after


def test_a_queue_without_an_offset_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(new_message(n, topic="orders", queue_id=n, born_timestamp=MIDNIGHT_MS + 3000 * n) for n in range(3))
    growing.archive()
    take_snapshot(growing, 4, {"orders@billing": {0: 1}})
    capsys.readouterr()
    assert main(["--lake", growing.lake.root, "--group", "billing", "--at", at(4), "--json", "--quiet"]) == 3
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["queue_id"], row["offset"], row["current"]) for row in rows] == [(0, 1, 1), (1, None, None)]
    assert (
        rows[1]["problem"] == "the group had no committed offset in this queue at that time, although it has messages"
    )


def test_after_the_last_snapshot_the_queue_end_bounds_the_offset(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    row = rows_of(capsys, "--lake", growing.lake.root, "--group", "billing", "--at", at(8.5))["orders"]
    assert (row["offset_min"], row["offset_max"]) == (7, 9)
    assert "after the last snapshot, of 2023-11-15T00:00:08Z" in row["notes"][0]
    later = rows_of(capsys, "--lake", growing.lake.root, "--group", "billing", "--at", at(60))["orders"]
    assert (later["offset_min"], later["offset_max"]) == (7, None)  # the archive ends before that time


def test_a_group_that_was_reset_between_snapshots_has_no_offset(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    row = rows_of(capsys, "--lake", growing.lake.root, "--group", "back", "--at", at(4.5), code=3)["orders"]
    assert row["offset"] is None
    assert "the group was set back between the snapshots" in row["problem"]


@pytest.mark.parametrize(("since", "offset"), [(-5, 0), (0, 0), (2.5, 3), (3, 3), (3.0001, 4), (9, 9), (9.2, 10)])
def test_the_offset_is_that_of_the_first_message_at_or_after_a_time(
    place: list[str], since: float, offset: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(capsys, *place, "--group", "billing", "--consume-from", at(since))
    assert rows.keys() == {"orders"}  # not its own retries
    row = rows["orders"]
    assert (row["offset"], row["offset_min"], row["offset_max"]) == (offset, offset, offset)
    assert row["messages_max"] == 10 - offset
    assert (row["next_message_time"] is None) == (offset == 10)


def test_a_time_after_the_end_of_the_archive_gives_no_upper_bound(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--lake", growing.lake.root, "--group", "billing", "--consume-from", at(60)]
    row = rows_of(capsys, *arguments)["orders"]
    assert (row["offset"], row["offset_max"]) == (10, None)
    assert "the archive ends before that time" in row["notes"][0]


def test_offsets_missing_from_the_archive_widen_the_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(orders(range(4)))
    growing._queues["orders", 0] += 3  # as if three messages had been lost
    growing.write(orders([10, 11]))
    growing.archive()
    arguments = ["--lake", growing.lake.root, "--group", "any", "--topic", "orders", "--consume-from", at(5)]
    row = rows_of(capsys, *arguments)["orders"]
    assert (row["offset"], row["offset_max"]) == (4, 7)
    assert row["notes"] == ["offsets 4 to 6 are not in the archive and may be as new"]


def test_a_recreated_topic_has_no_earlier_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(orders(range(6)))
    growing.archive()
    take_snapshot(growing, 5.5, {"orders@billing": {0: 4}})
    growing.recreate_topics()
    growing.write(orders([20, 21, 22]))
    growing.archive()
    lake = ["--lake", growing.lake.root, "--group", "billing"]
    row = rows_of(capsys, *lake, "--at", at(5.5), code=3)["orders"]
    assert row["offset"] is None
    assert "the topic was deleted and created again after that time" in row["problem"]
    assert lag(["--lake", growing.lake.root, "--group", "nobody"]) == 0  # it has no topic to look at
    assert "warning: --group: no offset of the group 'nobody' is known" in capsys.readouterr().err
    for place in (lake, ["--store", str(growing.store), "--group", "billing"]):
        row = rows_of(capsys, *place, "--consume-from", at(2))["orders"]
        assert (row["offset"], row["offset_max"], row["messages_max"]) == (0, 0, 3)


def test_the_resulting_lag_counts_only_messages_that_the_group_subscribes_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(orders(range(10)))
    growing.archive()
    path = growing.store / "config" / "consumerFilter.json"
    path.parent.mkdir(exist_ok=True)
    filters = {"consumerGroup": "picky", "topic": "orders", "expression": "TAGS = 'paid'", "expressionType": "SQL92"}
    path.write_text(json.dumps({"filterDataByTopic": {"orders": {"groupFilterData": {"picky": filters}}}}))
    take_snapshot(growing, 20, {"orders@picky": {0: 0}})
    for place in (["--lake", growing.lake.root], ["--store", str(growing.store)]):
        row = rows_of(capsys, *place, "--group", "picky", "--consume-from", at(4))["orders"]
        assert (row["offset"], row["messages_max"], row["next_message_time"]) == (4, 3, "2023-11-15T00:00:05Z")


def test_the_table_and_the_summary_are_printed(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", growing.lake.root, "--group", "billing", "--at", at(4.5), "--topic", "orders"]) == 0
    done = capsys.readouterr()
    assert "1 to 5" in done.out
    assert "1 offset of billing, 1 of them the lower of two bounds: once they are set, up to 9 messages" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--group", "biling", "--at", at(AFTER)], 0, "warning: no offset and no subscription of the group 'biling'"),
        (["--group", "biling", "--consume-from", at(AFTER)], 0, "Did you mean 'billing'?"),
        (["--group", "nope", "--at", at(AFTER)], 0, "There are: back, billing, shipping"),
        (["--group", "billing", "--at", at(1)], 3, "the first snapshot of its groups is from 2023-11-15T00:00:02Z"),
        (["--group", "billing", "--at", at(3), "--topic", "payments"], 3, "had no offset of payments at that time"),
        (["--group", "billing", "--consume-from", at(3), "--topic", "ordes"], 3, "Did you mean 'orders'?"),
        (["--group", "billing", "--at", at(3), "--broker", "broker-b"], 2, "the lake has no store 'broker-b'"),
        (["--group", "billing", "--at", "2999-01-01"], 2, "expected a time in the past"),
        (["--group", "billing", "--at", at(3), "--apply"], 2, "--apply needs --namesrv"),
        (["--group", "billing", "--at", at(3), "--mqadmin"], 2, "--format mqadmin needs --namesrv"),
        (["--group", "billing", "--at", at(3), "--yes"], 2, "--yes needs --apply"),
    ],
)
def test_unknown_names_and_wrong_options_are_reported(
    growing: GrowingLake, arguments: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lake", growing.lake.root, *arguments]) == code
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("consumerOffset.json", "{", "consumerOffset.json: expected JSON with offsetTable"),
        ("consumerOffsets/CURRENT", "MANIFEST-000005\n", "the offsets of groups are in RocksDB, which cannot be read"),
    ],
)
def test_offsets_of_a_store_that_cannot_be_read_are_not_an_unknown_group(
    name: str, content: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(orders([0]))
    (file := growing.store / "config" / name).parent.mkdir(parents=True)
    file.write_text(content)
    given = ["--store", str(growing.store), "--group", "billing", "--consume-from", at(0)]
    assert main(given) == 3
    printed = capsys.readouterr().err
    assert (expected in printed, "There are none" in printed) == (True, False), printed


def test_a_lake_or_store_without_history_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(orders([0]))
    archive_store(growing.store, growing.lake)
    shutil.rmtree(growing.lake.uri("consumer_offsets"), ignore_errors=True)
    assert main(["--lake", growing.lake.root, "--group", "billing", "--at", at(1)]) == 2
    assert "the lake has no snapshots of consumer offsets" in capsys.readouterr().err
    assert main(["--store", str(growing.store), "--group", "billing", "--at", at(1)]) == 2
    assert "a store has no history of its groups" in capsys.readouterr().err
