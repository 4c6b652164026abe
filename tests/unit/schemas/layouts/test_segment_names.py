"""Names of segments and of queues' folders."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.segment_names import (
    MAX_START_OFFSET,
    is_segment_name,
    max_entry_number,
    parse_queue_folder,
    parse_segment_name,
    segment_name,
)


@pytest.mark.parametrize("offset", [0, 1 << 30, MAX_START_OFFSET])
def test_an_offset_is_read_back_from_its_name(offset: int) -> None:
    assert len(segment_name(offset)) == 20
    assert parse_segment_name(segment_name(offset)) == offset


def test_digits_of_other_scripts_are_read() -> None:
    assert parse_segment_name("\u0660" * 19 + "\u0667") == 7


@pytest.mark.parametrize(
    "name", ["", "0" * 19, "0" * 21, "0" * 19 + "x", "-" + "0" * 19, "9" * 20, segment_name(MAX_START_OFFSET + 1)]
)
def test_other_names_are_not_segments(name: str) -> None:
    assert not is_segment_name(name)


@pytest.mark.parametrize(("name", "number"), [("0", 0), ("17", 17), ("2147483647", 2147483647)])
def test_a_queues_folder_is_its_number(name: str, number: int) -> None:
    assert parse_queue_folder(name) == number


@pytest.mark.parametrize("name", ["", "00", "-1", "+1", " 1", "\u0667", "2147483648", "x"])
def test_other_folders_are_not_queues(name: str) -> None:
    assert parse_queue_folder(name) is None


def test_the_position_of_the_largest_entry_fits_into_64_bits() -> None:
    assert all(max_entry_number(size) * size < 1 << 63 for size in (8, 20, 46))
