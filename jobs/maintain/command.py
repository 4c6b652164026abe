"""Keep a lake's tables in good shape: few sorted files, no expired rows, no leftovers of killed runs.

    commitlake maintain --lake /data/lake --keep messages=400d --keep bodies=30d

Reads and writes a lake, without Spark unless --spark is given; an archive may run at the same time. Run it every night
after the archive, or every hour if an archive follows its broker. With --repair it repairs damaged tables, see
`pipelines.repair.run`. Exit codes: 0; 2 for a wrong lake or option; 3 if a table is damaged, or --repair could
not recover everything; 4 if another maintain, or an OPTIMIZE, has replaced files at the same time (work that was
already done is kept).
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.lake_location import open_lake_argument, open_packs
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.arguments.similar_names import suggest_similar_name
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.maintain.arguments import MaintainOptions
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.jobs.maintain.steps import MaintenancePlan, PackMaintenance, TableMaintenance
    from commitlake.pipelines.maintenance.expiry import ExpiredFiles

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


@dataclass(frozen=True, kw_only=True)
class Maintain(MaintainOptions):
    """The command `maintain`, which merges small files of a lake, and deletes expired rows and unused files."""

    NAME = "maintain"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Maintain the tables, and print what was done."""
        from commitlake.connectors.runtime.local_runner import HERE
        from commitlake.jobs.maintain.steps import MaintenancePlan, maintain_packs, maintain_tables

        started = time.monotonic()
        _check_options(self)
        lake = open_lake_argument(self)
        if self.repair:
            from commitlake.jobs.maintain.repair import run_repair

            return run_repair(self, lake)
        open_packs(lake)  # fails for an invalid place before a table has changed
        lake.table("messages")  # raises an error if this is not a lake
        _check_pack_folder(lake)
        now = datetime.datetime.now(datetime.UTC)
        plan = MaintenancePlan(
            lake,
            dict(self.keep),
            self.vacuum_after,
            self.target_mib * MIB,
            self.dry_run,
            self.quiet,
            now,
            HERE if self.dry_run else make_runner(self, "maintain"),
        )
        for care in maintain_tables(plan):
            _print_lines(table_maintenance_lines(care, dry_run=self.dry_run), quiet=self.quiet)
        packs = maintain_packs(plan)
        _print_lines(_purge_erased_versions(self, plan), quiet=self.quiet)
        _print_lines(pack_maintenance_lines(packs, dry_run=self.dry_run), quiet=self.quiet)
        took = duration_text(datetime.timedelta(seconds=round(time.monotonic() - started)))
        _print_lines([f"nothing was changed: this was a dry run ({took})" if self.dry_run else f"done in {took}"],
              quiet=self.quiet)  # fmt: skip
        return ExitCode.OK


def _purge_erased_versions(command: MaintainOptions, plan: MaintenancePlan) -> list[str]:
    """Delete table versions that still contain erased data if their retention is over, and return lines about it."""
    import importlib.metadata

    from commitlake.pipelines.erasure.ledger import read_erasure_states
    from commitlake.pipelines.erasure.run import ErasureTarget, due_erasures, purge_erasures, unfinished_erasures

    lines = []
    if unfinished := unfinished_erasures(plan.lake):
        lines.append(f"erasures: {len(unfinished)} unfinished: 'commitlake erase --finish' completes them")
    due = due_erasures(read_erasure_states(plan.lake), plan.now, is_only_user=False)
    if due and plan.dry_run:
        lines.append(f"erasures: older versions of {len(due)} would be deleted")
    elif due:
        place = ErasureTarget(plan.lake, importlib.metadata.version("commitlake"), plan.runner)
        done, purged, error = purge_erasures(place, plan.now, lambda _: None)
        lines.append(
            f"erasures: {len(done)} purged, with {format_count(purged.files, 'data file')} and "
            f"{format_count(purged.packs, 'pack')}"
        )
        if error is not None:
            _print_lines(lines, quiet=command.quiet)
            raise error
    return lines


