"""Publish a lake's tables as Iceberg tables over the same data files.

    commitlake publish --iceberg --lake /data/lake

Each version of a Delta table that added or removed files becomes a snapshot of an Iceberg table. Nothing is copied, and
nothing of the Delta table is changed. Without --to, the metadata is in the lake, in `_iceberg/<table>`, where DuckDB,
PyIceberg, Polars and Spark open it by its path. With --to, it is in a catalog. Run it after `archive`, `maintain` and
`erase`: it takes only what is new, and a killed run continues.

Exit codes: 0; 1 if a catalog cannot be reached; 2 for a wrong lake or option; 3 if a table's log is damaged; 4 if a
table cannot be published, or its name belongs to another table. The other tables are published.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.s3 import S3Arguments
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import OneOf, flag, option, repeated
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.pipelines.publish.iceberg import IcebergCatalog, Publication

DESCRIPTION = (
    "Publish tables of a lake for programs that read Iceberg and not Delta. The Iceberg tables have the same data "
    "files, so nothing is copied; each version of the Delta table that changed files becomes a snapshot. Run it after "
    "'commitlake archive', 'maintain' and 'erase'. Their snapshots must not be expired by another program, and no "
    "orphan files removed, because the files belong to the Delta tables."
)
EXAMPLES = (
    ("publish --iceberg --lake /data/lake", "all tables, into /data/lake/_iceberg"),
    ("publish --iceberg --lake s3://archive/lake --table messages --table edges", "only these tables"),
    (
        "publish --iceberg --lake s3://archive/lake --to prod.broker_logs",
        "into the namespace broker_logs of the catalog 'prod' of PyIceberg's configuration (REST, Glue, SQL, Hive)",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Publish(Command, S3Arguments, after={S3Arguments: "table"}):
    """The command `publish`, which publishes a lake's tables as Iceberg tables."""

    NAME = "publish"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    iceberg: bool = flag("publish Iceberg tables", one_of=OneOf(required=True))
    lake: str = option("the lake: a folder, s3://bucket/prefix, or catalog.schema", required=True, metavar="PLACE")
    to: str | None = option(
        "a catalog of PyIceberg's configuration, and a namespace in it (default: metadata without a catalog, in the "
        "folder _iceberg of the lake)",
        metavar="CATALOG.NAMESPACE",
    )
    table: tuple[str, ...] = repeated("only this table (default: all)", choices=list(LAKE_TABLES))

    def run(self) -> ExitCode:
        """Publish the tables, and print what was published."""
        from commitlake.connectors.iceberg.named_table import CatalogUnavailableError
        from commitlake.pipelines.publish.iceberg import publish_table

        lake = open_lake_argument(self)
        lake.table("messages")  # raises an error if this is not a lake
        root_uri = _root_uri(lake)
        place = _Place(lake, root_uri, self.to)
        published, worst = [], ExitCode.OK
        for name in self.table or ("messages", *lake.list_follower_tables()):
            try:
                publication = publish_table(
                    lake, name, root_uri, place.table(name), datetime.datetime.now(datetime.UTC)
                )
            except CatalogUnavailableError:
                raise
            except CommitLakeError as error:
                if error.exit_code is None:
                    raise
                worst = max(worst, error.exit_code)
                print_warning(
                    "commitlake publish", f"{name} was not published: {error}" + (error.hint and f". {error.hint}")
                )
                continue
            published.append(publication)
            if not self.quiet:
                print(_describe(publication))
        if published and not self.quiet:
            print(place.describe(published))
        return worst


class _Place:
    """Where the Iceberg tables are: in the lake's own folder, or in a catalog."""

    def __init__(self, lake: Lake, root_uri: str, namespace: str | None) -> None:
        from commitlake.connectors.iceberg.named_table import open_catalog

        self._lake = lake
        self._root_uri = root_uri
        self._catalog = None
        if namespace is not None:
            catalog_name, *self._levels = namespace.split(".")
            if not catalog_name or not self._levels or not all(self._levels):
                raise JobError(
                    f"--to {namespace}: expected the name of a catalog and a namespace, as in prod.broker_logs"
                )
            self._catalog = open_catalog(catalog_name)

    def table(self, name: str) -> IcebergCatalog:
        """Return the place of a table."""
        from commitlake.connectors.iceberg.metadata_folder import MetadataFolder
        from commitlake.connectors.iceberg.named_table import NamedTable
        from commitlake.connectors.storage.adapter_choice import open_lake_storage

        if self._catalog is not None:
            return NamedTable(self._catalog, (*self._levels, name))
        return MetadataFolder(open_lake_storage(self._lake.root, self._lake.s3), self._root_uri, name)

    def describe(self, published: Sequence[Publication]) -> str:
        """Return how to open the tables."""
        if self._catalog is not None:
            return f"The tables are in the namespace {'.'.join(self._levels)} of the catalog {self._catalog.name!r}."
        folder = published[0].location.partition("/metadata/")[0].removeprefix("file://")
        return f"Open one by its path, for example in DuckDB: SELECT * FROM iceberg_scan('{folder}')"


def _describe(publication: Publication) -> str:
    new = f"{format_count(publication.snapshots, 'new snapshot')}" if publication.snapshots else "nothing new"
    expired = f", {format_count(publication.expired, 'old snapshot')} removed" if publication.expired else ""
    return (
        f"{publication.table}: {new}{expired}; version {publication.version}, "
        f"{format_count(publication.rows, 'row')} in {format_count(publication.files, 'file')}"
    )


def _root_uri(lake: Lake) -> str:
    """Return the URI of a lake's root, as readers of Iceberg expect it: without percent-encoded characters."""
    from commitlake.connectors.lake.paths import local_folder

    return lake.root.rstrip("/") if lake.s3 is not None else f"file://{local_folder(lake.root)}"


build_parser, main = Publish.parser, Publish.main
