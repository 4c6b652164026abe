"""Keep a lake's tables in good shape: few sorted files, no expired rows, no leftovers of killed runs.

    commitlake maintain --lake /data/lake --keep messages=400d --keep bodies=30d

Reads and writes a lake, without Spark unless --spark is given; an archive may run at the same time. Run it every night
after the archive, or every hour if an archive follows its broker. With --repair it repairs damaged tables, see
`pipelines.repair.run`. Exit codes: 0; 2 for a wrong lake or option; 3 if a table is damaged, or --repair could
not recover everything; 4 if another maintain, or an OPTIMIZE, has replaced files at the same time (work that was
already done is kept).
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from commitlake.jobs.cli.combinations import check_has_effect
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import duration_text, parse_duration
from commitlake.jobs.cli.layouts import add_layout_argument
from commitlake.jobs.cli.names import did_you_mean
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.places import add_place_arguments, bodies_of, lake_of
from commitlake.jobs.cli.runner import add_spark_argument, make_runner
from commitlake.jobs.cli.terminal import print_line
from commitlake.schemas.counts import count_text
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.jobs.maintain.work import MaintenancePlan, PackCare, TableCare
    from commitlake.pipelines.maintenance.expiry import Expired

MIB = 1 << 20
# An audit needs erasures to explain missing contents, and evidence is proof.
KEPT_FOR_EVER = ("erasures", "evidence")
DESCRIPTION = (
    "Maintain a lake: merge small data files into large ones that stay sorted by topic and queue, delete expired rows, "
    "delete files that no reader needs any more and leftovers of killed runs, and write checkpoints. Except for "
    "expired ones, rows do not change."
)
EXAMPLES = (
    ("maintain --lake /data/lake --dry-run", "show what would be done"),
    ("maintain --lake /data/lake", "merge and clean up; keep all rows"),
    ("maintain --lake s3://archive/lake --spark", "the same, with Spark's workers doing the merging"),
    ("maintain --lake /data/lake --repair --dry-run", "show what is damaged, and what can be recovered"),
    (
        "maintain --lake /data/lake --repair --store '/mnt/brokers/{broker}/store'",
        "recover what is possible; lost messages are read from the stores again",
    ),
    (
        "maintain --lake /data/lake --keep messages=400d --keep quarantine=90d --keep bodies=30d",
        "also delete old rows and bodies",
    ),
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("maintain", DESCRIPTION, EXAMPLES)
    add_place_arguments(parser)
    parser.add_argument("--keep", action="append", default=[], type=_parse_keep, metavar="TABLE=TIME",
                        help="delete what is older, by date: messages=400d, bodies=30d; without it everything is kept, "
                             "except replay_rows, the copies of what replays sent, which are deleted 30d after a "
                             "replay's end. If replay_rows is given, copies of replays that have stopped, and that "
                             "nobody has resumed for that time, are deleted too")  # fmt: skip
    parser.add_argument("--vacuum-after", type=parse_duration, default="7d", metavar="TIME",
                        help="delete files that the tables no longer use once they are this old "
                             "(default: 7d)")  # fmt: skip
    parser.add_argument("--target-mib", type=int, default=128, metavar="N",
                        help="size of a merged data file, MiB; files of at least half this size are not merged "
                             "(default: 128)")  # fmt: skip
    parser.add_argument("--repair", action="store_true",
                        help="repair damaged tables, and do nothing else; stop other jobs first")  # fmt: skip
    parser.add_argument("--store", metavar="PATH",
                        help="with --repair: stores, as for archive, from which lost messages can be archived "
                             "again")  # fmt: skip
    parser.add_argument(
        "--broker", action=Once, help="with --store: the store's name in the lake, if the path does not give it"
    )
    add_layout_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    add_spark_argument(parser)
    return parser


def _parse_keep(text: str) -> tuple[str, datetime.timedelta]:
    table, equals, length = text.partition("=")
    if not equals or not table:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a table and a time, as in messages=400d")
    return table, parse_duration(length)


def job(arguments: argparse.Namespace) -> ExitCode:
    """Maintain the tables, and print what was done."""
    from commitlake.connectors.lake.packs.location import pack_location
    from commitlake.connectors.lake.packs.stores import open_store
    from commitlake.connectors.runtime.local_runner import HERE
    from commitlake.jobs.maintain.work import MaintenancePlan, care_for_packs, care_for_tables

    started = time.monotonic()
    _check(arguments)
    check_has_effect(arguments, ("broker", "layout"), "store")
    check_has_effect(arguments, ("store",), "repair")
    lake = lake_of(arguments)
    if arguments.repair:
        from commitlake.jobs.maintain.repair import run_repair

        return run_repair(arguments, lake)
    location = pack_location(bodies_of(arguments, lake))
    open_store(location)  # fails for an invalid place before a table has changed
    lake.table("messages")  # raises an error if this is not a lake
    _check_bodies(lake, arguments.bodies)
    now = datetime.datetime.now(datetime.UTC)
    plan = MaintenancePlan(
        lake,
        dict(arguments.keep),
        arguments.vacuum_after,
        arguments.target_mib * MIB,
        arguments.dry_run,
        arguments.quiet,
        now,
        HERE if arguments.dry_run else make_runner(arguments, "maintain"),
    )
    for care in care_for_tables(plan):
        _print(table_lines(care, dry_run=arguments.dry_run), quiet=arguments.quiet)
    packs = care_for_packs(plan, location)
    _print(_purge(arguments, plan), quiet=arguments.quiet)
    _print(pack_lines(packs, dry_run=arguments.dry_run), quiet=arguments.quiet)
    took = duration_text(datetime.timedelta(seconds=round(time.monotonic() - started)))
    _print([f"nothing was changed: this was a dry run ({took})" if arguments.dry_run else f"done in {took}"],
          quiet=arguments.quiet)  # fmt: skip
    return ExitCode.OK


def _purge(arguments: argparse.Namespace, plan: MaintenancePlan) -> list[str]:
    """Delete older versions with erased data if their retention is over, and return lines about that."""
    import importlib.metadata

    from commitlake.connectors.lake.packs.location import pack_location
    from commitlake.pipelines.erasure.ledger import read_states
    from commitlake.pipelines.erasure.run import Place, due_erasures, purge_erasures, unfinished_erasures

    lines = []
    if unfinished := unfinished_erasures(plan.lake):
        lines.append(f"erasures: {len(unfinished)} unfinished: 'commitlake erase --finish' completes them")
    due = due_erasures(read_states(plan.lake), plan.now, is_alone=False)
    if due and plan.dry_run:
        lines.append(f"erasures: older versions of {len(due)} would be deleted")
    elif due:
        packs = pack_location(bodies_of(arguments, plan.lake))
        place = Place(plan.lake, packs, importlib.metadata.version("commitlake"), plan.runner)
        done, purged, error = purge_erasures(place, plan.now, lambda _: None)
        lines.append(
            f"erasures: {len(done)} purged, with {count_text(purged.files, 'data file')} and "
            f"{count_text(purged.packs, 'pack')}"
        )
        if error is not None:
            _print(lines, quiet=arguments.quiet)
            raise error
    return lines


def _check_bodies(lake: Lake, given: str | None) -> None:
    """Refuse to clean up if packs are in a table's folder, where they would be deleted as unused files."""
    from commitlake.connectors.lake.archive_log import read_last_commit
    from commitlake.connectors.lake.body_places import WAY_OUT, folder_around
    from commitlake.pipelines.archive.body_location import IN_LAKE

    last = read_last_commit(lake.uri("messages"))
    remembered = last.bodies if last is not None and last.bodies != IN_LAKE else None
    for bodies in (given, remembered):
        folder = folder_around(lake, bodies) if bodies else None
        if folder is not None:
            raise JobError(
                f"the bodies of this lake are in {folder}, and would be deleted there as unused files", WAY_OUT
            )


