"""Which state of a lake an audit looks at: one version of `messages`, and what the other places had by then.

An archive that follows its broker commits every other second, and each table is written a moment after the one before.
So the version of `messages` comes first; what its archive commit does not tell of is left out of the other places, and
what they still lack of it is waited for.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.archive_log import ArchiveCommit, commits_after, newest_commit
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.erasures import erasure_number
from commitlake.connectors.lake.follower import unfinished_commits
from commitlake.connectors.lake.lost_tables import check_messages_are_there
from commitlake.connectors.lake.paths import LakeError, LakePaths
from commitlake.pipelines.audit.errors import NotThereYetError
from commitlake.pipelines.maintenance.expiry import read_expiries

WAIT_SECONDS = 30.0
"""How long others may take for what follows a commit, until an audit says that it is not done."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Moment:
    """One state of a lake.

    Attributes:
        version: of `messages`.
        committed: the version that the archive commit made.
        commit: the newest archive commit by then.
        profiles: a version of `profiles` that has all of this commit and of those before it; None without the table.
        later: runs whose rows may be in `profiles`, and are not in `messages`.
        expired: by table, or `bodies`: the first date of which maintain has kept all.
        erasure: number of the newest erasure that `messages` is done with; 0 for none.
    """

    version: int
    committed: int
    commit: ArchiveCommit
    profiles: int | None
    later: tuple[str, ...] = ()
    expired: Mapping[str, datetime.date] = field(default_factory=dict)
    erasure: int = 0


def read_moment(lake: LakePaths) -> Moment:
    """The newest state of which all tables tell.

    Raises:
        LakeError: where nothing is archived.
        NotThereYetError: if a run has committed, and is not finished.
    """
    table = _open(lake.messages)
    found = None if table is None else newest_commit(table)
    if table is None:
        check_messages_are_there(lake)
    if table is None or found is None:
        raise LakeError(
            f"{lake.root} is not a lake, or nothing was archived into it yet: 'commitlake archive' does that"
        )
    committed, commit = found
    if not _is_so(lambda: not _unfinished(lake, commit)):
        raise NotThereYetError(
            f"run {commit.sequence} is not finished, or one before it: messages are committed, but what was counted "
            "is not there yet. It is still at work, or was stopped: 'commitlake archive' finishes it. Audit again then"
        )
    profiles = _open(lake.profiles)
    later = commits_after(lake.messages, commit.sequence)  # asked behind `profiles`: all that can be in that version
    return Moment(
        table.version(),
        committed,
        commit,
        None if profiles is None else profiles.version(),
        tuple(made.run_id for made in later),
        read_expiries(table),
        erasure_number(table),
    )


def wait_for_hbase(version_there: Callable[[], int | None], moment: Moment) -> None:
    """Wait until HBase has all of a moment.

    Args:
        version_there: the version of `messages` that HBase has by now, None before its first.
        moment: what it should have.

    Raises:
        NotThereYetError: if it does not come.
    """

    def is_there() -> bool:
        version = version_there()
        return version is not None and version >= moment.committed

    if not _is_so(is_there):
        raise NotThereYetError(
            f"HBase has not followed run {moment.commit.sequence}: expected version {moment.committed} of messages "
            f"there, found {version_there()}. 'commitlake archive --hbase' lets it follow. Audit again then"
        )


def _is_so(condition: Callable[[], bool]) -> bool:
    """Whether something is so, or becomes so while others are at work."""
    until = time.monotonic() + WAIT_SECONDS
    while not (there := condition()) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return there


def _open(uri: str) -> DeltaTable | None:
    try:
        return delta_table(uri)
    except TableNotFoundError:
        return None


def _unfinished(lake: LakePaths, commit: ArchiveCommit) -> list[ArchiveCommit]:
    return [made for made in unfinished_commits(lake, commit.sequence) if made.sequence <= commit.sequence]
