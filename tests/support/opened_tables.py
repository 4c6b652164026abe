"""A fixture that records which tables are opened, which a test module imports."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tables that were opened, once for each time."""
    found: list[str] = []
    really = DeltaTable.__init__

    def count(self: DeltaTable, table_uri: str, *arguments: object, **options: object) -> None:
        found.append(Path(table_uri).name)
        really(self, table_uri, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "__init__", count)
    return found
