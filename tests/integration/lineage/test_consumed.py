"""Every traced delivery of Java's consumers has one step, and so has every copy that a replay or a redrive sends.

Deliveries are known from the consumers' own output, and messages sent again from RocketMQ's own decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.dlq.command import main as dlq
from commitlake.jobs.replay.command import main as replay
from commitlake.schemas.errors import ExitCode
from tests.servers.java_programs import Row, dump_store, fail_every_message, run_java
from tests.servers.rocketmq import BrokerOptions, RocketMQ
from tests.support.topic_reading import make_topic

pytestmark = pytest.mark.long("half a minute of consuming; traces and their steps have unit tests")
VERSION, TOPIC, DOOMED, QUIET = "5.5.0", "Orders", "Doomed", "Quiet"
COUNT, DOOMED_COUNT = 40, 3
WAYS = ("batch", "orderly", "untraced")
OPTIONS = BrokerOptions(message_delay_level="1s 1s 1s 1s", extra={"flushConsumerOffsetInterval": 500})
"""Retries take the levels from 3 on."""


@dataclass
class Place:
    """A broker, the lake of its store, and what its clients did.

    Attributes:
        servers: the servers.
        lake: the lake.
        delivered: by group, the deliveries that its consumers printed.
        decoded: every record, as RocketMQ's decoder reads it.
    """

    servers: RocketMQ
    lake: str
    delivered: dict[str, list[Row]] = field(default_factory=dict)
    decoded: list[Row] = field(default_factory=list)

    def consume(self, topic: str, way: str, messages: int) -> None:
        """Let a group of that name consume a topic."""
        arguments = [self.servers.name_server_address, topic, way, way, str(messages), "60"]
        self.delivered.setdefault(way, []).extend(run_java(self.servers, "TracedConsumer", arguments))

    def archive(self) -> None:
        """Archive new messages."""
        store = ["--store", str(self.servers.store), "--broker", "broker-a", "--lake", self.lake]
        assert archive([*store, "--no-quality", "--local", "--quiet"]) == ExitCode.OK


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A store after groups of all ways have consumed, before and after a replay and a redrive."""
    folder = tmp_path_factory.mktemp("consumed")
    with ExitStack() as running, pytest.MonkeyPatch.context() as patched:
        # A group that consumes in order is known as such a minute after; the broker's clock cannot be turned.
        for module in ("links.client_actions", "edge_rows"):
            patched.setattr(f"commitlake.pipelines.edges.{module}.LATE_US", 0)
        servers = RocketMQ(VERSION, folder / "rocketmq", options=OPTIONS).start()
        running.callback(servers.kill)  # nothing that it would write on a clean stop is needed
        options = ClientOptions(servers.name_server_address)
        made = Place(servers, str(folder / "lake"))
        with Admin(options) as admin, Producer("Shop", options) as producer:
            for topic, count in ((TOPIC, COUNT), (DOOMED, DOOMED_COUNT), (QUIET, COUNT)):
                make_topic(admin, topic, 2)
                for number in range(count):
                    producer.send(OutgoingMessage(topic, b"body", keys=(f"{topic}-{number}",)))
        for way in WAYS:
            made.consume(QUIET if way == "untraced" else TOPIC, way, COUNT)
        failed = fail_every_message(servers, DOOMED, "doomed", max_reconsume_times=1)
        told = [{**row, "outcome": "failed"} for row in failed if row["event"] == "failed"]
        made.delivered["doomed"] = told
        made.archive()
        target = ["--namesrv", servers.name_server_address, "--yes", "--lake", made.lake, "--quiet"]
        assert replay(["--topic", TOPIC, *target]) == ExitCode.OK
        assert dlq(["redrive", "--group", "doomed", *target]) == ExitCode.OK
        made.consume(TOPIC, "batch", COUNT)
        made.archive()
        made.decoded = dump_store(VERSION, servers.store)
        yield made


def steps(place: Place, *kinds: str) -> list[dict[str, Any]]:
    rows = DeltaTable(Lake(place.lake).uri("edges")).to_pyarrow_table().to_pylist()
    return [row for row in rows if row["side"] != "to" and row["kind"] in kinds]


def test_each_traced_delivery_has_one_step_from_its_record(place: Place) -> None:
    # Clients trace only messages with a region, which brokers do not add to those of batches, as a replay sends them.
    marked = {row["physical_offset"] for row in place.decoded if "MSG_REGION" in row["properties"]}
    deliveries = [
        (group, row["unique_key"], int(row["offset_msg_id"][-16:], 16), row["reconsume_times"], row["outcome"])
        for group, rows in place.delivered.items()
        for row in rows
        if group != "untraced"
    ]
    expected = [delivery for delivery in deliveries if delivery[2] in marked]
    assert 2 * COUNT + 2 * DOOMED_COUNT < len(expected) < len(deliveries)
    found = [
        (row["consumer_group"], row["unique_key"], row["from_physical_offset"], row["attempt"], row["outcome"])
        for row in steps(place, "consumed")
    ]
    assert max(row["batch"] for row in place.delivered["batch"]) > 1
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_messages_of_an_untraced_group_have_no_step(place: Place) -> None:
    assert len(place.delivered["untraced"]) == COUNT
    quiet = {row["unique_key"] for row in place.delivered["untraced"]}
    everything = DeltaTable(Lake(place.lake).uri("edges")).to_pyarrow_table().column("unique_key").to_pylist()
    assert not quiet & set(everything)


def test_each_copy_of_a_replay_and_a_redrive_has_one_step(place: Place) -> None:
    expected = [
        ("redriven" if row["properties"]["ORIGIN_TOPIC"].startswith("%DLQ%") else "replayed",
         int(row["properties"]["ORIGIN_PHYSICAL_OFFSET"]), row["physical_offset"])
        for row in place.decoded
        if "REPLAY_ID" in row["properties"] and row["topic"] in {TOPIC, DOOMED}
    ]  # fmt: skip
    assert len(expected) == COUNT + DOOMED_COUNT
    found = [(row["kind"], row["from_physical_offset"], row["to_physical_offset"])
             for row in steps(place, "redriven", "replayed")]  # fmt: skip
    assert sorted(found) == sorted(expected)


def test_each_copy_of_a_failure_has_one_step(place: Place) -> None:
    copies = {"SCHEDULE_TOPIC_XXXX": "retried", "%DLQ%doomed": "dead"}
    expected = [
        (copies[row["topic"]], row["physical_offset"])
        for row in place.decoded
        if row["topic"] in copies and row["reconsume_times"]
    ]
    found = [(row["kind"], row["to_physical_offset"]) for row in steps(place, "retried", "dead")]
    assert len(expected) == sum(row["outcome"] == "failed" for group in ("batch", "doomed")
                                for row in place.delivered[group])  # fmt: skip
    assert sorted(found) == sorted(expected)
    assert {row["absent_end"] for row in steps(place, "retried", "dead")} == {None}
