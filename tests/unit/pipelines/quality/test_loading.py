"""great_expectations in processes of all kinds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from commitlake.pipelines.quality import loading
from commitlake.pipelines.quality.loading import USED_TYPES
from commitlake.schemas.quality.suites import SUITES

ROOT = Path(__file__).parents[4]


def test_a_program_without_a_file_loads_only_needed_packages() -> None:
    code = (
        f"import __main__, sys; from {loading.__name__} import load, spared_packages\n"
        "with spared_packages(): gx = load()\n"
        "loaded = [name for name, module in sys.modules.items() if module is not None]; "
        "spared = ('pyspark', 'boto3', 'scipy.stats.', 'altair.', 'jsonschema.', 'requests.', 'jinja2'); "
        "print([name for name in loaded if name.startswith(spared)], hasattr(__main__, '__file__')); "
        "print(sys.modules['scipy.stats'].norm.cdf(0.0), gx.expectations.ExpectColumnMaxToBeBetween.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[] False\n0.5 ExpectColumnMaxToBeBetween\n"), done.stderr


def test_a_loaded_package_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ModuleType("scipy.stats")
    monkeypatch.setitem(sys.modules, "scipy.stats", loaded)  # it has no specification
    with loading.spared_packages():
        assert sys.modules["scipy.stats"] is loaded


def run(code: str) -> str:
    """Run a program that has loaded no package yet, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_expectations_of_the_suites_are_used() -> None:
    assert {each.type for suite in SUITES for each in suite.expectations} == USED_TYPES


def test_a_class_of_a_placeholder_cannot_be_instantiated_and_those_of_the_suites_can() -> None:
    lines = run(
        "from commitlake.pipelines.quality.loading import load\n"
        "from commitlake.pipelines.quality.loading import USED_TYPES, placeholders\n"
        "with placeholders(): gx = load()\n"
        "print(sum(getattr(gx.expectations, name).__init__ is not object.__init__ for name in USED_TYPES))\n"
        "try: gx.expectations.ExpectColumnMeanToBeBetween(column='a')\n"
        "except TypeError as error: print(error)\n"
    ).splitlines()
    assert lines[0] == str(len(USED_TYPES))
    assert lines[1].endswith("ExpectColumnMeanToBeBetween was not loaded, because no suite uses it")
