"""Keys from a file, one per line."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.jobs.arguments import keys_file
from commitlake.jobs.arguments.keys_file import read_keys
from commitlake.jobs.cli.command import JobError


def test_lines_are_keys_without_blanks(tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_bytes(b"\xef\xbb\xbforder-1\r\n\n  order 2\t\n\xe8\xae\xa2\xe5\x8d\x95\n")
    assert read_keys(str(file)) == ["order-1", "order 2", "订单"]


def test_repeated_keys_are_read_once_and_do_not_count_for_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("b\na\nb\n")
    assert read_keys(str(file), 2) == ["b", "a"]
    with pytest.raises(JobError, match="expected at most 1 keys, found 2"):
        read_keys(str(file), 1)


def test_files_that_have_no_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.txt"
    with pytest.raises(JobError, match="the file cannot be read: No such file"):
        read_keys(str(file))
    file.write_text("\n \n")
    with pytest.raises(JobError, match="expected one key per line, found none"):
        read_keys(str(file))
    file.write_bytes(b"a\xff")
    with pytest.raises(JobError, match="expected UTF-8, found an invalid byte at position 1"):
        read_keys(str(file))
    monkeypatch.setattr(keys_file, "MAX_FILE_BYTES", 1)
    with pytest.raises(JobError, match="expected a file of at most 1 bytes, found a larger one"):
        read_keys(str(file))
