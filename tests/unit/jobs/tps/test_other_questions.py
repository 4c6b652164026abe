"""Tests of `tps` on a store's log, and on queues, keys and delayed messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.tps import command as tps
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
Ask = Callable[..., tuple[int, list[dict[str, Any]], str]]


def message(number: int, seconds: int, topic: str = "orders", queue_id: int = 0, **properties: str) -> NewMessage:
    return new_message(
        number,
        topic=topic,
        queue_id=queue_id,
        born_timestamp=MIDNIGHT_MS + 1000 * seconds,
        properties=tuple(properties.items()),
    )


def messages() -> list[NewMessage]:
    """Return messages of ten minutes: queue 1 has most of them, and each third one has the key `hot`."""
    found = []
    for number in range(60):
        queue_id = 1 if number % 2 else number % 3
        properties = {"KEYS": f"key-{number} hot" if number % 3 == 0 else f"key-{number}"}
        found.append(message(number, 10 * number, "payments" if number % 10 == 0 else "orders", queue_id, **properties))
    return found


def delayed() -> list[NewMessage]:
    """Return delayed messages: level 1 waits for 1 s, level 5 for a minute; the log ends 200 s after its start."""
    life = str(MIDNIGHT_MS + 100 * 3_600_000)
    soon = str(MIDNIGHT_MS + 50_000)
    return [
        message(0, 0, SCHEDULE, 0, UNIQ_KEY="A", REAL_TOPIC="orders", DELAY="1"),
        message(1, 0, SCHEDULE, 4, UNIQ_KEY="B", REAL_TOPIC="orders", DELAY="5"),  # never delivered
        message(2, 0, TIMER, 0, UNIQ_KEY="T1", REAL_TOPIC="orders", TIMER_OUT_MS=soon),
        message(3, 0, TIMER, 0, UNIQ_KEY="T2", REAL_TOPIC="orders", TIMER_OUT_MS=life),  # longer than segments live
        message(4, 3, "orders", UNIQ_KEY="A", REAL_TOPIC="orders", DELAY="1"),  # 2 s late
        message(5, 5, SCHEDULE, 0, REAL_TOPIC="orders", DELAY="1"),
        message(6, 10, TIMER, 0, UNIQ_KEY="T2", REAL_TOPIC="orders", TIMER_OUT_MS=life, TIMER_ROLL_TIMES="1"),
        message(7, 50, "orders", UNIQ_KEY="T1", REAL_TOPIC="orders", TIMER_OUT_MS=soon),
        message(8, 60, TIMER, 0, UNIQ_KEY="T3", REAL_TOPIC="orders", TIMER_OUT_MS=life),
        message(9, 61, TIMER, 0, UNIQ_KEY="T4", REAL_TOPIC="orders", TIMER_OUT_MS=life, TIMER_DEL_UNIQKEY="T3"),
        message(10, 190, SCHEDULE, 4, UNIQ_KEY="C", REAL_TOPIC="%RETRY%g", RETRY_TOPIC="orders", DELAY="5"),
        message(11, 200),
    ]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask for rows as JSON lines."""

    def ask(*arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        capsys.readouterr()
        code = tps.main(["--output", "jsonl", *arguments])
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return ask


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    growing = GrowingLake(tmp_path_factory.mktemp("tps"))
    growing.write(messages())
    growing.archive()
    return growing


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    growing = GrowingLake(tmp_path_factory.mktemp("delayed"))
    growing.write(delayed())
    growing.archive()
    return growing


@pytest.mark.some_cases(3)
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--by", "topic,queue,kind", "--percentiles"),
        ("--window", "1m", "--topic", "orders"),
        ("--window", "5s", "--from", "2023-11-15T00:02", "--to", "2023-11-15T00:03"),
        ("--by", "producer-host,origin-topic"),
        ("--window", "1m", "--compare", "day", "--from", "2023-11-15T00:02", "--to", "2023-11-15T00:05"),
        ("--show", "hot-queues"),
        ("--show", "hot-keys"),
        ("--window", "1h", "--from", "2023-11-15T00:04", "--to", "2023-11-15T00:05"),
    ],
)
def test_the_log_of_a_store_and_its_lake_give_the_same_rows(
    growing: GrowingLake, ask: Ask, arguments: tuple[str, ...]
) -> None:
    of_lake = ask("--lake", growing.lake.root, *arguments)
    of_store = ask("--store", str(growing.store), *arguments)
    assert of_store[:2] == of_lake[:2]
    assert of_store[1]
    assert "from the log" in of_store[2]


