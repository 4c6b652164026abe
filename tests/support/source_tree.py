"""Modules of the project and of its tests, and their imports, read from the files without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("broker_lite", "connectors", "jobs", "pipelines", "schemas")


def python_files(folder: str) -> list[Path]:
    """Return the Python files below a folder, by their paths from the project's root."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))


def modules() -> dict[str, Path]:
    """Return the project's modules and packages, by their names."""
    return {_name(path): path for folder in FOLDERS for path in python_files(folder)}


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file.

    Args:
        path: from the project's root.
    """
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def imported(path: Path) -> frozenset[str]:
    """Return all names that a file imports: modules, and names from them."""
    return _facts(path)[0]


def used_modules(path: Path, known: Mapping[str, Path]) -> set[str]:
    """Return the project's modules that a file imports anywhere, also in functions and for type checkers alone.

    A package counts only where something that is no module of it is imported from it.

    Args:
        known: from `modules`.
    """
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in inner}
    return found & known.keys()


def reached(starts: Iterable[str], imports: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the modules that some modules import, directly or indirectly.

    Args:
        starts: names of modules; they are part of the result.
        imports: imports of each module; other modules have none.
    """
    found: set[str] = set()
    waiting = [name for name in starts if name in imports]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [each for each in imports[name] if each in imports]
    return found


def has_code(path: Path) -> bool:
    """Return True if a file has a function with more than a docstring; constants, errors and protocols have none."""
    return _facts(path)[1]


@cache
def _facts(path: Path) -> tuple[frozenset[str], bool]:
    """Return the imports of a file, and whether it has code, from one pass over it."""
    names: set[str] = set()
    found = False
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = found or not all(map(_is_text, node.body))
    return frozenset(names), found


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("commitlake", *(parts[:-1] if parts[-1] == "__init__" else parts)))
