"""Packages are blocked only for a while, and loaded modules stay available."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from commitlake.connectors.runtime.blocked_imports import blocked_imports

NAME = "this"  # of a module that nobody has imported


def test_a_module_cannot_be_imported_until_the_end() -> None:
    with blocked_imports(NAME), pytest.raises(ModuleNotFoundError, match="left out"):
        importlib.import_module(NAME)
    assert importlib.util.find_spec(NAME) is not None


def test_a_module_can_be_imported_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="of the run"), blocked_imports(NAME):
        raise ValueError("of the run")
    assert importlib.util.find_spec(NAME) is not None


def test_other_modules_are_found() -> None:
    with blocked_imports(NAME):
        assert importlib.util.find_spec("antigravity") is not None


def test_loaded_modules_stay_available() -> None:
    with blocked_imports("importlib"):
        assert importlib.import_module("importlib") is importlib
