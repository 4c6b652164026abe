"""Packages that are initialized only when something of theirs is used, not when one of their modules is imported.

The tables' schemas need `pyspark.sql.types`. Python runs the `__init__` of pyspark and of pyspark.sql before it imports
that module, and they import 70 others, which takes a tenth of a second.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_PYSPARK = ("pyspark", "pyspark.sql")
_PUBLIC = frozenset({"__all__", "__version__"})


def defer_pyspark() -> None:
    """Defer the initialization of pyspark in this process, unless it is loaded already.

    This is for processes that do not use Spark. If one does use it, pyspark is initialized then.
    """
    for name in _PYSPARK:
        if name in sys.modules or (spec := importlib.util.find_spec(name)) is None:
            return
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        module.__class__ = _Deferred
        package, _, own_name = name.rpartition(".")
        if package:
            setattr(sys.modules[package], own_name, module)


class _Deferred(ModuleType):
    """Package that is initialized when an attribute is asked for that is none of its modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _PUBLIC:  # some code inspects all modules
            raise AttributeError(name)
        if importlib.util.find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        for package in (sys.modules[each] for each in _PYSPARK):  # pyspark's first, which uses the other's
            if isinstance(package, _Deferred):
                _initialize(package)
        return getattr(self, name)


def _initialize(package: ModuleType) -> None:
    package.__class__ = ModuleType
    spec = package.__spec__
    assert spec is not None  # `defer_pyspark` has made the module from one
    assert spec.loader is not None
    spec.loader.exec_module(package)
