"""Archive runs of a damaged and repaired lake, and its content."""

from __future__ import annotations

from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.follower import finish_runs
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.archive.work import find_work
from commitlake.pipelines.message_keys.follow import follow_keys
from tests.support.lakes import GrowingLake

# Columns whose values differ between runs over the same messages.
_OF_RUNS = frozenset(
    {"body_ref", "run_id", "started_at", "finished_at", "recovered", "sequence", "stores", "bytes", "recorded_at"}
)


def archive(growing: GrowingLake) -> None:
    """Run the next archive."""
    work = find_work(str(growing.store), None, growing.lake)
    if work.snapshot.size:
        growing.archive()
    else:
        finish_runs(growing.lake, "", "1")
    follow_keys(growing.lake)


def contents(lake: LakePaths, *tables: str) -> dict[str, list[str]]:
    """Return the rows of tables as text, without values that differ from run to run."""
    found = {}
    for table in tables or ("messages", "message_keys"):
        try:
            rows = delta_table(getattr(lake, table)).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            rows = []
        found[table] = sorted(repr({name: row[name] for name in row if name not in _OF_RUNS}) for row in rows)
    return found
