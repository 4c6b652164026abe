"""Runs of the notebooks as scripts."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
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
