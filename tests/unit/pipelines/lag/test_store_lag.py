"""Lag in unusual cases: impossible offsets, clocks that step, deleted segments."""

from __future__ import annotations

import datetime
import html
import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.lag.command import main as lag
from commitlake.jobs.replay.command import main as replay
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.group_lag import BROADCASTS, NO_OFFSET
from commitlake.pipelines.lag.group_summaries import find_stalled_since
from commitlake.pipelines.lag.history import lag_history
from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.pipelines.lag.store_lag import (
    DELETED_TOPIC,
    Overrides,
    lag_of_lake,
    lag_of_store,
    read_other_queue_ends,
)
from commitlake.pipelines.lag.subscription_filter import ALL, SubscriptionFilter
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    Member,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.selection import Selection
from tests.support.indexed_stores import write_indexed_store
from tests.support.lag_places import WRITTEN, lag_rows, places_of, put_bytes, put_offsets, stored
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

START = datetime.datetime(2023, 11, 15, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def progress(second: int, offset: int, **more: Any) -> StoreSnapshot:
    """Return a snapshot of one group in one queue."""
    position = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
    taken = START + datetime.timedelta(seconds=second)
    return StoreSnapshot(
        "broker-a", SnapshotSource.BROKER, {OffsetKind.GROUP: taken}, {position: offset}, log_end=1, log_start=0, **more
    )


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of ten messages, one each second."""
    growing = GrowingLake(tmp_path)
    growing.write(stored("orders", second) for second in range(10))
    growing.archive()
    return growing


def test_an_offset_before_the_oldest_message_is_lost_and_existing_ones_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, lake = write_indexed_store(tmp_path / "broker-a"), tmp_path / "lake"
    put_offsets(root, "consumerOffset.json", {"topic-1@late": {0: 2}})
    run = ["--store", str(root), "--lake", str(lake), "--quiet"]
    assert archive([*run, "--local", "--no-quality"]) == 0
    (before,) = (row for row in lag_rows(capsys, "--lake", str(lake)) if row["queue_id"] == 0)
    for segment in sorted((root / "commitlog").iterdir())[:3]:
        segment.unlink()
    put_offsets(root, "consumerOffset.json", {"topic-1@late": {0: 3}})
    later = WRITTEN + datetime.timedelta(minutes=1)
    (root / "config" / "consumerOffset.json").touch()
    assert snapshot(run) == 0
    for arguments in (["--lake", str(lake)], ["--store", str(root)]):
        row, *others = sorted(lag_rows(capsys, *arguments), key=lambda row: int(row["queue_id"]))
        # Of the queues without an offset, the deleted messages do not count, and are not lost.
        assert [other["verdict"] for other in others] == ["stalled" if "--lake" in arguments else "unknown"] * 2
        assert all(other["messages_max"] == other["end"] - other["offset_min"] > 0 for other in others)
        assert row["as_of"] > f"{later:%Y}"
        assert row["verdict"] == "lost"
        assert 0 < row["messages_max"] < before["messages_max"] - 1
        assert row["messages_max"] == row["end"] - int(row["notes"][0].split("before ")[1].split()[0])


def test_an_empty_queue_whose_messages_were_all_deleted_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([stored("orders", 1)])
    put_offsets(growing.store, "consumerOffset.json", {"gone@billing": {0: 7}})
    for arguments in places_of(growing).values():
        (row,) = lag_rows(capsys, *arguments)
        assert (row["messages_max"], row["end"], row["verdict"]) == (0, None, "ok")
        assert "no message of this queue is known" in row["notes"][0]


def test_a_clock_that_was_ahead_gives_no_negative_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    # The clock is set back by an hour after the second message, and the offsets are written a minute after the last.
    growing.write(stored("orders", second) for second in (4139, 4140, 540))
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 0}})
    for arguments in places_of(growing).values():
        (row,) = lag_rows(capsys, *arguments)
        # Messages with a store time after the moment are not counted for it.
        assert (row["messages_max"], row["end"], row["time_lag_s_max"]) == (1, 3, 60.0)


def test_late_and_repeated_snapshots_do_not_change_the_lag(growing: GrowingLake) -> None:
    for second, offset in ((5, 4), (9, 8), (7, 1), (9, 2), (5, 4)):
        append_snapshot(growing.lake, progress(second, offset))
    (row,) = lag_of_lake(growing.lake, None).rows
    assert (row.offset.low, row.messages.low, row.messages.high) == (8, 0, 2)  # its filter is not known
    (row,) = lag_of_lake(growing.lake, START + datetime.timedelta(seconds=7)).rows
    assert (row.offset.low, row.offset.high) == (4, 8)


def test_messages_count_at_the_last_snapshot_even_if_no_group_has_moved(growing: GrowingLake) -> None:
    end = len(growing.log)
    append_snapshot(growing.lake, replace(progress(9, 10), log_end=end))
    growing.write(stored("orders", second) for second in range(10, 60))
    for second in (30, 59):
        append_snapshot(
            growing.lake, replace(progress(second, 10), log_end=end + (len(growing.log) - end) * second // 59)
        )
    growing.archive()
    (row,) = lag_of_lake(growing.lake, None).rows
    assert (row.as_of, row.messages.high, row.seconds.high) == (START + 59 * SECOND, 50, 49.0)


@pytest.fixture
def losing(tmp_path: Path) -> GrowingLake:
    """Ten orders, paid and open by turns; a group stays at the third, and the broker then deletes the first six."""
    growing = GrowingLake(tmp_path)
    starts = []
    for second in range(10):
        starts.append(len(growing.log))
        growing.write([stored("orders", second, TAGS=TAGS[second % 2])])
    growing.archive()
    for second, log_start in ((60, 0), (120, 0), (900, starts[6])):
        append_snapshot(growing.lake, replace(progress(second, 2), log_start=log_start, log_end=len(growing.log)))
    return growing


@pytest.mark.parametrize(
    ("expression", "lost", "why"),
    [("paid", (2, 2), "2 messages"), ("*", (4, 4), "4 messages"), (None, (0, 4), "up to 4 messages")],
)
def test_lost_messages_are_counted_as_the_group_filters(
    losing: GrowingLake, expression: str | None, lost: tuple[int, int], why: str
) -> None:
    given = {} if expression is None else {GroupTopic("billing", "orders"): SubscriptionFilter.of("TAG", expression)}
    (row,) = lag_of_lake(losing.lake, None, overrides=Overrides(given)).rows
    assert (str(row.judged.verdict), row.lost) == ("lost", lost)
    assert row.notes[0] == f"{why} before 6 deleted unconsumed"
    history = lag_history(losing.lake, ["billing"], START + 900 * SECOND, subscription_overrides=given)
    assert history is not None
    assert len({figure for figure in history.messages["billing"] if figure is not None}) == 1  # nothing was consumed


def test_a_group_that_wants_none_of_the_deleted_messages_has_lost_none(losing: GrowingLake) -> None:
    given = Overrides({GroupTopic("billing", "orders"): SubscriptionFilter.of("TAG", "refunded")})
    (row,) = lag_of_lake(losing.lake, None, overrides=given).rows
    assert (str(row.judged.verdict), row.lost, row.messages) == ("ok", (0, 0), (0, 0))


def test_the_page_shows_how_to_replay_what_is_lost(losing: GrowingLake, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    page = tmp_path / "lag.html"
    assert (
        lag(["--lake", losing.lake.root, "--filter", "billing@orders=*", "--html", str(page), "--output", "jsonl"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["lost_max"] == 4
    (line,) = (
        html.unescape(re.sub("<[^>]+>", "", code))
        for code in re.findall("<code>(.*?)</code>", page.read_text())
        if "not-consumed-by" in code
    )
    program, job, *arguments = shlex.split(line)
    assert (program, job, arguments[-1]) == ("commitlake", "replay", "--dry-run")
    assert replay([*arguments, "--json"]) == 0
    assert "4 messages" in capsys.readouterr().err


@pytest.mark.parametrize("count", [10, 20])
def test_offsets_in_many_queues_that_do_not_exist_have_no_rows(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("commitlake.pipelines.lag.store_lag.MAX_IMPOSSIBLE", 10)
    topics = {"topicConfigTable": {"orders": {"readQueueNums": 1, "writeQueueNums": 1}}}
    put_bytes(growing.store, "topics.json", json.dumps(topics).encode())
    impossible = {f"gone-{number}@billing": {0: 1} for number in range(count // 2)}
    impossible["orders@shipping"] = dict.fromkeys(range(1, count // 2 + 1), 1)
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 4}, **impossible})
    growing.write([stored("orders", 10)])  # the next archive run records the topics
    for arguments in places_of(growing).values():
        rows = lag_rows(capsys, *arguments, code=0 if count == 10 else 3)
        billing = [row for row in rows if (row["group"], row["topic"]) == ("billing", "orders")]
        assert [row["messages_max"] for row in billing] == [7]
        assert len(rows) == (count + 2 if count == 10 else 1)
        assert lag(["--quiet", *arguments]) == 3 * (count > 10)
        assert ("20 offsets of groups are in queues" in capsys.readouterr().err) == (count > 10)


def test_a_group_is_stalled_after_the_watched_time(losing: GrowingLake) -> None:
    given = {GroupTopic("billing", "orders"): ALL}
    for second, offset in ((1200, 7), (1260, 7), (1320, 7), (1380, 7), (1440, 7), (1500, 7), (1560, 7)):
        append_snapshot(losing.lake, replace(progress(second, offset), log_end=len(losing.log) + second))
    losing.write([stored("orders", 1561)])
    found = {
        watch: lag_of_lake(losing.lake, START + 1500 * SECOND, overrides=Overrides(given, watch=watch * 60 * SECOND))
        for watch in (5, 30)
    }
    verdicts = {watch: str(answer.rows[0].judged.verdict) for watch, answer in found.items()}
    rates = {watch: answer.rows[0].judged.consume_tps for watch, answer in found.items()}
    assert (verdicts, rates[5]) == ({5: "stalled", 30: "ok"}, 0.0)
    assert rates[30]


def test_a_group_reset_between_two_snapshots_has_wide_bounds(growing: GrowingLake) -> None:
    for second, offset in ((3, 3), (5, 5), (9, 3)):
        append_snapshot(growing.lake, progress(second, offset))
    (row,) = lag_of_lake(growing.lake, START + datetime.timedelta(seconds=7)).rows
    assert (row.messages.low, row.messages.high) == (0, 8)
    assert str(row.judged.verdict) == "rewound"
    assert "the group's offset was set back between these two snapshots, so it may have been anywhere" in row.notes


def test_a_broadcasting_group_without_offsets_is_named(growing: GrowingLake) -> None:
    taken = START + datetime.timedelta(seconds=9)
    wanted = Subscription("TAG", "*", 1, message_model="BROADCASTING", members=())
    found = {GroupTopic("radio", "orders"): wanted, GroupTopic("billing", "orders"): wanted}
    append_snapshot(growing.lake, progress(9, 4, subscribed_as_of=taken, subscriptions=found))
    answer = lag_of_lake(growing.lake, None)
    (group,) = answer.broadcasting
    assert str(group).startswith("broker-a: radio broadcasts orders: each of its clients keeps its own offsets, so")
    assert "the group broadcasts: its clients keep their own offsets" in answer.rows[0].notes
    assert not lag_of_lake(growing.lake, None, Selection(groups=["billing"])).broadcasting


def test_a_broadcasting_group_has_its_own_clients_and_filter(growing: GrowingLake) -> None:
    wanted = Subscription("TAG", "paid", 1, message_model="BROADCASTING", members=(MEMBER,))
    offsets = {
        OffsetOwner(OffsetKind.GROUP, "radio@broadcast", "orders", 0): 4,
        OffsetOwner(OffsetKind.GROUP, "radio", "orders", 0): 1,  # from when it did not broadcast
    }
    for second in (5, 9):
        taken = START + second * SECOND
        more = {"subscribed_as_of": taken, "subscriptions": {GroupTopic("radio", "orders"): wanted}}
        append_snapshot(growing.lake, replace(progress(second, 4, **more), offsets=offsets))
    answer = lag_of_lake(growing.lake, None, Selection(groups=["radio"]))
    (row,) = answer.rows
    assert (row.group, row.offset.low, row.members, row.filter, row.broadcasts) == ("radio", 4, 1, "paid", True)
    assert (str(row.judged.verdict), row.messages) == ("ok", (0, 0))  # no message has its tag
    assert row.notes[-1] == f"{BROADCASTS}; the broker has the one at which the slowest last pulled"
    assert (answer.broadcasting, {one.group for one in answer.known}) == ([], {"radio"})
    history = lag_history(growing.lake, ["radio"], START + 9 * SECOND)
    assert history is not None
    assert set(history.messages["radio"]) <= {0, None}
    assert 0 in history.messages["radio"]


TAGS = ("paid", "open")
EVERYTHING = Overrides({GroupTopic("billing", "orders"): ALL})
MEMBER = Member("c", "10.0.0.9:1", "JAVA", 473, "V5_5_0")


@pytest.fixture
def partly_committed(tmp_path: Path) -> GrowingLake:
    """Ten orders in each of three queues, two retries, and a message of a topic that no group consumes.

    `billing` has an offset in queue 0, `shipping` in all queues, and `mailer` in its retry topic only.
    """
    growing = GrowingLake(tmp_path)
    orders = [
        new_message(
            number,
            topic="orders",
            queue_id=number % 3,
            born_timestamp=MIDNIGHT_MS + 1000 * number,
            properties=(("TAGS", TAGS[number // 3 % 2]),),
        )
        for number in range(30)
    ]
    growing.write([*orders, stored("others", 1), stored("%RETRY%billing", 2), stored("%RETRY%mailer", 3)])
    table = {
        "orders@billing": {0: 4},
        "orders@shipping": {0: 10, 1: 10, 2: 10},
        "%RETRY%mailer@mailer": {0: 0},
    }
    put_offsets(growing.store, "consumerOffset.json", table)
    return growing


def summary_of(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], tuple[int, int, int, bool]]:
    """Return offset, least and most messages, and whether the note on a missing offset is there, by position."""
    return {
        (row["group"], row["topic"], row["queue_id"]): (
            row["offset_min"], row["messages_min"], row["messages_max"], NO_OFFSET in row["notes"],
        )
        for row in rows
    }  # fmt: skip


def test_a_queue_without_an_offset_of_the_group_counts_from_its_first_message(
    partly_committed: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in places_of(partly_committed).values():
        assert summary_of(lag_rows(capsys, *arguments)) == {
            ("billing", "orders", 0): (4, 0, 6, False),  # its filter is not known
            ("billing", "orders", 1): (0, 0, 10, True),
            ("billing", "orders", 2): (0, 0, 10, True),
            ("billing", "%RETRY%billing", 0): (0, 1, 1, True),
            ("mailer", "%RETRY%mailer", 0): (0, 1, 1, False),
            **{("shipping", "orders", queue_id): (10, 0, 0, False) for queue_id in range(3)},
        }


def test_a_queue_in_which_no_group_has_an_offset_counts(
    partly_committed: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    places = places_of(partly_committed)
    for arguments in places.values():
        rows = lag_rows(capsys, *arguments, "--group", "billing", "--topic", "orders")
        assert [row["messages_max"] for row in sorted(rows, key=lambda row: int(row["queue_id"]))] == [6, 10, 10]
        assert lag_rows(capsys, *arguments, "--topic", "others") == []  # no group consumes it


def test_filters_apply_in_queues_without_an_offset(
    partly_committed: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in places_of(partly_committed).values():
        for wanted in ("paid", "sql:TAGS = 'paid'"):
            filtered = ["--group", "billing", "--topic", "orders", "--filter", f"billing@orders={wanted}"]
            found = summary_of(lag_rows(capsys, *arguments, *filtered))
            assert [found["billing", "orders", queue_id][2] for queue_id in range(3)] == [3, 5, 5]


def test_a_queue_without_an_offset_at_two_snapshots_has_an_exact_lag_between_them(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(
        new_message(n, topic="orders", queue_id=n % 2, born_timestamp=MIDNIGHT_MS + 1000 * n) for n in range(20)
    )
    growing.archive()
    for second, offset in ((5, 1), (15, 2)):
        append_snapshot(growing.lake, progress(second, offset))
    append_snapshot(growing.lake, without_offsets(19))
    found = {}
    for second in (0, 5, 10, 15, 17, 19):
        rows = lag_of_lake(growing.lake, START + datetime.timedelta(seconds=second), overrides=EVERYTHING).rows
        found[second] = [(row.messages.low, row.messages.high) for row in rows if row.queue_id == 1]
    # Of queue 1, a message was stored at each odd second. The offset of queue 0 was deleted between 15 s and 19 s.
    assert found == {0: [], 5: [(3, 3)], 10: [(5, 5)], 15: [(8, 8)], 17: [(0, 9)], 19: []}


def without_offsets(second: int) -> StoreSnapshot:
    taken = START + datetime.timedelta(seconds=second)
    return StoreSnapshot("broker-a", SnapshotSource.BROKER, {OffsetKind.GROUP: taken}, {}, log_end=1, log_start=0)


def test_after_the_last_snapshot_the_group_may_have_consumed_queues_without_an_offset(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(
        new_message(n, topic="orders", queue_id=n % 2, born_timestamp=MIDNIGHT_MS + 1000 * n) for n in range(20)
    )
    growing.archive()
    append_snapshot(growing.lake, progress(5, 1))
    rows = lag_of_lake(growing.lake, START + datetime.timedelta(seconds=10)).rows
    (row,) = (row for row in rows if row.queue_id == 1)
    assert row.messages.low == 0
    assert NO_OFFSET in row.notes


def test_a_topic_counts_for_a_group_whose_clients_subscribe_to_it(growing: GrowingLake) -> None:
    taken = START + datetime.timedelta(seconds=9)
    client = Member("c", "10.0.0.9:1", "JAVA", 473, "V5_5_0")
    found = {
        GroupTopic("mailer", "orders"): Subscription("TAG", "*", 1, message_model="CLUSTERING", members=(client,)),
        GroupTopic("gone", "orders"): Subscription("TAG", "*", 1, message_model="CLUSTERING", members=()),
        GroupTopic("radio", "orders"): Subscription("TAG", "*", 1, message_model="BROADCASTING", members=(client,)),
    }
    append_snapshot(growing.lake, progress(9, 4, subscribed_as_of=taken, subscriptions=found))
    answer = lag_of_lake(growing.lake, None)
    rows = {row.group: (row.messages.low, row.messages.high, NO_OFFSET in row.notes) for row in answer.rows}
    assert rows == {"billing": (0, 6, False), "mailer": (10, 10, True)}


def test_a_broadcasting_group_counts_only_in_queues_with_an_offset(partly_committed: GrowingLake) -> None:
    partly_committed.archive()
    taken = START + datetime.timedelta(seconds=40)
    wanted = Subscription("TAG", "*", 1, message_model="BROADCASTING", members=())
    found = {GroupTopic("billing", "orders"): wanted}
    append_snapshot(partly_committed.lake, progress(40, 4, subscribed_as_of=taken, subscriptions=found))
    rows = lag_of_lake(partly_committed.lake, None, Selection(topics=["orders"])).rows
    assert [(row.queue_id, row.messages.high) for row in rows] == [(0, 6)]


def test_a_group_that_never_moved_from_its_first_message_is_stalled(partly_committed: GrowingLake) -> None:
    partly_committed.archive()
    for minute in (1, 31, 61):
        append_snapshot(partly_committed.lake, progress(60 * minute, 4))
    rows = {row.queue_id: row for row in lag_of_lake(partly_committed.lake, None, Selection(topics=["orders"])).rows}
    assert {queue_id: str(row.judged.verdict) for queue_id, row in rows.items()} == dict.fromkeys(range(3), "stalled")
    assert rows[1].notes[:2] == ("the group does not move; its clients are not known", NO_OFFSET)
    assert find_stalled_since(partly_committed.lake, rows[1]) == START + datetime.timedelta(seconds=1)


def test_a_group_without_an_offset_at_the_earlier_snapshot_is_not_stalled(partly_committed: GrowingLake) -> None:
    partly_committed.archive()
    append_snapshot(partly_committed.lake, without_offsets(60))
    append_snapshot(partly_committed.lake, progress(60 * 31, 4))
    rows = lag_of_lake(partly_committed.lake, None, Selection(topics=["orders"])).rows
    assert [str(row.judged.verdict) for row in rows] == ["unknown"] * 3
    assert {row.notes[0] for row in rows} == {
        "there is only one snapshot with an offset of the group, so it is not known whether it moves"
    }


def test_the_ends_of_queues_without_a_group_are_known(partly_committed: GrowingLake) -> None:
    partly_committed.archive()
    for minute in (1, 31):
        append_snapshot(partly_committed.lake, progress(60 * minute, 4))
    answer = lag_of_lake(partly_committed.lake, None, Selection(topics=["orders"]))
    assert read_other_queue_ends(partly_committed.lake, answer) == {Queue("broker-a", "others", 0): QueueSpan(0, 1, 1)}


def test_offset_in_a_deleted_topic_is_not_ok(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    growing.write([stored("orders", 0), stored("gone", 1)])
    put_bytes(growing.store, "topics.json", b'{"topicConfigTable":{"orders":{},"gone":{}}}')
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 1}, "gone@billing": {0: 1}})
    growing.archive()
    put_bytes(growing.store, "topics.json", b'{"topicConfigTable":{"orders":{}}}')
    for place in places_of(growing).values():
        rows = {row["topic"]: row for row in lag_rows(capsys, *place)}
        assert rows["gone"]["verdict"] == "unknown"
        assert DELETED_TOPIC in str(rows["gone"]["notes"])
        assert DELETED_TOPIC not in str(rows["orders"])


def test_offsets_in_rocksdb_are_named_unless_the_file_is_newer(growing: GrowingLake) -> None:
    growing.write([stored("orders", 0)])
    (store,) = find_stores(str(growing.store), formats=COMMITLOGS)
    rocksdb = growing.store / "config" / "consumerOffsets"
    rocksdb.mkdir(parents=True)
    (rocksdb / "CURRENT").write_text("MANIFEST-000005\n")
    (sentence,) = lag_of_store(store, WRITTEN).missing
    assert "config/consumerOffsets: the offsets of groups are in RocksDB, which cannot be read" in sentence
    assert "'commitlake snapshot --namesrv' asks the broker for them" in sentence
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 1}})  # from before the broker used RocksDB
    assert lag_of_store(store, WRITTEN).missing == [sentence]
    os.utime(rocksdb / "CURRENT", (0, 0))
    assert [row.offset.low for row in lag_of_store(store, WRITTEN).rows] == [1]
