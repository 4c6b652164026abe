"""Check what a run needs on this machine, and report what is missing and what to do.

    commitlake doctor --store /data/rocketmq/store --lake /data/lake

Without an option it checks this machine: Python, packages, Java, Spark's jars, memory and disk. Each option adds a
check. To check write access, it writes an empty temporary file; it changes nothing else. Exit codes: 0 if everything
that was checked is there; 3 if something is missing. A warning is about a requirement of some jobs or options only.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from commitlake.jobs.arguments.s3 import S3Arguments
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import option
from commitlake.jobs.doctor.findings import CheckState, DoctorFinding
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.jobs.report.rows_output import write_rows
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report_columns import Column

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake

DESCRIPTION = (
    "Check what a run needs: Python, packages, Java, Spark's jars, memory, disk and write access; and, if options name "
    "them, stores, the lake, an object store, HBase, and brokers with their name server. It reports what is there, "
    "what is missing, and what to do. Exit code 3: something that was asked for is missing."
)
EXAMPLES = (
    ("doctor", "this machine"),
    ("doctor --store /data/rocketmq/store --lake /data/lake", "before a first archive"),
    ("doctor --lake s3://archive/lake --s3-endpoint https://s3.example.org", "an object store"),
    ("doctor --namesrv 10.0.0.1:9876 --hbase hbase-thrift:9090", "brokers and HBase"),
    ("doctor --format json", "for a program"),
)
_SERVERS = ("store", "lake", "s3", "hbase", "broker")
_COLUMNS = list(DoctorFinding._fields)
_TABLE_COLUMNS = (Column("check"), Column("state"), Column("found"), Column("advice", is_notes=True))


@dataclass(frozen=True, kw_only=True)
class Doctor(Command, S3Arguments, OutputArguments, after={S3Arguments: "bodies", OutputArguments: "namesrv"}):
    """The command `doctor`, which checks whether this machine and the servers have what the jobs need."""

    NAME = "doctor"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    DEFAULTS: ClassVar = {"reports_places": True}

    store: str | None = option("store folder, a glob, or several separated by commas", metavar="PATH")
    lake: str | None = option("the lake: a folder, s3://bucket/prefix, or catalog.schema", metavar="PLACE")
    bodies: str | None = option("where the packs of bodies are, if not in the lake", metavar="PLACE")
    hbase: str | None = option("HBase's Thrift server", metavar="HOST[:PORT]")
    hbase_table: str | None = option("name of the table in HBase (default: commitlake_messages)", metavar="NAME")
    namesrv: str | None = option("name servers, separated by semicolons", metavar="HOST:PORT")

    def run(self) -> ExitCode:
        """Run the checks, and print the findings."""
        from commitlake.jobs.doctor.machine_checks import add_skipped_checks

        findings = add_skipped_checks(list(_run_checks(self)), _SERVERS)
        rows = [{name: str(value) for name, value in each._asdict().items()} for each in findings]
        if self.output == "table":
            write_rows(
                "table", (row | {"advice": [row["advice"]] if row["advice"] else []} for row in rows), _TABLE_COLUMNS
            )
        else:
            write_rows(self.output, rows, _COLUMNS)
        missing = [finding.check for finding in findings if finding.state is CheckState.MISSING]
        warnings = [finding.check for finding in findings if finding.state is CheckState.WARNING]
        if not self.quiet:
            print(_checks_summary(missing, warnings), file=sys.stderr)
        return ExitCode.DAMAGE if missing else ExitCode.OK


def _run_checks(command: Doctor) -> Iterator[DoctorFinding]:
    from commitlake.jobs.doctor import machine_checks

    yield machine_checks.check_python()
    yield machine_checks.check_packages()
    yield machine_checks.check_java()
    yield machine_checks.check_spark()
    yield machine_checks.check_jars()
    yield machine_checks.check_resources()
    yield machine_checks.check_folder("temporary files", tempfile.gettempdir())
    if command.store:
        yield from machine_checks.check_stores(command.store, command.s3_endpoint, command.s3_region)
    for name, place in (("lake", command.lake), ("bodies", command.bodies)):
        if place:
            yield from _check_lake_or_bodies(name, place, command)
    if command.hbase:
        from commitlake.jobs.doctor.server_checks import check_hbase

        yield check_hbase(command.hbase, command.hbase_table)
    if command.namesrv:
        from commitlake.jobs.doctor.server_checks import check_registered_brokers

        yield from check_registered_brokers(command.namesrv)


def _check_lake_or_bodies(check_name: str, location: str, command: Doctor) -> Iterator[DoctorFinding]:
    from commitlake.connectors.catalog.lake_root_lookup import find_lake_root
    from commitlake.connectors.catalog.names import is_catalog_location
    from commitlake.connectors.lake.lake import Lake
    from commitlake.connectors.lake.packs.location import pack_location
    from commitlake.connectors.lake.packs.pack_stores import open_pack_store
    from commitlake.connectors.lake.paths import local_folder_or_none
    from commitlake.connectors.storage.errors import S3Error
    from commitlake.jobs.arguments.s3 import set_s3_environment
    from commitlake.jobs.doctor import machine_checks
    from commitlake.jobs.doctor.server_checks import check_object_store
    from commitlake.jobs.doctor.topic_checks import check_topic_tables
    from commitlake.schemas.errors import CommitLakeError

    is_lake = check_name == "lake"
    if is_lake:
        try:
            location = find_lake_root(location) if is_catalog_location(location) else location
        except CommitLakeError as error:
            advice = "check the catalog's address and token in the environment, and the name"
            yield DoctorFinding(check_name, CheckState.MISSING, str(error), advice)
            return
    set_s3_environment(command)  # for all later checks
    try:
        opened = Lake(location) if is_lake else open_pack_store(pack_location(location))
    except S3Error as error:
        yield DoctorFinding("s3", CheckState.MISSING, error.found, error.advice)
        return
    except CommitLakeError as error:
        yield DoctorFinding(check_name, CheckState.MISSING, str(error), "name a folder, or s3://bucket/prefix")
        return
    folder = local_folder_or_none(location)
    yield check_object_store(location) if folder is None else machine_checks.check_folder(check_name, str(folder))
    if isinstance(opened, Lake):
        try:
            yield DoctorFinding(check_name, CheckState.OK, _describe_lake(opened))
            yield from check_topic_tables(opened, datetime.datetime.now(datetime.UTC))
        except CommitLakeError as error:
            yield DoctorFinding(
                check_name, CheckState.MISSING, str(error), "see the page 'My lake is damaged' of the documentation"
            )


def _describe_lake(lake: Lake) -> str:
    from commitlake.connectors.lake.lake import NoTableError

    if lake.s3 is None and not Path(lake.root).exists():
        return "nothing is archived there yet"
    try:
        table = lake.table("messages")
    except NoTableError:
        return "nothing is archived there yet"
    return f"version {table.version()} of messages"


def _checks_summary(missing: Sequence[str], warnings: Sequence[str]) -> str:
    if missing:
        return f"missing: {', '.join(dict.fromkeys(missing))}"
    if warnings:
        return (
            f"everything that was asked for is available; missing for some jobs: {', '.join(dict.fromkeys(warnings))}"
        )
    return "everything that was asked for is available"


build_parser, main = Doctor.parser, Doctor.main
