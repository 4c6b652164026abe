"""Light replacements for modules that other packages run as they load, though no command needs the results.

    pyarrow.vendored.docscrape  reads the documentation of Arrow's options, to document Arrow's functions
    numba.core.entrypoints      searches all installed packages for extensions of numba

Together they take forty milliseconds, in each process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def use_light_modules() -> None:
    """Replace these modules in this process, unless they are loaded already.

    This is for processes that only do this project's work: Arrow's functions lack the documentation of their options,
    and numba does not know types that other packages define.
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _read_no_documentation(_: str) -> Mapping[str, tuple[()]]:
    return {"Parameters": ()}


def _find_no_extensions() -> None:
    """Find none."""


_CONTENTS: Mapping[str, Mapping[str, Callable[..., object]]] = {
    "pyarrow.vendored.docscrape": {"NumpyDocString": _read_no_documentation},
    "numba.core.entrypoints": {"init_all": _find_no_extensions},
}


class _LightFinder(MetaPathFinder, Loader):
    """Finder and loader of the replacements."""

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return the specification of a replacement; None for other modules."""
        return ModuleSpec(fullname, self) if fullname in _CONTENTS else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill a replacement."""
        vars(module).update(_CONTENTS[module.__name__])


_FINDER = _LightFinder()
