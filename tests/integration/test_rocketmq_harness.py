"""The harness itself: the recorded stores have the records that other tests need; servers start and die."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.jars import resolve_jars
from tests.servers.java_programs import JavaProgramError, Row, consume_all, dump_store, look_up, run_java
from tests.servers.process import ServerError
from tests.servers.recording import (
    FAILING_GROUP,
    FAILING_TOPIC,
    MAX_RECONSUME_TIMES,
    POP_RETRY_TOPIC,
    POPPED_COUNT,
    RECORDING_OPTIONS,
    RecordedStore,
    has_pop,
)
from tests.servers.rocketmq import BrokerOptions, RocketMQ

V1_MAGIC = -626843481
V2_MAGIC = -626843477
COMMIT_TYPE = 0x8
COMPRESSED = 0x1
CODEC_MASK = 0x700
CODECS = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}


def records(recorded: RecordedStore, topic: str) -> list[Row]:
    """Return the records stored under a topic."""
    return [row for row in recorded.decoded if row["topic"] == topic]


def sent(recorded: RecordedStore, *kinds: str) -> list[Row]:
    """Return the messages of some kinds that the producer sent."""
    return [row for row in recorded.sent if row["kind"] in kinds]


def unique_keys(rows: list[Row]) -> set[str]:
    """Return the clients' ids of some messages or records."""
    return {row["unique_key"] for row in rows}


# --- contents of the recorded store ---


