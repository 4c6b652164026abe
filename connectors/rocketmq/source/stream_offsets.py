"""The position of a stream in each queue, which Spark stores in its checkpoint for each micro-batch.

    {"version": 1, "queues": {"orders": {"broker-a": {"0": 4711}}}, "begins": {"orders": {"broker-a": {"1": 0}}}}

`queues` has the offset that comes next in each queue. A micro-batch takes what lies between two of them. Where it
begins at another offset than the one before has, `begins` says where: in a queue that has appeared, one whose next
messages are gone, or one that was recreated. So a micro-batch that is planned again after a crash is the same.

Spark asks again where a stream begins, if its first micro-batch did not finish; that may be another place by then. So
the first end after a beginning, which says `initial`, names every queue in `begins`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commitlake.connectors.rocketmq.errors import CheckpointError
from commitlake.connectors.rocketmq.queue_reading import QueueRange
from commitlake.connectors.rocketmq.source.positions import from_tree, to_tree
from commitlake.connectors.sources.stream_checkpoint import read_checkpoint
from commitlake.schemas.remoting.routes import MessageQueue

VERSION = 1

Offsets = Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The position of a stream.

    Attributes:
        offsets: what comes next in each queue.
        begins: where the micro-batch that ends here begins, in queues in which the position before does not say it.
        is_initial: whether it is where a stream begins.
    """

    offsets: Offsets
    begins: Offsets = field(default_factory=dict)
    is_initial: bool = False


def to_checkpoint(position: StreamPosition) -> dict[str, Any]:
    """Return the position in the form that Spark stores; equal positions give equal text."""
    value: dict[str, Any] = {"version": VERSION, "queues": to_tree(position.offsets)}
    if position.begins:
        value["begins"] = to_tree(position.begins)
    if position.is_initial:
        value["initial"] = True
    return value


def from_checkpoint(value: Mapping[str, Any]) -> StreamPosition:
    """Parse a stored position.

    Raises:
        CheckpointError: if it is not what `to_checkpoint` gives.
    """
    return read_checkpoint(value, _position, version=VERSION, expected="offsets by queue", error=CheckpointError)


def _position(value: Mapping[str, Any]) -> StreamPosition:
    return StreamPosition(from_tree(value["queues"]), from_tree(value.get("begins", {})), value.get("initial") is True)


def ranges_between(start: StreamPosition, end: StreamPosition) -> list[QueueRange]:
    """Return the ranges of a micro-batch.

    Args:
        start: what Spark takes for its begin.
        end: what it has kept for its end.
    """
    ranges = []
    for queue in sorted(end.offsets):
        begin = end.begins.get(queue, start.offsets.get(queue, end.offsets[queue]))
        if begin < end.offsets[queue]:
            ranges.append(QueueRange(queue, begin, end.offsets[queue]))
    return ranges
