"""Check what a run needs on this machine, and report what is missing and what to do.

    commitlake doctor --store /data/rocketmq/store --lake /data/lake

Without an option it checks this machine: Python, packages, Java, Spark's jars, memory and disk. Each option adds a
check. To check write access, it writes an empty temporary file; it changes nothing else. Exit codes: 0 if everything
that was checked is there; 3 if something is missing. A warning is about a requirement of some jobs or options only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.cli.command import job_parser, run_job
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.rows_output import write
from commitlake.jobs.cli.s3_arguments import add_s3_arguments
from commitlake.jobs.cli.text_table import Column
from commitlake.jobs.doctor.findings import DoctorFinding, State
from commitlake.schemas.errors import ExitCode

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


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the job."""
    parser = job_parser("doctor", DESCRIPTION, EXAMPLES)
    parser.set_defaults(reports_places=True)  # an object store that cannot be reached is one of its findings
    parser.add_argument("--store", metavar="PATH", help="store folder, a glob, or several separated by commas")
    parser.add_argument("--lake", metavar="PLACE", help="the lake: a folder, s3://bucket/prefix, or catalog.schema")
    parser.add_argument("--bodies", metavar="PLACE", help="where the packs of bodies are, if not in the lake")
    add_s3_arguments(parser)
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help="HBase's Thrift server")
    parser.add_argument(
        "--hbase-table", metavar="NAME", help="name of the table in HBase (default: commitlake_messages)"
    )
    parser.add_argument("--namesrv", metavar="HOST:PORT", help="name servers, separated by semicolons")
    add_format_argument(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Run the checks, and print the findings."""
    from commitlake.jobs.doctor.machine import completed

    findings = completed(list(_checks(arguments)), _SERVERS)
    rows = [{name: str(value) for name, value in each._asdict().items()} for each in findings]
    if arguments.output == "table":
        write("table", (row | {"advice": [row["advice"]] if row["advice"] else []} for row in rows), _TABLE_COLUMNS)
    else:
        write(arguments.output, rows, _COLUMNS)
    missing = [finding.check for finding in findings if finding.state is State.MISSING]
    warnings = [finding.check for finding in findings if finding.state is State.WARNING]
    if not arguments.quiet:
        print(_summary(missing, warnings), file=sys.stderr)
    return ExitCode.DAMAGE if missing else ExitCode.OK


def _checks(arguments: argparse.Namespace) -> Iterator[DoctorFinding]:
    from commitlake.jobs.doctor import machine

    yield machine.python()
    yield machine.packages()
    yield machine.java()
    yield machine.spark()
    yield machine.jars()
    yield machine.resources()
    yield machine.folder("temporary files", tempfile.gettempdir())
    if arguments.store:
        yield from machine.stores(arguments.store)
    for name, place in (("lake", arguments.lake), ("bodies", arguments.bodies)):
        if place:
            yield from _place(name, place, arguments)
    if arguments.hbase:
        from commitlake.jobs.doctor.servers import hbase

        yield hbase(arguments.hbase, arguments.hbase_table)
    if arguments.namesrv:
        from commitlake.jobs.doctor.servers import brokers

        yield from brokers(arguments.namesrv)


def _place(name: str, place: str, arguments: argparse.Namespace) -> Iterator[DoctorFinding]:
    from commitlake.connectors.catalog.lookup import find_lake
    from commitlake.connectors.catalog.names import is_catalog_place
    from commitlake.connectors.lake.lake import Lake
    from commitlake.connectors.lake.paths import local_folder
    from commitlake.jobs.cli.places import lake_of
    from commitlake.jobs.doctor import machine
    from commitlake.jobs.doctor.servers import object_store
    from commitlake.schemas.errors import CommitLakeError

    if name == "lake":
        try:
            place = find_lake(place) if is_catalog_place(place) else place
        except CommitLakeError as error:
            advice = "check the catalog's address and token in the environment, and the name"
            yield DoctorFinding(name, State.MISSING, str(error), advice)
            return
    if place.startswith("s3://"):
        named = argparse.Namespace(**{**vars(arguments), "lake": place})
        try:
            lake_of(named)  # sets the endpoint and region for all later checks
        except CommitLakeError as error:
            yield DoctorFinding("s3", State.MISSING, str(error), "expected s3://bucket/prefix")
            return
        yield object_store(place)
    else:
        yield machine.folder(name, str(local_folder(place)) if place.startswith("file:") else place)
    if name == "lake":
        try:
            yield DoctorFinding(name, State.OK, _contents(Lake(place)))
        except CommitLakeError as error:
            yield DoctorFinding(
                name, State.MISSING, str(error), "see the page 'My lake is damaged' of the documentation"
            )


def _contents(lake: Lake) -> str:
    from commitlake.connectors.lake.lake import NoTableError

    if lake.s3 is None and not Path(lake.root).exists():
        return "nothing is archived there yet"
    try:
        table = lake.table("messages")
    except NoTableError:
        return "nothing is archived there yet"
    return f"version {table.version()} of messages"


def _summary(missing: Sequence[str], warnings: Sequence[str]) -> str:
    if missing:
        return f"missing: {', '.join(dict.fromkeys(missing))}"
    if warnings:
        return (
            f"everything that was asked for is available; missing for some jobs: {', '.join(dict.fromkeys(warnings))}"
        )
    return "everything that was asked for is available"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake doctor`."""
    return run_job(build_parser(), job, argv)
