"""Loads great_expectations without output or telemetry. It takes two seconds, so callers start it early."""

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


# The second logger has its own level, and logs every folder that it creates.
_TALKATIVE = ("great_expectations", "great_expectations.data_context.types.base")


# great_expectations treats these as not installed.
_NOT_NEEDED = (
    *("azure", "boto3", "botocore", "pyspark"),
    *("google.api_core", "google.auth", "google.cloud", "google.oauth2"),
)


# Imported by great_expectations for expectations and charts that nothing here uses.
_RARELY_NEEDED = ("scipy.stats", "altair")
_OLD_NAMES = {"sre_constants": "re._constants", "sre_parse": "re._parser"}


def start_loading_thread() -> threading.Thread:
    """Start to load great_expectations in a thread, so that a later call need not wait long for it."""
    thread = threading.Thread(target=load_ignoring_errors, name="load great_expectations")
    thread.start()
    return thread


def load_ignoring_errors() -> None:
    """Load great_expectations ahead of time; errors are ignored here, and reported when it is needed."""
    with suppress(Exception):
        load_great_expectations()


@contextmanager
def skip_unused_packages() -> Iterator[None]:
    """Prevent great_expectations from importing packages that are not needed to check frames.

    Loading then takes 1.4 s instead of 2.6 s, which a small archive run would wait for. It is meant for a process
    that does nothing else.
    """
    for name in _RARELY_NEEDED:
        _install_lazy_module(name)
    with blocked_imports(*_NOT_NEEDED):
        yield


class _LazyModule(ModuleType):
    """Placeholder for a module that is loaded when an attribute is first used.

    `importlib.util.LazyLoader` would load a module at the second `import` that names it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # some code inspects all modules
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _install_lazy_module(name: str) -> None:
    if name in sys.modules or importlib.util.find_spec(name) is None:
        return  # loaded already, or the importing code raises the error
    sys.modules[name] = module = _LazyModule(name)
    package, _, own_name = name.rpartition(".")
    if package:  # otherwise `from package import name` would load it
        setattr(sys.modules[package], own_name, module)


def load_great_expectations() -> Any:
    """Load great_expectations once, without output, and return the package."""
    # It is read at import, and whenever a context is created.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # great_expectations imports parts of `re` by old names; the warnings would be errors in some programs.
    for old, new in _OLD_NAMES.items():
        sys.modules.setdefault(old, importlib.import_module(new))
    with _LOADING, _set_main_file_temporarily():
        import great_expectations as gx  # noqa: PLC0415 (three seconds, and only where somebody judges)
        from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: F401, PLC0415 (likewise)

        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
    return gx


@contextmanager
def _set_main_file_temporarily() -> Iterator[None]:
    """Set `__main__.__file__` while pyspark is imported, as pyspark otherwise runs doctests under `python -c`."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None or hasattr(main, "__file__") or hasattr(sys, "ps1"):
        yield
        return
    main.__file__ = ""
    try:
        yield
    finally:
        del main.__file__
