"""Replays of messages that a caller has chosen one by one, such as an analyst by a DataFrame.

A replay has a name, which the caller gives, and which is its id. A call with a name that is known does not plan
anything new: it continues the replay where it ended, or returns its result. So a program that is started again, or a
notebook that is run twice, sends each message once.

    copy the chosen rows of `messages` into a temporary folder → plan → copy them to `replay_rows` → record the plan
    → send

The copies are committed under a number that is computed from the chosen places, and only the first commit with a name
succeeds; the same is true of the plan. So a call that was killed in between is completed by the next one, and a call
with the same name and other messages is refused.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.sql import quote_column_name, text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq import RocketMQError
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.replay.copied_messages import copy_chosen_messages
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.ledger import (
    Ledger,
    ReplayState,
    check_can_continue,
    check_has_copies,
    read_replay_state,
    read_replay_states,
)
from commitlake.pipelines.replay.origin_properties import REPLAY_ID
from commitlake.pipelines.replay.other_replays import check_no_unfinished_replay, split_addresses
from commitlake.pipelines.replay.plan import ReplayPlan, ReplayRequest, Target
from commitlake.pipelines.replay.planned_messages import PlannedMessages
from commitlake.pipelines.replay.planning import QueueCount, count_messages_by_queue, plan_replay, record_replay
from commitlake.pipelines.replay.replay_rows import read_copies_number, write_copied_rows
from commitlake.pipelines.replay.selection import SENDABLE
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.pipelines.replay.verifying import verify_replay
from commitlake.schemas.errors import ExitCode, UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.topics import kind_of
from commitlake.schemas.tables.replays import ReplayEvent

if TYPE_CHECKING:
    from deltalake import DeltaTable

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedReplay(ReplayRequest):
    """Request to send a DataFrame's messages under a name, by which a later call continues the replay.

    Attributes:
        name: name of the replay, its id in the ledger.
        includes_replayed: True to send messages that an earlier replay has sent, too.
        verifies: True to read the messages back from the target.
    """

    name: str
    includes_replayed: bool = False
    verifies: bool = True


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of a named replay: its state, the numbers of messages sent and failed, and a verification if requested.

    Attributes:
        name: name of the replay; `commitlake replay show NAME` shows its events.
        state: `dry run`, `nothing to send`, or the last event of the replay, such as `finished` or `stopped`.
        messages: number of messages that are to be sent.
        sent: number of messages that are in the target.
        failed: number of messages that could not be sent; `replay_messages` has the reason of each.
        already_replayed: number of chosen messages that are left out because an earlier replay has sent them; None if
            the replay was planned by an earlier call.
        queues: the messages to send by queue of the lake; empty if the replay was planned by an earlier call.
        groups: for each topic of the target, the consumer groups that receive the messages; only of a dry run with
            name servers.
        verification: result of the comparison of the target with the lake; None if there was none.
        differences: number of messages in the target that differ from those in the lake, or are missing or twice.
    """

    name: str
    state: str
    messages: int
    sent: int = 0
    failed: int = 0
    already_replayed: int | None = None
    queues: tuple[QueueCount, ...] = ()
    groups: Mapping[str, tuple[str, ...]] | None = None
    verification: str | None = None
    differences: int = 0


