"""Texts for stories: ordinals, durations, times, groups and levels."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from commitlake.schemas.layouts.rocketmq.properties import ORIGIN_GROUP, REAL_TOPIC
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, POP_SEPARATORS, RETRY_PREFIX
from commitlake.schemas.times import MILLISECOND, to_display_zone

_ORDINALS = ("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}
_SECOND = datetime.timedelta(seconds=1)
_UNITS = (("d", 86400), ("h", 3600), ("min", 60))
_NEAR = datetime.timedelta(days=6)


def ordinal_text(number: int) -> str:
    """Return a number as an ordinal, such as `first` or `22nd`.

    >>> [ordinal_text(number) for number in (1, 3, 11, 12, 22, 113)]
    ['first', 'third', '11th', '12th', '22nd', '113th']
    """
    if 0 <= number < len(_ORDINALS):
        return _ORDINALS[number]
    suffix = "th" if number // 10 % 10 == 1 else _SUFFIXES.get(number % 10, "th")
    return f"{number}{suffix}"


def approximate_duration_text(duration: datetime.timedelta) -> str:
    """Return a duration as text, to about two digits.

    >>> lengths = [datetime.timedelta(milliseconds=ms) for ms in (0, 74, 4_230, 90_000, 172_800_000, -500)]
    >>> list(map(approximate_duration_text, lengths))
    ['0 ms', '74 ms', '4.2 s', '1.5 min', '2 d', '-500 ms']
    """
    if duration < datetime.timedelta():
        return f"-{approximate_duration_text(-duration)}"
    if duration < _SECOND:
        return f"{duration // MILLISECOND} ms"
    seconds = duration / _SECOND
    if seconds < 10:
        return f"{seconds:.2g} s"
    for unit, unit_seconds in _UNITS:
        if seconds >= unit_seconds:
            count = seconds / unit_seconds
            return f"{count:.0f} {unit}" if count >= 10 else f"{f'{count:.1f}'.removesuffix('.0')} {unit}"
    return f"{seconds:.0f} s"


def clock_text(moment: datetime.datetime) -> str:
    """Return the time of day to the millisecond, in the time zone of the given time."""
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def relative_time_text(moment: datetime.datetime, now: datetime.datetime | None) -> str:
    """Return a time as text for people, with the date only if it differs from the date of `now`.

    >>> now = datetime.datetime(2026, 11, 24, 15, tzinfo=datetime.UTC)
    >>> [relative_time_text(now - datetime.timedelta(days=days), now) for days in (0, 1, 30)]
    ['15:00:00', 'Mon 2026-11-23 15:00:00', '2026-10-25 15:00:00']
    """
    shown = to_display_zone(moment)
    clock = f"{shown:%H:%M:%S}"
    if now is not None and shown.date() == to_display_zone(now).date():
        return clock
    day = shown.date().isoformat()
    is_near = now is not None and abs(now - moment) <= _NEAR
    return f"{shown:%a} {day} {clock}" if is_near else f"{day} {clock}"


def consumer_group_of(topic: str, properties: Mapping[str, str]) -> str | None:
    """Return the consumer group whose failed message a record is a copy of; None for other records.

    Args:
        topic: Topic that stores the record: a retry topic, a dead letter topic, or one in which it waits.
        properties: Properties of the record.
    """
    for name in (topic, properties.get(REAL_TOPIC, "")):
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix):
                return _group_in_topic_name(name.removeprefix(prefix), properties.get(ORIGIN_GROUP))
    return None


def _group_in_topic_name(topic_name: str, stated_group: str | None) -> str:
    """Return the group in a topic's name; for a POP consumer, the name also ends with the message's topic."""
    if stated_group and any(topic_name.startswith(f"{stated_group}{separator}") for separator in POP_SEPARATORS):
        return stated_group
    return topic_name
