"""`archive --from-broker --follow`: repeated archive runs, each over the messages that the brokers' queues have then.

A run continues from the offsets of the last commit, whichever process made it. Transient errors, such as a broker that
does not answer, are retried for a while.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable

from commitlake.connectors.rocketmq.errors import UnreachableError
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.archive.offset_snapshots import append_snapshots, read_offset_snapshots
from commitlake.jobs.cli.process import call_on_first_signal
from commitlake.pipelines.archive.commit_series import archive_concurrently
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, plan_work
from commitlake.schemas.errors import CommitLakeError

_MAX_FAILURES = 6  # in a row; the waits between them add up to about two minutes
_FIRST_WAIT_SECONDS = 4
_LOG = logging.getLogger(__name__)


class BrokerFollower:
    """Series of archive runs that pull messages from brokers, one after another.

    Args:
        runner: the runner of the tasks.
        config: settings of the archive runs.
        on_result: called with the result of each run that archived something.
        snapshot_every: interval of the snapshots of consumer offsets.
    """

    def __init__(
        self, runner: Runner, config: Config, on_result: Callable[[Result], None], snapshot_every: datetime.timedelta
    ) -> None:
        self._runner, self._config, self._on_result = runner, config, on_result
        self._snapshot_seconds = snapshot_every.total_seconds()
        self._next_snapshot = time.monotonic()
        self._stop = threading.Event()

    def follow_brokers(self, interval: datetime.timedelta) -> None:
        """Archive new messages at an interval until a signal arrives.

        Args:
            interval: time between two checks for new messages.

        Raises:
            CommitLakeError: an error that a retry cannot solve, or that has persisted.
        """
        failures = 0
        with call_on_first_signal(self._stop.set):
            while not self._stop.is_set():
                seconds = interval.total_seconds()
                try:
                    self._archive_new_messages()
                    failures = 0
                except CommitLakeError as error:
                    failures += 1
                    if failures == _MAX_FAILURES or not (error.is_transient or isinstance(error, UnreachableError)):
                        raise
                    seconds = _FIRST_WAIT_SECONDS * 2 ** (failures - 1)
                    _LOG.warning("%s. Next attempt in %d s", error, seconds)
                self._stop.wait(seconds)

    def _archive_new_messages(self) -> None:
        is_due = time.monotonic() >= self._next_snapshot
        snapshots = read_offset_snapshots(self._config) if is_due else []
        work = plan_work(self._config)
        if not work.has_nothing_to_do:
            result = archive_concurrently(
                self._runner, self._config, work, wait=self._stop.wait, on_committed=self._on_result
            )
            self._on_result(result)
        if is_due and (work.last.sequence or work.has_new_data):
            append_snapshots(self._config, snapshots, work.snapshot.ranges)
            self._next_snapshot = time.monotonic() + self._snapshot_seconds
