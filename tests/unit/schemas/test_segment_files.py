"""Tests of listing files that are named by the offset of their first byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.schemas.safe_store_files import UnsafeFileError
from commitlake.schemas.segment_files import files_by_start

ARABIC = "".join(chr(ord("\u0660") + int(digit)) for digit in f"{7:020d}")


def test_names_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [ARABIC, f"{1 << 40:020d}", f"{3:020d}"]
    for name in [*names, "9" * 20, "9" * 200, "-" + "0" * 19, "3"]:
        (tmp_path / name).touch()
    (tmp_path / f"{5:020d}").mkdir()
    assert list(files_by_start(tmp_path).items()) == [(3, names[2]), (7, ARABIC), (1 << 40, names[1])]
    assert files_by_start(tmp_path / "no-such") == {}


def test_two_names_of_one_number_are_refused(tmp_path: Path) -> None:
    for name in (ARABIC, f"{7:020d}"):
        (tmp_path / name).touch()
    with pytest.raises(UnsafeFileError, match="expected one file that begins at 7, found another"):
        files_by_start(tmp_path)
