"""Tests of the text about a replay."""

from __future__ import annotations

import datetime

from commitlake.jobs.notebooks.notebook_replay import ReplayOutcome, replay_outcome_report, selected_messages_report
from commitlake.jobs.report.text_blocks import block_lines
from commitlake.pipelines.replay.ledger import Counts
from commitlake.pipelines.replay.plan import QueueMapping, ReplayPlan, Target
from commitlake.pipelines.replay.planning import CountsOverTime, QueueCount
from commitlake.schemas.report import Report

AT = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
QUEUES = [QueueCount("broker-a", f"topic-{number}", 0, 100, 2048, 0, 99, AT, AT) for number in range(6)]
NOTHING = CountsOverTime(datetime.timedelta(hours=1), [], {})
PLAN = ReplayPlan("R1", AT, "true", (), 600, 0, 0, Target("host:9876", None, QueueMapping.SAME, ()), 1)


def said(report: Report) -> list[str]:
    return [report.verdict.sentence, *block_lines(report.sections[0].blocks)]


def test_an_empty_selection_is_described() -> None:
    assert said(selected_messages_report([], NOTHING, 5)) == ["No message matches: there is nothing to send."]


def test_a_dry_run_is_described_with_topics_and_duration() -> None:
    assert said(selected_messages_report(QUEUES, NOTHING, 100)) == [
        (
            "600 messages of 6 topics (topic-0, topic-1, topic-2, topic-3, topic-4, …), 12.0 KiB in the log, stored "
            "from 2026-11-20 00:00:00 to 2026-11-20 00:00:00 UTC."
        ),
        "At 100 messages/s, sending takes 6 s.",
    ]


def test_a_finished_replay_is_described() -> None:
    assert said(replay_outcome_report(ReplayOutcome(PLAN, Counts(599, 1), (), is_new=True))) == [
        "Replay R1 to host:9876 is finished: 599 of 600 messages are there.",
        "1 message could not be sent: see the table replay_messages.",
        "No group in the target consumes them.",
    ]
    earlier = replay_outcome_report(ReplayOutcome(PLAN, Counts(600, 0), (), is_new=False))
    assert "was sent by an earlier run, and is not sent again (again=yes does)" in earlier.verdict.sentence
    assert "this is a dry run" in replay_outcome_report(None).verdict.sentence
