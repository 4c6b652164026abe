"""Archive runs of a damaged and repaired lake, and its content."""

from __future__ import annotations

import datetime
from collections.abc import Collection

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.maintain.steps import MaintenancePlan, maintain_tables
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.maintenance.log_cleanup import vacuum
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.repair.refill_from_stores import RefillStores
from tests.support.audited_lakes import judge_nothing
from tests.support.lakes import GrowingLake

# Columns whose values differ between runs over the same messages.
_OF_RUNS = frozenset(
    {"body_ref", "run_id", "started_at", "finished_at", "recovered", "sequence", "stores", "bytes", "recorded_at"}
)


def archive(growing: GrowingLake) -> None:
    """Run the next archive."""
    work = find_archive_work(str(growing.store), None, growing.lake)
    if work.snapshot.size:
        growing.archive()
    else:
        finish_runs(growing.lake, "", "1")
    follow_keys(growing.lake)


def stores_of(growing: GrowingLake) -> RefillStores:
    """Return the lake's store, for a repair."""
    return RefillStores(find_stores(str(growing.store), None, formats=all_formats()))


def contents(lake: Lake, *tables: str, without: Collection[str] = ()) -> dict[str, list[str]]:
    """Return the rows of tables as text, without values that differ from run to run, and without some columns."""
    found, hidden = {}, {*_OF_RUNS, *without}
    for table in tables or ("messages", "message_keys"):
        opened = lake.find(table)
        rows = [] if opened is None else opened.to_pyarrow_table().to_pylist()
        found[table] = sorted(repr({name: row[name] for name in row if name not in hidden}) for row in rows)
    return found


def archive_run(growing: GrowingLake) -> Result:
    """Archive the store's new messages as the command does, with profiles, keys and edges, but without a judge."""
    return run_archive(HERE, Config(str(growing.store), growing.lake, judge=judge_nothing))


def forget_earlier_versions(lake: Lake) -> None:
    """Merge the data files of all tables, and delete those of earlier versions at once."""
    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC)
    plan = MaintenancePlan(lake, {}, day, 1 << 30, dry_run=False, quiet=True, now=now)
    for care in maintain_tables(plan):
        vacuum(lake, care.table, datetime.timedelta(), is_only_user=True)
