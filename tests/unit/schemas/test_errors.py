"""Tests of the tree of errors: all errors of the project are in it, and each can be pickled."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator

import pytest

import commitlake
from commitlake.pipelines.topics.document_check import MisfitReason
from commitlake.schemas.errors import CommitLakeError, ConcurrentRunError, ExitCode

ARGUMENTS = {
    "str": "x", "int": 5, "bool": True, "int | None": None, "str | None": None,
    "MisfitReason": MisfitReason.MISSING,
}  # fmt: skip
IN_ONE_PROCESS = ("commitlake.jobs", "commitlake.broker_lite")
"""Packages whose errors never leave the process that raises them."""


def classes() -> Iterator[type[Exception]]:
    """Return all public classes of errors in the project."""
    for module in pkgutil.walk_packages(commitlake.__path__, "commitlake."):
        if not module.name.endswith("__main__"):
            for name, kind in vars(importlib.import_module(module.name)).items():
                is_own = inspect.isclass(kind) and kind.__module__ == module.name
                if is_own and issubclass(kind, Exception) and name.endswith("Error") and not name.startswith("_"):
                    yield kind


ALL = sorted(classes(), key=str)
SIGNALS = {"BadIndexError", "OutputError", "OutputClosedError", "CounterGoneError", "ReplacedError", "FaultError"}
"""Classes that only change the course of the modules that raise them, or of their only caller."""


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_every_error_is_in_the_tree(kind: type[Exception]) -> None:
    assert issubclass(kind, CommitLakeError) or kind.__name__ in SIGNALS


@pytest.mark.parametrize("kind", [each for each in ALL if not each.__module__.startswith(IN_ONE_PROCESS)], ids=str)
def test_every_error_can_be_pickled(kind: type[Exception]) -> None:
    try:
        given = inspect.signature(kind.__init__, eval_str=False).parameters.values()
    except ValueError:
        given = {}.values()
    wanted = [each for each in given if each.kind is each.POSITIONAL_OR_KEYWORD][1:]
    error = kind(*([ARGUMENTS[str(each.annotation)] for each in wanted] or ["x"]))
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


def test_the_base_error_has_no_exit_code() -> None:
    assert CommitLakeError("x").exit_code is None
    assert not CommitLakeError("x").is_transient


def test_what_an_error_is_given_is_kept_when_it_is_pickled() -> None:
    error = CommitLakeError("x", exit_code=ExitCode.DAMAGE, hint="do y", is_transient=True)
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.exit_code, found.hint, found.is_transient) == ("x", ExitCode.DAMAGE, "do y", True)


def test_what_an_error_is_not_given_is_that_of_its_class() -> None:
    error = ConcurrentRunError("x", hint="do y")
    assert (error.exit_code, error.hint, error.is_transient) == (ExitCode.REFUSED, "do y", True)


def test_transient_errors_are_not_usage_errors() -> None:
    transient = [kind for kind in ALL if issubclass(kind, CommitLakeError) and kind.is_transient]
    assert {kind.__name__ for kind in transient} >= {"S3UnavailableError", "ConcurrentRunError"}
    assert all(kind.exit_code in {ExitCode.FAILED, ExitCode.REFUSED} for kind in transient)
