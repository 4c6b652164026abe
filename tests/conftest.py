"""Fixtures of unit and integration tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.signals import MarkedProcess


@pytest.fixture
def without_collection() -> Iterator[None]:
    """Let Python's garbage collector not look through what other tests keep, while time is measured."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def started() -> Iterator[list[MarkedProcess]]:
    """Processes that end with the test."""
    processes: list[MarkedProcess] = []
    yield processes
    for each in processes:
        each.left()
        each.process.communicate()
