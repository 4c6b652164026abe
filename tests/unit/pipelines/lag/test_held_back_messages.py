"""Delay levels and timers: waiting and overdue messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.lag.command import main
from commitlake.schemas.layouts.rocketmq.timers import TimerCheckpoint, serialize_timer_checkpoint
from tests.support.lag_places import WRITTEN_MS, lag_rows, places_of, put_bytes, put_offsets, stored
from tests.support.lakes import GrowingLake

TIMER, SCHEDULE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"


def timer(second: float, due_s: float, key: str, **more: str) -> Any:
    """Return a timer that is due this number of seconds after the files of progress were written."""
    due = str(WRITTEN_MS + int(due_s * 1000))
    return stored(TIMER, second, UNIQ_KEY=key, TIMER_OUT_MS=due, REAL_TOPIC="orders", **more)


def rows_of_kind(capsys: pytest.CaptureFixture[str], kind: str, *arguments: str) -> list[dict[str, Any]]:
    return [row for row in lag_rows(capsys, *arguments) if row["kind"] == kind]


@pytest.fixture(scope="module")
def timers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Timers that are delivered, overdue, deleted, stored again and yet to come."""
    growing = GrowingLake(tmp_path_factory.mktemp("timers"))
    growing.write(
        [
            timer(0, -300, "U0"),  # delivered
            timer(1, -50, "U1"),
            timer(2, -20, "U2"),
            timer(3, 100, "U3"),
            timer(4, 100, "U3", TIMER_ROLL_TIMES="1"),
            timer(5, 200, "U4"),
            timer(6, 200, "D4", TIMER_DEL_UNIQKEY="orders_U4"),  # as brokers since 5.1 have it
            timer(7, 200, "U5"),
            timer(8, 200, "D5", TIMER_DEL_UNIQKEY="U5"),  # as those before
            timer(9, 300, "U_6"),
            timer(10, -80, "U7"),  # came late: due before what is delivered, but not on the wheel yet
        ]
    )
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 0}})
    checkpoint = TimerCheckpoint(WRITTEN_MS - 60_000, 52, 10)
    put_bytes(growing.store, "timercheck", serialize_timer_checkpoint(checkpoint))
    return places_of(growing)


@pytest.mark.parametrize("place", ["lake", "store"])
def test_delivered_and_deleted_timers_are_not_counted(
    place: str, timers: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = rows_of_kind(capsys, "timer", *timers[place])
    assert (row["messages_min"], row["messages_max"]) == (3, 3)  # U1, U2, U7
    assert row["time_lag_s_max"] == 80.0
    assert row["verdict"] == "slow"
    assert "2 more wait for their time" in row["notes"]  # U3 once, U_6


def test_timers_whose_keys_differ_only_after_a_nul_count_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([timer(second, -20, f"U{chr(0) * second}") for second in range(3)])
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 0}})
    put_bytes(growing.store, "timercheck", serialize_timer_checkpoint(TimerCheckpoint(WRITTEN_MS - 60_000, 52, 3)))
    (row,) = rows_of_kind(capsys, "timer", "--store", str(growing.store))
    assert row["messages_max"] == 3


def test_timers_have_no_upper_bound_without_timer_progress_in_a_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([timer(1, -50, "U1"), timer(2, 100, "U2")])
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 0}})
    for arguments in places_of(growing).values():
        (row,) = rows_of_kind(capsys, "timer", *arguments)
        assert (row["messages_min"], row["messages_max"]) == (0, None)
        assert "no snapshot has this broker's progress with its timers" in row["notes"][1]


@pytest.fixture
def delayed(tmp_path: Path) -> dict[str, list[str]]:
    """A message of level 1 that was stored 30 s before."""
    growing = GrowingLake(tmp_path)
    growing.write([stored(SCHEDULE, 570)])
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 0}})
    put_offsets(growing.store, "delayOffset.json", {1: 0})
    return places_of(growing)


@pytest.mark.parametrize("place", ["lake", "store"])
def test_the_default_delays_are_used_with_a_note(
    place: str, delayed: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = rows_of_kind(capsys, "delay", *delayed[place])
    assert (row["messages_max"], row["time_lag_s_max"]) == (1, 29.0)
    assert (
        "level 1, 1 s (assumed: RocketMQ's default; --broker-conf gives the broker's own); 0 more wait"
        in (row["notes"])
    )


@pytest.mark.parametrize("place", ["lake", "store"])
def test_the_delays_of_the_brokers_settings_are_used(
    place: str, delayed: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "broker-a.conf"
    conf.write_text("messageDelayLevel=40s 1m\n")
    (row,) = rows_of_kind(capsys, "delay", *delayed[place], "--broker-conf", str(tmp_path / "{broker}.conf"))
    assert (row["messages_max"], row["verdict"]) == (0, "ok")
    assert row["notes"] == ["level 1, 40 s; 1 more wait"]


def test_impossible_delays_are_refused(
    delayed: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=soon\n")
    assert main([*delayed["store"], "--broker-conf", str(conf)]) == 2
    assert (
        "messageDelayLevel: expected delays such as '1s 5m 2h', separated by blanks, found 'soon'"
        in capsys.readouterr().err
    )
