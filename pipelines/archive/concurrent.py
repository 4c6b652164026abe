"""Archives stores while other runs archive them, until everything that was there at the start is archived.

If two runs read the same range, only one of them can commit it. The other plans again, from the lake's new end to the
end of the log at its own start, until nothing is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from commitlake.connectors.lake.backoff import MAX_TRIES, wait_seconds
from commitlake.connectors.lake.committer import ConcurrentArchiveError
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.archive.run import Config, Progress, Result, plan_work, run_archive
from commitlake.pipelines.archive.work import ArchiveWork

_LOG = logging.getLogger(__name__)


def archive_concurrently(
    runner: Runner,
    config: Config,
    work: ArchiveWork,
    progress: Progress | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Result:
    """Archive the ranges of a plan, except those that another run commits first.

    Args:
        runner: as for `run_archive`.
        config: settings of the run.
        work: from `find_work`. Its end offsets limit the run.
        progress: as for `run_archive`.
        wait: waits for a number of seconds.

    Returns:
        The result of the run that committed. Its sequence is 0 if other runs have archived everything.

    Raises:
        ConcurrentArchiveError: if other runs committed first `MAX_TRIES` times, and something is left.
        Exception: what `run_archive` raises.
    """
    wanted, own = work.snapshot, work
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
