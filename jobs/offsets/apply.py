"""Setting of offsets after confirmation: through the client, or as commands for mqadmin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from commitlake.connectors.rocketmq.queue_reading import format_queue
from commitlake.jobs.arguments.similar_names import print_warning, shorten_name_list, suggest_similar_name
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.confirm import confirm_action
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.offsets.arguments import OffsetsOptions
from commitlake.pipelines.offsets.broker_offset_update import (
    SetOffset,
    TopicOffsets,
    broker_resets_clients,
    connected_clients,
    make_mqadmin_commands,
    set_offsets,
)
from commitlake.pipelines.offsets.group_offsets import PlannedOffset
from commitlake.pipelines.offsets.live_queues import LiveQueues, OffsetClient
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.remoting.routes import MessageQueue

NOTHING = "no offset was set"


def apply_offsets(command: OffsetsOptions, planned_offsets: Sequence[PlannedOffset], client: OffsetClient) -> bool:
    """Ask for confirmation, set all offsets that can be set, and return True if all succeeded.

    Raises:
        JobError: The group is unknown or has clients, or the answer is no.
        RocketMQError: A broker does not answer.
    """
    group = command.group[0]
    wanted = {row.asked.message_queue: row.asked.low for row in planned_offsets if not row.asked.problem}
    changes = {queue: offset for queue, offset in wanted.items() if _current_offset(planned_offsets, queue) != offset}
    if not changes:
        if not command.quiet:
            print_line(f"the offsets of {group} already have these values: {NOTHING}")
        return True
    brokers = sorted({queue.broker_name for queue in changes})
    check_group_is_known(client, group, brokers)
    is_online = check_connected_clients(client, group, brokers, may_be_online=command.online)
    text = f"{format_count(len(changes), 'offset')} of {group} on {', '.join(brokers)}"
    confirm_action(
        f"Set {text}", intended_action=f"{text} would be set", refusal_message=NOTHING, is_confirmed=command.yes
    )
    done = set_offsets(client.admin, group, changes, is_online=is_online)
    return report_set_offsets("commitlake offsets", group, done, quiet=command.quiet)


def _current_offset(planned_offsets: Sequence[PlannedOffset], queue: MessageQueue) -> int | None:
    return next(row.current for row in planned_offsets if row.asked.message_queue == queue)


def check_group_is_known(client: OffsetClient, group: str, brokers: Sequence[str]) -> None:
    """Raise an error if a broker does not know the group, because offsets of a misspelt group would have no effect.

    Raises:
        JobError: with the nearest name.
    """
    for broker in brokers:
        known = client.admin.groups(broker)
        if group not in known:
            raise JobError(
                f"the broker {broker} has no group {group!a}, so {NOTHING}.{suggest_similar_name(group, known)}",
                exit_code=ExitCode.REFUSED,
            )


def check_connected_clients(client: OffsetClient, group: str, brokers: Sequence[str], *, may_be_online: bool) -> bool:
    """Return True if the group has connected clients; if `may_be_online` is False, raise an error instead.

    Raises:
        JobError: The group has clients, and no option allows that.
    """
    clients = connected_clients(client.admin, group, brokers)
    if not clients:
        return False
    if not may_be_online:
        raise JobError(
            f"{NOTHING}: the group {group} has {format_count(len(clients), 'client')} "
            f"({shorten_name_list(clients)}), which overwrite offsets every few seconds",
            "stop them first; or add --online: brokers 5.x then tell the clients their new offsets",
            exit_code=ExitCode.REFUSED,
        )
    for broker in brokers:
        if not broker_resets_clients(client.admin, broker):
            print_warning(
                "commitlake", f"{broker} cannot tell clients their new offsets: those of {group} may overwrite them"
            )
    return True


def report_set_offsets(prog: str, group: str, results: Sequence[SetOffset], *, quiet: bool) -> bool:
    """Print the result for each offset, and return True if all of them were set."""
    failed = [one for one in results if one.error]
    for one in failed:
        print_warning(prog, f"{format_queue(one.queue)}: {one.error}")
    if not quiet:
        print_line(
            f"{len(results) - len(failed)} of {format_count(len(results), 'offset')} of {group} were set and read back"
        )
        for one in results:
            if not one.error and one.before is not None:
                print_line(f"  {format_queue(one.queue)}: {one.before} before, {one.wanted} now")
    return not failed


def mqadmin_lines(
    command: OffsetsOptions, planned_offsets: Sequence[PlannedOffset], client: OffsetClient
) -> Iterator[str]:
    """Yield mqadmin commands that set the offsets in the given rows.

    Raises:
        JobError: A broker is of version 4, whose offsets mqadmin cannot set queue by queue.
        RocketMQError: A broker does not answer.
    """
    by_topic: dict[str, list[PlannedOffset]] = defaultdict(list)
    for row in planned_offsets:
        by_topic[row.asked.queue.topic].append(row)
    addresses = _broker_addresses(client, {row.asked.queue.broker for row in planned_offsets})
    live = LiveQueues(client, command.group[0])
    for topic, of_topic in sorted(by_topic.items()):
        wanted = {row.asked.message_queue: row.asked.low for row in of_topic if not row.asked.problem}
        current = {row.asked.message_queue: row.current for row in of_topic}
        offsets = TopicOffsets(wanted, current, live.offsets_in_other_queues(topic, wanted))
        yield from make_mqadmin_commands(command.namesrv or "", command.group[0], topic, offsets, addresses)
        for row in of_topic:
            if row.asked.problem:
                yield f"# not set: {format_queue(row.asked.message_queue)}: {row.asked.problem}"


def _broker_addresses(client: OffsetClient, brokers: set[str]) -> Mapping[str, str]:
    for broker in sorted(brokers):
        version = client.admin.runtime_info(broker).get("brokerVersionDesc", "")
        if version.startswith("V4"):
            raise JobError(
                f"{broker} is RocketMQ {version}: its mqadmin cannot set the offset of a single queue, only those of "
                "whole topics by time",
                "use --apply to set them",
            )
    return {broker: client.admin.routing.master_address(broker) for broker in brokers}
