"""Fixtures of the tests of jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run each test in a new folder, also its home folder, so that no settings from outside apply."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in [name for name in os.environ if name.startswith("COMMITLAKE_")]:
        monkeypatch.delenv(name)
    return folder
