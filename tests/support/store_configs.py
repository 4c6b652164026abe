"""Recording of the stores' configuration, as an archive run does it."""

from __future__ import annotations

import datetime

from commitlake.connectors.lake.committer import append_files
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.archive.store_config import write_config_changes
from commitlake.pipelines.archive.work_planning import ArchiveWork

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def record_config(
    lake: Lake, work: ArchiveWork, at: datetime.datetime = EPOCH, problems: list[str] | None = None
) -> int:
    """Add changes to `store_config`, and return the number of rows."""
    file = write_config_changes(lake, work.stores, work.commit.run_id, at, problems)
    if file is None:
        return 0
    append_files(lake, "store_config", [file], work.commit.sequence)
    return file.rows
