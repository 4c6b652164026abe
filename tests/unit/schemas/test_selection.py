"""Selections, and the conditions that an engine refuses."""

from __future__ import annotations

import datetime

import pytest

from commitlake.schemas.errors import UsageError
from commitlake.schemas.selection import ALL_MESSAGES, Selection

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def test_values_are_those_of_the_columns_that_must_have_one_of_them() -> None:
    assert ALL_MESSAGES.column_values == []
    wanted = Selection(topics=["orders"], queue_ids=[0], tags=["paid"], groups=["billing"], keys=["a"], start=NOON)
    assert wanted.column_values == [
        ("topic", ["orders"]),
        ("topic", ["%DLQ%billing"]),
        ("queue_id", [0]),
        ("tags", ["paid"]),
    ]


def test_a_condition_that_an_engine_cannot_check_is_refused() -> None:
    wanted = Selection(topics=["orders"], where="true", end=NOON)
    wanted.refuse_conditions("HBase", "groups", "tags")
    with pytest.raises(UsageError, match=r"^HBase cannot select messages by where: leave this condition out"):
        wanted.refuse_conditions("HBase", "groups", "where")