def _check(arguments: argparse.Namespace) -> None:
    from commitlake.jobs.maintain.work import BODIES
    from commitlake.pipelines.maintenance.log_care import SHORTEST_RETENTION
    from commitlake.schemas.tables.lake_tables import LAKE_TABLES

    names = (*(table for table in LAKE_TABLES if table not in KEPT_FOR_EVER), BODIES)
    for table, _ in arguments.keep:
        if table not in names:
            raise JobError(
                f"--keep: there is no table {table!r}.{did_you_mean(table, names)}",
                f"expected one of: {', '.join(names)}",
            )
    if arguments.vacuum_after < SHORTEST_RETENTION:
        raise JobError(
            f"--vacuum-after: expected at least 1d, found {duration_text(arguments.vacuum_after)}",
            "a running archive must have committed its files by then, and readers must be done with their version",
        )
    if arguments.target_mib < 1:
        raise JobError(f"--target-mib: expected at least 1, found {arguments.target_mib}")


def table_lines(care: TableCare, *, dry_run: bool) -> list[str]:
    """Return lines about what was done, or would be done, to a table; one line if nothing was necessary."""
    from commitlake.jobs.cli.sizes import size_text

    line = f"{care.table}: {count_text(care.files_before, 'file')}, {size_text(care.bytes_before)}"
    if not dry_run and (care.files_after, care.bytes_after) != (care.files_before, care.bytes_before):
        line += f" -> {count_text(care.files_after, 'file')}, {size_text(care.bytes_after)}"
    lines = [line]
    if care.expired.count:
        lines.append(f"  expired: {_expired_text(care.expired)}")
    if care.compaction.merged:
        merged = care.compaction
        after = "" if dry_run else f" -> {size_text(merged.bytes_after)}"
        sizes = f"{size_text(merged.bytes_before)}{after}"
        lines.append(
            f"  {'to merge' if dry_run else 'merged'}: {count_text(merged.merged, 'file')} into {merged.written} "
            f"({sizes})"
        )
    if care.garbage.count:
        gone = "to delete" if dry_run else "deleted"
        lines.append(f"  {gone}: {care.garbage.count} unused files ({size_text(care.garbage.bytes)})")
    return [*lines, *(f"  {note}" for note in care.notes)]


