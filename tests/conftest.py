"""Fixtures of unit and integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.signals import MarkedProcess


@pytest.fixture
def started() -> Iterator[list[MarkedProcess]]:
    """Processes that end with the test."""
    processes: list[MarkedProcess] = []
    yield processes
    for each in processes:
        each.left()
        each.process.communicate()