@pytest.mark.parametrize(
    "arguments",
    [(), ("--topic", "orders"), ("--queue", "0"), ("--from", "2023-11-14"), ("--window", "5s", "--topic", "orders")],
)
def test_damaged_ranges_of_a_log_are_reported_with_exit_code_3(
    ask: Ask, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(messages())
    (segment,) = (growing.store / "commitlog").iterdir()
    data = bytearray(segment.read_bytes())
    data[4] ^= 1
    segment.write_bytes(data)
    code, rows, printed = ask("--store", str(growing.store), *arguments)
    assert code == ExitCode.DAMAGE
    if not {"--topic", "--queue"} & set(arguments):
        assert sum(row["messages"] for row in rows) == 59
    assert "1 range of the log is damaged" in printed


def test_a_page_of_a_store_names_the_store(growing: GrowingLake, ask: Ask, tmp_path: Path) -> None:
    page = tmp_path / "rates.html"
    for arguments in ((), ("--window", "5s")):
        assert ask("--store", str(growing.store), "--html", str(page), *arguments)[0] == ExitCode.OK
        assert str(growing.store) in page.read_text(encoding="utf-8")


def test_a_store_without_messages_gives_no_rows(ask: Ask, tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([])
    assert ask("--store", str(growing.store))[:2] == (ExitCode.OK, [])


@pytest.mark.parametrize("window", ["1m", "5s"])
def test_an_unknown_tag_of_a_store_is_reported_with_the_nearest(tmp_path: Path, ask: Ask, window: str) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(message(number, number, TAGS="paid") for number in range(3))
    place = ["--store", str(growing.store), "--topic", "orders", "--window", window]
    code, _, printed = ask(*place, "--tag", "piad")
    assert code == ExitCode.OK
    assert "warning: no message that was read has the tag 'piad'. Did you mean 'paid'?" in printed
    assert "warning" not in ask(*place, "--tag", "paid")[2]


def test_an_unknown_broker_of_a_store_is_refused(growing: GrowingLake, ask: Ask) -> None:
    code, _, printed = ask("--store", str(growing.store), "--broker", "other")
    assert code == ExitCode.USAGE
    assert "has no store named other" in printed


def test_a_hot_queue_has_its_share_and_skew(growing: GrowingLake, ask: Ask) -> None:
    _, rows, _ = ask("--lake", growing.lake.root, "--show", "hot-queues", "--topic", "orders")
    assert [(row["queue"], row["messages"]) for row in rows] == [(1, 38), (0, 8), (2, 8)]
    assert rows[0]["skew"] == round(38 * 3 / 54, 3)
    assert rows[0]["topic_share_percent"] == round(100 * 38 / 54, 3)


def test_a_hot_key_has_its_bounds(growing: GrowingLake, ask: Ask) -> None:
    _, rows, printed = ask("--lake", growing.lake.root, "--show", "hot-keys", "--top", "1")
    assert rows == [{"key": "hot", "messages": 20, "at_least": 20, "at_most": 20, "share_percent": 25.0}]
    assert "80 message keys were counted; all figures are exact" in printed
    assert "1 of 61 keys are shown" in printed


@pytest.mark.parametrize("source", ["--lake", "--store"])
def test_delayed_messages_are_waiting_delivered_or_overdue(waiting: GrowingLake, ask: Ask, source: str) -> None:
    place = waiting.lake.root if source == "--lake" else str(waiting.store)
    code, rows, printed = ask(source, place, "--show", "delayed")
    assert code == ExitCode.OK
    found = {(row["kind"], row["level"]): row for row in rows}
    assert {row["topic"] for row in rows} == {"orders"}
    names = ("messages", "waiting", "delivered", "overdue", "without_id", "outlives_segment")
    assert {key: tuple(row[name] for name in names) for key, row in found.items()} == {
        ("delay", 1): (2, 0, 1, 0, 1, 0),
        ("delay", 5): (2, 1, 0, 1, 0, 0),
        ("timer", None): (2, 1, 1, 0, 0, 1),
    }
    assert found["delay", 1]["max_late_s"] == 2.0
    assert found["delay", 5]["oldest_overdue"] == "2023-11-15T00:01:00Z"
    assert "1 of 6 messages are overdue" in printed
    assert "1 message waits longer than a segment is kept" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ("--show", "hot-keys", "--window", "1m"),
        ("--show", "hot-queues", "--by", "topic"),
        ("--show", "delayed", "--topic", "orders"),
        ("--segment-life", "1h"),
        ("--show", "hot-keys", "--segment-life", "1h"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    growing: GrowingLake, ask: Ask, arguments: tuple[str, ...]
) -> None:
    assert ask("--lake", growing.lake.root, *arguments)[0] == ExitCode.USAGE