def check_replay_name(name: str) -> None:
    """Raise an error if a name cannot be the name of a replay.

    Raises:
        UsageError: if it cannot.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"name: expected the name of a replay, 1 to 64 letters, digits, '-' and '_', found {name!r:.80}"
        )


def send_named_replay(
    lake: Lake, places: Mapping[str, Array], request: NamedReplay, runner: Runner | None, *, is_dry_run: bool
) -> ReplayResult:
    """Send the messages at given log positions, or continue the replay of that name.

    Args:
        lake: the lake.
        places: by store, the physical offsets, sorted and each once.
        request: name, target and pace.
        runner: runner of the tasks that send; None to send in this process.
        is_dry_run: True to send nothing, and write nothing.

    Raises:
        ReplayError: if the messages cannot be sent, or the name is that of a replay of other messages.
        OtherProcessError: if another process is sending the replay.
        RocketMQError: if the target does not answer.
        LakeError: if the lake cannot be read.
    """
    number = _number_of_places(places, includes_replayed=request.includes_replayed)
    copies = read_copies_number(lake, request.name)
    state = read_replay_states(lake, request.name).get(request.name)
    if copies is None and state is not None:
        raise ReplayError(
            f"the name {request.name} is that of a replay that lake.replay did not plan: choose another name"
        )
    if state is None and Ledger(lake, request.name).was_claimed():
        raise ReplayError(
            f"a repair of the lake has lost the plan of the replay {request.name}, which may have sent messages: "
            "choose another name, and only messages that the table replay_messages does not have"
        )
    if copies not in (None, number):
        raise _other_messages_error(request.name)
    if state is not None:
        _check_target(state.plan, request)
        return _result_of_state(lake, state) if is_dry_run else _send(lake, state, request, runner)
    with tempfile.TemporaryDirectory(prefix="commitlake-replay-") as folder:
        copy = Lake(folder)
        copy_chosen_messages(lake.table("messages"), places, copy)
        return _plan_and_send(lake, copy.table("messages"), number, request, runner, is_dry_run=is_dry_run)


def _number_of_places(places: Mapping[str, Array], *, includes_replayed: bool) -> int:
    """Return a hash, from 1 to 2^62 - 1, that identifies a choice of messages."""
    # With or without messages that were replayed before is a different choice of the same places.
    found = hashlib.sha256(b"all" if includes_replayed else b"new")
    for broker in sorted(places):
        name = broker.encode()
        # Lengths come before names and offsets, so that no two choices give the same bytes.
        found.update(b"%d %d " % (len(name), len(places[broker])) + name + places[broker].astype("<i8").tobytes())
    return 1 + (int.from_bytes(found.digest()[:8], "big") >> 2)


def _other_messages_error(name: str) -> ReplayError:
    return ReplayError(
        f"the name {name} is that of a replay of other messages. Choose another name, or choose the same messages: "
        "give 'until' if messages are still archived",
        hint=f"'commitlake replay resume {name}' continues that replay with its own messages",
    )


def _check_target(plan: ReplayPlan, request: NamedReplay) -> None:
    wanted, known = (request.target_topic, request.mapping), (plan.target.topic, plan.target.mapping)
    if wanted != known:
        raise ReplayError(
            f"the replay {plan.replay_id} was planned with to_topic={known[0]!r} and queues={str(known[1])!r}, found "
            f"{wanted[0]!r} and {str(wanted[1])!r}: choose another name to send the messages elsewhere"
        )
    planned = plan.target.name_servers
    if request.name_servers and not split_addresses(request.name_servers) & split_addresses(planned):
        raise ReplayError(
            f"the replay {plan.replay_id} was planned with namesrv={planned!r}, found {request.name_servers!r}: "
            "choose another name to send the messages to another cluster",
            hint=f"if the name server of the same cluster has moved: 'commitlake replay resume {plan.replay_id} "
            f"--namesrv {request.name_servers}'",
        )


def _plan_and_send(
    lake: Lake,
    chosen: DeltaTable,
    number: int,
    request: NamedReplay,
    runner: Runner | None,
    *,
    is_dry_run: bool,
) -> ReplayResult:
    """Plan a replay of all rows of a table, and send their messages."""
    name = request.name
    was_replayed = f"array_contains(map_keys({quote_column_name('properties')}), {text_literal(REPLAY_ID)})"
    condition = "true" if request.includes_replayed else f"coalesce(NOT {was_replayed}, true)"
    queues = count_messages_by_queue(chosen, condition)
    replayed = sum(queue.messages for queue in count_messages_by_queue(chosen, f"NOT ({condition})"))
    _check_kinds(queues)
    result = ReplayResult(
        name,
        "dry run" if queues and is_dry_run else "nothing to send",
        sum(queue.messages for queue in queues),
        already_replayed=replayed,
        queues=tuple(queues),
    )
    if not queues or (is_dry_run and request.name_servers is None):
        return result
    if request.name_servers is None:
        raise UsageError("namesrv: expected the name servers of the target, found none")
    with open_target_client(request.name_servers) as client:
        plan, others = plan_replay(lake, chosen, condition, queues, request, client, "lake.replay")
        if is_dry_run:
            return replace(result, groups=_receiving_groups(client, plan.target))
        if not request.accepts_unfinished:
            check_no_unfinished_replay(others)
        write_copies = partial(_write_copies, lake, PlannedMessages(plan, chosen, open_pack_store(lake.packs)), number)
        if not record_replay(lake, plan, chosen, others, write_copies, is_copied=True).messages:
            raise ReplayError(
                f"'commitlake maintain' dropped the messages that the replay {name} sends from the lake: choose "
                "another name"
            )
    # Another process may have continued this plan since it was recorded.
    done = _send(lake, read_replay_state(lake, name), request, runner)
    return replace(done, already_replayed=replayed, queues=tuple(queues))


def _write_copies(lake: Lake, messages: PlannedMessages, number: int) -> None:
    name = messages.plan.replay_id
    write_copied_rows(lake, messages, number)
    if read_copies_number(lake, name) != number:  # another process was faster
        raise _other_messages_error(name)


def _check_kinds(queues: list[QueueCount]) -> None:
    """Raise an error if messages of system topics were chosen, since they cannot be sent again."""
    wrong: dict[str, int] = {}
    for queue in queues:
        if kind_of(queue.topic) not in SENDABLE:
            wrong[queue.topic] = wrong.get(queue.topic, 0) + queue.messages
    if wrong:
        raise ReplayError(
            f"{format_count(sum(wrong.values()), 'of the chosen messages is', 'of the chosen messages are')} in system "
            f"topics of the broker ({', '.join(sorted(wrong)[:5])}), and cannot be sent again: choose rows whose kind "
            f"is one of {', '.join(SENDABLE)}"
        )


def _receiving_groups(client: TargetClient, target: Target) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for topic in sorted({queue.topic for queue in target.queues}):
        with suppress(RocketMQError):  # a dry run is possible without it
            found[topic] = tuple(sorted(client.admin.groups_of_topic(topic)))
    return found


def _result_of_state(lake: Lake, state: ReplayState) -> ReplayResult:
    counts = Ledger(lake, state.plan.replay_id).count_sent_and_failed()
    return ReplayResult(state.plan.replay_id, str(state.event), state.plan.messages_to_send, counts.sent, counts.failed)


def _send(lake: Lake, state: ReplayState, request: NamedReplay, runner: Runner | None) -> ReplayResult:
    """Send the messages of a plan that have not been sent yet, and verify all, if this is requested."""
    plan = state.plan
    if state.event in (ReplayEvent.UNDONE, ReplayEvent.WITHDRAWN):
        raise ReplayError(
            f"the replay {plan.replay_id} was {state.event}: choose another name to send the messages again",
            exit_code=ExitCode.REFUSED,
        )
    if state.event is not ReplayEvent.FINISHED:
        check_can_continue(lake, state)
    elif state.is_verified or not request.verifies:
        return _result_of_state(lake, state)
    check_has_copies(state)
    with open_target_client(request.name_servers or plan.target.name_servers) as client:
        run = ReplayRun(lake, state, request, client, runner)
        if state.event is not ReplayEvent.FINISHED:  # or else an earlier call was killed before it had verified
            run.send_replay()
            state = read_replay_state(lake, plan.replay_id)
        result = _result_of_state(lake, state)
        if not request.verifies or state.event is not ReplayEvent.FINISHED:
            return result
        found = verify_replay(lake, run.messages, client.puller)
    return replace(result, verification=found.text, differences=found.problems.total())
