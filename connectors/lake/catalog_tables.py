"""The tables of a lake, as a catalog describes them."""

from __future__ import annotations

import json

from commitlake.connectors.catalog.tables import CatalogTable, catalog_columns
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.paths import LakeError
from commitlake.schemas.tables.lake_tables import LAKE_TABLES


def catalog_tables(lake: Lake) -> list[CatalogTable]:
    """Return descriptions, for a catalog, of the tables that a lake has at present.

    Raises:
        LakeError: if it has no table `messages`.
    """
    found = []
    for name, declared in LAKE_TABLES.items():
        try:
            table = lake.table(name)
        except NoTableError:
            continue
        columns = catalog_columns(json.loads(table.schema().to_json()), table.metadata().partition_columns)
        found.append(CatalogTable(name, declared.comment, columns))
    if not any(table.name == "messages" for table in found):
        raise LakeError(f"the lake {lake.root} has no table 'messages': run 'commitlake archive' first")
    return found
