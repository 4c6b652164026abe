"""Filters of groups at a time, and whether they had clients."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.connectors.lake.committer import open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import SUBSCRIBED, open_snapshots
from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
from commitlake.pipelines.lag.subscriptions import Subscriptions, subscriptions_at
from commitlake.pipelines.snapshot.progress import GroupTopic, Member, SnapshotSource, StoreSnapshot, Subscription
from commitlake.pipelines.snapshot.table_append import append_snapshot

START = datetime.datetime(2026, 11, 20, 14, tzinfo=datetime.UTC)
BILLING = GroupTopic("billing", "orders")
CLIENT = Member("c1", "10.0.0.1:5", "JAVA", 513, "V5_5_0")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    paths = Lake(str(tmp_path / "lake"))
    open_messages_for_append(paths)
    return paths


def add_subscription(
    lake: Lake, second: int, expression: str | None, source: SnapshotSource = SnapshotSource.BROKER
) -> None:
    """Store the subscriptions reported by a broker or its file."""
    members = (CLIENT,) if source is SnapshotSource.BROKER else None
    wanted = {} if expression is None else {BILLING: Subscription("TAG", expression, second, members=members)}
    taken = START + datetime.timedelta(seconds=second)
    append_snapshot(lake, StoreSnapshot("a", source, subscribed_as_of=taken, subscriptions=wanted))


def ask(lake: Lake, second: int) -> Subscriptions:
    table = open_snapshots(lake, SUBSCRIBED)
    assert table is not None
    return subscriptions_at(table, "a", START + datetime.timedelta(seconds=second))


def test_a_group_has_its_latest_filter_at_each_time(lake: Lake) -> None:
    add_subscription(lake, 0, "paid")
    add_subscription(lake, 10, "open")
    assert ask(lake, 9).find_subscription(BILLING).wanted == SubscriptionFilter.of("TAG", "paid")
    assert ask(lake, 10).find_subscription(BILLING).wanted == SubscriptionFilter.of("TAG", "open")
    assert ask(lake, 10).find_subscription(BILLING).members == 1


def test_a_group_without_a_client_keeps_its_filter(lake: Lake) -> None:
    add_subscription(lake, 0, "paid")
    add_subscription(lake, 10, None)
    found = ask(lake, 20).find_subscription(BILLING)
    assert (found.wanted, found.members) == (SubscriptionFilter.of("TAG", "paid"), 0)


def test_what_was_seen_long_before_has_its_age(lake: Lake) -> None:
    add_subscription(lake, 0, "paid")
    add_subscription(lake, 600, "paid")  # a heartbeat
    add_subscription(lake, 900, None)
    found = ask(lake, 7200)
    assert found.find_subscription(BILLING).as_of == START + datetime.timedelta(seconds=600)
    soon, late = (found.at_later_time(START + datetime.timedelta(seconds=second)) for second in (1000, 8000))
    assert (soon.find_subscription(BILLING).members, soon.find_subscription(BILLING).note) == (0, "")
    assert late.find_subscription(BILLING).wanted == SubscriptionFilter.of("TAG", "paid")
    assert late.find_subscription(BILLING).note == (
        "its filter is that of 2026-11-20T14:10:00Z, 2 hours before: no client has been seen since"
    )
    assert (late.find_subscription(BILLING).members, late.find_subscription(GroupTopic("other", "orders")).members) == (
        None,
        None,
    )


def test_a_group_that_a_broker_did_not_name_has_no_client(lake: Lake) -> None:
    add_subscription(lake, 0, "paid")
    other = GroupTopic("other", "orders")
    assert (ask(lake, 0).find_subscription(other).members, ask(lake, 0).find_subscription(other).wanted) == (
        0,
        SubscriptionFilter(),
    )


def test_the_number_of_clients_is_unknown_from_files(lake: Lake) -> None:
    add_subscription(lake, 0, "paid", SnapshotSource.FILE)
    assert ask(lake, 0).find_subscription(BILLING).members is None
    assert ask(lake, 0).find_subscription(GroupTopic("other", "orders")).members is None


def test_a_filter_known_only_from_later_is_used_with_a_note(lake: Lake) -> None:
    add_subscription(lake, 60, "paid")
    found = ask(lake, 0).find_subscription(BILLING)
    assert found.wanted == SubscriptionFilter.of("TAG", "paid")
    assert "is known only from 2026-11-20T14:01:00Z on" in found.note


def test_clients_with_different_subscriptions_have_a_note(lake: Lake) -> None:
    for second in range(5):
        add_subscription(lake, second, "paid" if second % 2 else "open")
    assert "its clients subscribe differently" in ask(lake, 5).find_subscription(BILLING).note


def test_a_filter_given_by_the_user_is_preferred(lake: Lake) -> None:
    add_subscription(lake, 0, "paid")
    stated = ask(lake, 0).with_overrides({BILLING: SubscriptionFilter.of("TAG", "sent")})
    assert (stated.find_subscription(BILLING).wanted, stated.find_subscription(BILLING).members) == (
        SubscriptionFilter.of("TAG", "sent"),
        1,
    )
