"""Commands of RocketMQ's command line that set the offset of one queue: mqadmin of 5.x, for brokers 5.x.

`resetOffsetByTime` takes a queue (-q) and an offset (-o), with the address of its broker (-b); -s is required but
ignored then. For offset 0 it does nothing, without an error. In that case the commands first set the whole topic to its
beginning, and then all of its other queues. mqadmin of 4.9 can only set whole topics, and brokers 4.9 set the whole
topic back when they get a request of 5.x.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from commitlake.schemas.remoting.routes import MessageQueue


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Offsets of one topic.

    Attributes:
        wanted: Offsets to set.
        current: The group's offsets in these queues; None if it has none.
        others: Its offsets in the topic's other queues, which must not change.
    """

    wanted: Mapping[MessageQueue, int]
    current: Mapping[MessageQueue, int | None]
    others: Mapping[MessageQueue, int | None]

    @property
    def needs_zero(self) -> bool:
        """True if an offset must be set to 0 that is not 0 now."""
        return any(offset == 0 and self.current.get(queue) != 0 for queue, offset in self.wanted.items())


def mqadmin_commands(
    name_servers: str, group: str, topic: str, offsets: TopicOffsets, addresses: Mapping[str, str]
) -> Iterator[str]:
    """Yield lines for a shell: commands, and comments on limitations.

    Args:
        name_servers: `host:port` of each, separated by semicolons.
        group: The consumer group.
        addresses: By broker name, the address of its master.
    """
    base = ["mqadmin", "resetOffsetByTime", "-n", name_servers, "-g", group, "-t", topic]
    wanted = dict(offsets.wanted)
    if offsets.needs_zero:
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
