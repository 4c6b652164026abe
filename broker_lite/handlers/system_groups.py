"""The broker's own consumer groups: their offsets are its progress in timers and transactions.

Whoever sets one of them lets the next start pass over messages that still wait. RocketMQ lets anybody; here no request
changes such a group or its offsets.
"""

from __future__ import annotations

from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import Command


def refuse_system_group(request: Command, group: str) -> Command | None:
    """Return the answer to a request that would change one of the broker's own groups, or None for other groups."""
    if not is_system_group(group):
        return None
    return request.reply(
        ResponseCode.NO_PERMISSION, remark=f"the group[{group}] is the broker's own, clients may not change it"
    )
