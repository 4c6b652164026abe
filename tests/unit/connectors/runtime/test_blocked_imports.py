"""Packages are blocked only for a while, and loaded modules stay available."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import pytest

from commitlake.connectors.runtime.blocked_imports import blocked_imports

NAME = "this"  # of a module that nobody has imported
PANDAS = """
import sys
import pyarrow as pa
from commitlake.connectors.runtime.blocked_imports import disable_pandas_import

disable_pandas_import()
print(pa.array([1, 2]).to_pylist(), "pandas" in sys.modules)
"""


def test_a_module_cannot_be_imported_until_the_end() -> None:
    with blocked_imports(NAME), pytest.raises(ModuleNotFoundError, match="blocks the import"):
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


def run(program: str) -> str:
    """Run a program in a process of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_arrow_converts_values_without_pandas() -> None:
    assert run(PANDAS) == "[1, 2] False"
