"""Tests of lanes: a column for each topic and group, tracks for messages that overlap."""

from __future__ import annotations

from commitlake.jobs.lineage.picture.lanes import MAX_LANES, MAX_TRACKS, assign_lanes
from commitlake.jobs.lineage.picture.picture_rows import choose_picture_rows
from commitlake.pipelines.lineage.message_history import Story
from tests.support.stories import consumed, edge, many_messages, order_story, record_step


def test_topics_are_in_the_order_of_the_story_before_groups() -> None:
    lanes = assign_lanes(choose_picture_rows(order_story()).rows)
    assert [(lane.name, lane.kind) for lane in lanes.lanes] == [
        ("RMQ_SYS_TRANS_HALF_TOPIC", "topic"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "topic"),
        ("orders", "topic"),
        ("SCHEDULE_TOPIC_XXXX", "topic"),
        ("%RETRY%billing", "topic"),
        ("%DLQ%billing", "topic"),
        ("reminders", "topic"),
        ("audit", "group"),
        ("billing", "group"),
    ]


def test_a_topic_and_a_group_with_the_same_name_have_two_lanes() -> None:
    steps = [record_step(1, 0, "billing", "sent"), consumed("c", 1, "billing", 1)]
    rows = choose_picture_rows(Story("key k", None, steps, [edge("consumed", steps[0], steps[1])], [])).rows
    lanes = assign_lanes(rows)
    assert [lane.kind for lane in lanes.lanes] == ["topic", "group"]
    assert [lanes.horizontal_position(row) for row in rows] == [0.25, 0.75]


def test_lanes_that_do_not_fit_share_the_last_one() -> None:
    lanes = assign_lanes(choose_picture_rows(many_messages(200, topics=40)).rows)
    assert len(lanes.lanes) == MAX_LANES
    assert (lanes.lanes[-1].name, lanes.lanes[-1].kind, lanes.lanes[-1].count) == ("31 others", "others", 31)
    assert lanes.lanes[-2].name == "billing"  # of the others, the largest have a lane


def test_overlapping_messages_have_separate_tracks_up_to_a_limit() -> None:
    starts = [record_step(number, number, "orders", "sent") for number in range(6)]
    ends = [record_step(100 + number, 10 + number, "orders", "delivered") for number in range(6)]
    edges = [edge("delayed", start, end) for start, end in zip(starts, ends, strict=True)]
    rows = choose_picture_rows(Story("key k", None, [*starts, *ends], edges, [])).rows
    lanes = assign_lanes(rows)
    assert lanes.tracks == MAX_TRACKS
    assert [lanes.track_of[row.message] for row in rows[:4]] == [0, 1, 2, 3]
    assert all(0 < lanes.horizontal_position(row) < 1 for row in rows)


def test_messages_that_do_not_overlap_share_a_track() -> None:
    steps = [record_step(number, number, "orders", "sent") for number in range(6)]
    assert assign_lanes(choose_picture_rows(Story("key k", None, steps, [], [])).rows).tracks == 1


def test_a_story_without_steps_has_a_lane() -> None:
    assert len(assign_lanes([]).lanes) == 1
