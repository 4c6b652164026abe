"""The map in `docs/architecture.md` names files and packages that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def test_every_path_on_the_map_exists() -> None:
    tops = "schemas|connectors|pipelines|jobs|broker_lite|tests"
    named = set(re.findall(rf"`((?:{tops})/[\w/.]+)`", TEXT)) | set(re.findall(r"\]\(\.\./([\w/.]+)\)", TEXT))
    assert len(named) > 20
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_every_package_is_on_the_map() -> None:
    named = set(re.findall(r"`(?:schemas/|connectors/|pipelines/)?(\w+)`", TEXT))
    folders = [
        folder.name
        for top in ("schemas", "connectors", "pipelines")
        for folder in (ROOT / top).iterdir()
        if (folder / "__init__.py").exists()
    ]
    assert sorted(set(folders) - named) == []