def _check_pack_folder(lake: Lake) -> None:
    """Raise an error if packs are in a table's folder, where a clean-up would delete them as unused files."""
    from commitlake.connectors.lake.archive_commits import read_last_commit
    from commitlake.pipelines.archive.body_location import IN_LAKE, WAY_OUT, find_forbidden_folder

    last = read_last_commit(lake)
    remembered = last.bodies if last is not None and last.bodies != IN_LAKE else None
    for bodies in (lake.bodies_root, remembered):
        folder = find_forbidden_folder(lake, bodies) if bodies else None
        if folder is not None:
            raise JobError(
                f"the bodies of this lake are in {folder}, where maintain would delete them as unused files: nothing "
                "was deleted",
                WAY_OUT,
            )


def _check_options(command: MaintainOptions) -> None:
    from commitlake.connectors.lake.lake import TOPIC_TABLES
    from commitlake.jobs.maintain.steps import BODIES
    from commitlake.schemas.tables.lake_tables import LAKE_TABLES

    names = (*(table for table in LAKE_TABLES if table not in KEPT_FOR_EVER), TOPIC_TABLES, BODIES)
    for table, _ in command.keep:
        if table not in names:
            raise JobError(
                f"--keep: there is no table {table!r}.{suggest_similar_name(table, names)}",
                f"expected one of: {', '.join(names)}",
            )


def table_maintenance_lines(maintenance: TableMaintenance, *, dry_run: bool) -> list[str]:
    """Return lines on what maintenance did to a table, or would do; a single line if nothing was necessary."""
    from commitlake.jobs.arguments.sizes import size_text

    line = (
        f"{maintenance.table}: {format_count(maintenance.files_before, 'file')}, {size_text(maintenance.bytes_before)}"
    )
    if not dry_run and (maintenance.files_after, maintenance.bytes_after) != (
        maintenance.files_before,
        maintenance.bytes_before,
    ):
        line += f" -> {format_count(maintenance.files_after, 'file')}, {size_text(maintenance.bytes_after)}"
    lines = [line]
    if maintenance.expired.count:
        lines.append(f"  expired: {_expired_rows_text(maintenance.expired)}")
    if maintenance.compaction.merged:
        merged = maintenance.compaction
        after = "" if dry_run else f" -> {size_text(merged.bytes_after)}"
        sizes = f"{size_text(merged.bytes_before)}{after}"
        lines.append(
            f"  {'to merge' if dry_run else 'merged'}: {format_count(merged.merged, 'file')} into {merged.written} "
            f"({sizes})"
        )
    if maintenance.garbage.count:
        gone = "to delete" if dry_run else "deleted"
        lines.append(f"  {gone}: {maintenance.garbage.count} unused files ({size_text(maintenance.garbage.bytes)})")
    return [*lines, *(f"  {note}" for note in maintenance.notes)]


def pack_maintenance_lines(maintenance: PackMaintenance, *, dry_run: bool) -> list[str]:
    """Return lines on what maintenance did to the packs (files of message bodies), or would do."""
    from commitlake.jobs.arguments.sizes import size_text

    lines = []
    if maintenance.expired.count:
        lines.append(
            f"  expired: {format_count(maintenance.expired.count, 'pack')} ({size_text(maintenance.expired.bytes)})"
        )
    if maintenance.orphans.count:
        lines.append(
            f"  named by no row: {format_count(maintenance.orphans.count, 'pack')} "
            f"({size_text(maintenance.orphans.bytes)})"
        )
    if maintenance.unfinished:
        lines.append(f"  unfinished, from killed runs: {format_count(maintenance.unfinished, 'pack')}")
    lines = [f"bodies: {'to delete' if dry_run else 'deleted'}", *lines] if lines else ["bodies: nothing to delete"]
    if maintenance.merges.merged:
        lines.append(
            f"  {'to merge' if dry_run else 'merged'}: {format_count(maintenance.merges.merged, 'small pack')} into "
            f"{maintenance.merges.written:,} ({size_text(maintenance.merges.bytes)})"
        )
    return [*lines, *(f"  not merged: {reason}" for reason in maintenance.merges.left)]


def _expired_rows_text(expired_rows: ExpiredFiles) -> str:
    from commitlake.jobs.arguments.sizes import size_text

    rows, files = format_count(expired_rows.rows, "row"), format_count(expired_rows.count, "file")
    return f"{rows} in {files} ({size_text(expired_rows.bytes)})"


def _print_lines(lines: Sequence[str], *, quiet: bool) -> None:
    if not quiet:
        for line in lines:
            print_line(line)


build_parser, main = Maintain.parser, Maintain.main
