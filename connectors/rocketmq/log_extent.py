"""Start and end of a broker's log, as the broker reports them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import ProtocolError, RefusedError, UnreachableError
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.segment_names import MAX_START_OFFSET
from commitlake.schemas.remoting.codes import ResponseCode

QUEUE_SECONDS = 120.0
"""Time that queues may need to reach the end of the log."""
_PAUSE_SECONDS = 0.1
_NAMES = ("commitLogMinOffset", "commitLogMaxOffset", "dispatchBehindBytes")


class LogExtent(NamedTuple):
    """Physical offset of a broker log's first byte, and of the first byte after its last record."""

    begin: int
    end: int


def log_extent(
    admin: Admin,
    broker_name: str,
    retry_seconds: float = QUEUE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> LogExtent:
    """Return the start of a broker's log, and an offset up to which all its records are in their queues.

    A broker adds a message to its queue a moment after writing it to its log; until then, a look-up in the queue does
    not find it. The returned end is therefore the end of the log at the first request; requests are repeated until the
    queues have reached it.

    Args:
        retry_seconds: time that the queues may need, or a broker that has just started and does not report its offsets
            yet.
        clock: returns seconds of a monotonic clock.
        sleep: waits for a number of seconds.

    Raises:
        UnreachableError: if the queues need longer.
        RefusedError: if the broker refuses the request, or still does not report its offsets after that time.
        ProtocolError: if the broker's offsets are not numbers.
    """
    deadline = clock() + retry_seconds
    wanted: int | None = None
    while True:
        try:
            table = admin.runtime_info(broker_name)
        except RefusedError as error:
            if error.code != ResponseCode.SYSTEM_ERROR or clock() > deadline:
                raise
        else:
            begin, end, behind = (_parse_runtime_number(broker_name, table, name) for name in _NAMES)
            wanted = end if wanted is None else wanted
            if end - behind >= wanted:
                return LogExtent(min(max(begin, 0), wanted), wanted)
            if clock() > deadline:
                raise UnreachableError(
                    f"broker {broker_name!r}: expected that its queues contain all messages up to physical offset "
                    f"{wanted} within {retry_seconds:g} s, but they are {behind} bytes behind its log. Try again later"
                )
        sleep(_PAUSE_SECONDS)


def _parse_runtime_number(broker_name: str, table: dict[str, str], name: str) -> int:
    number = parse_int(table.get(name, ""), -1, MAX_START_OFFSET)
    if number is None:
        raise ProtocolError(
            f"broker {broker_name!r}: expected the field {name} of its runtime information to be a number of at most "
            f"{MAX_START_OFFSET}, found {table.get(name, 'none')[:100]!r}"
        )
    return number
