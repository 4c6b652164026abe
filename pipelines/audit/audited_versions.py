"""Chooses the state of a lake to audit: one version of `messages`, and matching versions of the other tables.

A continuous archive commits every other second, and each table is written a moment after the one before. The version of
`messages` is therefore chosen first. Rows in other tables that belong to later commits are left out, and rows that are
still missing are waited for.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from commitlake.connectors.lake.archive_commits import ArchiveCommit, commits_after, newest_commit
from commitlake.connectors.lake.archive_run_completion import unfinished_commits
from commitlake.connectors.lake.erasures import FORM, newest_erasure_number, read_erasure_rules_version
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.schemas.errors import UnavailableError

WAIT_SECONDS = 30.0
"""Time that other processes may need to complete a commit, before the audit fails."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LakeState:
    """State of a lake that an audit examines, given by versions of its tables that belong together.

    Attributes:
        version: version of `messages`.
        committed: version of the archive commit.
        commit: the newest archive commit.
        profiles: a version of `profiles` that has all rows of this commit and of earlier ones; None if there is no such
            table.
        later: runs that may have rows in `profiles` but are not in `messages`.
        expired: by table, or `bodies`: the first date that maintain has kept.
        erasure: number of the newest erasure that is complete in `messages`; 0 for none.
        counted_erasure: number of the newest erasure that is complete in `profiles`; 0 for none.
        erased_form: form of the erased rows in `messages`.
    """

    version: int
    committed: int
    commit: ArchiveCommit
    profiles: int | None
    later: tuple[str, ...] = ()
    expired: Mapping[str, datetime.date] = field(default_factory=dict)
    erasure: int = 0
    counted_erasure: int = 0
    erased_form: int = FORM


def read_lake_state(lake: Lake) -> LakeState:
    """Return the newest table versions of a lake at which all archive runs were finished.

    Raises:
        LakeError: if nothing is archived.
        UnavailableError: if a run has committed but is not finished.
    """
    table = lake.find("messages")
    found = None if table is None else newest_commit(lake, table)
    if table is None:
        lake.check_messages_exist()
    if table is None or found is None:
        raise LakeError(f"{lake.root} is not a lake, or nothing is archived in it yet: run 'commitlake archive' first")
    committed, commit = found
    if not _wait_until(lambda: not _unfinished_runs(lake, commit)):
        raise UnavailableError(
            f"archive run {commit.sequence}, or one before it, is not finished: its messages are committed, but not "
            "its counts. It is still running, or was killed; if it was killed, run 'commitlake archive' to finish it. "
            "Then audit again"
        )
    profiles = lake.find("profiles")
    # Read after `profiles`, so that it has every run with rows in that version.
    later = commits_after(lake, commit.sequence)
    return LakeState(
        table.version(),
        committed,
        commit,
        None if profiles is None else profiles.version(),
        tuple(made.run_id for made in later),
        read_expiries(table),
        newest_erasure_number(table),
        newest_erasure_number(table if profiles is None else profiles),
        read_erasure_rules_version(table),
    )


def wait_for_hbase(read_hbase_version: Callable[[], int | None], moment: LakeState) -> None:
    """Wait until HBase has all messages that `messages` had at the audited versions.

    Args:
        read_hbase_version: returns the version of `messages` that HBase has, None before its first.
        moment: moment that it must reach.

    Raises:
        UnavailableError: if it does not in time.
    """

    def hbase_is_up_to_date() -> bool:
        version = read_hbase_version()
        return version is not None and version >= moment.committed

    if not _wait_until(hbase_is_up_to_date):
        raise UnavailableError(
            f"HBase does not have the messages of archive run {moment.commit.sequence} yet: expected version "
            f"{moment.committed} of the table messages in it, found {read_hbase_version()}. Run 'commitlake archive "
            "--hbase', then audit again"
        )


def _wait_until(condition: Callable[[], bool]) -> bool:
    """Wait until a condition is true, or a time limit is over; return whether it is true."""
    until = time.monotonic() + WAIT_SECONDS
    while not (there := condition()) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return there


def _unfinished_runs(lake: Lake, commit: ArchiveCommit) -> list[ArchiveCommit]:
    return [made for made in unfinished_commits(lake, commit.sequence) if made.sequence <= commit.sequence]
