"""Tests of `archive --from-broker`: pulled messages, printed counts, refused options."""

from __future__ import annotations

import argparse
import csv
import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.rocketmq.throttle import RateLimit
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.archive.arguments import _parse_rate
from commitlake.jobs.archive.command import Archive, main
from commitlake.jobs.archive.follow_brokers import BrokerFollower
from commitlake.jobs.lag.command import main as lag
from commitlake.pipelines.archive.result import Result
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD
from commitlake.schemas.remoting.codes import RequestCode
from tests.support.lies import Lie, with_document
from tests.support.live_brokers import LiveCluster
from tests.support.live_reading import create_topic, put
from tests.support.pulled_lakes import PulledLake

OFF = datetime.timedelta(0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """One broker with ten messages of the topic orders, and one of another topic."""
    with LiveCluster(tmp_path) as running:
        broker = running.brokers["broker-a"]
        create_topic(broker)
        create_topic(broker, "other", 1)
        put(broker, 10)
        put(broker, 1, 10, (0,), topic="other")
        yield running


def test_messages_and_offsets_are_pulled_and_reported(
    cluster: LiveCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, lake = cluster.brokers["broker-a"], tmp_path / "lake"
    broker.store.config.consumer_offsets.commit("orders", "shipping", 0, 3)
    broker.store.config.consumer_offsets.commit("other", "shipping", 0, 0)
    given = ["--from-broker", cluster.address, "--lake", str(lake), "--local", "--threads", "1", "--no-quality"]
    assert main([*given, "--topic", "orders", "--max-rate", "5000/s"]) == 0
    out = capsys.readouterr().err
    assert "run 1: 10 messages from" in out
    assert "broker-a: 10 messages pulled from 2 queues" in out
    assert lag(["--lake", str(lake), "--topic", "orders", "--output", "csv"]) == 0
    assert "archived" not in capsys.readouterr().err
    assert lag(["--lake", str(lake), "--output", "csv"]) == ExitCode.DAMAGE
    done = capsys.readouterr()
    rows = csv.DictReader(done.out.splitlines())
    assert sorted((row["group"], row["topic"], row["queue_id"], row["messages_max"]) for row in rows) == [
        ("shipping", "orders", "0", "2"),
        ("shipping", "orders", "1", "5"),  # no committed offset: all of its messages
    ]
    assert "broker-a: only the topics orders of this broker are archived, so the lag of others is not known" in done.err
    assert main(given) == 0
    assert "run 2: 1 message from" in capsys.readouterr().err
    assert main(given) == 0
    assert "No new messages in 1 store" in capsys.readouterr().err
    assert DeltaTable(str(lake / "messages")).to_pyarrow_table().num_rows == 11


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["--store", "s"], "--from-broker and --store cannot be used together"),
        (["--broker-conf", "c"], "--broker-conf has no effect with --from-broker"),
        (["--available-now"], "--available-now has no effect with --from-broker"),
        (["--max-rate", "fast"], "'fast' is not a rate: expected one like 2000/s or 20MiB/s"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    given: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _code(["--from-broker", "127.0.0.1:1", "--lake", str(tmp_path), *given]) == 2
    assert error in capsys.readouterr().err


def test_a_store_in_the_environment_is_meant_for_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_STORE", "store")
    monkeypatch.setenv("COMMITLAKE_BROKER_CONF", "broker.conf")
    pulling = Archive.parse("--from-broker", "127.0.0.1:1", "--lake", "lake")
    assert (pulling.store, pulling.broker_conf) == (None, None)


def _code(given: list[str]) -> int:
    try:
        return main(given)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


def test_options_for_pulling_need_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", "s", "--lake", str(tmp_path), "--topic", "orders"]) == 2
    assert "--topic has no effect without --from-broker" in capsys.readouterr().err
    assert main(["--from-broker", "127.0.0.1:1", "--lake", str(tmp_path / "lake"), "--local"]) == 1
    assert "no name server answered" in capsys.readouterr().err


def test_rates_are_messages_or_bytes() -> None:
    assert [_parse_rate(text) for text in ("2000/s", "0.5", "20MiB/s", "1.5 GiB")] == [
        RateLimit(messages=2000), RateLimit(messages=0.5), RateLimit(bytes=20 << 20), RateLimit(bytes=3 << 29),
    ]  # fmt: skip
    for text in ("0/s", "-1", "10 MB", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a rate"):
            _parse_rate(text)


def test_the_follower_archives_new_messages_until_it_is_stopped(cluster: LiveCluster, tmp_path: Path) -> None:
    lake = PulledLake(cluster, tmp_path / "lake")
    reported: list[int] = []

    def report(result: Result) -> None:
        reported.append(result.messages)
        if len(reported) == 3:
            follower._stop.set()
        else:
            put(cluster.brokers["broker-a"], len(reported), 100)

    follower = BrokerFollower(HERE, lake.config, report, OFF)
    follower.follow_brokers(OFF)
    assert reported == [11, 1, 2]
    offsets = DeltaTable(str(tmp_path / "lake" / "consumer_offsets")).to_pyarrow_table()
    assert offsets.num_rows


def at_physical_offset(offset: int) -> Lie:
    """Return a change that gives the first record of an answer another physical offset."""
    at = HEAD.offset_of("physical_offset")
    return lambda _, answer: replace(
        answer, body=bytes(answer.body[:at]) + offset.to_bytes(8, "big") + bytes(answer.body[at + 8 :])
    )


@pytest.mark.parametrize(
    ("code", "lie", "message"),
    [
        (RequestCode.PULL_MESSAGE, at_physical_offset(2**64 - 1), "found one with physical offset -1"),
        (RequestCode.PULL_MESSAGE, at_physical_offset(2**63 - 1), "found one with physical offset 9223372036854775807"),
        (
            RequestCode.GET_BROKER_RUNTIME_INFO,
            with_document(lambda document: {"table": document["table"] | {"commitLogMaxOffset": str(2**63 - 1)}}),
            "expected the field commitLogMaxOffset of its runtime information to be a number",
        ),
        (
            RequestCode.GET_TOPIC_STATS_INFO,
            lambda _, answer: replace(answer, body=bytes(answer.body).replace(b'"minOffset":0', b'"minOffset":900')),
            "topic orders, queue 0 of broker-a: expected a first queue offset from 0 to the queue's end",
        ),
    ],
)
def test_messages_with_impossible_offsets_are_not_archived(
    cluster: LiveCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    code: RequestCode,
    lie: Lie,
    message: str,
) -> None:
    cluster.brokers["broker-a"].lies[code] = lie
    given = ["--from-broker", cluster.address, "--lake", str(tmp_path / "lake"), "--local", "--threads", "1"]
    assert main([*given, "--topic", "orders", "--quiet"]) != 0
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "lake").glob("messages/*/*.parquet"))


@pytest.mark.parametrize("name", ["../../../x", "a/b", "/", " a", "x" * 300])
def test_a_broker_whose_name_no_store_can_have_is_refused(
    name: str, cluster: LiveCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = cluster.brokers["broker-a"]
    data = {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": broker.peer.address}}
    broker.lies[RequestCode.GET_BROKER_CLUSTER_INFO] = with_document(lambda _: {"brokerAddrTable": {name: data}})
    lake = tmp_path / "lake"
    assert main(["--from-broker", cluster.address, "--lake", str(lake), "--local", "--no-quality"]) == 1
    assert "a store in a lake cannot have: expected a broker's name " in capsys.readouterr().err
    assert not lake.exists()
