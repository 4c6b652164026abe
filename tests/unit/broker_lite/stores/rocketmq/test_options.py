"""Tests of the settings of a store: defaults, meaning, and refused values."""

from __future__ import annotations

from typing import Any

import pytest

from commitlake.broker_lite.stores.rocketmq import StoreError, StoreOptions
from commitlake.schemas.layouts.rocketmq.broker_conf import parse_delay_levels


def test_defaults_are_those_of_rocketmq() -> None:
    options = StoreOptions()
    assert options.segment_size_bytes == 1 << 30
    assert options.consume_queue_file_size_bytes == 300_000 * 20
    assert options.index_geometry.file_size == 420_000_040
    assert options.max_message_size_bytes == 4 << 20
    assert len(options.delay_levels_ms) == 18


def test_delay_levels_are_numbers_with_units() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == (1_000, 300_000, 7_200_000, 86_400_000)


@pytest.mark.parametrize("text", ["", "1", "s", "1s  5s", "1x", "-1s", "1.5s", "\u0661s"])
def test_invalid_delay_levels_are_refused(text: str) -> None:
    with pytest.raises(StoreError, match="message_delay_level: expected delays such as"):
        StoreOptions(message_delay_level=text)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"segment_size_bytes": 98}, "segment_size_bytes: expected 99 to 2147483647, found 98"),
        ({"segment_size_bytes": 1 << 31}, "segment_size_bytes: expected 99 to 2147483647, found 2147483648"),
        ({"consume_queue_file_size_bytes": 0}, "consume_queue_file_size_bytes: expected 20"),
        ({"consume_queue_file_size_bytes": 30}, "expected a multiple of 20"),
        ({"index_slots": 0}, "index_slots: expected 1"),
        ({"index_entries": 1}, "index_entries: expected 2"),
        ({"flush_interval_ms": 0}, "flush_interval_ms: expected 1"),
        ({"max_message_size_bytes": -1}, "max_message_size_bytes: expected 0"),
    ],
)
def test_wrong_values_are_refused_with_found_and_expected(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(StoreError, match=expected):
        StoreOptions(**wrong)
