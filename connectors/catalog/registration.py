"""Registration of a lake: its tables and its packs of bodies under names of a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.connectors.catalog.client import CatalogClient
from commitlake.connectors.catalog.lake_root_lookup import check_reachable, table_roots
from commitlake.connectors.catalog.names import CatalogError, SchemaName, lake_root_of_table
from commitlake.connectors.catalog.tables import CatalogTable
from commitlake.schemas.errors import ExitCode

BODIES = "bodies"
"""Name of the volume with the packs of bodies."""
_COMMENT = "A lake of CommitLake. Only its jobs may write to these tables; everybody may read them"
_BODIES_COMMENT = "Packs of bodies, to which body_ref of the table messages refers"


@dataclass(frozen=True, slots=True)
class Registration:
    """The tables and the volume that a registration has created or found.

    Attributes:
        created: names of tables and of the volume that were registered by this call.
        found: names of those that were there.
        outdated: names of tables whose columns in the catalog differ from those in the lake.
    """

    created: tuple[str, ...]
    found: tuple[str, ...]
    outdated: tuple[str, ...]


def register_lake(
    client: CatalogClient, schema_name: SchemaName, root: str, tables: Sequence[CatalogTable]
) -> Registration:
    """Register the tables of a lake that are not in the catalog yet, and the volume of message bodies.

    Nothing is changed or deleted. The table `messages`, by which the lake is found, comes last, so that a name leads to
    a lake only once it is complete. A call that was killed is completed by the next one.

    Args:
        schema_name: the schema, which is created if it does not exist; its catalog must exist.
        root: URI of the lake.
        tables: its tables; `messages` is one of them.

    Raises:
        CatalogError: if the catalog does not exist, or the server refuses, or if the schema has tables of another lake,
            or a volume of this name.
    """
    root = lake_root_of_table(f"{root}/messages", "messages")  # in the form in which locations are compared
    check_reachable(client.server, root)
    if client.find_object("catalogs", schema_name.catalog) is None:
        raise CatalogError(
            f"the server {client.server.url} has no catalog {schema_name.catalog!r}: create it there, or name another"
        )
    known = {str(table.get("name")): table for table in client.list_tables(schema_name)}
    _check_no_other_lake(schema_name, root, known.values())
    volume = _find_volume(client, schema_name, root)
    if client.find_object("schemas", str(schema_name)) is None:
        schema = {"name": schema_name.schema, "catalog_name": schema_name.catalog, "comment": _COMMENT}
        client.create_object("schemas", str(schema_name), schema)
    created = []
    if volume is None and client.create_object(
        "volumes", f"{schema_name}.{BODIES}", _volume_request(schema_name, root)
    ):
        created.append(BODIES)
    new = [table for table in tables if table.name not in known]
    new.sort(key=lambda table: table.name == "messages")  # it comes last
    was_first = volume is not None or bool(created)
    for table in new:
        if table.name == "messages" and not was_first:
            _check_schema_after_creation(client, schema_name, root)
        if client.create_object("tables", f"{schema_name}.{table.name}", _table_request(schema_name, root, table)):
            created.append(table.name)
        else:
            was_first = False
    if not was_first:
        _check_schema_after_creation(client, schema_name, root)
    outdated = [
        table.name for table in tables if table.name in known and _column_names_differ(table, known[table.name])
    ]
    found_before = [each for each in (*(table.name for table in tables), BODIES) if each not in created]
    return Registration(tuple(created), tuple(found_before), tuple(outdated))


def _find_volume(client: CatalogClient, schema_name: SchemaName, root: str) -> Mapping[str, Any] | None:
    """Return the volume of message bodies, or None if there is none; refuse the volume of another lake."""
    volume = client.find_object("volumes", f"{schema_name}.{BODIES}")
    if volume is not None and lake_root_of_table(str(volume.get("storage_location") or ""), BODIES) != root:
        raise CatalogError(
            f"the volume {schema_name}.{BODIES} belongs to another lake, because its folder is not {root}/{BODIES}: "
            "name another schema",
            exit_code=ExitCode.REFUSED,
        )
    return volume


def _check_schema_after_creation(client: CatalogClient, schema_name: SchemaName, root: str) -> None:
    """Check the schema again, because another lake may have been registered in it at the same time."""
    _find_volume(client, schema_name, root)
    _check_no_other_lake(schema_name, root, client.list_tables(schema_name))


def _check_no_other_lake(schema_name: SchemaName, root: str, tables: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a schema that contains a table of another lake."""
    for table, found in sorted(table_roots(schema_name, tables).items()):
        if found != root:
            raise CatalogError(
                f"{schema_name}.{table} is a table of the lake {found}, not {root}: name another schema",
                exit_code=ExitCode.REFUSED,
            )


def _volume_request(schema_name: SchemaName, root: str) -> dict[str, Any]:
    return {
        "catalog_name": schema_name.catalog,
        "schema_name": schema_name.schema,
        "name": BODIES,
        "volume_type": "EXTERNAL",
        "storage_location": f"{root}/{BODIES}",
        "comment": _BODIES_COMMENT,
    }


def _table_request(schema_name: SchemaName, root: str, table: CatalogTable) -> dict[str, Any]:
    return {
        "catalog_name": schema_name.catalog,
        "schema_name": schema_name.schema,
        "name": table.name,
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": f"{root}/{table.name}",
        "comment": table.comment,
        "columns": table.columns,
    }


def _column_names_differ(table: CatalogTable, catalog_entry: Mapping[str, Any]) -> bool:
    """Return whether a table's column names in the catalog differ from those in the lake."""
    columns = catalog_entry.get("columns")
    names = [column.get("name") for column in columns if isinstance(column, dict)] if isinstance(columns, list) else []
    return names != [column["name"] for column in table.columns]
