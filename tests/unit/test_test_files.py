"""Rules for the files of the tests themselves."""

from __future__ import annotations

import ast
import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, imported, parsed, python_files

SHARED = ("tests.support", "tests.servers")
"""What any test may import."""
PROGRAMS = {
    "tests.benchmarks": ("tests/benchmarks", "tests/unit/benchmarks", "tests/property/test_salvage.py"),
    "tests.fuzz": ("tests/fuzz", "tests/property/test_fuzz.py"),
    "tests.integration.killed.child": ("tests/integration/killed",),
}
"""Programs of their own, with those that may import them: their parts and their tests."""
MAY_SLEEP = ("tests/support/waiting.py", "tests/servers/", "tests/benchmarks/")
"""Where time may pass: the helper for waiting, servers' starts and downloads, and what measures."""


def files() -> list[Path]:
    return python_files("tests")


def is_allowed(path: Path, module: str) -> bool:
    """Return whether a file may import a module of the tests."""
    if module == "tests" or any(module == shared or module.startswith(f"{shared}.") for shared in SHARED):
        return True
    return any(
        (module == program or module.startswith(f"{program}.")) and any(str(path).startswith(place) for place in places)
        for program, places in PROGRAMS.items()
    )


def test_tests_import_shared_code_only_from_tests_support() -> None:
    strange = [
        f"{path} imports {module}"
        for path in files()
        for module in sorted(imported(path))
        if module.split(".")[0] == "tests"
        and not is_allowed(path, module)
        # `from tests.integration.killed import child` names the package, too.
        and not any(program.startswith(f"{module}.") and is_allowed(path, program) for program in PROGRAMS)
    ]
    assert strange == []


def sleeps(tree: ast.AST, *, polls: bool = False) -> Iterator[ast.Call]:
    """Yield the calls that let time pass; a loop that waits for a condition may look at it now and then.

    Args:
        tree: of a file, or a part of it.
        polls: whether it is in such a loop.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in {"time.sleep", "sleep"}:
                yield node
            if name == "asyncio.sleep" and not polls and ast.unparse(node.args[0]) != "0":
                yield node
        yield from sleeps(node, polls=polls or isinstance(node, ast.While))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("time.sleep(0)", 1),
        ("while wanted():\n    time.sleep(1)", 1),
        ("async def wait():\n    await asyncio.sleep(0.1)", 1),
        ("async def wait():\n    for _ in range(3):\n        await asyncio.sleep(0.1)", 1),
        ("async def wait():\n    while not_yet():\n        await asyncio.sleep(0.1)", 0),
        ("async def turn():\n    await asyncio.sleep(0)", 0),
    ],
)
def test_the_check_finds_sleeps(source: str, found: int) -> None:
    assert len(list(sleeps(ast.parse(source)))) == found


def test_no_test_sleeps() -> None:
    sleeping = [
        f"{path}:{node.lineno}: expected tests.support.waiting, found a sleep"
        for path in files()
        if not str(path).startswith(MAY_SLEEP) and "sleep" in (ROOT / path).read_text(encoding="utf-8")
        for node in sleeps(parsed(path))
    ]
    assert sleeping == []


def test_unit_tests_with_spark_run_with_the_servers() -> None:
    tasks = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["poe"]["tasks"]
    words = tasks["unit"]["cmd"].split()
    ignored = {path for option, path in itertools.pairwise(words) if option == "--ignore"}
    servers = set(tasks["servers"]["sequence"][-1]["cmd"].split())
    assert ignored
    assert ignored <= servers
    assert [path for path in ignored if not (ROOT / path).exists()] == []
