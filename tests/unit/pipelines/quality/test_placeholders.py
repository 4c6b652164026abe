"""Modules of great_expectations that no suite uses are not loaded, and others are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from commitlake.pipelines.quality.placeholders import USED_TYPES
from commitlake.schemas.quality.suites import SUITES

ROOT = Path(__file__).parents[4]


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
        "from commitlake.pipelines.quality.placeholders import USED_TYPES, placeholders\n"
        "with placeholders(): gx = load()\n"
        "print(sum(getattr(gx.expectations, name).__init__ is not object.__init__ for name in USED_TYPES))\n"
        "try: gx.expectations.ExpectColumnMeanToBeBetween(column='a')\n"
        "except TypeError as error: print(error)\n"
    ).splitlines()
    assert lines[0] == str(len(USED_TYPES))
    assert lines[1].endswith("ExpectColumnMeanToBeBetween was not loaded, because no suite uses it")
