"""One archive run beside others over the same stores: whoever is first, all that was there at the start gets archived.

Of two runs that read the same range only one can commit it. The other plans again, from where the lake is by then to
the end that it saw at its own start, until nothing of that is left.
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


def archive_beside_others(
    runner: Runner,
    config: Config,
    work: ArchiveWork,
    progress: Progress | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Result:
    """Archive what a plan has found; what another run commits first is left out of the next try.

    Args:
        runner: as for `run_archive`.
        config: what to archive.
        work: from `find_work`. Its end offsets are how far to go.
        progress: as for `run_archive`.
        wait: waits some seconds.

    Returns:
        The result of the run that committed. Its sequence is 0 where other runs have archived everything.

    Raises:
        ConcurrentArchiveError: if other runs were first `MAX_TRIES` times, and something is left.
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
        if attempt:  # the first time, what is left is mostly little or nothing
            wait(wait_seconds(attempt))
        own = plan_work(config, until=wanted)
    raise AssertionError  # the last try has returned or raised
