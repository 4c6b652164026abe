"""A table in a catalog of Iceberg that PyIceberg is configured for: REST, Glue, SQL, Hive and others.

Address and credentials come from PyIceberg's own configuration: its file `.pyiceberg.yaml`, or the environment
(`PYICEBERG_CATALOG__<NAME>__URI`, `…__TOKEN` and so on).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import requests
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError, RESTError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from commitlake.schemas.errors import CommitLakeError, ExitCode, UsageError


class CatalogUnavailableError(CommitLakeError):
    """A catalog of Iceberg cannot be reached, or refuses a request."""

    exit_code = ExitCode.FAILED
    is_transient = True


def open_catalog(name: str) -> Catalog:
    """Open a catalog by the name that it has in PyIceberg's configuration.

    Raises:
        UsageError: if none of that name is configured, or its package is missing.
        CatalogUnavailableError: if it cannot be reached.
    """
    with converted_errors(name):
        try:
            return load_catalog(name)
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"the Iceberg catalog {name!r} cannot be opened: {error}",
                hint=f"set PYICEBERG_CATALOG__{name.upper()}__URI, or describe it in .pyiceberg.yaml",
            ) from None


@contextmanager
def converted_errors(name: str) -> Iterator[None]:
    """Convert the errors of a catalog's server to a `CatalogUnavailableError`, without the server's complete answer."""
    try:
        yield
    except (RESTError, requests.RequestException, ConnectionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise CatalogUnavailableError(f"the Iceberg catalog {name!r} refused a request: {reason}") from None


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table's place in a catalog.

    Attributes:
        catalog: the opened catalog.
        identifier: names of the namespace's levels, and that of the table.
    """

    catalog: Catalog
    identifier: tuple[str, ...]

    def find(self) -> Table | None:
        """Open the table; None if there is none."""
        try:
            return self.catalog.load_table(self.identifier)
        except NoSuchTableError:
            return None

    def create(self, schema: Schema, partition_spec: PartitionSpec, properties: dict[str, str]) -> Table:
        """Create the table, and its namespace if that is missing; open the table if another run has just created it."""
        self.catalog.create_namespace_if_not_exists(self.identifier[:-1])
        try:
            return self.catalog.create_table(
                self.identifier, schema, partition_spec=partition_spec, properties=properties
            )
        except TableAlreadyExistsError:
            return self.catalog.load_table(self.identifier)
