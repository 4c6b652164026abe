"""The examples in docstrings are correct; those of transforms are run where there is a session."""

from __future__ import annotations

import doctest
import importlib
import re

import pytest

from tests.support.source_tree import ROOT, modules

_TRANSFORMS = "commitlake.pipelines.transforms."
_EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)


def _with_examples() -> list[str]:
    return [
        name
        for name, path in modules().items()
        if not name.startswith(_TRANSFORMS) and _EXAMPLE.search((ROOT / path).read_text())
    ]


@pytest.mark.parametrize("name", _with_examples())
def test_examples_of_a_module_are_correct(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_there_are_modules_with_examples() -> None:
    assert "commitlake.pipelines.edges.key_matching" in _with_examples()
