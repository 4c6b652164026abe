"""Tests of `commitlake metrics` as a file and over HTTP, parsed as by Prometheus."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from commitlake.connectors.lake.paths import LakeError
from commitlake.jobs.metrics.command import main
from commitlake.jobs.metrics.lag_metrics import lag_metrics
from commitlake.jobs.metrics.metrics_collector import MetricsCollector
from commitlake.jobs.metrics.server import HEALTH_PATH, MAX_CONNECTIONS, MetricsServer, start_server_thread
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.store_lag import LagAnswer
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.opened_tables import opened

__all__ = ["opened"]  # a fixture

AT = MIDNIGHT_MS // 1000 + 600
OFFSETS = {"orders@billing": {0: 4, 1: 5}, "%RETRY%billing@billing": {0: 0}, "orders@shipping": {0: 5, 1: 5}}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Five orders in each of two queues, a retry and two dead letters."""
    growing = GrowingLake(tmp_path_factory.mktemp("metrics"))
    orders = [
        new_message(number, topic="orders", queue_id=number % 2, born_timestamp=MIDNIGHT_MS + 1000 * number)
        for number in range(10)
    ]
    failed = ["%RETRY%billing", "%DLQ%billing", "%DLQ%billing"]
    growing.write(
        [
            *orders,
            *(
                new_message(10 + number, topic=topic, queue_id=0, born_timestamp=MIDNIGHT_MS)
                for number, topic in enumerate(failed)
            ),
        ]
    )
    growing.archive()
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"offsetTable": OFFSETS}))
    os.utime(path, (AT, AT))
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return values by metric and labels."""
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


@pytest.fixture(params=["lake", "store"])
def written(request: pytest.FixtureRequest, growing: GrowingLake, tmp_path: Path) -> str:
    """The metrics of a lake, and of a store."""
    place = ["--lake", growing.lake.root] if request.param == "lake" else ["--store", str(growing.store)]
    path = tmp_path / "commitlake.prom"
    assert main([*place, "--textfile", str(path), "--cluster", "shop", "--quiet"]) == 0
    return path.read_text()


def test_a_lake_is_measured_at_one_version_of_each_table(
    growing: GrowingLake, opened: list[str], tmp_path: Path
) -> None:
    assert main(["--lake", growing.lake.root, "--textfile", str(tmp_path / "commitlake.prom"), "--quiet"]) == 0
    again = sorted(name for name, count in Counter(opened).items() if count > 1)
    assert again == ["messages"]  # by the lag, which has a view of its own


def test_names_and_labels_are_those_of_rocketmq_exporter(written: str) -> None:
    found = samples(written)
    billing = (("countOfOnlineConsumers", "0"), ("group", "billing"), ("msgModel", "1"))
    assert found["rocketmq_group_diff"][*billing, ("topic", "orders")] == 1
    assert found["rocketmq_group_retrydiff"] == {(*billing, ("topic", "%RETRY%billing")): 1}
    here = (("broker", "broker-a"), ("cluster", "shop"))
    of_group = (*here, ("group", "billing"), ("topic", "orders"))
    assert found["rocketmq_group_get_latency_by_storetime"][of_group] == 592_000
    assert found["rocketmq_consumer_offset"][of_group] == found["rocketmq_group_consume_total_offset"][of_group] == 9
    assert found["rocketmq_producer_offset"] == {(*here, ("topic", "orders")): 10}
    assert found["rocketmq_topic_retry_offset"] == {(*here, ("topic", "%RETRY%billing")): 1}
    assert found["commitlake_lag_as_of_timestamp_seconds"] == {(("broker", "broker-a"),): AT}
    assert found["commitlake_up"] == {(): 1}


def test_queues_without_an_offset_and_topics_without_a_group_have_metrics(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(
        new_message(n, topic=("orders", "logs")[n // 20], queue_id=n % 2, born_timestamp=MIDNIGHT_MS + 1000 * n)
        for n in range(30)
    )
    growing.archive()
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    for seconds, offset in ((10, 2), (40, 4)):
        path.write_text(json.dumps({"offsetTable": {"orders@billing": {0: offset}}}))
        os.utime(path, (MIDNIGHT_MS // 1000 + seconds,) * 2)
        assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    written = tmp_path / "commitlake.prom"
    assert main(["--lake", growing.lake.root, "--textfile", str(written), "--quiet"]) == 0
    found = samples(written.read_text())
    assert list(found["rocketmq_group_diff"].values()) == [6 + 10]
    ends = {dict(labels)["topic"]: value for labels, value in found["rocketmq_producer_offset"].items()}
    assert ends == {"orders": 20, "logs": 10}
    rates = {dict(labels)["topic"]: value for labels, value in found["rocketmq_producer_tps"].items()}
    assert rates == pytest.approx({"orders": 9 / 30, "logs": 10 / 30})  # 11 orders were stored in the first 10 s
    assert list(found["rocketmq_consumer_tps"].values()) == pytest.approx([2 / 30])


def test_the_accumulation_of_the_exporters_dashboards_is_the_lag(written: str) -> None:
    """The dashboards subtract the sum of consumer offsets by group and topic from that of producer offsets by topic."""
    found = samples(written)
    produced = {dict(labels)["topic"]: value for labels, value in found["rocketmq_producer_offset"].items()}
    behind = {
        (dict(labels)["group"], dict(labels)["topic"]): produced[dict(labels)["topic"]] - value
        for labels, value in found["rocketmq_consumer_offset"].items()
        if dict(labels)["topic"] in produced
    }
    lag = {(dict(labels)["group"], dict(labels)["topic"]): v for labels, v in found["rocketmq_group_diff"].items()}
    assert behind == lag == {("billing", "orders"): 1, ("shipping", "orders"): 0}


def test_a_lake_has_the_metrics_of_its_archive(growing: GrowingLake, tmp_path: Path) -> None:
    path = tmp_path / "commitlake.prom"
    assert main(["--lake", growing.lake.root, "--textfile", str(path), "--quiet"]) == 0
    found = samples(path.read_text())
    broker = (("broker", "broker-a"),)
    assert found["commitlake_archive_end_offset"] == {broker: len(growing.log)}
    assert found["commitlake_archive_newest_message_timestamp_seconds"] == {broker: MIDNIGHT_MS // 1000 + 60}
    assert found["commitlake_archive_quarantined_ranges"] == {broker: 0}
    assert found["commitlake_archive_missing_bytes"] == {broker: 0}
    assert found["commitlake_dead_letters"] == {(*broker, ("group", "billing")): 2}
    assert 0 <= time.time() - found["commitlake_archive_last_run_timestamp_seconds"][()] < 600


def test_unknown_rates_have_no_sample(written: str) -> None:
    """One snapshot is not enough for a rate."""
    found = samples(written)
    assert found["rocketmq_consumer_tps"] == {}
    assert found["rocketmq_producer_tps"] == {}


def test_metrics_are_served_whether_or_not_the_lag_can_be_read() -> None:
    answers: list[LagAnswer | LakeError] = [LagAnswer([], ["a: no snapshot"]), LakeError("gone")]

    def measure() -> Iterator[GaugeMetricFamily]:
        answer = answers.pop(0)
        if isinstance(answer, LakeError):
            raise answer
        return lag_metrics(answer, "shop")

    registry = CollectorRegistry()
    registry.register(MetricsCollector(measure, 0))
    texts = []
    with served(registry) as server:
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as response:
                texts.append(samples(response.read().decode()))
    assert (texts[0]["commitlake_up"], texts[0]["commitlake_lag_stores_missing"]) == ({(): 1}, {(): 1})
    assert (texts[1]["commitlake_up"], set(texts[1])) == ({(): 0}, {"commitlake_up"})


@contextmanager
def served(registry: CollectorRegistry) -> Iterator[MetricsServer]:
    """Serve a registry."""
    server = MetricsServer("127.0.0.1", 0, registry)
    thread = start_server_thread(server)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(server: MetricsServer, method: str, path: str = "/metrics") -> tuple[int, int, bytes]:
    """Return the status, the Content-Length and the body of an answer."""
    client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, int(answer.getheader("Content-Length") or -1), answer.read()
    finally:
        client.close()


def test_only_the_paths_of_the_metrics_and_of_probes_are_served() -> None:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(lambda: (), 0))
    with served(registry) as server:
        status, length, body = ask(server, "GET")
        assert (status, length, b"commitlake_up 1.0" in body) == (200, len(body), True)
        assert ask(server, "HEAD") == (200, length, b"")
        assert ask(server, "GET", HEALTH_PATH) == (200, 8, b"healthy\n")
        status, _, body = ask(server, "GET", "/other")
        assert (status, b"The metrics are at /metrics." in body) == (404, True)
        assert ask(server, "POST")[0] == 501


def test_clients_that_send_half_a_request_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.jobs.metrics.server.REQUEST_SECONDS", 60.0)
    registry, measured = CollectorRegistry(), list[int]()

    def measure() -> Iterator[GaugeMetricFamily]:
        measured.append(1)
        return iter(())

    registry.register(MetricsCollector(measure, 0))
    with served(registry) as server, ExitStack() as stack:
        for _ in range(2 * MAX_CONNECTIONS):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=10))
            half.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        assert ask(server, "GET")[0] == 200
        assert (len(measured), threading.active_count() < MAX_CONNECTIONS + 20) == (1, True)


def test_a_client_has_a_limited_time_for_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.jobs.metrics.server.REQUEST_SECONDS", 0.1)
    with (
        served(CollectorRegistry()) as server,
        socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as client,
    ):
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert client.recv(1) == b""


def test_scrapes_in_quick_succession_share_one_measurement() -> None:
    calls = []

    def measure() -> Iterator[GaugeMetricFamily]:
        calls.append(1)
        return lag_metrics(LagAnswer([], []), "shop")

    collector = MetricsCollector(measure, 3600)
    assert [family.name for family in collector.collect()] == [family.name for family in collector.collect()]
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--listen", "5557"], "--listen: expected IP:PORT, found '5557'"),
        (["--textfile", "none/there.prom"], "expected a file in an existing folder"),
    ],
)
def test_invalid_addresses_and_files_are_refused(
    growing: GrowingLake, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lake", growing.lake.root, *arguments]) == 2
    assert expected in capsys.readouterr().err
