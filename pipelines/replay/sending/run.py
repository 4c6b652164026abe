"""Runs a replay: takes it over, sends its plan in this process or on a runner's tasks, and records how that ended.

A run that continues a replay keeps its limits, also those that `replay throttle` has set, unless others are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.rocketmq.producers.tracked_connections import TrackedConnections
from commitlake.connectors.runtime.runner import Runner, SharedValue
from commitlake.pipelines.replay.errors import OtherProcessError, ReplayError
from commitlake.pipelines.replay.ledger import Counts, Ledger, ReplayState, SenderClaim, add_replay_event
from commitlake.pipelines.replay.plan import ReplayRequest
from commitlake.pipelines.replay.planned_messages import open_planned_messages
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sending.rate_limit import SendPace
from commitlake.pipelines.replay.sending.replay_control import watch_replay
from commitlake.pipelines.replay.sending.share_sender import ShareSender
from commitlake.pipelines.replay.sending.tasks import (
    COMMITS_PER_SECOND,
    QueueShare,
    SendingTask,
    divide_queues,
    follow_tasks,
    send_share,
)
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.replays import ReplayEvent


class ReplayRun:
    """Sends the messages of a recorded replay, or the rest of them, in this process or by parallel tasks.

    Args:
        lake: The lake.
        state: State of the replay, for which `check_can_continue` raises no error.
        request: Limits of this run.
        client: Client of the target.
        runner: Sends by tasks, each of which has its own queues of the target; None to send in this process.
        on_progress: Called now and then with the number of further messages that have an outcome.
        notify: Receives a sentence for each change of the pace.

    Attributes:
        messages: messages of the replay.
        pace: limits of the rate; a stop of it stops the run.
    """

    def __init__(
        self,
        lake: Lake,
        state: ReplayState,
        request: ReplayRequest,
        client: TargetClient,
        runner: Runner | None = None,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._lake, self._state, self._request = lake, state, request
        self._client, self._runner, self._on_progress, self._notify = client, runner, on_progress, notify
        self._plan = state.plan_with_limits(request.rate, request.speed, request.lag_limit)
        self._ledger = Ledger(lake, self._plan.replay_id)
        self._counts = Counts(0, 0)
        self.messages = open_planned_messages(lake, self._plan, open_pack_store(lake.packs))
        self.pace = SendPace(self._plan.rate, self._plan.speed)

    def send_replay(self) -> Counts:
        """Send until all messages have an outcome, or until sending is stopped.

        Returns:
            The total numbers of messages that were sent, and that could not be.

        Raises:
            ReplayError: if it cannot continue; the ledger has all that was done.
        """
        plan, state, request = self._plan, self._state, self._request
        record = partial(add_replay_event, self._lake, plan.replay_id)
        if self._runner is not None and plan.speed:
            raise ReplayError(
                f"the replay {plan.replay_id} keeps to {plan.speed:g} times the pace at which the messages were "
                "stored, which tasks on Spark cannot do",
                hint=f"'commitlake replay throttle {plan.replay_id} --speed none' ends that, and a lake without a "
                "session sends in one process",
            )
        before = state.plan_with_limits()
        if (plan.rate, plan.speed) != (before.rate, before.speed):  # replaces earlier requests
            record(ReplayEvent.THROTTLED, rate=request.rate, speed=request.speed)
        shares = [] if self._runner is None else divide_queues(self.messages, self._runner.cores)
        claims = self._ledger.claim_replay(len(shares))
        # Another process may have been faster than this one, and may have sent messages before this claim.
        is_resumed = state.owner is not None or not self._ledger.is_first_claim
        # Only after the claim: the state of a replay is its owner's to change.
        record(ReplayEvent.STARTED, sender_count=len(shares))
        try:
            self._note_progress(self._ledger.count_sent_and_failed())
            # Only after the start is recorded: a request to stop before it was meant for an earlier run.
            with watch_replay(self._lake, plan.replay_id, self.pace, self._client.admin, plan.lag_limit, self._notify):
                if self._runner is None:
                    is_done = self._send_in_this_process(is_resumed=is_resumed)
                else:
                    is_done = self._send_by_tasks(self._runner, shares, claims, is_resumed=is_resumed)
            if is_done:
                self._check_no_rows_deleted()
            else:  # the state of a replay that another process has taken over is not stopped
                self._ledger.check_is_owner()
        except BaseException as error:
            if not isinstance(error, OtherProcessError) or self._is_owner():  # or else the state is that of the other
                record(ReplayEvent.FAILED, counts=self._counts, detail=str(error) or type(error).__name__)
            raise
        record(ReplayEvent.FINISHED if is_done else ReplayEvent.STOPPED, counts=self._counts)
        return self._counts

    def _send_in_this_process(self, *, is_resumed: bool) -> bool:
        producer, admin = self._client.producer, self._client.admin
        sender = ShareSender(
            self.messages,
            self._client,
            self._ledger,
            self.pace,
            self._request.target_timeout,
            counts=self._counts,
            on_progress=self._note_progress,
            is_resumed=is_resumed,
            has_lost_rows=self._state.has_lost_rows,
        )
        check_owner = self._ledger.check_is_owner
        with TrackedConnections(producer, admin, self._plan.replay_id, check_owner=check_owner) as connections:
            return sender.send(connections)

    def _send_by_tasks(
        self, runner: Runner, shares: Sequence[QueueShare], claims: Sequence[SenderClaim], *, is_resumed: bool
    ) -> bool:
        plan = SharedValue(self._plan)
        tasks = [
            SendingTask(
                self._lake,
                plan,
                share,
                claim,
                self._client.name_servers,
                len(shares) / COMMITS_PER_SECOND,
                self._request.target_timeout,
                is_resumed,
                self._state.has_lost_rows,
            )
            for share, claim in zip(shares, claims, strict=True)
        ]
        with follow_tasks(self._lake, self._plan.replay_id, self.pace, self._ledger, self._note_progress):
            results = [result for _, result in runner.run(send_share, tasks, is_io_bound=True)]
        # Only after all tasks have ended, so that no task still sends when the error is reported.
        for result in results:
            if result.error is not None:
                raise result.error
        self._note_progress(self._ledger.count_sent_and_failed())
        return all(result.is_done for result in results)

    def _is_owner(self) -> bool:
        try:
            self._ledger.check_is_owner()
        except OtherProcessError:
            return False
        return True

    def _note_progress(self, counts: Counts) -> None:
        self._on_progress(sum(counts) - sum(self._counts))
        self._counts = counts

    def _check_no_rows_deleted(self) -> None:
        """Raise an error if messages of the plan were deleted from the lake, so that they were not sent."""
        found, wanted = self._counts.sent + self._counts.failed, self._plan.messages_to_send
        if found < wanted:
            raise ReplayError(
                f"the plan has {format_count(wanted, 'message')} to send, but the lake has only {found:,} of them: "
                "the others were deleted from it after the plan was made, and are not sent",
                exit_code=ExitCode.DAMAGE,
            )
