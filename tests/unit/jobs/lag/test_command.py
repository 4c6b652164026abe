"""Tests of `commitlake lag` from a lake and from a store."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.lag.command import main
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.group_lag import UNKNOWN_FILTER
from commitlake.pipelines.lag.store_lag import BATCHES
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    Member,
    OffsetKind,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from tests.support.lag_places import places_of, put_offsets
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

WRITTEN = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000 + 600, datetime.UTC)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
OFFSETS = {
    "orders@billing": {0: 4},
    "orders@shipping": {0: 10},
    "orders@confused": {0: 12},
    "%RETRY%billing@billing": {0: 0},
    "gone@billing": {0: 7},
    "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 1},
}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Ten orders, a retry, a delayed message that is overdue and one that is not, and two halves."""
    growing = GrowingLake(tmp_path_factory.mktemp("lag"))
    topics = ["orders"] * 10 + ["%RETRY%billing", SCHEDULE] + ["RMQ_SYS_TRANS_HALF_TOPIC"] * 2
    stored = [
        new_message(
            number,
            topic=topic,
            queue_id=0,
            born_timestamp=MIDNIGHT_MS + 1000 * number,
            properties=(("TAGS", "paid" if number % 2 else "open"), ("price", str(number))),
        )
        for number, topic in enumerate(topics)
    ]
    growing.write([*stored, new_message(14, topic=SCHEDULE, queue_id=0, born_timestamp=MIDNIGHT_MS + 599_500)])
    growing.archive()
    put(growing, "consumerOffset.json", OFFSETS)
    put(growing, "delayOffset.json", {1: 0})
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


def put(growing: GrowingLake, name: str, table: dict[Any, Any]) -> None:
    path = growing.store / "config" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"offsetTable": table}))
    os.utime(path, (WRITTEN.timestamp(), WRITTEN.timestamp()))


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[tuple[str, str], Any]:
    capsys.readouterr()
    assert main([*arguments, "--all", "--output", "jsonl", "--quiet"]) == code
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {(row["group"] or row["kind"], row["topic"]): row for row in rows}


@pytest.fixture(params=["lake", "store"])
def place(request: pytest.FixtureRequest, growing: GrowingLake) -> list[str]:
    """The same messages in a lake and in a store."""
    return ["--lake", growing.lake.root] if request.param == "lake" else ["--store", str(growing.store)]


def test_lag_is_in_messages_bytes_and_time(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, *place)
    billing = rows["billing", "orders"]
    assert (billing["messages_min"], billing["messages_max"]) == (0, 6)
    assert [note for note in billing["notes"] if "is not known" in note][-1] == UNKNOWN_FILTER
    filtered = rows_of(capsys, *place, "--filter", "billing@orders=paid || open")["billing", "orders"]
    assert (filtered["messages_min"], filtered["messages_max"], UNKNOWN_FILTER in filtered["notes"]) == (6, 6, False)
    assert billing["time_lag_s_max"] == 596.0
    assert billing["next_message_time"] == "2023-11-15T00:00:04.000Z"
    assert billing["as_of"] == "2023-11-15T00:10:00.000Z"
    assert billing["bytes_max"] > 600
    assert rows["shipping", "orders"]["messages_max"] == 0
    assert rows["billing", "%RETRY%billing"]["kind"] == "retry"
    assert rows["billing", "%RETRY%billing"]["messages_max"] == 1


def test_the_time_of_the_last_consumed_message_is_given(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, *place, "--filter", "billing@orders=paid")
    assert rows["billing", "orders"]["last_consumed_time"] == "2023-11-15T00:00:03.000Z"
    assert rows["shipping", "orders"]["last_consumed_time"] == "2023-11-15T00:00:09.000Z"
    for nothing in ("confused", "orders"), ("billing", "gone"), ("billing", "%RETRY%billing"), ("delay", SCHEDULE):
        assert rows[nothing]["last_consumed_time"] is None


def test_impossible_offsets_are_explained(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, *place)
    confused, gone = rows["confused", "orders"], rows["billing", "gone"]
    assert (confused["difference"], confused["messages_max"], confused["verdict"]) == (-2, 0, "ahead")
    assert "the offset is 2 beyond the queue's end, 10" in confused["notes"][0]
    assert (gone["end"], gone["messages_max"]) == (None, 0)
    assert "no message of this queue is known" in gone["notes"][0]


def test_delayed_and_half_messages_have_separate_rows(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, *place)
    delayed = rows["delay", SCHEDULE]
    assert (delayed["messages_max"], delayed["verdict"]) == (1, "slow")
    assert delayed["time_lag_s_max"] == 588.0  # it was due a second after it was stored
    assert "1 more wait" in delayed["notes"][1]
    half = rows["CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"]
    assert (half["kind"], half["messages_min"], half["messages_max"]) == ("half", 1, 1)


