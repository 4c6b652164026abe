"""great_expectations, loaded without a word to anybody: it takes two seconds, so that whoever judges begins early."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from commitlake.connectors.runtime.blocked_imports import blocked_imports

_LOADING = threading.Lock()
# The second has a level of its own, and tells everybody of a folder that it makes.
_TALKATIVE = ("great_expectations", "great_expectations.data_context.types.base")
# It takes them as not installed, and does without.
_NOT_NEEDED = ("boto3", "botocore", "pyspark")
# It imports them, and uses them for expectations and pictures that no suite here has.
_RARELY_NEEDED = ("scipy.stats", "altair")
_OLD_NAMES = {"sre_constants": "re._constants", "sre_parse": "re._parser"}


def prepare() -> threading.Thread:
    """Begin to load great_expectations; `load` waits for it. What goes wrong here is told there."""
    thread = threading.Thread(target=load_quietly, name="load great_expectations")
    thread.start()
    return thread


def load_quietly() -> None:
    """Load great_expectations; what goes wrong here is told by whoever needs it."""
    with suppress(Exception):
        load()


@contextmanager
def spared_packages() -> Iterator[None]:
    """Keep great_expectations, loaded inside the `with`, from loading what judging frames does not need.

    That is half of its time. This is for a process that judges and does nothing else.
    """
    for name in _RARELY_NEEDED:
        _load_when_used(name)
    with blocked_imports(*_NOT_NEEDED):
        yield


class _ModuleWhenUsed(ModuleType):
    """Stands for a module, which is loaded once something of it is used.

    `importlib.util.LazyLoader` loads a module as soon as a second `import` names it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # somebody looks at all modules
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _load_when_used(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        return  # whoever imports it is told
    sys.modules[name] = module = _ModuleWhenUsed(name)
    package, _, own_name = name.rpartition(".")
    if package:  # else `from package import name` would load it
        setattr(sys.modules[package], own_name, module)


def load() -> Any:
    """Load great_expectations, once, without a word to anybody; its package."""
    # It looks at this when it is imported, and whenever a context is made.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # It imports parts of `re` by old names, with warnings, which are errors to those who want it so.
    for old, new in _OLD_NAMES.items():
        sys.modules.setdefault(old, importlib.import_module(new))
    with _LOADING, _as_a_file():
        import great_expectations as gx  # noqa: PLC0415 (three seconds, and only where somebody judges)
        from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: F401, PLC0415 (likewise)

        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
    return gx


@contextmanager
def _as_a_file() -> Iterator[None]:
    """It looks for pyspark.sql.connect, which takes a program without a file (`python -c`) for doctests and ends it."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None or hasattr(main, "__file__") or hasattr(sys, "ps1"):
        yield
        return
    main.__file__ = ""
    try:
        yield
    finally:
        del main.__file__
