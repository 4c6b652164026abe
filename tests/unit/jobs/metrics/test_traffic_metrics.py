"""Traffic in `commitlake metrics`: rates of the newest whole minute, sizes, and ends of dead-letter queues."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from commitlake.jobs.metrics.command import main
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.archive_health.state import ArchiveState
from commitlake.pipelines.archive_health.traffic import Traffic, read_traffic
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, rows_of
from tests.support.logs import new_message

DAY_MS = 86_400_000
LAST_MS = MIDNIGHT_MS + DAY_MS + 600_000
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Six orders and three retries in the newest whole minute, a payment earlier that day, dead letters on two days."""
    growing = GrowingLake(tmp_path_factory.mktemp("traffic"))
    sent = [
        ("gone", 0, MIDNIGHT_MS),
        *(("%DLQ%billing", 0, MIDNIGHT_MS) for _ in range(2)),
        ("payments", 0, LAST_MS - 300_000),
        ("%DLQ%billing", 0, LAST_MS - 300_000),
        ("%DLQ%shipping", 0, LAST_MS - 300_000),
        *(("orders", 0, LAST_MS - 60_000 + number) for number in range(6)),
        *(("%RETRY%billing", 0, LAST_MS - 50_000) for _ in range(3)),
        ("orders", 0, LAST_MS),
    ]
    growing.write(
        new_message(number, topic=topic, queue_id=queue, born_timestamp=born)
        for number, (topic, queue, born) in enumerate(sent)
    )
    growing.archive()
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"offsetTable": {"%DLQ%billing@redrive": {0: 1}, "orders@billing": {0: 0}}}))
    os.utime(path, (LAST_MS // 1000 + 60, LAST_MS // 1000 + 60))
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


def samples(path: Path, *arguments: str) -> Samples:
    """Return the values of `commitlake metrics` by metric and labels."""
    assert main([*arguments, "--textfile", str(path), "--cluster", "shop", "--quiet"]) == 0
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(path.read_text())
    }


@pytest.fixture
def of_lake(growing: GrowingLake, tmp_path: Path) -> Samples:
    return samples(tmp_path / "commitlake.prom", "--lake", growing.lake.root)


HERE = (("broker", "broker-a"), ("cluster", "shop"))


def test_the_rate_of_a_broker_is_that_of_the_newest_whole_minute(of_lake: Samples, growing: GrowingLake) -> None:
    address = rows_of(growing.lake.uri("messages"))[0]["store_host"]
    labels = (("broker", "broker-a"), ("brokerIP", address), ("cluster", "shop"))
    assert of_lake["rocketmq_broker_tps"] == {labels: 9 / 60}


def test_sizes_are_of_topics_with_messages_within_a_day_without_retries_and_dead_letters(
    of_lake: Samples, growing: GrowingLake
) -> None:
    rows = sorted(rows_of(growing.lake.uri("messages")), key=lambda row: row["physical_offset"])
    sizes = [row["size"] for row in rows if row["topic"] == "orders"]
    found = of_lake["rocketmq_producer_message_size"]
    assert found == {
        (*HERE, ("topic", "orders")): pytest.approx(sum(sizes[:6]) / 60),
        (*HERE, ("topic", "payments")): 0,
    }


def test_a_dead_letter_topic_has_the_ends_of_its_queues(of_lake: Samples) -> None:
    assert of_lake["rocketmq_topic_dlq_offset"] == {
        (*HERE, ("group", "billing")): 3,
        (*HERE, ("group", "shipping")): 1,
    }


def test_a_group_that_consumes_dead_letters_has_its_lag(of_lake: Samples) -> None:
    labels = (("countOfOnlineConsumers", "0"), ("group", "redrive"), ("msgModel", "1"), ("topic", "%DLQ%billing"))
    assert of_lake["rocketmq_group_dlqdiff"] == {labels: 2}


def test_a_store_that_is_not_in_a_lake_has_no_rates(growing: GrowingLake, tmp_path: Path) -> None:
    found = samples(tmp_path / "commitlake.prom", "--store", str(growing.store))
    assert found["rocketmq_broker_tps"] == found["rocketmq_topic_dlq_offset"] == {}
    assert len(found["rocketmq_group_dlqdiff"]) == 1


def test_a_lake_without_a_whole_minute_has_no_rates(growing: GrowingLake, tmp_path: Path) -> None:
    assert read_traffic(growing.lake, ArchiveState([])).topics == []
    other = GrowingLake(tmp_path)
    other.write([new_message(born_timestamp=MIDNIGHT_MS)])
    other.archive()
    found = samples(tmp_path / "commitlake.prom", "--lake", other.lake.root) if _snapshot(other) else {}
    assert found["rocketmq_broker_tps"] == {}
    assert Traffic().topics == ()


def _snapshot(growing: GrowingLake) -> bool:
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"offsetTable": {"orders@billing": {0: 0}}}))
    return snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
