"""Moves of a group's offset over a replay's messages."""

from __future__ import annotations

import pytest

from commitlake.pipelines.replay.groups.undo_offsets import GroupMove, OtherMessages, compute_group_move
from commitlake.pipelines.replay.sent_messages import OffsetRun, join_offset_runs

RUNS = [OffsetRun(5, 8), OffsetRun(9, 12), OffsetRun(12, 14)]
"""Offset 8 is somebody else's."""
NONE = OtherMessages()


def others_in(start: int, end: int) -> OtherMessages:
    """Count all messages as other producers' messages."""
    return OtherMessages(end - start, tuple(f"offset {offset}" for offset in range(start, end)))


ONE = OtherMessages(1, ("offset 8",))


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (3, GroupMove(3, 0, 0, 8, NONE, OtherMessages(3, ("offset 3", "offset 4", "offset 8")))),  # others' come first
        (5, GroupMove(8, 3, 0, 5, NONE, ONE)),
        (7, GroupMove(8, 1, 2, 5, NONE, ONE)),
        (8, GroupMove(8, 0, 3, 5, NONE, ONE)),
        (9, GroupMove(14, 5, 3, 0, NONE, NONE)),  # two runs that touch are one
        (13, GroupMove(14, 1, 7, 0, NONE, NONE)),
        (14, GroupMove(14, 0, 8, 0, NONE, NONE)),
        (99, GroupMove(99, 0, 8, 0, NONE, NONE)),
    ],
)
def test_a_group_skips_the_replays_messages_and_stops_at_others(position: int, expected: GroupMove) -> None:
    assert compute_group_move(RUNS, position, others_in, skips_other_messages=False) == expected


def test_other_messages_are_skipped_on_request() -> None:
    assert compute_group_move(RUNS, 6, others_in, skips_other_messages=True) == GroupMove(14, 7, 1, 0, ONE, NONE)


def test_filtered_messages_of_others_do_not_stop_a_group() -> None:
    assert compute_group_move(RUNS, 5, lambda *_: NONE, skips_other_messages=False) == GroupMove(
        14, 8, 0, 0, NONE, NONE
    )


def test_at_most_three_others_are_named() -> None:
    found = compute_group_move([OffsetRun(10, 11)], 0, others_in, skips_other_messages=False).others
    assert found == OtherMessages(10, ("offset 0", "offset 1", "offset 2"))
    found = compute_group_move([OffsetRun(2, 3), OffsetRun(9, 10)], 0, others_in, skips_other_messages=False).others
    assert found == OtherMessages(8, ("offset 0", "offset 1", "offset 3"))


def test_runs_that_touch_are_joined() -> None:
    assert join_offset_runs([OffsetRun(1, 3), OffsetRun(3, 4), OffsetRun(6, 7), OffsetRun(7, 9)]) == [
        OffsetRun(1, 4),
        OffsetRun(6, 9),
    ]
    assert join_offset_runs([]) == []
