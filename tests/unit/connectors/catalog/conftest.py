"""A catalog for each test, and the environment of a user who names no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.unity_catalog import UnityCatalog

VARIABLES = ("UNITY_CATALOG_URL", "UNITY_CATALOG_TOKEN", "DATABRICKS_HOST", "DATABRICKS_TOKEN")


@pytest.fixture(autouse=True)
def no_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set no catalog."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def catalog() -> Iterator[UnityCatalog]:
    """An empty catalog."""
    with UnityCatalog() as running:
        yield running
