"""Rules for words: first lines of docstrings say what is there, or what a function does; limits are named MAX.

Docstrings name modules that exist.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import FOLDERS, ROOT, parsed, python_files

_UNWANTED = re.compile(r"(What|Whether|Of|Some)\b")


def unclear(tree: ast.Module) -> Iterator[str]:
    """Yield first lines that begin with a word that leaves the reader waiting, or are one word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            line = (ast.get_docstring(node) or "").partition("\n")[0]
            if line and (_UNWANTED.match(line) or len(line.split()) == 1):
                yield line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("What no queue has.", True),
        ("Whether it is open.", True),
        ("Of a queue.", True),
        ("Rows.", True),
        ("Rows of a queue.", False),
        ("Offsets that the broker has stored.", False),
    ],
)
def test_unclear_first_lines_are_found(line: str, expected: bool) -> None:
    assert bool(list(unclear(ast.parse(f'def f():\n    """{line}\n\n    What follows is free.\n    """')))) == expected


def test_no_first_line_is_unclear() -> None:
    found = {str(path): list(unclear(parsed(path))) for folder in (*FOLDERS, "tests") for path in python_files(folder)}
    assert len(found) > 1000
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_limits_are_named_max() -> None:
    paths = [path for folder in FOLDERS for path in python_files(folder)]
    assert [str(path) for path in paths if re.search(r"\b_?MOST_", (ROOT / path).read_text(encoding="utf-8"))] == []


def missing_modules(path: Path) -> Iterator[str]:
    """Yield the files with Python code that a module's docstring names, and that are neither beside it nor a path."""
    for name in re.findall(r"(?<![\w/.-])([\w/]+\.py)\b", ast.get_docstring(parsed(path)) or ""):
        beside = [ROOT / path.parent / name, ROOT / path.parent.parent / name, ROOT / name]
        if not any(one.exists() for one in beside):
            yield name


def test_docstrings_name_modules_that_exist() -> None:
    found = {str(path): list(missing_modules(path)) for folder in FOLDERS for path in python_files(folder)}
    assert {path: names for path, names in found.items() if names} == {}
