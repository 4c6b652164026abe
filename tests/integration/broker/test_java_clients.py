"""RocketMQ's own client against broker_lite: its messages are stored, retried, and found."""

from __future__ import annotations

from collections import Counter

from tests.servers.broker_lite import BrokerLite
from tests.servers.java_programs import Row, dump_store, run_java

KINDS_OF_5 = {"timer", "timer_waiting"}
RETRIES = 2


def sent_by(rows: list[Row], kind: str) -> set[str]:
    """Return the unique keys of the messages of a kind."""
    return {row["unique_key"] for row in rows if row["kind"] == kind}


def test_a_producer_sends_every_kind_of_message(broker_lite: BrokerLite, client_version: str) -> None:
    sent = run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address])
    broker_lite.stop()
    stored = dump_store("5.5.0", broker_lite.store)
    by_id = {row["msg_id"]: row for row in stored}
    acknowledged = [row for row in sent if row["offset_msg_id"]]
    assert len(acknowledged) > 1500
    assert bool(KINDS_OF_5 & {row["kind"] for row in sent}) == client_version.startswith("5")
    for row in acknowledged:
        record = by_id[row["offset_msg_id"]]
        assert (record["keys"], record["tags"], record["unique_key"]) == (row["keys"], row["tags"], row["unique_key"])
    topics: dict[str, set[str]] = {}
    for row in stored:
        topics.setdefault(row["topic"], set()).add(row["unique_key"])
    # Delayed messages have waited, and have been delivered.
    assert topics["EveryDelay"] == sent_by(sent, "delay")
    assert topics["SCHEDULE_TOPIC_XXXX"] >= sent_by(sent, "delay_waiting")
    assert topics.get("EveryTimer", set()) == sent_by(sent, "timer")
    assert topics["EveryTransaction"] == sent_by(sent, "transaction_commit") | sent_by(sent, "transaction_check")
    given_up = sent_by(sent, "transaction_given_up") | sent_by(sent, "transaction_immune")
    assert given_up <= topics["TRANS_CHECK_MAX_TIME_TOPIC"] <= given_up | sent_by(sent, "transaction_pending")
    assert topics["DefaultCluster_REPLY_TOPIC"]
    assert topics["RMQ_SYS_TRACE_TOPIC"]


def test_failed_messages_are_retried_and_become_dead_letters(broker_lite: BrokerLite, client_version: str) -> None:
    sent = run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "failing"])
    arguments = [broker_lite.name_server_address, "EveryFailing", "every-failing", str(RETRIES), "90"]
    rows = run_java(client_version, "FailingConsumer", arguments)
    failed = [row for row in rows if row["event"] == "failed"]
    assert Counter(row["reconsume_times"] for row in failed) == {0: 3, 1: 3, 2: 3}
    broker_lite.stop()
    stored = dump_store("5.5.0", broker_lite.store)
    dead = [row for row in stored if row["topic"] == "%DLQ%every-failing"]
    assert {row["unique_key"] for row in dead} == sent_by(sent, "failing")
    first = {row["unique_key"]: row["msg_id"] for row in stored if row["topic"] == "EveryFailing"}
    for row in dead:
        assert row["reconsume_times"] == RETRIES + 1
        assert row["properties"]["ORIGIN_MESSAGE_ID"] == first[row["unique_key"]]
        assert row["properties"]["RETRY_TOPIC"] == "EveryFailing"


def test_messages_are_found_by_key_id_and_time(broker_lite: BrokerLite, client_version: str) -> None:
    address = broker_lite.name_server_address
    sent = run_java(client_version, "ProduceEveryKind", [address, "keys", "plain", "volume"])
    keyed = next(row for row in sent if row["kind"] == "keys")
    plain = [row for row in sent if row["kind"] == "plain"]
    volume = [row for row in sent if row["kind"] == "volume"]
    found = run_java(
        client_version,
        "Lookup",
        [
            address,
            *("key", "EveryKeyed", keyed["keys"][0]),
            *("unique", "EveryKeyed", keyed["unique_key"]),
            *("id", "EveryPlain", plain[3]["offset_msg_id"]),
            *("range", "EveryVolume", "-"),
            *("time", "EveryVolume", "0@0"),
            *("time", "EveryVolume", f"0@{2**62}"),
            *("key", "EveryKeyed", "nobody-has-this"),
        ],
    )
    by_verb = {verb: [row for row in found if row["verb"] == verb] for verb in ("key", "unique", "id", "range", "time")}
    having = {row["unique_key"] for row in sent if row["kind"] == "keys" and keyed["keys"][0] in row["keys"]}
    assert {row["unique_key"] for row in by_verb["key"]} == having
    assert by_verb["unique"][0]["offset_msg_id"] == keyed["offset_msg_id"]
    assert by_verb["id"][0]["body_sha256"] == plain[3]["body_sha256"]
    assert sum(row["max_offset"] - row["min_offset"] for row in by_verb["range"]) == len(volume)
    assert [row["queue_offset"] for row in by_verb["time"]] == [0, by_verb["range"][0]["max_offset"]]
