"""Tests of the folder in memory where tests keep their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.memory_folder import SHARED_MEMORY, memory_folder


def test_a_folder_on_a_disk_is_not_in_memory(tmp_path: Path) -> None:
    assert memory_folder(tmp_path, 0) is None
    assert memory_folder(tmp_path / "none", 0) is None


def test_a_folder_without_enough_room_is_not_used() -> None:
    assert memory_folder(SHARED_MEMORY, 1 << 60) is None


def test_the_limit_of_a_container_is_respected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr("tests.support.memory_folder._LIMITS", (str(limit),))
    limit.write_text("max\n")
    without_limit = memory_folder(free_bytes=1 << 20)
    limit.write_text(f"{1 << 20}\n")
    assert memory_folder(free_bytes=1 << 20) is None
    assert without_limit in {None, SHARED_MEMORY}  # not every machine has one
