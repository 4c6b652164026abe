"""`commitlake metrics` as a file and over HTTP, read as Prometheus reads it."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from commitlake.connectors.lake.paths import LakeError
from commitlake.jobs.metrics.collector import LagCollector
from commitlake.jobs.metrics.command import main
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.answer import Answer
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

AT = MIDNIGHT_MS // 1000 + 600
OFFSETS = {"orders@billing": {0: 4, 1: 5}, "%RETRY%billing@billing": {0: 0}, "orders@shipping": {0: 5, 1: 5}}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Five orders in each of two queues, and a retry."""
    growing = GrowingLake(tmp_path_factory.mktemp("metrics"))
    orders = [
        new_message(number, topic="orders", queue_id=number % 2, born_timestamp=MIDNIGHT_MS + 1000 * number)
        for number in range(10)
    ]
    growing.write([*orders, new_message(10, topic="%RETRY%billing", queue_id=0, born_timestamp=MIDNIGHT_MS)])
    growing.archive()
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"offsetTable": OFFSETS}))
    os.utime(path, (AT, AT))
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values by metric and labels."""
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


@pytest.fixture(params=["lake", "store"])
def written(request: pytest.FixtureRequest, growing: GrowingLake, tmp_path: Path) -> str:
    """The text of a lake, and of a store."""
    place = ["--lake", growing.lake.root] if request.param == "lake" else ["--store", str(growing.store)]
    path = tmp_path / "commitlake.prom"
    assert main([*place, "--textfile", str(path), "--cluster", "shop", "--quiet"]) == 0
    return path.read_text()


def test_names_and_labels_are_those_of_rocketmq_exporter(written: str) -> None:
    found = samples(written)
    billing = (("countOfOnlineConsumers", "0"), ("group", "billing"), ("msgModel", "1"))
    assert found["rocketmq_group_diff"][*billing, ("topic", "orders")] == 1
    assert found["rocketmq_group_retrydiff"] == {(*billing, ("topic", "%RETRY%billing")): 1}
    here = (("broker", "broker-a"), ("cluster", "shop"))
    of_group = (*here, ("group", "billing"), ("topic", "orders"))
    assert found["rocketmq_group_get_latency_by_storetime"][of_group] == 592_000
    assert found["rocketmq_consumer_offset"][of_group] == 10
    assert found["rocketmq_group_consume_total_offset"][of_group] == 9
    assert found["rocketmq_producer_offset"][*here, ("topic", "orders")] == 10
    assert found["commitlake_lag_as_of_seconds"] == {(("broker", "broker-a"),): AT}
    assert found["commitlake_up"] == {(): 1}


def test_what_is_not_known_is_not_given(written: str) -> None:
    """One snapshot tells no rate."""
    found = samples(written)
    assert found["rocketmq_consumer_tps"] == {}
    assert found["rocketmq_producer_tps"] == {}


def test_metrics_are_served_while_the_lag_can_be_read_and_while_it_cannot() -> None:
    answers: list[Answer | LakeError] = [Answer([], ["a: no snapshot"]), LakeError("gone")]

    def measure() -> Answer:
        answer = answers.pop(0)
        if isinstance(answer, LakeError):
            raise answer
        return answer

    registry = CollectorRegistry()
    registry.register(LagCollector(measure, "shop", 0))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        texts = []
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as response:
                texts.append(samples(response.read().decode()))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert (texts[0]["commitlake_up"], texts[0]["commitlake_lag_stores_missing"]) == ({(): 1}, {(): 1})
    assert (texts[1]["commitlake_up"], set(texts[1])) == ({(): 0}, {"commitlake_up"})


def test_scrapes_that_follow_one_another_get_one_measurement() -> None:
    calls = []

    def measure() -> Answer:
        calls.append(1)
        return Answer([], [])

    collector = LagCollector(measure, "shop", 3600)
    assert [family.name for family in collector.collect()] == [family.name for family in collector.collect()]
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "5557"], "--listen: expected IP:PORT, found '5557'"),
        (["--textfile", "none/there.prom"], "expected a file in a folder that is there"),
    ],
)
def test_places_that_are_none_are_refused(
    growing: GrowingLake, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lake", growing.lake.root, *arguments]) == 2
    assert said in capsys.readouterr().err
