"""Python of Spark's workers: the choice on this machine, and a check of workers on other machines.

The check runs one small task, which finds out whether a worker has what the tasks of a job need, in this version.

Without it, a job fails in its first task, after Spark has tried that task four times, with the worker's traceback. The
function of the check must run where this package is missing, so it is sent as code and not by its name, and it needs
neither Arrow nor numpy.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from commitlake.connectors.spark.classic_session import EXECUTION_ERRORS
from commitlake.connectors.spark.connect_session import is_connect
from commitlake.schemas.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("numpy", "pyarrow", "numba", "deltalake", "commitlake")
"""Packages that the tasks of a job load."""
_DEFAULT_PYTHON = "python3"
"""What Spark runs unless PYSPARK_PYTHON names another Python."""
_CURE = (
    "install CommitLake in the Python that PYSPARK_PYTHON names for the workers; on a standalone cluster or YARN, "
    "without PYSPARK_PYTHON, the job sends it to them"
)


def choose_python(session: SparkSession) -> None:
    """Make workers on this machine use this process's Python, unless the user has chosen another.

    Spark's default is `python3` on the PATH, which is often another Python than that of a notebook.

    Args:
        session: a session. One of Spark Connect, and one with workers on other machines, are left unchanged.

    Warns:
        UserWarning: if the user's choice has no CommitLake.
    """
    if is_connect(session):
        return
    context = session.sparkContext
    if not (context.master or "").startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable
    elif not _has_commitlake(context.pythonExec):
        warnings.warn(
            f"Spark's workers run {context.pythonExec} (PYSPARK_PYTHON), which has no CommitLake: install it there, or "
            f"set PYSPARK_PYTHON to {sys.executable} before the session starts",
            stacklevel=3,
        )


def _has_commitlake(python: str) -> bool:
    if shutil.which(python) == sys.executable:
        return True
    command = [python, "-P", "-c", "import commitlake"]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def check_workers(session: SparkSession, packages: Sequence[str] = NEEDED) -> None:
    """Check that workers can load the needed packages, with one task.

    Raises:
        UnavailableError: if no task runs there.
        UsageError: if a package is missing there, or if CommitLake there has another version than here.
    """
    from pyspark.sql.functions import lit, udf  # noqa: PLC0415 (only where there is a session)

    load = udf(import_packages, "string", useArrow=False)
    try:
        with _pickle_module_by_value():
            rows = session.range(1, numPartitions=1).select(load(lit(" ".join(packages))).alias("found")).collect()
    except EXECUTION_ERRORS as error:
        raise UnavailableError(f"no task can be run on Spark's workers: {_root_cause(error)}") from None
    answer = json.loads(rows[0]["found"])
    if answer["missing"]:
        missing = "; ".join(f"{name} ({why})" for name, why in answer["missing"].items())
        raise UsageError(f"on the worker {answer['host']}, {answer['python']} lacks the packages {missing}: {_CURE}")
    here = _commitlake_version()
    if answer["version"] != here and answer["version"] and here:
        raise UsageError(
            f"on the worker {answer['host']}, {answer['python']} has CommitLake {answer['version']}, "
            f"but this job is CommitLake {here}: install the same version in both"
        )


def import_packages(names: str) -> str:
    """Import packages in a worker, and report its versions and the packages that cannot be imported.

    Args:
        names: names of the packages, separated by spaces.

    Returns:
        JSON of the worker's host, its Python, its version of CommitLake, and the error of each package that cannot be
        loaded.
    """
    missing = {}
    for name in names.split():
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 (a damaged package can raise anything)
            missing[name] = f"{type(error).__name__}: {error}"
    python = f"Python {platform.python_version()} ({sys.executable})"
    return json.dumps({"host": platform.node(), "python": python, "version": _commitlake_version(), "missing": missing})


def _commitlake_version() -> str:
    """Return the version of CommitLake that is installed; empty where it came without metadata, as by `--py-files`."""
    try:
        return importlib.metadata.version("commitlake")
    except importlib.metadata.PackageNotFoundError:
        return ""


@contextmanager
def _pickle_module_by_value() -> Iterator[None]:
    """Make pickles inside the block contain this module's functions, which a worker may be unable to import."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _root_cause(error: Exception) -> str:
    """Return the most informative line of Spark's error: the last cause, otherwise the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line for line in lines if line.startswith(("ModuleNotFoundError", "ImportError", "pyspark.errors"))]
    return (raised or causes[-1:] or lines[:1] or [type(error).__name__])[-1]
