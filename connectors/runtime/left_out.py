"""Packages that a process goes without, because loading them takes longer than what they would be used for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Let imports of modules fail inside the `with`, as if they were not installed; what is loaded already stays.

    All threads are concerned, so this is for processes that do nothing but this project's work: packages that use a
    module only where it is installed then do without it.

    Args:
        names: of the modules.
    """
    finder = _NothingFound(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _NothingFound(MetaPathFinder):
    """Refuses to find some modules.

    `None` in `sys.modules` would do for Python's own `import`, but not for that of modules in C such as Arrow's.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        """Leave all other modules to the other finders."""
        if fullname in self._names:
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)