def pack_lines(care: PackCare, *, dry_run: bool) -> list[str]:
    """Return lines about what was done, or would be done, to the packs."""
    from commitlake.jobs.cli.sizes import size_text

    lines = []
    if care.expired.count:
        lines.append(f"  expired: {count_text(care.expired.count, 'pack')} ({size_text(care.expired.bytes)})")
    if care.orphans.count:
        lines.append(f"  named by no row: {count_text(care.orphans.count, 'pack')} ({size_text(care.orphans.bytes)})")
    if care.unfinished:
        lines.append(f"  unfinished, from killed runs: {count_text(care.unfinished, 'pack')}")
    lines = [f"bodies: {'to delete' if dry_run else 'deleted'}", *lines] if lines else ["bodies: nothing to delete"]
    if care.merges.merged:
        lines.append(
            f"  {'to merge' if dry_run else 'merged'}: {count_text(care.merges.merged, 'small pack')} into "
            f"{care.merges.written:,} ({size_text(care.merges.bytes)})"
        )
    return [*lines, *(f"  not merged: {reason}" for reason in care.merges.left)]


def _expired_text(expired: Expired) -> str:
    from commitlake.jobs.cli.sizes import size_text

    return f"{count_text(expired.rows, 'row')} in {count_text(expired.count, 'file')} ({size_text(expired.bytes)})"


def _print(lines: Sequence[str], *, quiet: bool) -> None:
    if not quiet:
        for line in lines:
            print_line(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake maintain`."""
    return run_job(build_parser(), job, argv)
