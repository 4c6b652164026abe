"""No module imports itself through others, not even in a function or for type checkers alone."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.source_tree import modules, used_modules

STILL_IN_CIRCLES = ("commitlake.connectors.formats", "commitlake.connectors.reading")
"""Packages whose modules still import each other in circles; circles through other modules are refused."""


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    imports = {name: used_modules(path, known) for name, path in known.items()}
    kept = {name: used for name, used in imports.items() if not name.startswith(STILL_IN_CIRCLES)}
    try:
        TopologicalSorter(kept).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
