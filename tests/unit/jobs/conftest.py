"""What tests of jobs share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep settings from outside away: a test runs in a folder of its own, which is its user's home, too."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in [name for name in os.environ if name.startswith("COMMITLAKE_")]:
        monkeypatch.delenv(name)
    return folder
