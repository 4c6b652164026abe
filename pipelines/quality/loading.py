"""Loads great_expectations without output or telemetry. It takes two seconds, so callers start it early.

great_expectations imports every expectation, metric and data source that it has, some hundred modules. Their classes
are models of pydantic, which take long to create, and so does its grammar of conditions. Modules that no suite uses are
replaced by placeholders, which have classes of the same names without content.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from commitlake.connectors.runtime.blocked_imports import blocked_imports

_LOADING = threading.Lock()


# The second logger has its own level, and logs every folder that it creates.
_TALKATIVE = ("great_expectations", "great_expectations.data_context.types.base")


# great_expectations treats these as not installed.
_NOT_NEEDED = (
    *("azure", "boto3", "botocore", "pyspark"),
    *("google.api_core", "google.auth", "google.cloud", "google.oauth2"),
)


# Imported by great_expectations for expectations, charts and messages that nothing here uses.
_RARELY_NEEDED = ("scipy.stats", "altair", "jsonschema", "requests")
_OLD_NAMES = {"sre_constants": "re._constants", "sre_parse": "re._parser"}
_PACKAGE = "great_expectations"
_EXPECTATIONS = f"{_PACKAGE}.expectations.core"
_SOURCES = f"{_PACKAGE}.datasource.fluent"
USED_TYPES = frozenset(
    {
        "ExpectColumnMaxToBeBetween",
        "ExpectColumnMinToBeBetween",
        "ExpectColumnPairValuesAToBeGreaterThanB",
        "ExpectColumnSumToBeBetween",
        "ExpectColumnValuesToNotBeNull",
        "ExpectCompoundColumnsToBeUnique",
    }
)
"""Expectations of the suites, which are not imported here: they import pyspark, and great_expectations would use it."""
_USED_SOURCES = frozenset({"pandas_datasource", "invalid_datasource"})
_UNUSED_PACKAGES = frozenset(f"{_PACKAGE}.metrics.{name}" for name in ("batch", "column", "column_pair", "query"))
_FILE_ASSETS = f"{_SOURCES}.dynamic_pandas"
_UNUSED = """
    checkpoint.actions core.http data_context.templates experimental.metric_repository.metrics
    compatibility.pyparsing expectations.legacy_row_conditions expectations.row_conditions
    expectations.sql_tokens_and_types render.renderer_configuration render.view
    datasource.fluent.batch_parameter_normalization datasource.fluent.dynamic_pandas
    datasource.fluent.data_connector.azure_blob_storage_data_connector
    datasource.fluent.data_connector.dbfs_data_connector
    datasource.fluent.data_connector.filesystem_data_connector
    datasource.fluent.data_connector.google_cloud_storage_data_connector
    datasource.fluent.data_connector.s3_data_connector
"""
_UNUSED_MODULES = frozenset(f"{_PACKAGE}.{name}" for name in _UNUSED.split())
_MAKE_ASSETS = "_generate_pandas_data_asset_models"


def prepare() -> threading.Thread:
    """Start to load great_expectations in a thread; `load` waits for it and reports its errors."""
    thread = threading.Thread(target=load_quietly, name="load great_expectations")
    thread.start()
    return thread


def load_quietly() -> None:
    """Load great_expectations, ignoring errors; a later `load` reports them."""
    with suppress(Exception):
        load()


@contextmanager
def spared_packages() -> Iterator[None]:
    """Prevent great_expectations from loading what is not needed to judge frames by the suites.

    Loading then takes a third of the time. It is meant for a process that does nothing else.
    """
    for name in _RARELY_NEEDED:
        _load_when_used(name)
    with blocked_imports(*_NOT_NEEDED), placeholders():
        yield


class _ModuleWhenUsed(ModuleType):
    """Placeholder of a module, which is loaded at the first use of an attribute.

    `importlib.util.LazyLoader` would load a module at the second `import` that names it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # some code inspects all modules
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _load_when_used(name: str) -> None:
    if name in sys.modules or importlib.util.find_spec(name) is None:
        return  # loaded already, or the importing code raises the error
    sys.modules[name] = module = _ModuleWhenUsed(name)
    package, _, own_name = name.rpartition(".")
    if package:  # otherwise `from package import name` would load it
        setattr(sys.modules[package], own_name, module)


def load() -> Any:
    """Load great_expectations once, without output, and return the package."""
    # It is read at import, and whenever a context is created.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # great_expectations imports parts of `re` by old names; the warnings would be errors in some programs.
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
    """Make the program look like a file: pyspark.sql.connect takes `python -c` for doctests and exits."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None or hasattr(main, "__file__") or hasattr(sys, "ps1"):
        yield
        return
    main.__file__ = ""
    try:
        yield
    finally:
        del main.__file__


@contextmanager
def placeholders() -> Iterator[None]:
    """Let imports of great_expectations inside the `with` load placeholders; modules that were loaded before stay."""
    finder = _PlaceholderFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _module_of(expectation: str) -> str:
    """Return the module of an expectation.

    >>> _module_of("ExpectColumnPairValuesAToBeGreaterThanB")
    'expect_column_pair_values_a_to_be_greater_than_b'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", expectation).lower()


_USED_EXPECTATIONS = frozenset(map(_module_of, USED_TYPES))


class _PlaceholderFinder(MetaPathFinder, Loader):
    """Finder and loader of placeholders."""

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return the specification of a placeholder; None for modules that are used."""
        package, _, name = fullname.rpartition(".")
        is_unused = (
            fullname in _UNUSED_MODULES
            or package in _UNUSED_PACKAGES
            or (package == _EXPECTATIONS and name.startswith("expect_") and name not in _USED_EXPECTATIONS)
            or (package == _SOURCES and name.endswith(("_datasource", "fabric")) and name not in _USED_SOURCES)
        )
        return ModuleSpec(fullname, self) if is_unused else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create a placeholder."""
        module = _Placeholder(spec.name)
        if spec.name == _FILE_ASSETS:
            setattr(module, _MAKE_ASSETS, _no_assets)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the content is made when it is asked for."""


def _no_assets(*_: object, **__: object) -> dict[str, type]:
    """Make no model of a file that pandas can read, in place of one for each of pandas' functions."""
    return {}


class _Placeholder(ModuleType):
    """Module that has a class of any name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # some code inspects all modules
            raise AttributeError(name)
        made = type(name, (_Absent,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Absent:
    """Base of the placeholders' classes."""

    def __new__(cls, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{cls.__module__}.{cls.__name__} was not loaded, because no suite uses it")
