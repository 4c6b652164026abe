"""The history of lag: at each snapshot the lag of that time, filters included; no figure where the lag is unknown."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.pipelines.lag.history import lag_history
from commitlake.pipelines.lag.store_lag import Overrides, lag_of_lake
from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
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
from commitlake.schemas.remoting.heartbeats import SQL92_EXPRESSION
from commitlake.schemas.selection import Selection
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.shop_days import HOSTILE_GROUP, HOURS, MIDNIGHT, MINUTE, SILENT_HOURS, shop_day

GROUPS = ("mailer", "shipping", "billing", "reports", HOSTILE_GROUP)
HOUR = 60 * MINUTE
END = MIDNIGHT + HOURS * HOUR


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A shop's day with a snapshot each hour."""
    return shop_day(tmp_path_factory.mktemp("shop"), messages_per_minute=0.5)


def test_each_window_has_the_lag_of_its_snapshot(shop: GrowingLake) -> None:
    history = lag_history(shop.lake, GROUPS, END)
    assert history is not None
    assert (history.windows.start, history.windows.length, history.windows.count) == (MIDNIGHT, HOUR, HOURS + 1)
    for hour in (0, 3, 7, 12, 13, HOURS):
        rows = lag_of_lake(shop.lake, MIDNIGHT + hour * HOUR).rows
        for group in GROUPS:
            expected = sum(row.messages.low for row in rows if row.group == group)
            assert history.messages[group][hour] == expected, (group, hour)
    assert history.messages["reports"][12]  # a filter by tag, with a lag


def test_a_filter_by_properties_is_applied(shop: GrowingLake) -> None:
    given = {GroupTopic("billing", "orders"): SubscriptionFilter.of(SQL92_EXPRESSION, "KEYS LIKE '%1'")}
    history = lag_history(shop.lake, ["billing"], END, subscription_overrides=given)
    rows = lag_of_lake(shop.lake, END, Selection(groups=["billing"]), overrides=Overrides(given)).rows
    assert history is not None
    assert history.messages["billing"][HOURS] == sum(row.messages.high or 0 for row in rows)


def test_a_time_without_snapshots_has_no_figure(shop: GrowingLake) -> None:
    history = lag_history(shop.lake, GROUPS, END)
    assert history is not None
    for group in GROUPS:
        missing = [number for number, figure in enumerate(history.messages[group]) if figure is None]
        assert missing == list(SILENT_HOURS)


def test_a_past_time_ends_the_history(shop: GrowingLake) -> None:
    history = lag_history(shop.lake, ["billing"], MIDNIGHT + 13 * HOUR)
    whole = lag_history(shop.lake, ["billing"], END)
    assert history is not None
    assert whole is not None
    assert history.messages["billing"] == whole.messages["billing"][:14]


def test_a_lake_without_snapshots_has_no_history(tmp_path: Path, shop: GrowingLake) -> None:
    other = GrowingLake(tmp_path)
    other.write([new_message(born_timestamp=MIDNIGHT_MS)])
    other.archive()
    assert lag_history(other.lake, ["billing"], END) is None
    assert lag_history(shop.lake, ["billing"], MIDNIGHT - HOUR) is None


def snapshot(growing: GrowingLake, minute: int, offset: int, log_end: int = 0) -> None:
    progress = StoreSnapshot(
        broker="broker-a",
        source=SnapshotSource.FILE,
        taken={OffsetKind.GROUP: MIDNIGHT + minute * MINUTE},
        offsets={OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0): offset},
        log_end=log_end,
        log_start=0,
    )
    append_snapshot(growing.lake, progress)


