"""A profile that is too large for memory gives the same result as one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.pipelines.audit.window_profiles import Profile, ProfileTotals
from tests.support.profiles import Row, message
from tests.support.windows import windows_of

IN_MEMORY, ON_DISK = 1000, 4


def profile_of(folder: Path, rows: list[Row], max_rows: int) -> Profile:
    profile = Profile(folder, max_rows)
    for start in range(0, len(rows), 3):
        profile.add_windows(windows_of(rows[start : start + 3]))
    return profile


def some_rows(**changes: object) -> Iterator[Row]:
    for number in range(20):
        yield message(number * 600, topic=f"topic-{number % 4}", **changes)


@pytest.mark.parametrize("limits", [(IN_MEMORY, IN_MEMORY), (ON_DISK, IN_MEMORY), (ON_DISK, ON_DISK)])
def test_differences_are_the_same_in_memory_and_on_disk(tmp_path: Path, limits: tuple[int, int]) -> None:
    rows = list(some_rows())
    changed = [*rows[1:8], {**rows[8], "tags": "other"}, *rows[9:], message(5, broker="b")]
    with profile_of(tmp_path, rows, limits[0]) as expected, profile_of(tmp_path, changed, limits[1]) as found:
        assert (expected.is_on_disk, found.is_on_disk) == tuple(limit == ON_DISK for limit in limits)
        assert expected.count_totals() == ProfileTotals(20, 20)
        differences = expected.compare_with(found, limit=1)
        assert differences.counts == {("a", "missing"): 1, ("a", "different"): 1, ("b", "unexpected"): 1}
        assert [(row["topic"], row["difference"]) for row in differences.rows] == [
            ("topic-0", "missing"),
            ("topic-0", "different"),
            ("orders", "unexpected"),
        ]
        assert differences.rows[1]["different_columns"] == ["row_checksum"]
        assert not expected.compare_with(expected).window_count
    assert not list(tmp_path.iterdir())


def test_windows_of_many_tasks_are_merged_although_they_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.pipelines.audit.window_profiles._MAX_TABLES", 3)
    with profile_of(tmp_path, list(some_rows()), IN_MEMORY) as profile:
        assert len(profile._held) <= 3
        assert (profile.is_on_disk, profile.count_totals()) == (False, ProfileTotals(20, 20))


def test_only_the_first_differences_of_a_kind_are_listed(tmp_path: Path) -> None:
    with (
        profile_of(tmp_path, list(some_rows()), ON_DISK) as expected,
        profile_of(tmp_path, [], IN_MEMORY) as found,
    ):
        differences = expected.compare_with(found, limit=3)
        assert differences.window_count == 20
        assert [(row["topic"], str(row["window_start"])) for row in differences.rows] == [
            ("topic-0", "2026-11-20 12:00:00"),
            ("topic-0", "2026-11-20 12:40:00"),
            ("topic-0", "2026-11-20 13:20:00"),
        ]
