"""`replay verify`, also at the end of each replay: read back the sent messages, and compare them with the lake."""

from __future__ import annotations

import time

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Puller
from commitlake.jobs.arguments.lake_location import open_packs
from commitlake.jobs.cli.progress import counted_progress
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.replay.arguments import ReplayOptions, SendingArguments
from commitlake.jobs.report.rows_output import write_rows
from commitlake.pipelines.replay.ledger import Ledger, add_replay_event, check_has_copies, read_replay_state
from commitlake.pipelines.replay.planned_messages import PlannedMessages, open_planned_messages
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.pipelines.replay.verifying import Difference, verification_text, verify_replay
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.replays import ReplayEvent


def verify_replay_by_id(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Compare the messages that a replay sent with the lake."""
    state = read_replay_state(lake, arguments.replay_id)
    check_has_copies(state)
    plan = state.plan
    messages = open_planned_messages(lake, plan, open_packs(lake))
    with open_target_client(arguments.namesrv or plan.target.name_servers) as client:
        return verify_sent_messages(arguments, lake, messages, client.puller)


def verify_sent_messages(
    arguments: SendingArguments, lake: Lake, messages: PlannedMessages, puller: Puller
) -> ExitCode:
    """Compare the messages that a replay sent with the lake, print the differences, and store the result.

    Args:
        messages: the messages of the replay.
        puller: reader of the target.

    Returns:
        DAMAGE if a message differs from the sent one.
    """
    plan = messages.plan
    began = time.monotonic()
    with counted_progress("verifying", plan.messages_to_send, "messages", quiet=arguments.quiet) as advance:
        found = verify_replay(messages, Ledger(lake, plan.replay_id), puller, advance)
    result = verification_text(found)
    add_replay_event(lake, plan.replay_id, ReplayEvent.VERIFIED, detail=result)
    if found.problems:
        write_rows(arguments.output, [difference._asdict() for difference in found.examples], list(Difference._fields))
    if not arguments.quiet or found.problems:
        print_line(f"replay {plan.replay_id}: {result} (reading back took {time.monotonic() - began:,.1f} s)")
    return ExitCode.DAMAGE if found.problems else ExitCode.OK
