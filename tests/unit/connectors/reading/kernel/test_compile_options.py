"""Compiled functions are cached, and functions of other packages are left alone."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from commitlake.connectors.reading.kernel import compile_options, function_cache
from commitlake.connectors.reading.kernel.truncation_guard import on_bus_error


def load_function(source: Path) -> Callable[..., Any]:
    """Return `add` of a module that another package could have."""
    source.write_text("import numba\n\n\n@numba.njit(cache=True)\ndef add(a, b):\n    return a + b\n")
    spec = importlib.util.spec_from_file_location("other_package", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["other_package"] = module  # numba looks it up
    spec.loader.exec_module(module)
    return module.add  # type: ignore[no-any-return]


def test_a_function_of_another_package_is_cached_next_to_its_source(tmp_path: Path) -> None:
    other = load_function(tmp_path / "other_package.py")
    chosen = vars(numba.config)["CACHE_DIR"]
    where = Path(other.stats.cache_path)  # type: ignore[attr-defined]
    assert where.is_relative_to(chosen) if chosen else where == tmp_path / "__pycache__"


def test_importing_the_kernel_does_not_change_numbas_settings() -> None:
    assert vars(numba.config)["CACHE_DIR"] == os.environ.get("NUMBA_CACHE_DIR", "")


def test_functions_and_callbacks_of_the_kernel_are_cached_in_its_own_folder() -> None:
    function = compile_options.compiled(_next)
    for cache in (function._cache, on_bus_error._cache):  # type: ignore[attr-defined]
        assert Path(cache.cache_path).parent == function_cache.cache_folder()


def _next(number: int) -> int:
    return number + 1
