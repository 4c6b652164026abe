"""Text from outside is converted to a number only by `schemas.layouts.integer_parsing`, never by `int` or `float`.

The check reads the syntax only: it sees the name of a value, not its type. It finds `int(text)`, `int(match[1])`,
`int(path.name)`, `int(data.decode())` and `int` as an argument, as in `map(int, parts)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("schemas", "connectors", "pipelines", "jobs", "broker_lite")
ROOT = Path(__file__).parents[2]
TEXTS = {"text", "name", "part", "port", "digits", "word", "line", "key", "queue", "level", "number_text"}
MATCHES = {"match", "found"}
SEGMENT = "`is_segment_name` has accepted it: 20 digits"
LIMITED = "the regular expression limits the digits"
ALLOWED = {
    "schemas/layouts/integer_parsing.py": "the parser itself",
    "schemas/layouts/segment_names.py": "20 digits, of any script",
    "schemas/segment_files.py": SEGMENT,
    "schemas/layouts/rocketmq/broker_conf.py": "four hexadecimal digits; " + LIMITED,
    "broker_lite/stores/rocketmq/commitlog.py": SEGMENT,
    "broker_lite/stores/engine/file_queue.py": SEGMENT,
    "broker_lite/stores/rocketmq/message_index.py": "names of 17 digits",
    "connectors/reading/index_lookups.py": SEGMENT,
    "connectors/storage/gcs_storage.py": LIMITED,
    "connectors/storage/uris.py": LIMITED,
    "connectors/storage/hdfs_files.py": "names of 20 digits",
    "connectors/spark/kubernetes_executor.py": LIMITED,
    "connectors/storage/s3_storage.py": "an answer of the object store; its regular expression limits the digits",
    "pipelines/topics/document_check.py": "a number of JSON, whose digits are counted first",
    "pipelines/quality/profile_partitions.py": "numbers of numpy",
    "connectors/formats/rocketmq/checkpoint_and_config.py": "numbers of 32 bits: the table was checked",
    "pipelines/verify/queue_files.py": SEGMENT,
    "jobs/report/value_decoding.py": LIMITED,
    "jobs/arguments/durations.py": LIMITED,
    "jobs/cli/process.py": "a process number out of /proc",
    "jobs/arguments/times.py": LIMITED,
}


def conversions(source: str) -> Iterator[int]:
    """Yield the lines that convert an expression that looks like text."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        is_number = isinstance(node.func, ast.Name) and node.func.id in {"int", "float"}
        if is_number and node.args and looks_like_text(node.args[0]):
            yield node.lineno
        # argparse refuses values for which its `type`, the `parse` of a declared option, raises ValueError.
        arguments = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg not in {"type", "parse"})]
        is_other = isinstance(node.func, ast.Name) and node.func.id in {"isinstance", "cast", "defaultdict"}
        if not is_other and any(isinstance(each, ast.Name) and each.id == "int" for each in arguments):
            yield node.lineno


def looks_like_text(node: ast.expr) -> bool:
    """Return whether an expression has a name that is used for text here."""
    match node:
        case ast.Name(id=name):
            return name in TEXTS
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int())):
            return name in MATCHES
        case ast.Attribute(attr="name"):
            return True
        case ast.Call(func=ast.Attribute(attr="decode" | "group" | "strip" | "removeprefix")):
            return True
    return False


@pytest.mark.parametrize(
    "source",
    ["int(text)", "float(text)", "int(match[1])", "int(found[2])", "int(path.name)", "int(data.decode())",
     "map(int, parts)", "sorted(names, key=int)"],
)  # fmt: skip
def test_the_check_finds_conversions_of_text(source: str) -> None:
    assert list(conversions(source)) == [1]


@pytest.mark.parametrize(
    "source", ["int(array[0])", "int(values.sum())", "isinstance(value, int)", "parse_int32(text)"]
)
def test_the_check_ignores_other_conversions(source: str) -> None:
    assert list(conversions(source)) == []


def test_text_is_converted_only_by_the_bounded_parser() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := list(conversions(path.read_text("utf-8"))))
    }
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) <= set(found), "a place that is allowed converts nothing any more: take it off the list"
