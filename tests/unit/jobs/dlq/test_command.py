"""Tests of `commitlake dlq`: causes, exported files, and redriven messages, followed in broker_lite."""

from __future__ import annotations

import csv
import datetime
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.dlq import command as dlq_command
from commitlake.jobs.dlq import outcome
from commitlake.jobs.dlq.command import main
from commitlake.jobs.dlq.report import MAX_BARS, bar_chart_lines
from commitlake.pipelines.replay.ledger import add_replay_event, read_replay_state
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.tables.replays import ReplayEvent
from tests.support.failing_groups import FailingGroup, failing_group
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message
from tests.support.replays import ReplayWorld
from tests.support.waiting import wait_until

Dlq = Callable[..., int]
Given = tuple[MessageQueue, Message]
LETTERS = 8
AT = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def dlq(world: ReplayWorld) -> Dlq:
    """A function that runs `commitlake dlq`."""

    def run(*arguments: str) -> int:
        return main([*arguments, "--lake", world.lake.root])

    return run


@pytest.fixture
def redrive(world: ReplayWorld, dlq: Dlq) -> Dlq:
    """A function that sends dead letters again without asking."""
    return lambda *arguments: dlq("redrive", "--namesrv", world.name_servers, "--yes", *arguments)


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# --- causes ---


