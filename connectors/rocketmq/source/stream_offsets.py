"""The position of a stream in each queue, which Spark stores in its checkpoint for each micro-batch.

    {"version": 1, "queues": {"orders": {"broker-a": {"0": 4711}}}, "begins": {"orders": {"broker-a": {"1": 0}}}}

`queues` has the next offset of each queue. A micro-batch reads the offsets between two positions. `begins` has the
starts that differ from the position before: in a new queue, in a queue whose next messages were deleted, and in a
recreated queue. So a micro-batch that is planned again after a crash is the same.

If its first micro-batch did not finish, Spark asks again where a stream begins; that may be another position by then.
So the first end after a start, which is marked `initial`, lists every queue in `begins`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commitlake.connectors.rocketmq.queue_reading import QueueRange
from commitlake.connectors.rocketmq.source.positions import from_nested_dict, to_nested_dict
from commitlake.connectors.sources.stream_checkpoint import read_checkpoint
from commitlake.schemas.remoting.routes import MessageQueue

VERSION = 1

Offsets = Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The position of a stream: the next offset of each queue.

    Attributes:
        offsets: next offset of each queue.
        begins: start of the micro-batch that ends here, for queues where it is not the end of the previous one.
        is_initial: whether this is the start of a stream.
    """

    offsets: Offsets
    begins: Offsets = field(default_factory=dict)
    is_initial: bool = False


def to_checkpoint(position: StreamPosition) -> dict[str, Any]:
    """Return the position in the form that Spark stores; equal positions give equal text."""
    value: dict[str, Any] = {"version": VERSION, "queues": to_nested_dict(position.offsets)}
    if position.begins:
        value["begins"] = to_nested_dict(position.begins)
    if position.is_initial:
        value["initial"] = True
    return value


def from_checkpoint(value: Mapping[str, Any]) -> StreamPosition:
    """Parse the position that Spark has stored for a stream.

    Raises:
        UsageError: if it is not a result of `to_checkpoint`.
    """
    return read_checkpoint(value, _parse_position, version=VERSION, expected="offsets by queue")


def _parse_position(value: Mapping[str, Any]) -> StreamPosition:
    return StreamPosition(
        from_nested_dict(value["queues"]), from_nested_dict(value.get("begins", {})), value.get("initial") is True
    )


def ranges_between(start: StreamPosition, end: StreamPosition) -> list[QueueRange]:
    """Return the queue ranges that a micro-batch reads.

    Args:
        start: start that Spark passes.
        end: end that Spark has stored.
    """
    ranges = []
    for queue in sorted(end.offsets):
        begin = end.begins.get(queue, start.offsets.get(queue, end.offsets[queue]))
        if begin < end.offsets[queue]:
            ranges.append(QueueRange(queue, begin, end.offsets[queue]))
    return ranges
