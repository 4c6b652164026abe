"""Division of queues into partitions."""

from __future__ import annotations

import itertools

import pytest

from commitlake.connectors.rocketmq.queue_reading import QueueRange
from commitlake.connectors.rocketmq.source.ranges import SMALL_OFFSETS, to_partitions
from commitlake.schemas.remoting.routes import MessageQueue

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ((), 4, []),
        ((10,), 1, [[10]]),
        ((10,), 4, [[2], [3], [2], [3]]),
        ((3,), 10, [[1], [1], [1]]),
        ((10, 90), 10, [[10], *[[10]] * 9]),
        ((5, 5, 5), 1, [[5, 5, 5]]),
        ((5, 5, 5), 2, [[5, 5], [5]]),
        ((5, 5, 5), 3, [[5], [5], [5]]),
        ((SMALL_OFFSETS, 1, 2), 1, [[SMALL_OFFSETS], [1, 2]]),
    ],
)
def test_ranges_are_divided_and_joined(sizes: tuple[int, ...], count: int, expected: list[list[int]]) -> None:
    ranges = [QueueRange(queue, 100, 100 + size) for queue, size in zip((A, B, C), sizes, strict=False)]
    parts = to_partitions(ranges, count)
    assert [[one.size for one in part] for part in parts] == expected
    flat = [one for part in parts for one in part]
    for whole in ranges:
        mine = [one for one in flat if one.queue == whole.queue]
        assert (mine[0].begin, mine[-1].end) == (whole.begin, whole.end)
        assert all(one.end == following.begin for one, following in itertools.pairwise(mine))
