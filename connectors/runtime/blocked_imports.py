"""Blocks imports of packages that are not needed and take long to load."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


@contextmanager
def blocked_imports(*names: str) -> Iterator[None]:
    """Make imports of modules fail inside the `with`, as if they were not installed; loaded modules stay.

    This affects all threads, so it is for processes that only do this project's work: packages that use a module only
    if it is installed then work without it.

    Args:
        names: names of the modules.
    """
    finder = _BlockingFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def disable_pandas_import() -> None:
    """Let Arrow work without pandas in this process, to save time, unless pandas is already loaded.

    Arrow loads pandas with the first value that it converts, which takes a third of a second. This is for processes
    that make no pandas frame, which rules out Spark and great_expectations.
    """
    if _WITHOUT_PANDAS not in sys.meta_path:
        sys.meta_path.insert(0, _WITHOUT_PANDAS)


class _BlockingFinder(MetaPathFinder):
    """Import finder that raises an error for blocked modules.

    `None` in `sys.modules` would block Python's own `import`, but not imports by C modules such as Arrow's.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        """Raise an error for a blocked module; leave others to the other finders."""
        if fullname in self._names:
            raise ModuleNotFoundError(
                f"cannot import {fullname}, because this process blocks the import to start faster", name=fullname
            )


_WITHOUT_PANDAS = _BlockingFinder(["pandas"])
