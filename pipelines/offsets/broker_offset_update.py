"""Sets offsets of a group at brokers and reads them back.

If a group has no client, its offsets are committed as a client would do. Clients of a group keep its offsets in memory
and overwrite those of the broker every few seconds. A broker that resets offsets itself (5.x, by default) sends clients
to the new offset with their next pull; with other brokers the clients must be stopped.

The same offsets can be set by commands of RocketMQ's command line, mqadmin of 5.x for brokers 5.x. `resetOffsetByTime`
takes a queue (-q) and an offset (-o), with the address of its broker (-b); -s is required but ignored then. For offset
0 it does nothing, without an error. In that case the commands first set the whole topic.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import RefusedError, RocketMQError
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.routes import MessageQueue

_SERVER_SIDE = "useServerSideResetOffset"


@dataclass(frozen=True, slots=True)
class SetOffset:
    """Result of setting one offset: the offset, or the reason why it was not set.

    Attributes:
        queue: The queue.
        before: The group's offset before; None if it had none.
        wanted: The offset to set.
        error: Reason why it is not set; empty if it is.
    """

    queue: MessageQueue
    before: int | None
    wanted: int
    error: str = ""


def connected_clients(admin: Admin, group: str, brokers: Collection[str]) -> list[str]:
    """Return the sorted ids of a group's clients at the given brokers."""
    return sorted({client for broker in brokers for client in admin.consumer_ids(group, broker)})


def broker_resets_clients(admin: Admin, broker: str) -> bool:
    """Return whether a broker is configured to reset the offsets of connected clients by itself."""
    try:
        return admin.broker_config(broker).get(_SERVER_SIDE, "false") == "true"
    except RefusedError as error:
        if error.code == ResponseCode.NO_PERMISSION:
            return False
        raise


def set_offsets(
    admin: Admin,
    group: str,
    offsets: Mapping[MessageQueue, int],
    *,
    is_online: bool = False,
    only_forward: bool = False,
) -> list[SetOffset]:
    """Set offsets one by one, and continue if one of them cannot be set.

    Args:
        admin: Client that sets them.
        group: The consumer group.
        offsets: The next offset of each queue.
        is_online: True if the group has clients: brokers that can do so are asked to send them to the new offset.
        only_forward: True to leave an offset that the group has already passed.

    Returns:
        The result for each offset. If a different offset is read back, it has an error.
    """
    own_reset = {
        broker: is_online and broker_resets_clients(admin, broker)
        for broker in {queue.broker_name for queue in offsets}
    }
    done = []
    for queue, wanted in sorted(offsets.items()):
        before = None
        try:
            before = admin.offsets.committed(queue, group)
            if only_forward and before is not None and before >= wanted:
                error = "" if before == wanted else f"the group has already reached {before}"
            else:
                error = _set_offset(admin, group, queue, wanted, can_broker_reset=own_reset[queue.broker_name])
        except RocketMQError as problem:
            error = str(problem)
        done.append(SetOffset(queue, before, wanted, error))
    return done


def _set_offset(admin: Admin, group: str, queue: MessageQueue, offset: int, *, can_broker_reset: bool) -> str:
    """Set one offset and read it back; return an error text if the broker then has a different one, else "".

    If the broker's answer is lost or makes no sense, the offset may have been set, so it is read back as well.
    """
    problem = ""
    try:
        if can_broker_reset:
            admin.reset_queue_offset(group, queue, offset)
        else:
            _commit_offset(admin, group, queue, offset)
    except RefusedError:
        raise
    except RocketMQError as error:
        problem = str(error)
    try:
        found = admin.offsets.committed(queue, group)
    except RocketMQError as error:
        return f"{problem or error}; it is not known whether the offset was set"
    if found == offset:
        return ""
    if problem:
        return f"{problem}; the offset was not set, it is {found}"
    return f"expected {offset} after it was set, found {found}: a client of the group commits offsets"


def _commit_offset(admin: Admin, group: str, queue: MessageQueue, offset: int) -> None:
    """Commit an offset as a client does, or reset it if the broker accepts only resets."""
    try:
        is_stored = admin.offsets.commit(queue, group, offset)
    except RefusedError as error:
        if error.code != ResponseCode.SYSTEM_ERROR or not broker_resets_clients(admin, queue.broker_name):
            raise
        is_stored = False
    if not is_stored:
        admin.reset_queue_offset(group, queue, offset)


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A group's current offsets in the queues of one topic, and the offsets to set.

    Attributes:
        wanted: Offsets to set.
        current: The group's offsets in these queues; None if it has none.
        others: Its offsets in the topic's other queues, which must not change.
    """

    wanted: Mapping[MessageQueue, int]
    current: Mapping[MessageQueue, int | None]
    others: Mapping[MessageQueue, int | None]

    @property
    def needs_reset_to_zero(self) -> bool:
        """True if any offset that is not 0 now must be set to 0."""
        return any(offset == 0 and self.current.get(queue) != 0 for queue, offset in self.wanted.items())


def make_mqadmin_commands(
    name_servers: str, group: str, topic: str, offsets: TopicOffsets, addresses: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of a shell script that sets offsets by `mqadmin`, with comments on limitations.

    Args:
        name_servers: `host:port` of each, separated by semicolons.
        group: The consumer group.
        addresses: By broker name, the address of its master.
    """
    base = ["mqadmin", "resetOffsetByTime", "-n", name_servers, "-g", group, "-t", topic]
    wanted = dict(offsets.wanted)
    if offsets.needs_reset_to_zero:
        yield f"# {topic}: set all queues to their beginning first, because mqadmin cannot set one queue to 0"
        yield shlex.join([*base, "-s", "0"])
        for queue, current in sorted(offsets.others.items()):
            if current:
                wanted[queue] = current
            elif current is None:
                yield f"# queue {queue.queue_id} of {queue.broker_name} had no offset: it gets offset 0"
    for queue, offset in sorted(wanted.items()):
        if offset:
            place = ["-s", "now", "-b", addresses[queue.broker_name], "-q", str(queue.queue_id), "-o", str(offset)]
            yield shlex.join([*base, *place])
