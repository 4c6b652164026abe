"""Archives stores in one or several commits, while other runs may archive them, too.

A run over much log commits after every `Config.commit_bytes` of it. Each commit is complete: it is judged, and the
other tables follow it, before the next one begins. So a run that is killed loses only its last part, and the next run
continues after the others.

If two runs read the same range, only one of them can commit it. The other plans again, from the lake's new end to the
end of the log at its own start, until nothing is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from commitlake.connectors.formats.engine.plan import Snapshot
from commitlake.connectors.lake.backoff import MAX_TRIES, wait_seconds
from commitlake.connectors.lake.committer import ConcurrentArchiveError
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.archive.run import Config, OnRefusal, Progress, Result, plan_work, run_archive
from commitlake.pipelines.archive.series import CommitSeries
from commitlake.pipelines.archive.work import ArchiveWork

_LOG = logging.getLogger(__name__)


def archive_concurrently(
    runner: Runner,
    config: Config,
    work: ArchiveWork,
    progress: Progress | None = None,
    wait: Callable[[float], object] = time.sleep,
    on_committed: Callable[[Result], object] = lambda _: None,
) -> Result:
    """Archive the ranges of a plan, except those that another run commits first.

    Args:
        runner: as for `run_archive`.
        work: from `find_work`. Its end offsets limit the run.
        progress: as for `run_archive`.
        wait: waits for a number of seconds.
        on_committed: called with the result of the run so far if an error ends it after a commit.

    Returns:
        The result of all commits of the run. Its sequence is 0 if other runs have archived everything.

    Raises:
        ConcurrentArchiveError: if other runs committed first `MAX_TRIES` times, and something is left.
        Exception: what `run_archive` raises.
    """
    most = _commit_bytes(config, work)
    step = work.first_step(most)
    if step is work:
        return _archive_rest(runner, config, work, work.snapshot, progress, wait)
    series = CommitSeries(config, work.snapshot)
    with _shared(progress, runner, work.snapshot.size) as shared:
        try:
            while step is not work:
                series.add(_archive_rest(runner, series.config, step, step.snapshot, shared, wait))
                work = plan_work(config, until=series.wanted)
                step = work.first_step(most)
            series.add(_archive_rest(runner, series.config, work, work.snapshot, shared, wait))
        except BaseException:
            if (so_far := series.stop()) is not None:
                on_committed(so_far)
            raise
    return series.end()


def _commit_bytes(config: Config, work: ArchiveWork) -> int:
    """Return the size of a commit; all of the log if the run must archive nothing once it finds damage or a gap."""
    is_all_or_nothing = OnRefusal.FAIL in (config.on_corrupt, config.on_gap)
    return work.snapshot.size if is_all_or_nothing or config.commit_bytes is None else config.commit_bytes


@contextmanager
def _shared(progress: Progress | None, runner: Runner, size: int) -> Iterator[Progress | None]:
    """Show one progress for all commits."""
    if progress is None:
        yield None
        return
    with progress(runner, size) as advance:

        def shared(_runner: Runner, _size: int) -> AbstractContextManager[Callable[[int], None]]:
            return nullcontext(advance)

        yield shared


def _archive_rest(
    runner: Runner,
    config: Config,
    work: ArchiveWork,
    wanted: Snapshot,
    progress: Progress | None,
    wait: Callable[[float], object],
) -> Result:
    """Archive the wanted ranges in one commit, except those that another run commits first."""
    own = work
    for attempt in range(MAX_TRIES):
        try:
            result = run_archive(runner, config, own, progress)
        except ConcurrentArchiveError as error:
            if attempt == MAX_TRIES - 1:
                raise
            _LOG.info("%s", error)
        else:
            return replace(result, bytes_of_others=wanted.size - own.snapshot.size)
        if attempt:  # after the first try, usually little or nothing is left
            wait(wait_seconds(attempt))
        own = plan_work(config, until=wanted)
    raise AssertionError  # the last try has returned or raised