def test_causes_are_shown_with_a_chart(dlq: Dlq, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("--group", group) == 0
    out, printed = capsys.readouterr()
    assert out.count(group) == 2
    assert "id:number" in out
    assert "name:string" in out
    bars = [line.split() for line in out[out.index("dead letters per hour") :].splitlines()[1:]]
    assert [(bar[1], bar[-1]) for bar in bars] == [("00:00", "2"), ("01:00", "2"), ("02:00", "2"), ("03:00", "2")]
    assert "8 dead letters of 1 group, by 2 causes" in printed


def test_one_cause_is_shown_with_samples(dlq: Dlq, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("--group", group, "--cause", "2", "--samples", "2") == 0
    out = capsys.readouterr().out
    assert out.count('{"name": "x"}') + out.count('{"id": ') == 2
    assert "keys order-" in out


def test_json_has_every_detail_of_each_cause(dlq: Dlq, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("--group", group, "--format", "json", "--samples", "1", "--quiet") == 0
    found = document(capsys)
    assert (found["messages"], found["left_out"]) == (LETTERS, 0)
    by_shape = {cause["shape"]: cause for cause in found["causes"]}
    assert by_shape["id:number"]["letters"] == 4
    assert by_shape["id:number"]["samples"][0]["body"] == '{"id": 7}'
    assert by_shape["id:number"]["hours"] == {f"2023-11-15T0{hour}:00:00Z": 1 for hour in range(4)}
    dlq("--group", group, "--format", "json", "--no-shape", "--quiet")
    assert [cause["shape"] for cause in document(capsys)["causes"]] == [None]


def test_hostile_names_do_not_reach_a_terminal(dlq: Dlq, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("--group", "\x1b[31m") == 0
    assert "no archived dead letter matches" in capsys.readouterr().err


def test_a_chart_is_bounded() -> None:
    assert list(bar_chart_lines({})) == []
    assert all(len(line) <= 40 for line in bar_chart_lines({AT: 1, AT + HOUR: 1_000_000}, 40))
    lines = list(bar_chart_lines({AT: 1, AT + 400 * HOUR: 4, AT + 401 * HOUR: 1}))
    assert lines[0] == "dead letters in 12 hours, UTC"
    assert len(lines) - 1 <= MAX_BARS
    assert lines[1].endswith(" 1")
    assert lines[-1] == f"2026-12-06 12:00  {'#' * 50} 5"
    assert len(list(bar_chart_lines({AT: 1, AT + 24 * 365 * 100 * HOUR: 1}))) <= MAX_BARS + 1


# --- files ---


def test_a_cause_is_exported(dlq: Dlq, group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("--group", group, "--format", "json") == 0
    cause = next(cause for cause in document(capsys)["causes"] if cause["shape"] == "id:number")
    path = tmp_path / "letters.csv"
    assert dlq("export", "--group", group, "--cause", cause["cause"][:8], "--out", str(path), "--with-bodies") == 0
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["body"] for row in rows] == [f'{{"id": {number}}}' for number in (1, 3, 5, 7)]
    assert {row["cause"] for row in rows} == {cause["cause"]}


def test_an_export_into_a_table_is_refused(
    dlq: Dlq, group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other" / "_delta_log").mkdir(parents=True)
    path = tmp_path / "other" / "letters.csv"
    assert dlq("export", "--group", group, "--out", str(path)) == ExitCode.USAGE
    assert "other, a table of a lake" in capsys.readouterr().err
    assert not path.exists()


# --- redrive and outcome ---


def test_dead_letters_are_sent_to_their_topic_once(
    world: ReplayWorld, redrive: Dlq, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert redrive("--group", group, "--cause", "1") == 0
    sent = [message for messages in world.received().values() for message in messages]
    assert len(sent) == 4
    assert len({message.body for message in sent} & {b'{"id": 1}', b'{"name": "x"}'}) == 1
    assert {message.reconsume_times for message in sent} == {0}
    assert read_replay_state(world.lake, world.replay_id()).plan.command.startswith(
        f"dlq redrive --group {group} --cause "
    )
    assert not {name for message in sent for name in message.properties} & {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID"}
    capsys.readouterr()
    assert redrive("--group", group) == 0
    assert "4 dead letters were sent before, by replay" in capsys.readouterr().err
    assert sum(map(len, world.received().values())) == LETTERS
    assert redrive("--group", group) == 0
    assert "no message matches" in capsys.readouterr().err
    assert redrive("--group", group, "--again", "--limit", "1") == 0
    assert sum(map(len, world.received().values())) == LETTERS + 1


def test_dead_letters_of_an_unfinished_replay_are_refused(
    world: ReplayWorld, redrive: Dlq, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert redrive("--group", group, "--cause", "1") == 0
    plan = read_replay_state(world.lake, world.replay_id()).plan
    add_replay_event(
        world.lake, "R2", ReplayEvent.PLANNED, plan=replace(plan, replay_id="R2", condition="kind = 'dlq'")
    )
    assert redrive("--group", group, "--dry-run") == 0
    add_replay_event(world.lake, "R2", ReplayEvent.STARTED)
    add_replay_event(world.lake, "R2", ReplayEvent.FAILED)
    assert redrive("--group", group, "--dry-run") == ExitCode.REFUSED
    assert "4 of these dead letters belong to the replay R2, which is not finished (failed)" in capsys.readouterr().err
    assert redrive("--group", group, "--again", "--dry-run") == 0


def test_a_dry_run_sends_nothing(world: ReplayWorld, dlq: Dlq, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("redrive", "--group", group, "--dry-run", "--namesrv", world.name_servers) == 0
    assert f"into {world.topic}: 4 queues" in capsys.readouterr().err
    assert sum(map(len, world.received().values())) == 0


def test_the_outcome_includes_masked_messages(
    world: ReplayWorld, dlq: Dlq, redrive: Dlq, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert redrive("--group", group, "--mask", "body.id=null") == 0
    bodies = Counter(message.body for messages in world.received().values() for message in messages)
    assert {json.loads(body).get("id", "none") for body in bodies} == {None, "none"}
    capsys.readouterr()
    assert dlq("outcome", world.replay_id(), "--format", "json") == ExitCode.FAILED
    assert document(capsys)["groups"][0]["messages"] == LETTERS


def test_the_outcome_of_each_message_is_reported(
    world: ReplayWorld, dlq: Dlq, redrive: Dlq, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert redrive("--group", group) == 0
    asked = ("outcome", world.replay_id(), "--format", "json", "--samples", "20")
    capsys.readouterr()
    assert dlq(*asked) == ExitCode.FAILED
    assert document(capsys)["groups"][0]["waiting"] == LETTERS
    with failing_group(group, world.name_servers) as consumer:
        retried, waiting = _fail_on_some(consumer, world.topic, group)
        assert dlq(*asked) == ExitCode.DAMAGE
        found = document(capsys)["groups"][0]
        counts = {name: found[name] for name in ("consumed", "dead", "waiting", "lost", "not_sent")}
        assert counts == {"consumed": LETTERS - 4, "dead": 1, "waiting": 3, "lost": 0, "not_sent": 0}
        details = Counter(row["detail"] for row in found["samples"])
        retry = f"%RETRY%{group}"
        assert details == {
            f"offset 0 of %DLQ%{group}": 1,
            "retry 1 waits for its delay": 1,
            f"retry 1 is in {retry}": 2,
        }
        # One of the retries is consumed, the other one is dead.
        consumer.send_back(retried[0], retried[1], -1)
        consumer.pass_all(retry)
        assert dlq(*asked) == ExitCode.DAMAGE
        found = document(capsys)["groups"][0]
        assert (found["consumed"], found["dead"], found["waiting"]) == (LETTERS - 3, 2, 1)
        consumer.send_back(waiting[0], waiting[1], -1)
        assert dlq("outcome", world.replay_id(), "--follow", "--follow-for", "60s") == ExitCode.DAMAGE
    out = capsys.readouterr().out
    assert [line.split()[1:3] for line in out.splitlines() if line.startswith(group)][:2] == [
        ["consumed", str(LETTERS - 3)],
        ["dead", "3"],
    ]


def _fail_on_some(consumer: FailingGroup, topic: str, group: str) -> tuple[Given, Given]:
    """Fail on four messages: one is dead, two are retried after a second, one after an hour; consume the others.

    Returns:
        One of those that are retried, in its retry topic; and the one that waits for an hour.
    """
    first, second, third, last, *_ = consumer.messages(topic)
    for failed, level in ((first, -1), (second, 1), (third, 1), (last, 2)):
        consumer.send_back(*failed, level)
    consumer.pass_all(topic)
    retry = f"%RETRY%{group}"
    wait_until(lambda: len(consumer.messages(retry)) == 2)
    return consumer.messages(retry)[0], last


def test_a_message_that_died_after_a_replay_is_sent_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(
        new_message(number, topic="%DLQ%mail", queue_id=0, properties=(("RETRY_TOPIC", "orders"), *more))
        for number, more in enumerate([(), (), (("REPLAY_ID", "r"),)])
    )
    growing.archive()
    asked = ["redrive", "--lake", growing.lake.root, "--group", "mail", "--dry-run"]
    assert main(asked) == 0
    printed = capsys.readouterr().err
    assert "1 dead letter is skipped: dead again after a replay" in printed
    assert "2 messages of 1 queue" in printed
    assert main([*asked, "--include-replayed"]) == 0
    printed = capsys.readouterr().err
    assert "died again" not in printed
    assert "3 messages of 1 queue" in printed


def test_following_ends_after_its_timeout(
    world: ReplayWorld, redrive: Dlq, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "_FIRST_WAIT_SECONDS", 0.01)
    assert redrive("--group", group, "--follow", "--timeout", "0s") == ExitCode.FAILED


def test_messages_that_are_no_longer_in_the_target_are_lost(
    world: ReplayWorld, dlq: Dlq, redrive: Dlq, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert redrive("--group", group) == 0
    world.client.admin.delete_topic(world.topic)
    capsys.readouterr()
    assert dlq("outcome", world.replay_id(), "--format", "json") == ExitCode.DAMAGE
    assert document(capsys)["groups"][0]["lost"] == LETTERS


# --- refusals ---


@pytest.mark.some_cases(7)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--cause", "9"], "expected the number of a cause from 1 to 2"),
        (["--where", "x ="], "--where is not a valid condition"),
        (["--broker", "none"], "the lake has no store"),
        (["--out", "x.csv"], "--out cannot be used with 'dlq show'"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "is not before --to"),
        (["export"], "'dlq export' needs --out"),
        (["export", "--out", "x.txt"], "ends in .csv, .jsonl or .parquet, found 'txt'"),
        (["redrive", "--namesrv", "127.0.0.1:1"], "'dlq redrive' needs one of --group, --topic, "),
        (["redrive", "--group", "g"], "'dlq redrive' needs one of --namesrv and --dry-run"),
        (["redrive", "--group", "g", "--dry-run", "--follow"], "--follow and --dry-run cannot be used together"),
        (["redrive", "--group", "g", "--dry-run", "--timeout", "5s"], "--follow-for needs --follow"),
        (["outcome"], "'dlq outcome' needs ID"),
        (["outcome", "none"], "the lake has no replay 'none'"),
        (["outcome", "none", "--group", "g"], "--group cannot be used with 'dlq outcome'"),
    ],
)
def test_invalid_options_are_refused(
    arguments: list[str], expected: str, dlq: Dlq, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dlq(*arguments) == ExitCode.USAGE
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--no-verify"], ["--rate", "none"], ["export", "--out", "x.csv", "--samples", "0"]])
def test_an_option_that_chooses_nothing_may_be_stated_for_all_actions(words: list[str]) -> None:
    assert dlq_command.Dlq.parse("--lake", "lake", *words).lake == "lake"
