"""Rules for the files of the tests themselves."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.source_tree import imported, parsed, python_files

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
    """Tell whether a file may import a module of the tests."""
    if module == "tests" or any(module == shared or module.startswith(f"{shared}.") for shared in SHARED):
        return True
    return any(
        (module == program or module.startswith(f"{program}.")) and any(str(path).startswith(place) for place in places)
        for program, places in PROGRAMS.items()
    )


def test_tests_share_what_is_in_tests_support_and_nothing_else() -> None:
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


def test_no_test_sleeps() -> None:
    sleeping = [
        f"{path}:{node.lineno}: expected tests.support.waiting, found a sleep"
        for path in files()
        if not str(path).startswith(MAY_SLEEP)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "sleep"}
    ]
    assert sleeping == []
