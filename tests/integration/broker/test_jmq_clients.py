"""RocketMQ's own client against broker_lite with a store in JMQ's layout."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.schemas.layouts.jmq.consume_records import DeliveryOutcome
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.servers.java_programs import JavaProgramError, run_java
from tests.servers.mqadmin import mqadmin
from tests.support.journals import original_body

KINDS = ("plain", "tags", "keys", "properties", "batch", "zlib", "big", "oneway", "ordered", "long_topic", "traced",
         "request", "volume")  # fmt: skip
"""The kinds of messages that a journal can store."""
RETRIES = 2
VOLUME = 1500


@pytest.fixture
def broker_lite(tmp_path: Path) -> Iterator[BrokerLite]:
    """A broker on a new store in JMQ's layout."""
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, "--layout", "jmq")) as running:
        yield running


def open_journal(broker: BrokerLite) -> JournalStore:
    """Open the store of a broker that has stopped."""
    options = JournalOptions(journal_file_size_bytes=1 << 20, queue_file_size_bytes=2200, max_body_size_bytes=512 << 10)
    return JournalStore.open(broker.store, options)


def test_every_kind_of_message_that_jmq_supports_is_stored(broker_lite: BrokerLite, client_version: str) -> None:
    sent = run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, *KINDS])
    broker_lite.stop()
    acknowledged = [row for row in sent if row["offset_msg_id"]]
    assert len(acknowledged) > VOLUME
    with open_journal(broker_lite) as store:
        for row in acknowledged:
            kept = store.get_at(parse_message_id(row["offset_msg_id"]).physical_offset)
            assert kept is not None, row
            assert (kept.topic, kept.queue_id, kept.queue_offset) == (
                row["topic"], row["queue_id"], row["queue_offset"],
            )  # fmt: skip
            assert hashlib.sha256(original_body(kept)).hexdigest() == row["body_sha256"]
            assert kept.business_tag == row["flag"]
            assert kept.properties.get("UNIQ_KEY") == row["unique_key"]
            assert kept.properties.items() >= row["properties"].items()
            assert kept.business_id == (row["keys"][0] if row["keys"] else ""), row
        ordered = [row for row in acknowledged if row["kind"] == "ordered"]
        assert len({row["queue_id"] for row in ordered}) == 1
        assert store.max_offset("EveryOneway", 0) + sum(store.max_offset("EveryOneway", n) for n in (1, 2, 3)) == 3


@pytest.mark.long("dead letters of this layout are made and consumed each time, and retries with the other one")
def test_failed_messages_are_retried_and_become_dead_letters(broker_lite: BrokerLite, client_version: str) -> None:
    run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "failing"])
    arguments = [broker_lite.name_server_address, "EveryFailing", "every-failing", str(RETRIES), "90"]
    rows = run_java(client_version, "FailingConsumer", arguments)
    failed = [row for row in rows if row["event"] == "failed"]
    assert Counter(row["reconsume_times"] for row in failed) == {0: 3, 1: 3, 2: 3}
    broker_lite.stop()
    with open_journal(broker_lite) as store:
        told = [one for one in store.read_consumptions(0, 1 << 20)[0] if one.app == "every-failing"]
    outcomes = Counter((one.outcome, one.attempt) for one in told)
    assert outcomes == {
        (DeliveryOutcome.FAILED, 1): 3,
        (DeliveryOutcome.FAILED, 2): 3,
        (DeliveryOutcome.GIVEN_UP, 3): 3,
    }


def test_dead_letters_are_consumed_as_a_topic(broker_lite: BrokerLite, client_version: str) -> None:
    address = broker_lite.name_server_address
    sent = run_java(client_version, "ProduceEveryKind", [address, "failing"])
    run_java(client_version, "FailingConsumer", [address, "EveryFailing", "every-failing", "0", "90"])
    arguments = [address, "lite", "%DLQ%every-failing", "undertaker", "*", "1", "3", "60"]
    found = run_java(client_version, "Consumers", arguments)
    assert {row["unique_key"] for row in found} == {row["unique_key"] for row in sent}


@pytest.mark.parametrize(
    ("kind", "sentence"), [("delay", "does not support delays"), ("transaction", "a JMQ journal has no transactions")]
)
def test_kinds_that_jmq_does_not_support_are_refused(
    broker_lite: BrokerLite, client_version: str, kind: str, sentence: str
) -> None:
    with pytest.raises(JavaProgramError, match=sentence):
        run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, kind])


@pytest.mark.long("found by the same requests with RocketMQ's layout each time")
def test_messages_are_found_by_id_and_time(broker_lite: BrokerLite, client_version: str) -> None:
    address = broker_lite.name_server_address
    sent = run_java(client_version, "ProduceEveryKind", [address, "plain", "volume"])
    plain = [row for row in sent if row["kind"] == "plain"]
    questions = ["id", "EveryPlain", plain[3]["offset_msg_id"], "range", "EveryVolume", "-"]
    questions += ["time", "EveryVolume", "0@0", "time", "EveryVolume", f"0@{2**62}"]
    found = run_java(client_version, "Lookup", [address, *questions])
    by_verb = {verb: [row for row in found if row["verb"] == verb] for verb in ("id", "range", "time")}
    assert by_verb["id"][0]["body_sha256"] == plain[3]["body_sha256"]
    assert sum(row["max_offset"] - row["min_offset"] for row in by_verb["range"]) == VOLUME
    assert [row["queue_offset"] for row in by_verb["time"]] == [0, by_verb["range"][0]["max_offset"]]


@pytest.mark.long("mqadmin is answered with RocketMQ's layout each time")
def test_mqadmin_is_answered(broker_lite: BrokerLite, client_version: str, tmp_path: Path) -> None:
    address = broker_lite.name_server_address
    run_java(client_version, "ProduceEveryKind", [address, "volume"])
    run_java(client_version, "Consumers", [address, "concurrent", "EveryVolume", "by-all", "*", "1", str(VOLUME), "60"])
    servers, broker = ("-n", address), ("-b", broker_lite.broker_address)
    asked = (("brokerStatus", *broker), ("topicStatus", "-t", "EveryVolume"), ("consumerProgress", "-g", "by-all"))
    broker_status, topic_status, progress = mqadmin(
        client_version, tmp_path, *((*command, *servers) for command in asked)
    )
    assert "putTps" in broker_status
    assert "broker-a" in topic_status
    assert "Diff Total: 0" in progress
    broker_lite.stop()
    with open_journal(broker_lite) as store:
        told, _ = store.read_consumptions(0, 1 << 20)
    assert Counter((one.app, one.outcome) for one in told) == {("by-all", DeliveryOutcome.CONSUMED): VOLUME}
