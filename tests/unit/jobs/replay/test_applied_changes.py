"""Tests of the options `--mask` and `--transform` of a replay."""

from __future__ import annotations

import json
import textwrap
import zlib
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from commitlake.jobs.maintain.command import main as maintain
from commitlake.jobs.replay.command import main
from commitlake.pipelines.replay.ledger import Ledger, read_replay_states
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from tests.support.replays import ReplayWorld

TOPIC = "topic-01"
CHOICE = ("--topic", TOPIC)

MEND = """
    from pyspark.sql import functions as F

    def mend(messages):
        fixed = F.concat(F.lit("mended "), F.length("body").cast("string"))
        why = F.map_concat("properties", F.create_map(F.lit("why"), F.lit("test")))
        changed = {"tags": F.lit("Mended"), "body": fixed.cast("binary"), "properties": why}
        return messages.withColumns(changed).where("queue_offset % 2 = 0")

    def twice(messages):
        return messages.union(messages)

    def moved(messages):
        return messages.withColumn("physical_offset", F.col("physical_offset") + 1)

    def wider(messages):
        return messages.withColumn("more", F.lit(1))

    def narrower(messages):
        return messages.drop("body")

    def broken(messages):
        raise RuntimeError("out of order")

    def dropping(messages):
        return messages.where("false")

    def leaving(messages):
        raise SystemExit(0)

    def nothing(messages):
        return None

    not_a_function = 1
"""


def sent(world: ReplayWorld) -> dict[int, Message]:
    return {
        int(message.properties["ORIGIN_PHYSICAL_OFFSET"]): message
        for messages in world.received().values()
        for message in messages
    }


def changed_rows(world: ReplayWorld) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = DeltaTable(world.lake.uri("replay_rows")).to_pyarrow_table().to_pylist()
    return rows


