"""Tests of the shop's three days on JMQ: the story is complete and reproducible."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from commitlake.broker_lite.shop_journal import MAIL_IS_BEHIND_MS, OrderStep, ShopJournal, fill_shop_journal
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.jmq.message_preparation import ordered_queue_id
from commitlake.broker_lite.stores.rocketmq import StoreFilesError
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.snapshot.store_file_reader import read_store_snapshot
from commitlake.schemas.layouts.jmq.consume_records import Consumption, DeliveryOutcome
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.times import EPOCH, MILLISECOND
from tests.support.journal_stores import journal_records
from tests.support.journals import original_body

HOUR_MS = 3_600_000
SECOND_MS = 1000


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> ShopJournal:
    """Return the shop's store, for reading only."""
    return fill_shop_journal(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def records(traffic: ShopJournal) -> list[JournalMessage]:
    """Return all records of the store."""
    return list(journal_records(traffic.path))


@pytest.fixture(scope="module")
def consumptions(traffic: ShopJournal) -> list[Consumption]:
    """Return all consume records."""
    with JournalStore.open(traffic.path, traffic.options) as store:
        return store.read_consumptions(0, 1 << 20)[0]


def test_summary_matches_the_journal(traffic: ShopJournal, records: list[JournalMessage]) -> None:
    assert traffic.record_count == len(records)
    assert traffic.by_topic == Counter(record.topic for record in records)
    assert {OrderStep(record.business_tag) for record in records} == set(OrderStep)


def test_story_takes_three_days(traffic: ShopJournal, records: list[JournalMessage]) -> None:
    times = [record.store_timestamp for record in records]
    assert times == sorted(times)
    assert traffic.end_ms - traffic.start_ms == 72 * HOUR_MS
    assert traffic.start_ms <= times[0] < traffic.start_ms + HOUR_MS
    assert traffic.end_ms - HOUR_MS < times[-1] <= traffic.end_ms


def test_the_offsets_are_taken_at_the_end_of_the_story(tmp_path: Path) -> None:
    traffic = fill_shop_journal(tmp_path, orders=20)
    (store,) = find_stores(str(tmp_path), "broker-a", formats=all_formats())
    progress = read_store_snapshot(store, datetime.datetime.now(datetime.UTC))
    assert progress is not None
    assert set(progress.taken.values()) == {EPOCH + traffic.end_ms * MILLISECOND}


def test_several_files_of_every_kind_are_written(traffic: ShopJournal) -> None:
    for folder in ("journal", "consume", "queue/payments/0"):
        assert len(list((traffic.path / folder).iterdir())) > 1, folder


def test_order_4711_is_shipped_after_two_failures(
    records: list[JournalMessage], consumptions: list[Consumption]
) -> None:
    life = [(record.topic, record.properties["step"]) for record in records if record.business_id == "order-4711"]
    assert [step for step in life if step[1] != "settled"] == [
        ("orders", "created"), ("payments", "paid"), ("shipments", "requested"), ("orders", "shipped"),
    ]  # fmt: skip
    (request,) = [one for one in records if one.business_id == "order-4711" and one.business_tag == OrderStep.REQUESTED]
    tried = [one for one in consumptions if one.journal_offset == request.journal_offset]
    assert [(one.attempt, one.outcome) for one in tried] == [
        (1, DeliveryOutcome.FAILED), (2, DeliveryOutcome.FAILED), (3, DeliveryOutcome.CONSUMED),
    ]  # fmt: skip
    first, second, third = (one.consume_timestamp for one in tried)
    assert (second - first, third - second) == (SECOND_MS, 3 * SECOND_MS)


def test_failures_end_in_success_or_dead_letters(traffic: ShopJournal, consumptions: list[Consumption]) -> None:
    assert "order-4711" in traffic.failed
    assert traffic.dead_lettered
    assert set(traffic.dead_lettered) < set(traffic.failed)
    given_up = [one for one in consumptions if one.outcome is DeliveryOutcome.GIVEN_UP]
    assert len(given_up) == len(traffic.dead_lettered)
    assert {one.attempt for one in given_up} == {1 + traffic.options.retry_max_attempts}


def test_queues_follow_from_business_ids_or_weights(traffic: ShopJournal, records: list[JournalMessage]) -> None:
    for record in records:
        if record.is_ordered:
            count = traffic.options.queue_count_of(record.topic)
            assert record.queue_id == ordered_queue_id(record.business_id, count)
    settled = Counter(record.queue_id for record in records if record.business_tag == OrderStep.SETTLED)
    assert max(settled, key=settled.__getitem__) == 0


def test_the_mail_service_has_a_lag(traffic: ShopJournal, consumptions: list[Consumption]) -> None:
    with JournalStore.open(traffic.path, traffic.options) as store:
        for one in consumptions:
            if one.app == "mail-service":
                message = store.get_at(one.journal_offset)
                assert message is not None
                assert one.consume_timestamp - message.store_timestamp >= MAIL_IS_BEHIND_MS


def test_long_orders_are_compressed(records: list[JournalMessage]) -> None:
    compressed = [record for record in records if record.is_compressed]
    assert compressed
    assert all(json.loads(original_body(record))["order"] for record in compressed)


def test_same_arguments_give_the_same_records(traffic: ShopJournal, tmp_path: Path) -> None:
    def digest(root: Path) -> str:
        files = sorted((root / "journal").iterdir()) + sorted((root / "consume").iterdir())
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    fill_shop_journal(tmp_path / "again")
    assert digest(tmp_path / "again") == digest(traffic.path)


def test_a_store_with_messages_is_refused(traffic: ShopJournal) -> None:
    with pytest.raises(StoreFilesError, match="expected a store without messages"):
        fill_shop_journal(traffic.path)