def test_every_acknowledged_message_is_at_its_offset_id(
    recorded_store: RecordedStore,
) -> None:
    by_id = {row["msg_id"]: row for row in recorded_store.decoded}
    acknowledged = [row for row in recorded_store.sent if row["offset_msg_id"]]
    assert len(acknowledged) > 1500
    for row in acknowledged:
        record = by_id[row["offset_msg_id"]]
        assert (record["keys"], record["tags"]) == (row["keys"], row["tags"])
        assert (record["queue_id"], record["queue_offset"]) == (
            row["queue_id"],
            row["queue_offset"],
        ) or record["topic"] in {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"}


def test_records_follow_each_other_through_several_segments(recorded_store: RecordedStore) -> None:
    segments = sorted((recorded_store.store / "commitlog").iterdir())
    assert len(segments) >= 4
    assert {segment.stat().st_size for segment in segments} == {RECORDING_OPTIONS.segment_size_bytes}
    for before, after in itertools.pairwise(recorded_store.decoded):
        if before["segment"] == after["segment"]:
            assert after["physical_offset"] == before["physical_offset"] + before["size"]
        else:
            assert after["physical_offset"] == int(after["segment"])


def test_queues_and_indexes_have_several_files(recorded_store: RecordedStore) -> None:
    queues = (recorded_store.store / "consumequeue" / "EveryVolume").iterdir()
    assert {len(list(queue.iterdir())) for queue in queues} == {4}
    assert len(list((recorded_store.store / "index").iterdir())) >= 5


def test_a_clean_stop_leaves_no_abort(recorded_store: RecordedStore) -> None:
    assert not (recorded_store.store / "abort").exists()
    assert (recorded_store.store / "checkpoint").stat().st_size == 4096
    names = {file.name for file in (recorded_store.store / "config").iterdir()}
    assert {
        "topics.json",
        "consumerOffset.json",
        "delayOffset.json",
        "subscriptionGroup.json",
    } <= names


def test_delayed_messages_are_parked_and_delivered(recorded_store: RecordedStore) -> None:
    delayed, waiting = sent(recorded_store, "delay"), sent(recorded_store, "delay_waiting")
    parked = unique_keys(records(recorded_store, "SCHEDULE_TOPIC_XXXX"))
    assert unique_keys(delayed + waiting) <= parked
    delivered = unique_keys(records(recorded_store, "EveryDelay"))
    assert delivered == unique_keys(delayed)
    assert waiting


def test_timers_are_parked_and_delivered(recorded_store: RecordedStore) -> None:
    parked = unique_keys(records(recorded_store, "rmq_sys_wheel_timer"))
    delivered = unique_keys(records(recorded_store, "EveryTimer"))
    assert delivered == unique_keys(sent(recorded_store, "timer"))
    assert parked >= unique_keys(sent(recorded_store, "timer", "timer_waiting"))
    assert bool(delivered) == has_pop(recorded_store.version)


def test_failed_messages_go_through_retries_to_the_dead_letters(
    recorded_store: RecordedStore,
) -> None:
    failing = unique_keys(sent(recorded_store, "failing"))
    assert len(failing) == 3
    assert Counter(row["reconsume_times"] for row in recorded_store.failed) == {0: 3, 1: 3, 2: 3}
    retried = records(recorded_store, f"%RETRY%{FAILING_GROUP}")
    assert Counter(row["reconsume_times"] for row in retried) == {1: 3, 2: 3}
    dead = records(recorded_store, f"%DLQ%{FAILING_GROUP}")
    assert [row["reconsume_times"] for row in dead] == [MAX_RECONSUME_TIMES + 1] * 3
    assert unique_keys(retried) == unique_keys(dead) == failing
    assert {row["properties"]["RETRY_TOPIC"] for row in dead} == {FAILING_TOPIC}


@pytest.mark.parametrize("outcome", ["commit", "check"])
def test_committed_transactions_point_to_their_half(recorded_store: RecordedStore, outcome: str) -> None:
    halves = {row["physical_offset"]: row for row in records(recorded_store, "RMQ_SYS_TRANS_HALF_TOPIC")}
    delivered = records(recorded_store, "EveryTransaction")
    committed = [row for row in delivered if row["tags"] == outcome]
    assert committed
    for row in committed:
        assert row["sys_flag"] & 0xC == COMMIT_TYPE
        assert halves[row["prepared_transaction_offset"]]["unique_key"] == row["unique_key"]


def test_other_transactions_leave_a_half_and_no_message(recorded_store: RecordedStore) -> None:
    halves = Counter(row["tags"] for row in records(recorded_store, "RMQ_SYS_TRANS_HALF_TOPIC"))
    assert {"rollback", "given_up", "immune", "pending"} <= halves.keys()
    delivered = {row["tags"] for row in records(recorded_store, "EveryTransaction")}
    assert delivered == {"commit", "check"}
    given_up = {row["tags"] for row in records(recorded_store, "TRANS_CHECK_MAX_TIME_TOPIC")}
    assert {"given_up", "immune"} <= given_up
    marks = records(recorded_store, "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    assert marks
    assert {row["tags"] for row in marks} == {"d"}


def test_traces_have_the_keys_of_traced_messages(recorded_store: RecordedStore) -> None:
    traced = {key for row in records(recorded_store, "RMQ_SYS_TRACE_TOPIC") for key in row["keys"]}
    assert unique_keys(sent(recorded_store, "traced", "failing", "transaction_commit")) <= traced


@pytest.mark.parametrize("codec", CODECS)
def test_bodies_are_compressed_by_each_codec(recorded_store: RecordedStore, codec: str) -> None:
    by_id = {row["msg_id"]: row for row in recorded_store.decoded}
    compressed = [by_id[row["offset_msg_id"]] for row in sent(recorded_store, codec)]
    assert len(compressed) >= 2
    for row in compressed:
        assert row["sys_flag"] & (CODEC_MASK | COMPRESSED) == CODECS[codec] | COMPRESSED
        assert 0 < row["body_size"] < 4096


def test_large_bodies_are_stored_whole(recorded_store: RecordedStore) -> None:
    plain = [row for row in records(recorded_store, "EveryBig") if row["tags"] == "Plain"]
    assert [(row["body_size"], row["sys_flag"]) for row in plain] == [(300_000, 0)] * 6
    assert {row["body_sha256"] for row in plain} <= {row["body_sha256"] for row in sent(recorded_store, "big")}


def test_a_batch_is_one_run_of_offsets_with_an_empty_body_in_it(
    recorded_store: RecordedStore,
) -> None:
    batched = records(recorded_store, "EveryBatch")
    empty = [row for row in batched if row["keys"] == ["batch-empty"]]
    assert [row["body_size"] for row in empty] == [0] * len(empty)
    for row in empty:
        run = [
            other["keys"][0]
            for other in batched
            if other["queue_id"] == row["queue_id"] and abs(other["queue_offset"] - row["queue_offset"]) == 1
        ]
        assert {"batch-before", "batch-after"} <= set(run)


def test_properties_of_any_script_are_kept(recorded_store: RecordedStore) -> None:
    (row,) = records(recorded_store, "EveryProperties")
    (wanted,) = sent(recorded_store, "properties")
    assert row["flag"] == wanted["flag"] == 7
    assert row["properties"]["城市"] == "北京市"
    assert row["properties"]["emoji🚀"] == "😀 and text"
    assert len(row["properties"]["large"]) == 20_000
    # 4.9.x drops WAIT from plain sends.
    lost = dict(wanted["properties"].items() - row["properties"].items())
    assert lost.keys() <= {"WAIT"}


def test_a_long_retry_topic_has_the_second_magic_code(recorded_store: RecordedStore) -> None:
    second = [row for row in recorded_store.decoded if row["magic"] == V2_MAGIC]
    assert {row["magic"] for row in recorded_store.decoded} <= {V1_MAGIC, V2_MAGIC}
    # 4.9.x has no such code.
    expected = [POP_RETRY_TOPIC] * POPPED_COUNT if has_pop(recorded_store.version) else []
    assert [row["topic"] for row in second] == expected
    assert any(len(row["topic"]) == 127 for row in recorded_store.decoded)


def test_the_log_has_ipv4_and_ipv6_hosts(recorded_store: RecordedStore) -> None:
    hosts = {
        (row["born_host"].rpartition(":")[0], row["store_host"].rpartition(":")[0]) for row in recorded_store.decoded
    }
    assert ("127.0.0.1", "127.0.0.1") in hosts
    # A machine without an IPv6 loopback cannot have them.
    assert (("[::1]", "[::1]") in hosts) == recorded_store.has_ipv6


# --- the servers ---


@pytest.mark.long("other tests serve copies of stores each time")
def test_a_broker_serves_a_copy_of_the_store_and_dies_by_kill(
    recorded_store: RecordedStore, start_broker: Callable[..., RocketMQ], tmp_path: Path
) -> None:
    store = recorded_store.copy_to(tmp_path / "copy")
    servers = start_broker(recorded_store.version, store, RECORDING_OPTIONS, recorded_store.broker_port)
    keyed = records(recorded_store, "EveryKeyed")
    assert unique_keys(consume_all(servers, "EveryKeyed")) == unique_keys(keyed)

    one = next(row for row in keyed if row["store_host"].startswith("127.0.0.1"))
    found = look_up(
        servers,
        ("key", "EveryKeyed", "订单-1"),
        ("id", "EveryKeyed", one["msg_id"]),
        ("unique", "EveryKeyed", one["unique_key"]),
        ("key", "EveryKeyed", "no-such-key"),
    )
    by_key = [row for row in found if row["verb"] == "key"]
    assert by_key
    assert all("订单-1" in row["keys"] for row in by_key)
    assert [row["physical_offset"] for row in found if row["verb"] != "key"] == [one["physical_offset"]] * 2

    servers.kill_broker()
    assert (store / "abort").exists()
    after = dump_store(recorded_store.version, store)
    assert after[: len(recorded_store.decoded)] == recorded_store.decoded


def test_the_error_of_a_broker_that_does_not_start_shows_its_log(
    rocketmq_version: str, start_broker: Callable[..., RocketMQ], tmp_path: Path
) -> None:
    segments = tmp_path / "store" / "commitlog"
    segments.mkdir(parents=True)
    (segments / f"{0:020}").write_bytes(b"too short")
    options = BrokerOptions(segment_size_bytes=1 << 20)
    with pytest.raises(ServerError, match=r"broker ended by itself.*its log"):
        start_broker(rocketmq_version, tmp_path / "store", options)


def test_a_program_that_fails_shows_its_errors(rocketmq_version: str, tmp_path: Path) -> None:
    with pytest.raises(JavaProgramError, match="has no commitlog folder"):
        run_java(rocketmq_version, "DumpStore", [str(tmp_path)])


def test_ivy_fetches_jars_without_maven() -> None:
    jars = resolve_jars(["org.slf4j:slf4j-simple:1.7.36"], "slf4j", resolver="ivy")
    assert {jar.name for jar in jars.iterdir()} == {
        "org.slf4j_slf4j-api-1.7.36.jar",
        "org.slf4j_slf4j-simple-1.7.36.jar",
    }
