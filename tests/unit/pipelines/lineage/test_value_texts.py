"""Ordinals, lengths of time, times and groups in words."""

from __future__ import annotations

import datetime

import pytest

from commitlake.pipelines.lineage.value_texts import (
    approximate_duration_text,
    clock_text,
    consumer_group_of,
    ordinal_text,
    relative_time_text,
)

NOW = datetime.datetime(2026, 11, 24, 15, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "first"), (3, "third"), (10, "tenth"), (11, "11th"), (22, "22nd"), (113, "113th"), (101, "101st")],
)
def test_numbers_have_their_ordinals(number: int, text: str) -> None:
    assert ordinal_text(number) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (74, "74 ms"), (4_230, "4.2 s"), (9_990, "10 s"), (90_000, "1.5 min"), (3_600_036, "1 h"),
     (172_800_000, "2 d"), (-500, "-500 ms")],
)  # fmt: skip
def test_lengths_of_time_are_rounded_texts(milliseconds: int, text: str) -> None:
    assert approximate_duration_text(datetime.timedelta(milliseconds=milliseconds)) == text


def test_the_longest_lengths_of_time_are_texts() -> None:
    assert approximate_duration_text(datetime.timedelta.max) == "1000000000 d"
    assert approximate_duration_text(datetime.timedelta.min) == "-999999999 d"


def test_a_time_of_day_has_whole_milliseconds_in_its_own_zone() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert clock_text(datetime.datetime(2026, 11, 21, 1, 30, 0, 7_999, tzinfo=zone)) == "01:30:00.007"


@pytest.mark.parametrize(
    ("days", "text"), [(0, "15:00:00"), (1, "Mon 2026-11-23 15:00:00"), (30, "2026-10-25 15:00:00")]
)
def test_a_time_on_another_day_has_its_date(days: int, text: str) -> None:
    assert relative_time_text(NOW - datetime.timedelta(days=days), NOW) == text


@pytest.mark.parametrize(
    ("topic", "properties", "group"),
    [
        ("%RETRY%billing", {}, "billing"),
        ("%DLQ%billing", {}, "billing"),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%billing"}, "billing"),
        ("%RETRY%g+orders", {"ORIGIN_GROUP": "g"}, "g"),
        ("%RETRY%g_orders", {"ORIGIN_GROUP": "g"}, "g"),
        ("orders", {}, None),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "orders"}, None),
    ],
)
def test_the_group_of_a_copy_is_in_its_topic(topic: str, properties: dict[str, str], group: str | None) -> None:
    assert consumer_group_of(topic, properties) == group
