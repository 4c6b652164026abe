"""Runs a replay: takes it over, sends its plan in this process or on a runner's tasks, and records how that ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq.producers.tracked_connections import TrackedConnections
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.replay.errors import OtherProcessError, ReplayError
from commitlake.pipelines.replay.ledger import Counts, Ledger, add_replay_event
from commitlake.pipelines.replay.planned_messages import PlannedMessages
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sending.rate_limit import Pace
from commitlake.pipelines.replay.sending.share_sender import ReplaySettings, ShareSender
from commitlake.pipelines.replay.sending.tasks import divide_queues, follow_tasks, send_on_runner
from commitlake.schemas.count_texts import format_count
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.replays import ReplayEvent


class ReplayRun:
    """Sends the messages of a plan, in this process or by parallel tasks.

    Args:
        lake: The lake.
        messages: Messages to send.
        client: Client of the target.
        pace: Limits of the rate.
        settings: Further settings.
        on_progress: Called now and then with the numbers so far.
        clock: Returns seconds of a monotonic clock.
        runner: Sends by tasks, each of which has its own queues of the target; None to send in this process.
    """

    def __init__(
        self,
        lake: Lake,
        messages: PlannedMessages,
        client: TargetClient,
        pace: Pace,
        settings: ReplaySettings,
        on_progress: Callable[[Counts], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        runner: Runner | None = None,
    ) -> None:
        self._lake, self._messages, self._plan = lake, messages, messages.plan
        self._client, self._pace, self._settings, self._on_progress = client, pace, settings, on_progress
        self._clock, self._runner = clock, runner
        self._ledger = Ledger(lake, self._plan.replay_id)
        self._counts = Counts(0, 0)

    def run(self, *, is_resumed: bool, has_lost_rows: bool = False) -> Counts:
        """Send until all messages have an outcome, or until sending is stopped.

        Args:
            is_resumed: True if a process has begun to send before.
            has_lost_rows: True if the ledger may lack any of the rows that were added to it.

        Returns:
            The total numbers of messages that were sent, and that could not be.

        Raises:
            ReplayError: if it cannot continue; the ledger has all that was done.
        """
        shares = [] if self._runner is None else divide_queues(self._messages, self._runner.cores)
        claims = self._ledger.claim_replay(len(shares))
        if not self._ledger.is_first_claim:  # another process was faster, and may have sent messages before this claim
            is_resumed = True
        record = partial(add_replay_event, self._lake, self._plan.replay_id)
        # Only after the claim: the state of a replay is its owner's to change.
        record(ReplayEvent.STARTED, sender_count=len(shares))
        try:
            self._counts = self._ledger.count_sent_and_failed()
            if self._runner is None:
                is_done = self._send_in_this_process(is_resumed=is_resumed, has_lost_rows=has_lost_rows)
            else:
                with follow_tasks(self._lake, self._plan.replay_id, self._pace, self._ledger, self._note_progress):
                    is_done = send_on_runner(
                        self._runner,
                        self._lake,
                        self._plan,
                        list(zip(shares, claims, strict=True)),
                        self._client.name_servers,
                        self._settings,
                        is_resumed=is_resumed,
                        has_lost_rows=has_lost_rows,
                    )
                self._note_progress(self._ledger.count_sent_and_failed())
            if is_done:
                self._check_no_rows_deleted()
        except BaseException as error:
            if not isinstance(error, OtherProcessError) or self._is_owner():  # or else the state is that of the other
                record(ReplayEvent.FAILED, counts=self._counts, detail=str(error) or type(error).__name__)
            raise
        record(ReplayEvent.FINISHED if is_done else ReplayEvent.STOPPED, counts=self._counts)
        return self._counts

    def _send_in_this_process(self, *, is_resumed: bool, has_lost_rows: bool) -> bool:
        producer, admin = self._client.producer, self._client.admin
        sender = ShareSender(
            self._messages,
            self._client,
            self._ledger,
            self._pace,
            self._settings,
            counts=self._counts,
            on_progress=self._note_progress,
            clock=self._clock,
        )
        check_owner = self._ledger.check_is_owner
        with TrackedConnections(producer, admin, self._plan.replay_id, check_owner=check_owner) as connections:
            return sender.send(connections, is_resumed=is_resumed, has_lost_rows=has_lost_rows)

    def _is_owner(self) -> bool:
        try:
            self._ledger.check_is_owner()
        except OtherProcessError:
            return False
        return True

    def _note_progress(self, counts: Counts) -> None:
        self._counts = counts
        self._on_progress(counts)

    def _check_no_rows_deleted(self) -> None:
        """Raise an error if messages of the plan were deleted from the lake, so that they were not sent."""
        found, wanted = self._counts.sent + self._counts.failed, self._plan.messages_to_send
        if found < wanted:
            raise ReplayError(
                f"expected the {format_count(wanted, 'message')} of the plan in the lake, found {found:,}: the others "
                "were deleted from it after the plan was made, and are not sent",
                exit_code=ExitCode.DAMAGE,
            )
