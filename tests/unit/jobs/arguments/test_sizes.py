"""Sizes for people."""

from __future__ import annotations

import pytest

from commitlake.jobs.arguments.sizes import size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_a_size_has_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert size_text(count) == text
