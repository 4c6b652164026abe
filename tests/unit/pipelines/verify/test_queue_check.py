"""The queue offsets of one queue along the log: order, and names of faults."""

from __future__ import annotations

import numpy as np
import pytest

from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.pipelines.verify.findings import Findings
from commitlake.pipelines.verify.queue_check import (
    BadRanges,
    OffsetRun,
    check_queue_order,
    find_offset_runs,
    find_topic_restarts,
    recorded_number_ranges,
)
from commitlake.schemas.layouts.rocketmq.scan import Fault

NO_DAMAGE = BadRanges.from_bad_ranges([])


def runs(*numbers: tuple[int, int]) -> list[OffsetRun]:
    """Return runs of 100 bytes a record, one after the other."""
    found, offset = [], 0
    for first, end in numbers:
        last = offset + 100 * (end - first - 1)
        found.append(OffsetRun("orders", 0, first, end, offset, last))
        offset = last + 100
    return found


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], {}),
        ([(0, 5)], {}),
        ([(7, 9), (9, 12)], {}),
        ([(0, 5), (8, 9)], {}),  # what is left out is seen in the queue's entries
        ([(0, 5), (4, 9)], {"log_repeated_number": 1}),
        ([(0, 5), (0, 3)], {"log_queue_restarted": 1}),
        ([(0, 5), (0, 3), (3, 9)], {"log_queue_restarted": 1}),
        ([(0, 9), (3, 12)], {"log_number_back": 1}),
        ([(0, 9), (3, 4), (9, 10)], {"log_number_back": 1}),
    ],
)
def test_queue_offsets_that_go_back_are_named(numbers: list[tuple[int, int]], expected: dict[str, int]) -> None:
    findings = Findings()
    check_queue_order(runs(*numbers), NO_DAMAGE, findings, "commitlog")
    assert findings.counts == expected


def test_queue_offsets_that_go_back_after_damage_are_stale() -> None:
    findings = Findings()
    first, second = runs((0, 9), (3, 12))
    second = second._replace(first_offset=second.first_offset + 500)
    bad = BadRanges.from_bad_ranges([BadRange(900, 1400, Fault.MAGIC)])
    check_queue_order([first, second], bad, findings, "commitlog")
    assert findings.counts == {"log_stale_records": 1}


def test_offset_0_again_is_a_new_topic_if_another_queue_proves_it() -> None:
    old, new = OffsetRun("orders", 0, 0, 1, 100, 100), OffsetRun("orders", 0, 0, 1, 900, 900)
    other = [OffsetRun("orders", 1, 0, 2, 200, 300), OffsetRun("orders", 1, 0, 1, 800, 800)]
    for queues, expected in (
        ({("orders", 0): [old, new]}, "log_repeated_number"),
        ({("orders", 0): [old, new], ("orders", 1): other}, "log_queue_restarted"),
        ({("orders", 0): [old, new], ("payments", 1): other}, "log_repeated_number"),
        # It was stored twice before the topic was created again.
        ({("orders", 0): [old, new._replace(first_offset=150)], ("orders", 1): other}, "log_repeated_number"),
    ):
        findings = Findings()
        restarts = find_topic_restarts(queues)
        check_queue_order(queues["orders", 0], NO_DAMAGE, findings, "commitlog", restarts.get("orders", ()))
        assert findings.counts == {expected: 1}


def test_ranges_of_queue_offsets_are_joined() -> None:
    assert recorded_number_ranges(runs((5, 9), (0, 3), (9, 12), (2, 4))) == [(0, 4), (5, 12)]
    assert recorded_number_ranges(runs((-1, 1), (1 << 60, (1 << 60) + 1), (2, 3))) == [(2, 3)]


def test_bad_ranges_find_the_offsets_in_them() -> None:
    bad = BadRanges.from_bad_ranges([BadRange(50, 60, Fault.MAGIC), BadRange(10, 20, Fault.HOLE)])
    assert [bad.contains_offset(offset) for offset in (9, 10, 19, 20, 55, 60)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert bad.has_range_between(0, 11)
    assert not bad.has_range_between(20, 50)


def test_a_forged_queue_offset_has_no_negative_number_of_records() -> None:
    last = (1 << 63) - 1
    numbers = np.array([3, last, -last - 1, last], np.int64)
    offsets = np.arange(4, dtype=np.int64)
    found = [run for run, _ in find_offset_runs(QueueEntries("orders", 0, numbers, *[offsets] * 5))]
    assert [(run.first, run.end) for run in found] == [(3, 4), (last, last + 1), (-last - 1, -last), (last, last + 1)]
