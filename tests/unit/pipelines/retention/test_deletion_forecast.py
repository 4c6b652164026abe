"""The broker's rule: age, hours, how full the disk is, order, batches, the newest segment."""

from __future__ import annotations

import datetime
from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from commitlake.pipelines.retention.deletion_forecast import Forecast, forecast_deletions
from commitlake.pipelines.retention.deletion_rules import DeletionCause, Disk, Rules, read_disk_usage
from commitlake.pipelines.retention.segments import StoredSegment, measure_log_growth, newest_segment_index
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf

UTC = ZoneInfo("UTC")
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = datetime.timedelta(hours=1)
SIZE = 1000
EMPTY = Disk(1, 0, 100_000)


def segments_of(*ages: float, size: int = SIZE) -> list[StoredSegment]:
    """Return segments by the hours since their last write, oldest first; the last one is being written."""
    return [StoredSegment(number * size, size, size, NOON - age * HOUR, begun=True) for number, age in enumerate(ages)]


def rules_of(version: int = 5, zone: str = "UTC", **conf: object) -> Rules:
    """Return a broker's rules."""
    return Rules(BrokerConf(**conf), ZoneInfo(zone), version)  # type: ignore[arg-type]


def deleted_count(fates: list[Forecast], moment: datetime.datetime = NOON) -> int:
    """Return the number of segments deleted by a moment."""
    return sum(fate.deleted_at is not None and fate.deleted_at <= moment for fate in fates)


def test_an_expired_segment_is_deleted_in_the_next_delete_hour() -> None:
    first, second, last = forecast_deletions(segments_of(80, 71, 1), rules_of(), [EMPTY], NOON)
    assert first.expires_at == NOON - 8 * HOUR
    assert (first.deleted_at, first.cause) == (NOON + 16 * HOUR, DeletionCause.TIME)
    assert second.expires_at == NOON + HOUR
    assert second.deleted_at == first.deleted_at
    assert last == Forecast(last.segment, is_newest=True)


def test_within_the_delete_hour_an_expired_segment_is_deleted_at_once() -> None:
    fates = forecast_deletions(segments_of(72, 71.9, 0), rules_of(delete_hours=(12,)), [EMPTY], NOON)
    assert fates[0].deleted_at == NOON
    assert fates[1].deleted_at == NOON + 0.1 * HOUR


def test_the_delete_hour_is_in_the_brokers_time_zone() -> None:
    rules = rules_of(zone="Asia/Shanghai", delete_hours=(20,))
    assert forecast_deletions(segments_of(80, 0), rules, [EMPTY], NOON)[0].deleted_at == NOON
    kathmandu = rules_of(zone="Asia/Kathmandu")  # 05:45 ahead
    assert kathmandu.next_delete_hour(NOON) == NOON + datetime.timedelta(hours=10, minutes=15)


def test_an_hour_skipped_by_a_clock_change_is_on_the_next_day() -> None:
    berlin = rules_of(zone="Europe/Berlin", delete_hours=(2,))
    before = datetime.datetime(2026, 3, 29, 0, 30, tzinfo=UTC)  # 01:30 there; at 2 it will be 3
    assert berlin.next_delete_hour(before) == datetime.datetime(2026, 3, 30, 0, 0, tzinfo=UTC)


def test_a_modified_segment_keeps_those_after_it() -> None:
    fates = forecast_deletions(segments_of(90, 1, 90, 0), rules_of(delete_hours=(12,)), [EMPTY], NOON)
    assert [fate.deleted_at for fate in fates[:2]] == [NOON, NOON + 72 * HOUR]
    assert fates[2].expires_at == NOON - 18 * HOUR
    assert fates[2].deleted_at == NOON + 72 * HOUR


def test_without_order_a_segment_expires_by_its_own_age() -> None:
    rules = replace(rules_of(4, delete_hours=(12,)), keeps_order=False)
    fates = forecast_deletions(segments_of(90, 1, 90, 0), rules, [EMPTY], NOON)
    assert [fate.deleted_at for fate in fates[:3]] == [NOON, NOON + 72 * HOUR, NOON]


def test_segments_written_before_the_known_time_are_expired() -> None:
    rules = replace(rules_of(4, delete_hours=(14,)), known_since=NOON - 2 * HOUR)
    fates = forecast_deletions(segments_of(3, 2, 1, 0), rules, [EMPTY], NOON)
    assert [fate.deleted_at for fate in fates[:3]] == [NOON + 2 * HOUR, NOON + 2 * HOUR, NOON + 74 * HOUR]
    assert fates[0].expires_at == NOON - 3 * HOUR


def test_a_single_segment_is_not_deleted() -> None:
    assert forecast_deletions(segments_of(900), rules_of(delete_hours=(12,)), [EMPTY], NOON)[0].deleted_at is None


def test_a_preallocated_segment_is_not_the_newest() -> None:
    segments = [*segments_of(900, 900), StoredSegment(2 * SIZE, SIZE, 0, NOON, begun=False)]
    assert newest_segment_index(segments) == 1
    fates = forecast_deletions(segments, rules_of(delete_hours=(12,)), [EMPTY], NOON)
    assert [fate.deleted_at for fate in fates] == [NOON, None, None]
    assert fates[1].is_newest


@pytest.mark.parametrize(("used", "count"), [(75_000, 0), (75_001, 2)])
def test_on_a_full_disk_expired_segments_are_deleted_at_any_hour(used: int, count: int) -> None:
    fates = forecast_deletions(segments_of(80, 73, 1, 0), rules_of(), [Disk(1, used, 100_000)], NOON)
    assert deleted_count(fates) == count
    assert {fate.cause for fate in fates[:count]} <= {DeletionCause.DISK}


