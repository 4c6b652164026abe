"""Result of a run's tasks, before the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.connectors.lake.archive_log import ArchiveCommit
from commitlake.connectors.lake.manifest import ManifestRow


@dataclass(frozen=True, slots=True)
class TasksResult:
    """Result of a run's tasks.

    Attributes:
        commit: commit of the run, with its progress.
        manifest: rows of files that were not written by tasks.
        notes: sentences for the summary.
    """

    commit: ArchiveCommit
    manifest: Sequence[ManifestRow] = ()
    notes: Sequence[str] = ()
