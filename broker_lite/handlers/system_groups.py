"""Protection of the broker's own consumer groups, whose offsets are its progress in timers and transactions.

Setting such an offset makes the next start skip waiting messages. RocketMQ allows it; here no request changes such a
group or its offsets.
"""

from __future__ import annotations

from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import Command


def refuse_system_group(request: Command, group: str) -> Command | None:
    """Return the refusal of a request that would change one of the broker's own groups, or None for other groups."""
    if not is_system_group(group):
        return None
    return request.reply(
        ResponseCode.NO_PERMISSION, remark=f"the group[{group}] belongs to the broker, clients may not change it"
    )