def test_deletion_stops_when_the_disk_has_space_again() -> None:
    fates = forecast_deletions(segments_of(*[80] * 40), rules_of(), [Disk(1, 85_000, 100_000)], NOON)
    # 10 of 1000 bytes at a time: one pass leaves exactly 75 %.
    assert deleted_count(fates) == 10
    assert fates[10].cause is DeletionCause.TIME


@pytest.mark.parametrize(("used", "count"), [(85_000, 0), (85_001, 10), (95_000, 10), (96_000, 20), (99_999, 20)])
def test_on_a_fuller_disk_segments_of_any_age_are_deleted(used: int, count: int) -> None:
    fates = forecast_deletions(segments_of(*[1] * 30), rules_of(), [Disk(1, used, 100_000)], NOON)
    assert deleted_count(fates) == count
    assert {fate.cause for fate in fates[:count]} <= {DeletionCause.FORCED}


def test_forced_cleaning_can_be_disabled() -> None:
    fates = forecast_deletions(segments_of(1, 1, 0), rules_of(cleans_forcibly=False), [Disk(1, 99_000, 100_000)], NOON)
    assert deleted_count(fates) == 0


def test_version_5_bounds_the_limits_and_version_4_ignores_the_settings() -> None:
    conf = BrokerConf(clean_forcibly_percent=97, warning_percent=98)
    assert (Rules(conf).forced_deletion_percent, Rules(conf).refusal_percent) == (85, 90)
    assert (Rules(conf, version=4).forced_deletion_percent, Rules(conf, version=4).refusal_percent) == (85, 90)
    properties = Rules(conf, version=4, forcibly_ratio=0.97, warning_ratio=0.98)
    assert (properties.forced_deletion_percent, properties.refusal_percent) == (97, 98)
    assert Rules(conf, forcibly_ratio=0.1, warning_ratio=0.57).forced_deletion_percent == 30
    assert Rules(conf, forcibly_ratio=0.1, warning_ratio=0.57).refusal_percent == 57
    assert (
        Rules(BrokerConf(delete_batch=3)).max_deletions_per_pass,
        Rules(BrokerConf(delete_batch=3), version=4).max_deletions_per_pass,
    ) == (3, 10)


def test_version_4_cleans_forcibly_only_when_it_deletes_anyway() -> None:
    disk = Disk(1, 90_000, 100_000)
    segments = segments_of(1, 1, 0)
    assert deleted_count(forecast_deletions(segments, rules_of(5, disk_max_used_percent=95), [disk], NOON)) == 2
    four = rules_of(4, disk_max_used_percent=95)
    fates = forecast_deletions(segments, four, [disk], NOON)
    assert (fates[0].deleted_at, fates[0].cause) == (NOON + 16 * HOUR, DeletionCause.FORCED)
    assert deleted_count(forecast_deletions(segments, rules_of(4), [disk], NOON)) == 2


def test_a_disk_that_fills_up_is_predicted() -> None:
    disk = Disk(1, 74_000, 100_000, growth=1000 / 3600)
    fates = forecast_deletions(segments_of(73, *[2] * 30), rules_of(), [disk], NOON)
    assert (fates[0].deleted_at, fates[0].cause) == (NOON + HOUR, DeletionCause.DISK)
    assert (fates[1].deleted_at, fates[1].cause) == (NOON + 11 * HOUR, DeletionCause.FORCED)
    # By then ten are gone, and what they took must be written again first.
    assert fates[10].deleted_at == NOON + 21 * HOUR
    assert disk.time_when_usage_exceeds(75, NOON) == NOON + HOUR
    assert Disk(1, 74_000, 100_000).time_when_usage_exceeds(75, NOON) is None


def test_the_newest_segment_is_deleted_when_full_and_old_enough() -> None:
    segment = StoredSegment(0, 1000, 1000, NOON, begun=True, written=400)
    (fate,) = forecast_deletions(
        [segment], rules_of(file_reserved_hours=1, delete_hours=(14,)), [EMPTY], NOON, 100 / 3600
    )
    assert fate.is_newest
    assert fate.expires_at is None
    assert fate.deleted_at == NOON + 26 * HOUR  # full in six hours, old in seven
    assert fate.cause is DeletionCause.TIME


def test_the_disk_of_the_queues_is_checked_but_not_freed() -> None:
    fates = forecast_deletions(segments_of(*[80] * 30), rules_of(), [EMPTY, Disk(2, 80_000, 100_000)], NOON)
    assert deleted_count(fates) == 29
    assert fates[0].cause is DeletionCause.DISK


def test_growth_is_measured_over_the_last_day() -> None:
    assert measure_log_growth(segments_of(48, 24, 12, 0), NOON) == pytest.approx(2000 / 86400)
    assert measure_log_growth(segments_of(6, 3, 0), NOON) == pytest.approx(2000 / 6 / 3600)
    assert measure_log_growth(segments_of(0), NOON) == 0
    assert measure_log_growth(segments_of(0, 0, 0), NOON) == 0


def test_disk_usage_is_computed_as_by_java(tmp_path: object) -> None:
    disk = read_disk_usage(tmp_path)  # type: ignore[arg-type]
    assert 0 < disk.used < disk.entire
    assert disk.used_percent == pytest.approx(100 * disk.used / disk.entire)
