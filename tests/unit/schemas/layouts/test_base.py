"""Small files of one page."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.base import PAGE_SIZE, pad_to_page, parse_file_head
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.checkpoint import LAYOUT as CHECKPOINT


def test_fields_are_read_back_from_a_page() -> None:
    fields = bytes(range(CHECKPOINT.size))
    page = pad_to_page(fields)
    assert len(page) == PAGE_SIZE
    assert parse_file_head(CHECKPOINT, "checkpoint", page) == parse_file_head(CHECKPOINT, "checkpoint", fields)


def test_a_file_that_is_too_short_is_an_error() -> None:
    with pytest.raises(LayoutError, match=f"at least {CHECKPOINT.size} bytes"):
        parse_file_head(CHECKPOINT, "checkpoint", bytes(CHECKPOINT.size - 1))
