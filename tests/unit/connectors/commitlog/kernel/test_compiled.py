"""What is compiled is kept where it can be written, and never used for another source."""

from __future__ import annotations

import os
from pathlib import Path

import numba
import pytest

from connectors.commitlog.kernel import compiled


def test_compiled_functions_lie_beside_the_source_where_that_can_be_written() -> None:
    folder = Path(compiled._cache_folder())
    assert folder.parent == Path(compiled.__file__).parent / "__pycache__"
    assert os.environ.get("NUMBA_CACHE_DIR") or vars(numba.config)["CACHE_DIR"] == str(folder)


def test_a_read_only_install_keeps_them_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Path(compiled._cache_folder()).parent == tmp_path / "commitlake"


def test_the_folder_is_another_when_any_of_the_sources_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in compiled._SOURCES:
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(compiled, "_PROJECT", tmp_path)
    found = {compiled._digest()}
    for number, folder in enumerate(compiled._SOURCES):
        (tmp_path / folder / "module.py").write_text(f"VALUE = {number}\n")
        found.add(compiled._digest())
    (tmp_path / compiled._SOURCES[0] / "module.py").write_text("VALUE = 7\n")
    found.add(compiled._digest())
    assert len(found) == len(compiled._SOURCES) + 2