def test_windows_between_near_snapshots_take_the_offsets_before_them(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(new_message(n, queue_id=0, born_timestamp=MIDNIGHT_MS + n * 60_000) for n in range(120))
    growing.archive()
    for minute in (22, 23, 24, 25, 26, 40):  # nothing moves from 25 on, so that there is a heartbeat only
        snapshot(growing, minute, min(minute, 25))
    snapshot(growing, 70, 26)
    history = lag_history(growing.lake, ["billing"], MIDNIGHT + 70 * MINUTE)
    assert history is not None
    assert (history.windows.start, history.windows.length) == (MIDNIGHT + 22 * MINUTE, MINUTE)
    figures = dict(enumerate(history.messages["billing"], 22))
    assert [figures[minute] for minute in (22, 25, 26)] == [1, 1, 3]  # 26: at the window's end, as nothing moved
    assert figures[35] == 12  # at the window's end, 36 minutes: 37 messages, 25 consumed
    assert figures[40] == 16
    assert {figures[minute] for minute in range(41, 70)} == {None}
    assert figures[70] == 45


def test_each_window_has_the_filter_of_its_time(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(
        new_message(n, queue_id=0, born_timestamp=MIDNIGHT_MS + n * 60_000, properties=(("TAGS", "abc"[n % 3]),))
        for n in range(61)
    )
    growing.archive()
    for minute, tags in ((10, None), (20, "a"), (30, None), (40, "a || b"), (50, None), (60, "*")):
        snapshot(growing, minute, minute // 2)
        if tags is not None:
            wanted = {GroupTopic("billing", "orders"): Subscription("TAG", tags, minute)}
            taken = MIDNIGHT + minute * MINUTE
            append_snapshot(
                growing.lake,
                StoreSnapshot("broker-a", SnapshotSource.FILE, subscribed_as_of=taken, subscriptions=wanted),
            )
    history = lag_history(growing.lake, ["billing"], MIDNIGHT + 60 * MINUTE)
    assert history is not None
    for minute in (10, 20, 30, 40, 50, 60):
        (row,) = lag_of_lake(growing.lake, MIDNIGHT + minute * MINUTE).rows
        number = (MIDNIGHT + minute * MINUTE - history.windows.start) // history.windows.length
        assert history.messages["billing"][number] == row.messages.low, minute


def test_queues_without_an_offset_count_as_at_that_moment(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(
        new_message(
            n, ("orders", "orders", "orders", "%RETRY%billing", "payments")[n % 5], queue_id=n % 5 % 3,
            born_timestamp=MIDNIGHT_MS + n * 60_000,
            properties=(("TAGS", "ab"[n // 5 % 2]),),
        )
        for n in range(61)
    )  # fmt: skip
    growing.archive()
    place = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
    client = (Member("c", "10.0.0.9:1", "JAVA", 473, "V5_5_0"),)
    keys = {name: GroupTopic("billing", name) for name in ("orders", "payments")}
    steps: list[tuple[int, dict[OffsetOwner, int], dict[GroupTopic, Subscription]]] = [
        (10, {}, {}),  # it has no offset
        (20, {place: 1}, {}),
        (30, {place: 2}, {keys["orders"]: Subscription("TAG", "a", 1, members=client)}),
        (40, {place: 2}, {keys["payments"]: Subscription("TAG", "*", 2, members=client)}),
        (50, {place: 3, place._replace(queue_id=1): 4}, {}),
        (60, {}, {}),  # it was deleted
    ]
    for minute, offsets, subscriptions in steps:
        taken = MIDNIGHT + minute * MINUTE
        append_snapshot(
            growing.lake,
            StoreSnapshot(
                "broker-a", SnapshotSource.BROKER, {OffsetKind.GROUP: taken}, offsets, log_end=0, log_start=0,
                subscribed_as_of=taken, subscriptions=subscriptions,
            ),
        )  # fmt: skip
    history = lag_history(growing.lake, ["billing"], MIDNIGHT + 60 * MINUTE)
    assert history is not None
    found = {}
    for minute, _, _ in steps:
        rows = lag_of_lake(growing.lake, MIDNIGHT + minute * MINUTE).rows
        number = (MIDNIGHT + minute * MINUTE - history.windows.start) // history.windows.length
        found[minute] = history.messages["billing"][number], sum(row.messages.low for row in rows)
    # At 20 there are two messages with tag a in each queue, besides the one that is consumed, and four retries.
    assert found[20] == (10, 10)
    assert all((first or 0) == second for first, second in found.values())
    assert found[40][1] > found[30][1] + 6  # a topic more
    assert found[60][1] == 0


def test_a_snapshot_of_a_log_that_is_not_archived_yet_has_no_figure(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(new_message(n, queue_id=0, born_timestamp=MIDNIGHT_MS + n * 60_000) for n in range(10))
    growing.archive()
    snapshot(growing, 5, 2, log_end=len(growing.log))
    snapshot(growing, 25, 3, log_end=len(growing.log) + 1)
    history = lag_history(growing.lake, ["billing"], MIDNIGHT + 25 * MINUTE)
    assert history is not None
    assert [figure for figure in history.messages["billing"] if figure is not None] == [4]


def test_there_is_no_figure_if_one_of_two_stores_has_no_snapshot(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(new_message(n, queue_id=0, born_timestamp=MIDNIGHT_MS + n * 60_000) for n in range(10))
    growing.archive()
    snapshot(growing, 2, 1)
    other = StoreSnapshot(
        broker="broker-b",
        source=SnapshotSource.FILE,
        taken={OffsetKind.GROUP: MIDNIGHT + datetime.timedelta(minutes=4)},
        offsets={OffsetOwner(OffsetKind.GROUP, "billing", "payments", 0): 0},
    )
    append_snapshot(growing.lake, other)
    history = lag_history(growing.lake, ["billing"], MIDNIGHT + 4 * MINUTE)
    assert history is not None
    assert history.messages["billing"][0] is None
    assert history.messages["billing"][-1] == 4
