"""Only `connectors.spark` uses features that a session of Spark Connect lacks: the context, the JVM and RDDs.

The check reads the syntax only: names of attributes, and imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("connectors", "pipelines", "jobs", "schemas", "notebooks")
ROOT = Path(__file__).parents[2]
SPARK = ROOT / "connectors" / "spark"
ATTRIBUTES = frozenset({"sparkContext", "rdd", "_sc", "_jvm", "_jsc", "_jdf", "_jsparkSession", "_jwrite", "_jreader"})
NAMES = frozenset({"SparkContext", "SparkConf", "RDD"})


def sources() -> list[Path]:
    return [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")) if SPARK not in path.parents]


def used(source: str) -> Iterator[str]:
    """Yield the uses of features that a session of Spark Connect lacks."""
    if not any(name in source for name in (*ATTRIBUTES, *NAMES, "py4j")):
        return  # it need not be parsed
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) if name in ATTRIBUTES:
                yield f"line {node.lineno}: .{name}"
            case ast.Import(names=names) if any(each.name.split(".")[0] == "py4j" for each in names):
                yield f"line {node.lineno}: import py4j"
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in {"py4j", "pyspark"}:
                if module.startswith("py4j") or any(each.name in NAMES for each in names):
                    yield f"line {node.lineno}: from {module}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("spark.sparkContext.defaultParallelism", ["line 1: .sparkContext"]),
        ("frame.rdd", ["line 1: .rdd"]),
        ("import os\nfrom py4j.protocol import Py4JError", ["line 2: from py4j.protocol"]),
        ("from pyspark import SparkContext", ["line 1: from pyspark"]),
        ("from pyspark.sql import SparkSession\nspark.range(3).collect()", []),
    ],
)
def test_the_check_finds_uses_of_the_context(source: str, expected: list[str]) -> None:
    assert list(used(source)) == expected


def test_only_one_package_uses_the_context() -> None:
    found = {str(path.relative_to(ROOT)): list(used(path.read_text())) for path in sources()}
    assert found
    assert {path: lines for path, lines in found.items() if lines} == {}