@pytest.mark.parametrize(
    ("wanted", "messages", "seconds"), [("paid", 3, 595.0), ("paid || open", 6, 596.0), ("sql:price > 7", 2, 592.0)]
)
def test_messages_that_a_filter_excludes_do_not_count(
    place: list[str], wanted: str, messages: int, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    row = rows_of(capsys, *place, "--filter", f"billing@orders={wanted}")["billing", "orders"]
    assert (row["messages_max"], row["time_lag_s_max"]) == (messages, seconds)


def test_groups_and_topics_can_be_selected(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert set(rows_of(capsys, *place, "--group", "shipping")) == {("shipping", "orders")}
    assert set(rows_of(capsys, *place, "--topic", "gone")) == {("billing", "gone")}


def test_a_row_that_meets_a_condition_gives_exit_code_3(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*place, "--group", "billing", "--fail-if", "time_lag > 9m"]) == 3
    assert "failed: billing on orders, queue 0: time_lag > 9m" in capsys.readouterr().err
    assert main([*place, "--group", "billing", "--fail-if", "time_lag > 10m", "--fail-if", "messages >= 7"]) == 0
    assert main([*place, "--fail-if", "verdict = ahead"]) == 3


def test_a_table_has_the_groups_that_are_behind(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", growing.lake.root]) == 0
    out, err = capsys.readouterr()
    assert "shipping" not in out
    assert "\nconfused " in out
    assert "confused is ahead of the queue's end on orders: 0 messages behind." in err


def test_a_time_without_a_snapshot_is_an_error(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", growing.lake.root, "--at", "2020-01-01"]) == 3
    assert "no snapshot of its groups at or before 2020-01-01T00:00:00Z" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("lag > 5", "'lag > 5' is not a condition"),
        ("time_lag > 5", "'5' is not a duration"),
        ("verdict > ok", "expected verdict = one of ok"),
        ("verdict = bad", "expected verdict = one of ok"),
        ("messages > x", "expected a whole number after >, found 'x'"),
    ],
)
def test_invalid_conditions_are_refused(condition: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--lake", "x", "--fail-if", condition])
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("text", ["billing=paid", "billing@=x", "billing@orders="])
def test_filters_without_a_group_and_a_topic_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--lake", "x", "--filter", text])
    assert "expected GROUP@TOPIC=FILTER" in capsys.readouterr().err


def test_a_filter_that_is_not_valid_sql92_is_refused(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", growing.lake.root, "--filter", "billing@orders=sql:price >"]) == 2
    assert "the filter is not valid SQL92" in capsys.readouterr().err


def test_a_past_time_is_refused_for_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", str(tmp_path), "--at", "-2h"]) == 2
    assert "--at needs --lake" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "asked", "near"), [("group", "bilings", "billing"), ("topic", "ordes", "orders")])
def test_an_unknown_name_is_reported_with_the_nearest(
    place: list[str], capsys: pytest.CaptureFixture[str], name: str, asked: str, near: str
) -> None:
    assert rows_of(capsys, *place, f"--{name}", asked) == {}
    assert main([*place, f"--{name}", asked, "--fail-if", "messages > 5"]) == 3, "nothing was checked"
    assert main([*place, f"--{name}", asked]) == 0
    printed = capsys.readouterr().err
    assert f"--{name}: no offset of the {name} {asked!r} is known. Did you mean {near!r}?" in printed


def test_a_queue_without_an_offset_is_printed_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(new_message(n, topic="orders", queue_id=n % 2, born_timestamp=MIDNIGHT_MS) for n in range(20))
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 4}})
    for arguments in places_of(growing).values():
        capsys.readouterr()
        assert main([*arguments, "--fail-if", "messages > 9"]) == 3
        printed = capsys.readouterr()
        assert "no committed offset: counted from the queue's first message" in printed.out
        assert "failed: billing on orders, queue 1: messages > 9" in printed.err


def test_a_group_that_has_clients_but_no_offset_is_not_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS)])
    growing.archive()
    taken = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000 + 5, datetime.UTC)
    members = (Member("c", "10.0.0.9:1", "JAVA", 473, "V5_5_0"),)
    subscribed = {GroupTopic("mailer", "orders"): Subscription("TAG", "*", 1, members=members)}
    progress = StoreSnapshot(
        "broker-a",
        SnapshotSource.BROKER,
        {OffsetKind.GROUP: taken},
        log_end=1,
        log_start=0,
        subscribed_as_of=taken,
        subscriptions=subscribed,
    )
    append_snapshot(growing.lake, progress)
    rows = rows_of(capsys, "--lake", growing.lake.root, "--group", "mailer")
    assert rows["mailer", "orders"]["messages_max"] == 1


@pytest.mark.parametrize("table", ["messages", "consumer_offsets"])
def test_a_damaged_data_file_is_named(
    growing: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    lake = Path(shutil.copytree(growing.lake.root, tmp_path / "lake"))
    next((lake / table).rglob("*.parquet")).unlink()
    assert main(["--lake", str(lake)]) == 3
    assert f"{lake / table}: the data file " in capsys.readouterr().err


def test_a_group_in_a_topic_of_inner_batches_is_not_ahead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    properties = (("INNER_BASE", "0"), ("INNER_NUM", "5"))
    growing.write([new_message(topic="batched", queue_id=0, sys_flag=INNER_BATCH, properties=properties)])
    config = growing.store / "config"
    config.mkdir()
    attributes = {"attributes": {"queue.type": "BatchCQ"}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"batched": attributes}}))
    put(growing, "consumerOffset.json", {"batched@done": {0: 5}, "batched@new": {0: 0}})
    growing.archive()
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    for place in (["--lake", growing.lake.root], ["--store", str(growing.store)]):
        capsys.readouterr()
        assert main([*place, "--all", "--format", "jsonl"]) == 0
        rows = {row["group"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
        assert {group: (row["verdict"], row["messages_max"]) for group, row in rows.items()} == {
            "done": ("unknown", 0),
            "new": ("unknown", None),
        }
        assert all(BATCHES in row["notes"] for row in rows.values())
