"""Names of schemas, the root that the locations of tables have in common, and the error of catalogs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from commitlake.schemas.errors import CommitLakeError, ExitCode

_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+){1,2}", re.ASCII)
ADDRESS_VARIABLES = ("UNITY_CATALOG_URL", "DATABRICKS_HOST")
_MAX_LENGTH = 255  # Unity Catalog's limit for each part
_LOCATION = re.compile(r"(s3|s3a|s3n|file)://?[^?#\\]+")


class CatalogError(CommitLakeError):
    """Error for a catalog, or a catalog name, address or token, that cannot be used; the message says what to do."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class SchemaName:
    """The name of a schema in a catalog, `catalog.schema`."""

    catalog: str
    schema: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}"


def is_catalog_name(text: str) -> bool:
    """Return whether a text looks like a name in a catalog: two or three words of ASCII letters, digits and `_`.

    >>> [is_catalog_name(text) for text in ("main.logs", "main.logs.messages", "./main.logs", "lake")]
    [True, True, False, False]
    """
    return _NAME.fullmatch(text) is not None


def is_catalog_location(lake_location: str) -> bool:
    """Return whether a lake's location is given as a name in a catalog, rather than as a path or URI.

    If no catalog is set, a folder with such a name is taken as a folder.

    Raises:
        CatalogError: if a catalog is set, and there is also a folder of this name, because the place may be either.
    """
    if not is_catalog_name(lake_location):
        return False
    if not os.path.lexists(lake_location):
        return True
    variable = next((name for name in ADDRESS_VARIABLES if os.environ.get(name, "").strip()), None)
    if variable is not None:
        raise CatalogError(
            f"{lake_location!r} may be a schema of the catalog that {variable} sets, or the folder of this name in "
            f"{os.path.realpath('.')!a}. For the folder, write ./{lake_location}; for the schema, run the command "
            "elsewhere"
        )
    return False


def parse_schema_name(text: str) -> SchemaName:
    """Parse the name of a schema in the form `catalog.schema`.

    Raises:
        CatalogError: if it is something else.
    """
    parts = text.split(".")
    if not is_catalog_name(text) or len(parts) != 2 or max(map(len, parts)) > _MAX_LENGTH:
        shown = repr(text[:_MAX_LENGTH])
        raise CatalogError(
            f"{shown}: expected catalog.schema, as in main.logs, each of letters, digits and '_'"
            + (". A lake is a schema: leave the table's name out" if is_catalog_name(text) and len(parts) == 3 else "")
        )
    return SchemaName(*parts)


def lake_root_of_table(location: str, table: str) -> str:
    """Return the URI of the folder that contains a table's folder, without a trailing slash.

    Args:
        location: the URI that a catalog has for the table.
        table: name of the table, which its folder must have.

    Raises:
        CatalogError: if the location is not a plain URI, or its folder has another name.
    """
    scheme = location.partition(":")[0].lower()
    uri = location.rstrip("/")
    root, _, folder = uri.rpartition("/")
    shown = f"the location {location[:_MAX_LENGTH]!a} of the table {table!r}"
    if _LOCATION.fullmatch(uri) is None or not uri.isprintable() or not _has_plain_path(uri):
        raise CatalogError(f"{shown}: expected s3://bucket/prefix/{table}, or the file: URI of a folder, without '..'")
    if folder != table or not root.partition(":")[2].strip("/"):
        raise CatalogError(f"{shown}: expected a URI that ends with /{table}")
    if scheme == "file":
        if urlsplit(uri).netloc not in {"", "localhost"}:
            raise CatalogError(f"{shown}: expected the file: URI of a folder, without the name of a host")
        return f"file://{urlsplit(root).path}"
    return re.sub(r"^s3[an]?:", "s3:", f"{scheme}:{root.partition(':')[2]}")


def _has_plain_path(uri: str) -> bool:
    """Return whether a URI can be parsed, and its path has no `.` or `..`."""
    try:
        return not {".", ".."}.intersection(unquote(urlsplit(uri).path).split("/"))
    except ValueError:
        return False
