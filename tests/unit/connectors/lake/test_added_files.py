"""New data files of `messages`, in groups; tests/unit/pipelines/message_keys reads them from lakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.added_files import group_files, processed_erasure_number, processed_version
from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.lake import Lake


@pytest.mark.parametrize(
    ("rows", "groups"),
    [
        ([], []),
        ([3], [[3]]),
        ([3, 4, 3, 9], [[3, 4, 3], [9]]),
        ([11, 1, 12], [[11], [1], [12]]),  # a file is never divided
        ([None, 1, None], [[None, 1], [None]]),  # without statistics it counts 8
    ],
)
def test_groups_have_the_files_in_order_and_fit(rows: list[int | None], groups: list[list[int | None]]) -> None:
    files = [AddedFile(str(number), str(number), None, 1, count) for number, count in enumerate(rows)]
    found = list(group_files(files, 10, default_rows_per_file=8))
    assert [[file.rows for file in group] for group in found] == groups
    assert [file for group in found for file in group] == files


def test_a_missing_table_has_reached_no_version(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert processed_version(lake, "edges", "commitlake.edges") == -1
    assert processed_erasure_number(lake, "edges") == 0
