"""Register a lake in Unity Catalog, so that jobs find it as `catalog.schema`, and analysts read its tables by name.

    commitlake catalog --lake s3://my-bucket/lake --to main.logs

Reads the tables' schemas; writes to the catalog only: the schema, if it is missing, an external table for each table of
the lake, and an external volume for its bodies. It changes and deletes nothing, so it may be run again after any error,
and when the lake has new tables. Afterwards `--lake main.logs` names the lake in every job.

Exit codes: 0; 1 if the catalog cannot be reached; 2 for a wrong lake, name, address or token; 4 if the schema has
tables of another lake.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from commitlake.connectors.catalog.client import CatalogClient
from commitlake.connectors.catalog.credentials import credential_process_output
from commitlake.connectors.catalog.names import CatalogError, parse_schema_name
from commitlake.connectors.catalog.registration import Registration, register_lake
from commitlake.connectors.catalog.server import configured_catalog_server
from commitlake.connectors.storage.uris import is_s3, parse_s3_uri
from commitlake.jobs.arguments.s3 import S3Arguments
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import OneOf, flag, option
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

DESCRIPTION = (
    "Register a lake in Unity Catalog: its tables as external tables, and its bodies as an external volume. Then "
    "--lake catalog.schema names it in every job, and Spark reads its tables by name. Only the catalog is written; "
    "what is there stays as it is. Address and token come from UNITY_CATALOG_URL and UNITY_CATALOG_TOKEN, or from "
    "DATABRICKS_HOST and DATABRICKS_TOKEN."
)
EXAMPLES = (
    ("catalog --lake s3://my-bucket/lake --to main.logs", "give a lake a name"),
    ("catalog --lake main.logs --to main.logs", "register tables that the lake has since then"),
    ("catalog --lake main.logs --credentials", "temporary credentials of the catalog, for credential_process"),
)


_ACTION = OneOf(required=True)


@dataclass(frozen=True, kw_only=True)
class CatalogCommand(Command, S3Arguments, after={S3Arguments: "credentials"}):
    """The command `catalog`, which registers a lake's tables in Unity Catalog."""

    NAME = "catalog"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    lake: str = option("the lake: a folder, s3://bucket/prefix, or catalog.schema", required=True, metavar="PLACE")
    to: str | None = option(
        "catalog.schema; the schema is created if it does not exist", metavar="NAME", one_of=_ACTION
    )
    credentials: bool = flag(
        "print temporary credentials for the lake in S3, as AWS's tools take them from credential_process in a profile",
        one_of=_ACTION,
    )

    def run(self) -> ExitCode:
        """Register the lake in Unity Catalog, or print credentials for reading it."""
        server = configured_catalog_server()
        if server is None:
            raise CatalogError("no catalog is set: set UNITY_CATALOG_URL, or DATABRICKS_HOST and DATABRICKS_TOKEN")
        client = CatalogClient(server)
        return (
            _print_credentials(client, self.lake) if self.credentials else _register_lake(client, self, self.to or "")
        )


def _register_lake(client: CatalogClient, command: CatalogCommand, catalog_name: str) -> ExitCode:
    from commitlake.connectors.lake.catalog_tables import catalog_tables
    from commitlake.connectors.lake.paths import local_folder
    from commitlake.jobs.arguments.lake_location import open_lake_argument

    name = parse_schema_name(catalog_name)
    lake = open_lake_argument(command)
    root = lake.root if lake.s3 is not None else local_folder(lake.root).as_uri()
    done = register_lake(client, name, root, catalog_tables(lake))
    for table in done.outdated:
        print_warning(
            "commitlake catalog",
            f"{name}.{table}: the catalog has other columns than the lake. Jobs and Spark read the lake's own; on "
            f"Databricks, run MSCK REPAIR TABLE {name}.{table} SYNC METADATA",
        )
    if not command.quiet:
        print(_registration_summary(f"{name}", root, done))
    return ExitCode.OK


def _registration_summary(name: str, root: str, registration: Registration) -> str:
    new = f"new: {', '.join(registration.created)}" if registration.created else "nothing new"
    return f"{name} is the lake {root}: {format_count(len(registration.created + registration.found), 'name')}, {new}"


def _print_credentials(client: CatalogClient, lake_uri: str) -> ExitCode:
    if not is_s3(lake_uri):
        raise JobError(f"--credentials works only for a lake in S3, found {lake_uri}: leave the option out")
    if sys.stdout.isatty():
        raise JobError(
            "--credentials is refused, because standard output is a terminal, which would show the secrets",
            "use it in credential_process of a profile",
        )
    print(json.dumps(credential_process_output(client, str(parse_s3_uri(lake_uri)))))
    return ExitCode.OK


build_parser, main = CatalogCommand.parser, CatalogCommand.main
