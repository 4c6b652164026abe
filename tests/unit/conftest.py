"""Fixture of all unit tests."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: no unit test ends with a crash of the machine.

    Tests of what is synced, and of a disk that fails, replace these functions with their own.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
