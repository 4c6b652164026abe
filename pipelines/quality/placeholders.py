"""Placeholders for modules of great_expectations that no suite uses.

great_expectations imports every expectation, metric and data source that it has, some hundred modules. Their classes
are models of pydantic, which take long to create, and so does its grammar of conditions. Placeholders have classes of
the same names without content, which cannot be instantiated.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

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
