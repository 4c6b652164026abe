"""The root of a lake that is named as `catalog.schema`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from commitlake.connectors.catalog.client import CatalogClient
from commitlake.connectors.catalog.names import CatalogError, SchemaName, lake_root_of_table, parse_schema_name
from commitlake.connectors.catalog.server import CatalogServer, configured_catalog_server
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.lake_tables import LAKE_TABLES


def find_lake_root(catalog_name: str) -> str:
    """Return the root URI of the lake that is registered in a catalog as `catalog.schema`; cached for this process.

    Args:
        catalog_name: `catalog.schema`.

    Raises:
        CatalogError: if no catalog is set, or the schema is not that of a lake.
    """
    server = configured_catalog_server()
    if server is None:
        raise CatalogError(
            f"{catalog_name!r} looks like a name in Unity Catalog, and no catalog is set: set UNITY_CATALOG_URL, or "
            f"DATABRICKS_HOST and DATABRICKS_TOKEN. For a folder of this name, write ./{catalog_name}"
        )
    return _find_root_in_catalog(server, parse_schema_name(catalog_name))


@lru_cache(maxsize=64)
def _find_root_in_catalog(server: CatalogServer, schema_name: SchemaName) -> str:
    roots = table_roots(schema_name, CatalogClient(server).list_tables(schema_name))
    if "messages" not in roots:
        raise CatalogError(
            f"the catalog {server.url} has no lake {schema_name}: expected a table {schema_name}.messages. Register a "
            f"lake with 'commitlake catalog --lake PLACE --to {schema_name}', or write ./{schema_name} for a folder"
        )
    root = roots["messages"]
    for table, other in sorted(roots.items()):
        if other != root:
            raise CatalogError(
                f"{schema_name} has tables of two lakes: 'messages' is in {root}, {table!r} in {other}. Drop the "
                "tables of "
                "one of them from the catalog, which deletes no file of an external table",
                exit_code=ExitCode.REFUSED,
            )
    check_reachable(server, root)
    return root


def table_roots(schema_name: SchemaName, tables: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the root folder of each table of a lake, by table name.

    Tables that are not named like those of a lake are ignored: people may add some.

    Args:
        tables: descriptions of its tables.

    Raises:
        CatalogError: if a table's location cannot be that of a lake's table, or if a table is not an external Delta
            table.
    """
    roots = {}
    for table in tables:
        of_table = str(table.get("name"))
        if of_table not in LAKE_TABLES:
            continue
        kind = (table.get("table_type"), table.get("data_source_format"))
        if kind != ("EXTERNAL", "DELTA"):
            raise CatalogError(
                f"{schema_name}.{of_table}: expected an external Delta table of a lake, found a table of the type and "
                f"format {ascii(kind)[:100]}",
                exit_code=ExitCode.REFUSED,
            )
        roots[of_table] = lake_root_of_table(str(table.get("storage_location") or ""), of_table)
    return roots


def check_reachable(server: CatalogServer, root: str) -> None:
    """Refuse a `file:` URI from a catalog server on another machine, whose folders this machine cannot read.

    Raises:
        CatalogError: if it is one.
    """
    if root.startswith("file:") and not server.is_local:
        raise CatalogError(
            f"the catalog {server.url} is on another machine, but the lake's tables are in {root}, a folder of that "
            "machine: expected a lake in an object store, such as s3://bucket/prefix"
        )
