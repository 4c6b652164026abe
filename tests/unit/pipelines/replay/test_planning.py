"""Selected messages by window of time."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.pipelines.replay.planning import MAX_WINDOWS, count_messages_by_queue, count_over_time
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

START = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
SPACE_MS = 700


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Messages of two topics, 0.7 s apart, and one that was stored two years later."""
    growing = GrowingLake(Path(tmp_path_factory.mktemp("times")))
    times = [*(MIDNIGHT_MS + SPACE_MS * number for number in range(20)), MIDNIGHT_MS + 2 * 365 * 86_400_000]
    growing.write(
        new_message(number, topic=f"topic-{number % 2}", born_timestamp=time) for number, time in enumerate(times)
    )
    growing.archive()
    return growing


def test_messages_are_counted_by_second(growing: GrowingLake) -> None:
    table = growing.lake.table("messages")
    where = f"store_timestamp < '{START + datetime.timedelta(days=1)}'"
    found = count_over_time(table, where, count_messages_by_queue(table, where))
    assert found.step == datetime.timedelta(seconds=1)
    assert found.starts == [START + datetime.timedelta(seconds=second) for second in range(14)]
    expected = {f"topic-{odd}": [0] * 14 for odd in (0, 1)}
    for number in range(20):
        expected[f"topic-{number % 2}"][number * SPACE_MS // 1000] += 1
    assert found.messages == expected


def test_the_length_of_windows_depends_on_the_time(growing: GrowingLake) -> None:
    table = growing.lake.table("messages")
    found = count_over_time(table, "true", count_messages_by_queue(table, "true"))
    assert found.step == datetime.timedelta(days=30)
    assert len(found.starts) <= MAX_WINDOWS
    assert sum(map(sum, found.messages.values())) == 21
    assert found.messages["topic-0"][-1] == 1


def test_no_messages_give_no_window(growing: GrowingLake) -> None:
    table = growing.lake.table("messages")
    assert count_over_time(table, "false", []).messages == {}
