"""Tests of `commitlake replay` from a lake to broker_lite."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
import zlib
from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.delta import seal_log_after_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.jobs.query.command import main as query
from commitlake.jobs.replay import replay_management
from commitlake.jobs.replay.command import main
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.replay.ledger import Ledger, ReplayState, SenderClaim, add_replay_event, read_replay_state
from commitlake.pipelines.replay.sending import replay_control
from commitlake.pipelines.replay.sending.rate_limit import SendPace
from commitlake.pipelines.replay.sending.share_sender import ShareSender
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from commitlake.schemas.tables.replays import REPLAYS, ReplayEvent
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message
from tests.support.replays import ReplayWorld
from tests.support.waiting import wait_until

TOPIC = "topic-01"


def chosen(world: ReplayWorld, topic: str = TOPIC) -> list[dict[str, object]]:
    return [row for row in world.archived() if row["topic"] == topic]


def by_queue(rows: list[dict[str, object]]) -> dict[object, list[object]]:
    found: dict[object, list[object]] = {queue: [] for queue in range(4)}
    for row in rows:
        found[row["queue_id"]].append(row["physical_offset"])
    return found


def test_every_message_is_sent_once_in_the_order_of_its_queue(world: ReplayWorld) -> None:
    assert world.replay("--topic", TOPIC) == 0
    rows = chosen(world)
    assert len(rows) == 80
    assert world.origins() == by_queue(rows)
    sent = {int(m.properties["ORIGIN_PHYSICAL_OFFSET"]): m for found in world.received().values() for m in found}
    for row in rows:
        message = sent[int(str(row["physical_offset"]))]
        assert zlib.crc32(message.body) & 0x7FFFFFFF == row["body_crc"]
        assert message.properties["KEYS"] == " ".join(row["keys"])  # type: ignore[arg-type]
        assert message.properties["ORIGIN_MSG_ID"] == row["msg_id"]
    ledger = world.ledger()
    assert [row["physical_offset"] for row in ledger] == [row["physical_offset"] for row in rows]
    places = {(row["target_queue_id"], row["target_offset"]): row["physical_offset"] for row in ledger}
    assert places == {
        (queue, number): origin for queue, found in world.origins().items() for number, origin in enumerate(found)
    }
    assert {row["outcome"] for row in ledger} == {"sent"}


def test_messages_are_selected_by_time_key_tag_and_sql(world: ReplayWorld) -> None:
    rows = world.archived()
    start, end = rows[100]["store_timestamp"], rows[200]["store_timestamp"]
    times = ["--from", start.isoformat(), "--to", end.isoformat()]
    assert world.replay(*times) == 0
    assert sorted(chain.from_iterable(world.origins().values())) == [row["physical_offset"] for row in rows[100:200]]
    assert world.replay("--tag", "Tag1", "--where", "queue_offset < 2", "--include-replayed") == 0
    assert world.replay("--key", "order-17", "--born", "--from", start.isoformat()) == 0
    assert len(world.ledger()) == 100 + sum(row["tags"] == "Tag1" and row["queue_offset"] < 2 for row in rows)


def test_keys_are_read_from_a_file(world: ReplayWorld, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(
        "\ufefforder-3\n\norder-5 \norder-3\n", encoding="utf-8"
    )  # editors begin files with a byte order mark
    assert world.replay("--keys-file", str(keys)) == 0
    assert sorted(row["queue_offset"] for row in world.ledger()) == sorted(
        row["queue_offset"] for row in world.archived() if row["keys"][0] in {"order-3", "order-5"}
    )


@pytest.mark.long("needs a file of the largest allowed size")
def test_a_file_of_keys_is_split_only_at_newlines_and_has_limits(
    world: ReplayWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("order-3\r\norder-5\u2028order-7\n")  # a key may contain other line ends than newlines
    assert world.replay("--keys-file", str(keys)) == 0
    assert {key for row in world.archived() if row["queue_offset"] == world.ledger()[0]["queue_offset"]
            for key in row["keys"]} >= {"order-3"}  # fmt: skip
    assert len(world.ledger()) == sum(row["keys"][0] == "order-3" for row in world.archived())
    monkeypatch.setattr("commitlake.jobs.replay.message_selection._MAX_KEYS", 1)
    assert world.replay("--keys-file", str(keys)) == 2
    assert "expected at most 1 keys, found 2" in capsys.readouterr().err
    monkeypatch.setattr("commitlake.jobs.arguments.keys_file.MAX_FILE_BYTES", 10)
    assert world.replay("--keys-file", str(keys)) == 2
    assert "expected a file of at most 10 bytes, found a larger one" in capsys.readouterr().err


def test_a_message_without_a_time_is_sent_like_the_others(
    world: ReplayWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path / "second")
    growing.write([new_message(1, born_timestamp=2**63 - 1), new_message(2), new_message(3, born_timestamp=-(2**63))])
    growing.archive()
    second = ReplayWorld(growing.lake, world.name_servers, world.client, world.topic)
    assert [row["store_timestamp"] is None for row in second.archived()] == [True, False, True]
    assert second.replay("--topic", "orders", "--speed", "1000x") == 0
    assert len(second.ledger()) == 3
    only = ("--where", "physical_offset = 0", "--dry-run", "--include-replayed", "--output", "jsonl")
    assert second.replay("--topic", "orders", *only) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["first_at"] is None
    assert "stored at unknown times" in printed.err


def test_dead_letters_without_an_original_topic_are_refused(
    world: ReplayWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path / "second")
    growing.write(
        [new_message(1, topic="%DLQ%g", properties=(("RETRY_TOPIC", world.topic),)), new_message(2, topic="%DLQ%g")]
    )
    growing.archive()
    place = ["--lake", growing.lake.root, "--namesrv", world.name_servers, "--yes", "--dlq-of", "g"]
    assert main(place) == 2
    assert "the original topic of 1 message is not known" in capsys.readouterr().err
    assert sum(map(len, world.received().values())) == 0
    assert main([*place, "--where", "map_extract(properties, 'RETRY_TOPIC')[1] IS NOT NULL"]) == 0
    assert sum(map(len, world.received().values())) == 1


def test_only_the_first_messages_are_sent(world: ReplayWorld) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "7") == 0
    assert [row["physical_offset"] for row in world.ledger()] == [row["physical_offset"] for row in chosen(world)[:7]]


@pytest.mark.parametrize("asked", [("--queues", "key"), ("--ordered",)])
def test_the_messages_of_a_key_share_a_queue_and_keep_their_order(
    world: ReplayWorld, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    growing = GrowingLake(tmp_path / "keys")
    growing.write([new_message(number, properties=(("KEYS", f"order-{number % 7}"),)) for number in range(70)])
    growing.archive()
    keyed = ReplayWorld(growing.lake, world.name_servers, world.client, world.topic)
    assert keyed.replay("--topic", "orders", *asked) == 0
    queues: dict[str, set[int]] = {}
    offsets: dict[str, list[int]] = {}
    for queue, messages in keyed.received().items():
        for message in messages:
            key = message.properties["KEYS"]
            queues.setdefault(key, set()).add(queue)
            offsets.setdefault(key, []).append(int(message.properties["ORIGIN_PHYSICAL_OFFSET"]))
    assert {key: len(found) for key, found in queues.items()} == {f"order-{number}": 1 for number in range(7)}
    assert all(len(found) == 10 and found == sorted(found) for found in offsets.values())


def test_only_messages_that_a_group_has_not_consumed_are_sent(
    world: ReplayWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker-a" / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"offsetTable": {f"{TOPIC}@billing": {"0": 5, "1": 20}, "topic-02@billing": {"0": 19}}}))
    assert snapshot(["--lake", world.lake.root, "--store", str(tmp_path / "broker-a"), "--quiet"]) == 0
    assert world.replay("--not-consumed-by", "billing", "--topic", TOPIC) == 0
    # In queues 2 and 3 the group has no offset: it has consumed none of their messages.
    firsts = {0: 5, 1: 20, 2: 0, 3: 0}
    rows = [row for row in chosen(world) if int(str(row["queue_offset"])) >= firsts[int(str(row["queue_id"]))]]
    assert [row["physical_offset"] for row in world.ledger()] == [row["physical_offset"] for row in rows]
    assert len(rows) == 15 + 20 + 20
    assert world.replay("--not-consumed-by", "billing") == 0
    others = [row for row in chosen(world, "topic-02") if row["queue_id"] or row["queue_offset"] == 19]
    assert len(world.ledger()) == 2 * len(rows) + len(others)
    assert world.replay("--not-consumed-by", "billing", "--offsets-at", "2100-01-01", "--limit", "1") == 0
    command = read_replay_state(world.lake, world.replay_id()).plan.command
    assert command == "--not-consumed-by billing --offsets-at 2100-01-01T00:00:00Z"
    assert world.replay("--not-consumed-by", "billing", "--offsets-at", "2001-01-01") == 2
    assert "no offsets of the group 'billing' at that time" in capsys.readouterr().err


def test_the_options_that_choose_messages_are_stored_as_on_the_command_line(world: ReplayWorld) -> None:
    chosen_by = ["--topic", TOPIC, "--topic", "topic-02", "--from", "2020-01-01", "--include-replayed"]
    assert world.replay(*chosen_by, "--limit", "1", "--rate", "100", "--mask", "keys=null") == 0
    assert read_replay_state(world.lake, world.replay_id()).plan.command == (
        f"--topic {TOPIC} --topic topic-02 --from 2020-01-01T00:00:00Z --include-replayed --mask keys=null"
    )


def test_a_dry_run_prints_the_plan_and_sends_nothing(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--lake", world.lake.root, "--namesrv", world.name_servers, "--to-topic", world.topic]
    assert main([*place, "--topic", TOPIC, "--dry-run", "--output", "jsonl", "--rate", "10"]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert sum(row["messages"] for row in rows) == 80
    assert Counter(row["queue_id"] for row in rows) == dict.fromkeys(range(4), 1)
    assert "80 messages of 4 queues" in printed.err
    assert f"into {world.topic}: 4 queues" in printed.err
    assert "at 10 messages/s, sending takes 8 s" in printed.err
    assert sum(map(len, world.received().values())) == 0
    assert not Path(world.lake.uri("replays")).exists()


def test_nothing_is_sent_without_a_confirmation(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--lake", world.lake.root, "--namesrv", world.name_servers, "--to-topic", world.topic]
    assert main([*place, "--topic", TOPIC]) == 2
    assert "80 messages would be sent, but there is no terminal to ask for confirmation" in capsys.readouterr().err
    assert sum(map(len, world.received().values())) == 0
    assert main([*place, "--topic", TOPIC, "--confirm-over", "80"]) == 0
    assert sum(map(len, world.received().values())) == 80


def test_messages_that_a_replay_sent_are_replayed_only_on_request(world: ReplayWorld, tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path / "second")
    growing.write([new_message(1), new_message(2, properties=(("REPLAY_ID", "R0"),))])
    growing.archive()
    second = ReplayWorld(growing.lake, world.name_servers, world.client, world.topic)
    assert second.replay("--topic", "orders") == 0
    assert len(second.ledger()) == 1
    assert second.replay("--topic", "orders", "--include-replayed") == 0
    assert len(second.ledger()) == 3


def test_a_killed_replay_resumes_and_sends_no_message_twice(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_ledger(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:  # all messages are in the target, and none in the ledger
        patched.setattr(Ledger, "add_outcomes", lose_the_ledger)
        assert world.replay("--topic", TOPIC) == 1
    assert sum(map(len, world.origins().values())) == 80
    assert world.act("resume", world.replay_id(), "--quiet") == 0
    assert world.origins() == by_queue(chosen(world))
    assert {row["outcome"] for row in world.ledger()} == {"found"}
    assert len(world.ledger()) == 80
    assert world.act("resume", world.replay_id()) == 2


def test_a_replay_killed_while_it_reads_back_is_proven_when_it_resumes(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(replay_management, "verify_replay", kill)
        assert world.replay("--topic", TOPIC) == 1
    assert len(world.ledger()) == 80
    assert world.act("resume", world.replay_id(), "--no-verify") == 2
    assert world.act("resume", world.replay_id()) == 0
    assert "80 messages read back from the target and compared with the lake: no differences" in capsys.readouterr().err
    assert sum(map(len, world.received().values())) == 80
    assert world.act("resume", world.replay_id()) == 2


def test_the_option_resume_continues_a_replay(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "claim_replay", lambda *_: 1 / 0)
        assert world.replay("--topic", TOPIC) == 1
    lake = ["--lake", world.lake.root]
    assert main(["--resume", world.replay_id(), "--topic", TOPIC, *lake]) == 2
    assert main(["stop", world.replay_id(), "--resume", world.replay_id(), *lake]) == 2
    assert "--resume cannot be used with 'replay stop'" in capsys.readouterr().err
    assert main(["--resume", world.replay_id(), "--quiet", *lake]) == 0
    assert world.origins() == by_queue(chosen(world))


def test_an_impossible_time_is_refused_by_name(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "1") == 0
    name = world.replay_id()
    beyond = "arrow_cast(9223372036854775807, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    DeltaTable(world.lake.uri("replays")).update(predicate="event = 'started'", updates={"at": beyond})
    seal_log_after_commit(world.lake.uri("replays"), None)
    assert world.act("show", name) == ExitCode.USAGE
    assert "the field 'at' is missing: expected a time" in capsys.readouterr().err


def test_messages_deleted_from_the_lake_after_the_plan_are_reported(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "claim_replay", end)
        assert world.replay("--topic", TOPIC) == 1
    table = DeltaTable(world.lake.uri("messages"))
    table.delete(f"topic = '{TOPIC}' AND queue_offset >= 3")
    seal_log_after_commit(world.lake.uri("messages"), None)
    left = len(chosen(world))
    assert 0 < left < 80
    assert world.act("resume", world.replay_id(), "--quiet") == ExitCode.DAMAGE
    assert f"the plan has 80 messages to send, but the lake has only {left} of them" in capsys.readouterr().err
    assert read_replay_state(world.lake, world.replay_id()).event is ReplayEvent.FAILED
    assert len(world.ledger()) == left


def test_a_second_process_can_take_over_a_replay(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "1") == 0
    first, second = (Ledger(world.lake, world.replay_id()) for _ in range(2))
    first.claim_replay()
    second.claim_replay()
    with pytest.raises(Exception, match="another process has taken over the replay"):
        first._commit_with_retries([], first._version)
    add_replay_event(world.lake, world.replay_id(), ReplayEvent.STARTED)
    assert world.act("resume", world.replay_id()) == 4
    assert "of this host is sending the replay" in capsys.readouterr().err


def test_tasks_of_a_runner_send_and_need_a_rate_not_a_speed(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, str] = {}
    spark = SimpleNamespace(conf=SimpleNamespace(get=settings.get))
    monkeypatch.setattr("commitlake.jobs.arguments.runner.get_spark_session", lambda *_: spark)
    monkeypatch.setattr("commitlake.connectors.spark.runner.SparkRunner", lambda _: ThreadRunner(3))
    assert world.replay("--topic", TOPIC, "--spark", "--speed", "2x") == 2
    assert "--spark cannot be used with --speed" in capsys.readouterr().err
    settings["spark.speculation"] = "true"
    assert world.replay("--topic", TOPIC, "--spark") == 2
    assert "expected spark.speculation=false, found true" in capsys.readouterr().err
    settings.clear()
    assert world.replay("--topic", TOPIC, "--spark") == 0
    assert world.origins() == by_queue(chosen(world))
    name = world.replay_id()
    assert Ledger(world.lake, name).count_senders() == 3
    add_replay_event(world.lake, name, ReplayEvent.STARTED, sender_count=3)
    assert world.act("throttle", name, "--rate", "7", "--speed", "none") == 0
    assert world.act("throttle", name, "--speed", "2x") == 2
    assert "the replay is sent by tasks on Spark" in capsys.readouterr().err
    assert world.act("list", "--spark") == 2


def test_replays_are_listed_stopped_and_slowed_down(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.act("list") == 0
    assert "the lake has no replay" in capsys.readouterr().err
    assert world.replay("--topic", TOPIC) == 0
    name = world.replay_id()
    assert world.act("show", name, "--output", "jsonl") == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["state"], row["messages"], row["sent"], row["failed"]) == ("finished", 80, 80, 0)
    assert row["choice"] == f"--topic {TOPIC}"
    assert [event["event"] for event in row["events"]] == ["planned", "started", "finished", "verified"]
    assert {queue["outcome"] for queue in row["queues"]} == {"sent"}
    assert sum(queue["last_offset"] - queue["first_offset"] + 1 for queue in row["queues"]) == 80
    assert world.act("show", name, "--full") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in (f"--topic {TOPIC}", "planned", "target_queue_id", "last_offset"))
    assert world.act("stop", name) == 2
    add_replay_event(world.lake, name, ReplayEvent.STARTED)
    assert world.act("throttle", name, "--rate", "100/s") == 0
    assert world.act("throttle", name, "--speed", "2x") == 0
    assert "keeps to 2 times the pace at which the messages were stored" in capsys.readouterr().err
    assert world.act("throttle", name, "--rate", "none", "--speed", "none") == 0
    assert "no longer limits the rate and no longer keeps to the pace" in capsys.readouterr().err
    state = read_replay_state(world.lake, name)
    assert (state.rate, state.speed) == (0, 0)
    assert world.act("throttle", name, "--rate", "100/s") == 0
    assert world.act("stop", name) == 0
    state = read_replay_state(world.lake, name)
    assert (state.rate, state.speed, state.wants_stop) == (100.0, 0, True)
    assert world.act("show", "no-such") == 2
    assert "the lake has no replay 'no-such'" in capsys.readouterr().err


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"event": "exploded"}, "the field 'event': expected one of planned, "),
        ({"rate": float("nan")}, "rate: expected a number of at least 0, found nan"),
        ({"rate": -1.0}, "rate: expected a number of at least 0, found -1.0"),
        (
            {"event": "started", "owner": "[" * 100_000},
            "the field 'owner': expected host, pid and start of a process, found '[[",
        ),
        (
            {"event": "started", "owner": '{"host": "a", "pid": "../../self", "started": ""}'},
            "the field 'owner': expected host, pid and start",
        ),
        (
            {"event": "started", "owner": '{"host": "a", "pid": ' + "9" * 5000 + ', "started": ""}'},
            "the field 'owner': expected",
        ),
    ],
)
def test_a_changed_ledger_is_refused_with_the_replays_id(
    world: ReplayWorld, capsys: pytest.CaptureFixture[str], change: dict[str, object], expected: str
) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "1") == 0
    name = world.replay_id()
    assert world.replay("--topic", TOPIC, "--limit", "1") == 0
    row = {"replay_id": name, "at": datetime.datetime.now(datetime.UTC), "event": "throttled"} | change
    append_rows(world.lake, "replays", pa.Table.from_pylist([row], arrow_schema(REPLAYS)))
    capsys.readouterr()
    assert world.act("resume", name) == 2
    assert expected in capsys.readouterr().err
    assert world.act("list", "--output", "jsonl") == (0 if change.get("event") == "started" else 3)
    assert world.replay_id() in capsys.readouterr().out  # the others are shown


def test_a_temporarily_unreadable_ledger_does_not_end_the_watch(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "1") == 0
    name = world.replay_id()
    add_replay_event(world.lake, name, ReplayEvent.STARTED)
    add_replay_event(world.lake, name, ReplayEvent.STOPPING)
    troubles = [QueryError("the store of the lake does not answer"), OSError(5, "no disk")]

    def read(lake: Lake, replay_id: str) -> ReplayState:
        if troubles:
            raise troubles.pop()
        return read_replay_state(lake, replay_id)

    monkeypatch.setattr(replay_control, "read_replay_state", read)
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 0.001)
    reported: list[str] = []
    pace = SendPace()
    with replay_control.watch_replay(world.lake, name, pace, world.client.admin, None, reported.append):
        wait_until(lambda: not pace.wait(1, 0), 30, look_seconds=0.01)
    assert [text.split(":")[0] for text in reported[:2]] == [
        "the ledger cannot be read, so requests to stop are not seen"
    ] * 2


def test_a_stop_of_an_earlier_run_does_not_end_one_that_is_slow_to_begin(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ShareSender, "send", lambda *_, **__: False)
        assert world.replay("--topic", TOPIC) == ExitCode.INTERRUPTED
    name = world.replay_id()
    add_replay_event(world.lake, name, ReplayEvent.STOPPING)
    add_replay_event(world.lake, name, ReplayEvent.STOPPED)
    claim_replay = Ledger.claim_replay
    is_read = threading.Event()

    def read(lake: Lake, replay_id: str) -> ReplayState:
        state = read_replay_state(lake, replay_id)
        is_read.set()
        return state

    def claim_late(ledger: Ledger, sender_count: int = 0) -> list[SenderClaim]:
        is_read.wait(0.5)  # nobody may look for requests yet
        return claim_replay(ledger, sender_count)

    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(replay_control, "read_replay_state", read)
    monkeypatch.setattr(Ledger, "claim_replay", claim_late)
    assert world.act("resume", name, "--quiet") == 0
    assert world.origins() == by_queue(chosen(world))


def test_a_group_that_is_behind_pauses_a_replay_before_its_first_message(world: ReplayWorld) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "3") == 0
    world.client.admin.create_group(SubscriptionGroupConfig("behind"))
    offsets = world.client.admin.offsets
    for queue in world.client.puller.queues(world.topic):
        offsets.commit(queue, "behind", 0)
    reported: list[str] = []
    pace = SendPace()
    with replay_control.watch_replay(
        world.lake, world.replay_id(), pace, world.client.admin, ("behind", 1), reported.append
    ):
        assert reported == ["paused: behind has more than 1 message to consume"]
    threading.Timer(0.5, pace.stop).start()
    assert not pace.wait(1, 0)


def test_a_group_without_offsets_is_reported_and_does_not_pause_a_replay(world: ReplayWorld) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "3") == 0
    reported: list[str] = []
    pace = SendPace()
    with replay_control.watch_replay(
        world.lake, world.replay_id(), pace, world.client.admin, ("misspelt", 1), reported.append
    ):
        assert pace.wait(1, 0)
    assert reported == ["the target has no offsets of the group misspelt: sending does not pause until it has some"]


def test_a_damaged_body_is_reported_and_the_others_are_sent(
    world: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = chosen(world)
    packs = [path for path in Path(world.lake.bodies_root).rglob("*") if path.is_file()]
    assert packs
    for pack in packs:
        data = bytearray(pack.read_bytes())
        for place in range(len(data) // 2, len(data) // 2 + 400):
            data[place] ^= 0xFF
        pack.write_bytes(bytes(data))
    code = world.replay("--topic", TOPIC)
    outcomes = Counter(row["outcome"] for row in world.ledger())
    assert outcomes["no_body"] > 0
    assert outcomes["sent"] == sum(map(len, world.origins().values())) > 0
    assert sum(outcomes.values()) == len(rows)
    assert code == 3
    assert all(row["error"] for row in world.ledger() if row["outcome"] == "no_body")
    assert "messages could not be sent" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "'replay send' needs one of --topic, --key, "),
        (["--topic", "RMQ_SYS_TRANS_HALF_TOPIC"], "is a system topic of the broker: its records cannot be sent again"),
        (["--topic", TOPIC, "--where", "no such column"], "--where is not a valid condition: "),
        (["--topic", TOPIC, "--limit", "-1"], "--limit: '-1': expected a whole number, 0 or more"),
        (["--topic", TOPIC, "--from", "2026-01-02", "--to", "2026-01-01"], "is not before"),
        (["--not-consumed-by", "nobody"], "the lake has no offsets of the group 'nobody'"),
        (["--keys-file", "/no/such/file"], "--keys-file /no/such/file: the file cannot be read: No such file"),
        (["--topic", TOPIC, "--offsets-at", "2026-01-01"], "--offsets-at needs --not-consumed-by"),
        (["--dlq-of", "billing", "--topic", TOPIC], "--dlq-of and --topic cannot be used together"),
        (["list", "--topic", TOPIC], "--topic cannot be used with 'replay list'"),
        (["resume"], "'replay resume' needs ID"),
        (["throttle", "R1"], "'replay throttle' needs one of --rate and --speed"),
        (["--topic", TOPIC, "--rate", "0"], "is not a rate"),
        (["--topic", TOPIC, "--speed", "fast"], "is not a speed"),
        (["--topic", TOPIC, "--pause-if-lag", "billing"], "is not a limit"),
    ],
)
def test_wrong_usage_is_refused_with_a_reason(
    world: ReplayWorld, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    base = ["--lake", world.lake.root, "--namesrv", world.name_servers]
    try:
        code = main([*arguments, *base, "--yes"])
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    assert expected in capsys.readouterr().err


def test_a_target_without_the_topic_is_refused(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay("--topic", TOPIC, into="NoSuchTopic") == 4
    assert "the target has no topic NoSuchTopic" in capsys.readouterr().err


def test_a_target_with_fewer_queues_is_refused_unless_keys_choose_them(
    world: ReplayWorld, client: object, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ReplayWorld(world.lake, world.name_servers, world.client)
    small.make_topic(2)
    assert small.replay("--topic", TOPIC) == 4
    assert "but the target has only 2 queues" in capsys.readouterr().err
    assert sum(map(len, small.received().values())) == 0
    assert small.replay("--topic", TOPIC, "--queues", "key") == 0
    assert sum(map(len, small.received().values())) == 80


def test_a_read_only_topic_is_refused(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    closed = ReplayWorld(world.lake, world.name_servers, world.client)
    closed.make_topic(perm=4)
    assert closed.replay("--topic", TOPIC) == 4
    assert "has no queue that can be written to" in capsys.readouterr().err


def test_an_unreachable_target_fails_with_exit_code_1(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--lake", world.lake.root, "--namesrv", "127.0.0.1:1", "--to-topic", world.topic, "--yes"]
    assert main([*place, "--topic", TOPIC]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_an_empty_selection_is_reported(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay("--topic", "no-such-topic") == 0
    assert "no message matches" in capsys.readouterr().err


def test_the_ledger_can_be_queried(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "3") == 0
    asked = ["--lake", world.lake.root, "--table", "replay_messages", "--count"]
    assert query(asked) == 0
    assert "3" in capsys.readouterr().out


def test_a_lake_of_an_earlier_version_can_be_replayed(world: ReplayWorld, tmp_path: Path) -> None:
    copied = Lake(str(tmp_path / "copy"))
    shutil.copytree(world.lake.root, copied.root)
    other = ReplayWorld(copied, world.name_servers, world.client, world.topic)
    assert other.replay("--topic", TOPIC, "--to", datetime.datetime.now(datetime.UTC).isoformat()) == 0
    assert len(other.ledger()) == 80


def test_ten_thousand_keys_can_be_looked_up(world: ReplayWorld, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("\n".join(f"order-{number}" for number in range(390, 10_390)))
    assert world.replay("--keys-file", str(keys)) == 0
    assert len(world.ledger()) == 10
