"""Errors of every data source are carried to the driver, where they are raised as themselves.

The check reads the syntax only. `read` yields while Spark asks for rows, so a decorator cannot catch its errors: it
contains `with forward_worker_errors()`, or delegates to a function that does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import parsed, python_files

BASES = frozenset(
    {"DataSource", "DataSourceReader", "DataSourceStreamReader", "DataSourceArrowWriter", "DataSourceStreamArrowWriter"}
)
DECORATED = frozenset(
    {"schema", "reader", "streamReader", "writer", "streamWriter", "partitions", "write", "initialOffset",
     "latestOffset", "prepareForTriggerAvailableNow"}
)  # fmt: skip
"""Methods that Spark calls and that may fail."""
CARRIER = "forward_worker_errors()"


@cache
def classes() -> Mapping[str, tuple[Path, ast.ClassDef]]:
    return {
        node.name: (path, node)
        for path in python_files("connectors")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    }


def is_sparks(name: str, known: Mapping[str, tuple[Path, ast.ClassDef]]) -> bool:
    return name in BASES or (
        name in known and any(is_sparks(ast.unparse(base), known) for base in known[name][1].bases)
    )


@cache
def carriers() -> set[str]:
    """Return the names of functions with `with forward_worker_errors()` in them."""
    return {
        function.name
        for path in python_files("connectors")
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.With) and any(ast.unparse(item.context_expr) == CARRIER for item in node.items)
    }


def methods() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the methods that Spark calls, also those of a class that sources have for a parent."""
    known = classes()
    sparks = {name for name in known if is_sparks(name, known)}
    parents = {ast.unparse(base) for name in sparks for base in known[name][1].bases}
    for name in sorted(sparks | (parents & known.keys())):
        path, node = known[name]
        for method in node.body:
            if isinstance(method, ast.FunctionDef):
                yield f"{path}: {name}.{method.name}", method


def test_methods_that_spark_calls_carry_their_errors() -> None:
    lacking = [
        place
        for place, method in methods()
        if method.name in DECORATED and CARRIER not in {ast.unparse(each) for each in method.decorator_list}
    ]
    assert lacking == []


def test_rows_are_read_where_errors_are_carried() -> None:
    known, found, lacking = carriers(), 0, []
    for place, method in methods():
        if method.name == "read":
            found += 1
            called = {ast.unparse(node.func) for node in ast.walk(method) if isinstance(node, ast.Call)}
            if "forward_worker_errors" not in called and not called & known:
                lacking.append(place)
    assert found > 5
    assert lacking == []


@pytest.mark.parametrize("name", ["ConsumeQueueDataSource", "QueueReader", "RocketmqStreamReader", "HBaseWriter"])
def test_the_check_recognises_sources(name: str) -> None:
    assert is_sparks(name, classes())
