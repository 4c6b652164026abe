"""Python environments with CommitLake's wheel, and packages in the versions of the lock file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.source_tree import FOLDERS, ROOT

_FILES = ("pyproject.toml", "README.md", "LICENSE")
_PATIENCE_SECONDS = 900


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources, so that it contains no earlier build, and return its path."""
    sources = folder / "sources"
    sources.mkdir()
    for name in _FILES:
        shutil.copy(ROOT / name, sources)
    for name in (*FOLDERS, "commitlake"):
        shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    _run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(sources)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, wheel: Path, *, extras: str = "", other: tuple[str, ...] = ()) -> Path:
    """Make an environment and return its Python.

    Args:
        folder: folder of the environment.
        wheel: CommitLake's wheel.
        extras: names of extras, separated by commas.
        other: requirements that replace those of the lock file.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    replaced = {re.split(r"[=<>]", text, maxsplit=1)[0] for text in other} | ({"py4j"} if other else set())
    pins = [
        line.removesuffix(" \\")
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if re.match(r"[a-z0-9]", line) and line.partition("==")[0] not in replaced
    ]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pins) + "\n")
    asked = f"{wheel}[{extras}]" if extras else str(wheel)
    _run([str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraints), asked, *other])
    return python


def clean_variables() -> dict[str, str]:
    """Return the variables for programs of another environment, without this one's paths, jars and JVM options."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "COMMITLAKE_JARS", "SPARK_HOME", "SPARK_SUBMIT_OPTS", "PYSPARK_PYTHON")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, env=clean_variables(), capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr


def bare_python() -> str:
    """Return the Python from which this environment was created; it has none of this project's packages."""
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
