"""Runs of the notebooks as scripts, the tables that they print, and widgets of Databricks."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def run_notebook(name: str, lake: str, *arguments: str) -> str:
    """Run a notebook as a script, and return its output."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", [f"{name}.py", "--lake", lake, *arguments])
        patch.setattr(sys, "excepthook", sys.excepthook)  # the script sets its own
        runpy.run_path(str(NOTEBOOKS / f"{name}.py"), run_name="__main__")
    return out.getvalue()


def printed_table(printed: str, title: str) -> list[list[str]]:
    """Return the rows of a table, split at two or more spaces."""
    lines = printed[printed.index(f"\n{title}") + 1 :].splitlines()[3:]
    rows = []
    for line in lines:
        if not line.strip():
            break
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


class Widgets:
    """Widgets of Databricks, which keep a value that a user has set."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values, self.made = dict(values), set[str]()

    def text(self, name: str, default: str, label: str) -> None:
        """Make a widget."""
        assert label.startswith(name)
        self.made.add(name)
        self.values.setdefault(name, default)

    def get(self, name: str) -> str:
        """Return its value."""
        assert name in self.made
        return self.values[name]