def test_a_function_that_drops_every_message_leaves_no_replay(
    world: ReplayWorld, mend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay(*CHOICE, "--transform", f"{mend}:dropping") == 0
    assert "no message is left: nothing is sent" in capsys.readouterr().err
    assert read_replay_states(world.lake) == {}


@pytest.fixture
def mend(tmp_path: Path) -> str:
    """A file with functions."""
    file = tmp_path / "mend.py"
    file.write_text(textwrap.dedent(MEND))
    return str(file)


def test_masked_messages_keep_their_order_and_other_properties(world: ReplayWorld) -> None:
    assert world.replay(*CHOICE, "--mask", "body=text:gone", "--mask", "keys=last:2", "--verify") == 0
    rows = [row for row in world.archived() if row["topic"] == TOPIC]
    found = sent(world)
    assert sorted(found) == [row["physical_offset"] for row in rows]
    for offsets in world.origins().values():
        assert offsets == sorted(offsets)
    for row in rows:
        message = found[row["physical_offset"]]
        assert message.body == b"gone"
        assert message.properties["KEYS"] == " ".join("*" * (len(key) - 2) + key[-2:] for key in row["keys"])
        assert message.properties.get("TAGS") == row["tags"]
        assert message.properties["ORIGIN_MSG_ID"] == row["msg_id"]


def test_messages_that_cannot_be_masked_are_not_sent(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay(*CHOICE, "--limit", "5", "--mask", "body.email=null") == 3
    assert sent(world) == {}
    assert [row["outcome"] for row in world.ledger()] == ["not_changed"] * 5
    assert all("expected JSON" in str(row["error"]) for row in world.ledger())
    assert all(row["body"] in (None, b"") for row in changed_rows(world))
    assert "5 messages could not be sent" in capsys.readouterr().err


def test_a_dry_run_shows_values_before_and_after(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--lake", world.lake.root, *CHOICE, "--mask", "body=text:gone", "--dry-run", "--output", "jsonl"]
    assert main(arguments) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    shown = [row for row in rows if "field" in row]
    assert len(shown) == 20
    assert {row["after"] for row in shown} == {"gone"}
    assert all(row["before"] and row["field"] == "body" for row in shown)
    assert not Path(world.lake.uri("replay_rows")).exists()


def test_a_hash_needs_a_key(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COMMITLAKE_MASK_KEY", raising=False)
    assert world.replay(*CHOICE, "--mask", "keys=hash") == 2
    assert "COMMITLAKE_MASK_KEY" in capsys.readouterr().err
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "a secret of the tests")
    assert world.replay(*CHOICE, "--mask", "keys=hash") == 0
    assert all(len(message.properties["KEYS"]) == 64 for message in sent(world).values())


def test_a_function_can_change_messages_and_leave_some_out(
    world: ReplayWorld, mend: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay(*CHOICE, "--transform", f"{mend}:mend", "--mask", "keys=null", "--verify") == 0
    rows = {row["physical_offset"]: row for row in world.archived() if row["topic"] == TOPIC}
    wanted = {offset: row for offset, row in rows.items() if row["queue_offset"] % 2 == 0}
    found = sent(world)
    assert found.keys() == wanted.keys()
    for offset, message in found.items():
        assert message.body == b"mended %d" % wanted[offset]["body_size"]
        assert (message.tags, message.properties.get("KEYS"), message.properties["why"]) == ("Mended", None, "test")
    assert {row["is_changed"] for row in changed_rows(world)} == {True}
    before = len(changed_rows(world))
    arguments = ["--lake", world.lake.root, *CHOICE, "--transform", f"{mend}:mend", "--dry-run", "--output", "jsonl"]
    assert main(arguments) == 0
    fields = [json.loads(line).get("field") for line in capsys.readouterr().out.splitlines()]
    kept = [row["queue_offset"] % 2 == 0 for row in rows.values()][:20]
    assert fields.count("message") == kept.count(False)
    assert fields.count("tags") == fields.count("body") == fields.count("properties") == kept.count(True)
    assert len(changed_rows(world)) == before


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("twice", "duplicated the message"),
        ("moved", "columns broker, physical_offset"),
        ("wider", "unknown columns: more"),
        ("narrower", "column body: expected binary, found no such column"),
        ("broken", "RuntimeError: out of order"),
        ("leaving", "the function failed: SystemExit: 0"),
        ("nothing", "expected a DataFrame from the function, found NoneType"),
        ("not_a_function", "has no function"),
        ("missing", "has no function missing"),
    ],
)
def test_nothing_is_sent_if_a_function_returns_an_invalid_result(
    world: ReplayWorld, mend: str, spark: SparkSession, function: str, expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert world.replay(*CHOICE, "--limit", "3", "--transform", f"{mend}:{function}") == 2
    assert expected in capsys.readouterr().err
    assert sent(world) == {}
    assert not Path(world.lake.uri("replay_rows")).exists() or changed_rows(world) == []
    assert not Path(world.lake.uri("replays")).exists()


@pytest.mark.parametrize("name", ["mend", "no.such.module:mend", "/no/such/file.py:mend", ":mend", "mend.py:"])
def test_a_missing_function_is_refused(world: ReplayWorld, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay(*CHOICE, "--transform", name) == 2
    assert "--transform" in capsys.readouterr().err


def test_a_module_that_ends_the_process_is_reported(
    world: ReplayWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "leaving.py"
    path.write_text("raise SystemExit(0)\n")
    assert world.replay(*CHOICE, "--transform", f"{path}:mend") == 2
    assert "leaving.py cannot be loaded: SystemExit: 0" in capsys.readouterr().err


def test_compressed_messages_are_masked_as_text_and_sent_compressed(world: ReplayWorld, tmp_path: Path) -> None:
    from tests.support.lakes import GrowingLake
    from tests.support.logs import new_message

    growing = GrowingLake(tmp_path / "compressed")
    long = json.dumps({"name": "Ada", "text": "x" * 8000}).encode()
    growing.write([new_message(body=zlib.compress(long), sys_flag=1)])
    growing.archive()
    other = ReplayWorld(growing.lake, world.name_servers, world.client, world.topic)
    assert other.replay("--topic", "orders", "--mask", "body.name=text:A.", "--queues", "key", "--verify") == 0
    (message,) = sent(other).values()
    assert message.sys_flag & 1
    assert json.loads(zlib.decompress(message.body)) == {"name": "A.", "text": "x" * 8000}


def test_a_replay_whose_copies_have_expired_cannot_be_verified(
    world: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = [*CHOICE, "--mask", "body=text:gone"]
    assert world.replay(*choice, "--verify") == 0
    replay_id = world.replay_id()
    assert maintain(["--lake", world.lake.root, "--keep", "replay_rows=0s", "--quiet"]) == 0
    assert changed_rows(world) == []
    capsys.readouterr()
    assert world.act("verify", replay_id) == 2
    assert f"dropped the messages that the replay {replay_id}" in capsys.readouterr().err
    assert world.act("list", "--json") == 0
    (replay,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert replay["state"] == "finished"
    assert "no differences" in replay["detail"]
    place = ["--lake", world.lake.root, "--namesrv", world.name_servers, "--to-topic", world.topic]
    assert main([*place, *CHOICE, "--dry-run"]) == 0
    assert f"80 of these messages belong to the replay {replay_id}" in capsys.readouterr().err
    assert world.act("undo", replay_id) == 0


def test_a_replay_without_its_copies_is_not_resumed(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_the_ledger(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add_outcomes", lose_the_ledger)
        assert world.replay(*CHOICE, "--mask", "body=text:gone") == 1
    replay_id = world.replay_id()
    assert maintain(["--lake", world.lake.root, "--quiet"]) == 0
    assert len(changed_rows(world)) == 80
    assert maintain(["--lake", world.lake.root, "--keep", "replay_rows=0s", "--quiet"]) == 0
    capsys.readouterr()
    assert world.act("resume", replay_id) == 2
    assert "there is nothing to send, or to compare the target with" in capsys.readouterr().err
