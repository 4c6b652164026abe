"""Commands of RocketMQ's command line that set the offset of one queue: mqadmin of 5.x, for brokers 5.x.

`resetOffsetByTime` takes a queue (-q) and an offset (-o), with the address of its broker (-b); -s is required and not
looked at then. It does nothing for offset 0 and does not say so: there the whole topic is set to its beginning first,
and all of its other queues after that. mqadmin of 4.9 sets whole topics only, and what brokers 4.9 do with the request
of 5.x's is to set the whole topic back.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from commitlake.schemas.remoting.routes import MessageQueue


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The offsets of one topic.

    Attributes:
        wanted: What is to be set.
        current: The group's offsets in these queues; None where it has none.
        others: Its offsets in the topic's other queues, which are to stay as they are.
    """

    wanted: Mapping[MessageQueue, int]
    current: Mapping[MessageQueue, int | None]
    others: Mapping[MessageQueue, int | None]

    @property
    def needs_zero(self) -> bool:
        """Whether an offset is to be 0 that is another one now."""
        return any(offset == 0 and self.current.get(queue) != 0 for queue, offset in self.wanted.items())


def mqadmin_commands(
    name_servers: str, group: str, topic: str, offsets: TopicOffsets, addresses: Mapping[str, str]
) -> Iterator[str]:
    """Yield lines for a shell: commands, and comments where something cannot be done.

    Args:
        name_servers: `host:port` of each, with semicolons between.
        group: The consumer group.
        topic: The topic.
        offsets: Its offsets.
        addresses: By broker name, the address of its master.
    """
    base = ["mqadmin", "resetOffsetByTime", "-n", name_servers, "-g", group, "-t", topic]
    wanted = dict(offsets.wanted)
    if offsets.needs_zero:
        yield f"# {topic}: all queues to their beginning first, as mqadmin cannot set one queue to 0"
        yield shlex.join([*base, "-s", "0"])
        for queue, current in sorted(offsets.others.items()):
            if current:
                wanted[queue] = current
            elif current is None:
                yield f"# queue {queue.queue_id} of {queue.broker_name} had no offset: it gets that of its beginning"
    for queue, offset in sorted(wanted.items()):
        if offset:
            place = ["-s", "now", "-b", addresses[queue.broker_name], "-q", str(queue.queue_id), "-o", str(offset)]
            yield shlex.join([*base, *place])
