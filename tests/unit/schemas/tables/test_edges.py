"""Tests that the comments of the columns of `edges` name all values of the columns."""

from __future__ import annotations

from enum import StrEnum

import pytest

from commitlake.schemas.tables.edges import EDGES, AbsentReason, EdgeKind


@pytest.mark.parametrize(("name", "values"), [("kind", EdgeKind), ("absent_reason", AbsentReason)])
def test_comment_of_column_lists_its_values(name: str, values: type[StrEnum]) -> None:
    comment = EDGES[name].comment
    listed = comment.split(": ", 1)[1].split(", ")
    assert listed == [value.value for value in values]
