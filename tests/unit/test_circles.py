"""No module imports itself through others, not even in a function or for type checkers alone."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.source_tree import modules, used_modules


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    imports = {name: used_modules(path, known) for name, path in known.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
