"""Stories from small lakes: their steps, order, outcomes and texts."""

from __future__ import annotations

import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from commitlake.connectors.lake.archive_commits import ArchiveCommit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.lineage import history_reader
from commitlake.pipelines.lineage.history_reader import read_matching_records, read_story
from commitlake.pipelines.lineage.message_history import Evidence, Outcome, OutcomeState, Question, StepKind, Story
from commitlake.pipelines.lineage.row_gathering import NO_EDGES
from commitlake.pipelines.maintenance.expiry import record_expiry
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from tests.support.lineage_lakes import BROKER, KEY, at, consumption, edge, make_lake, order_lake, record, snapshot
from tests.support.logs import BROKER_HOST


def outcome_of(story: Story, group: str | None) -> Outcome:
    (found,) = (outcome for outcome in story.outcomes if outcome.group == group)
    return found


def test_an_order_has_steps_from_its_sending_to_each_groups_outcome(tmp_path: Path) -> None:
    story = read_story(order_lake(tmp_path), Question(key=KEY))
    assert [(step.title, step.at) for step in story.steps] == [
        ("sent to orders", at(0)),
        ("failed in billing", at(0.3)),
        ("waits in level 3 for the first retry of billing", at(0.5)),
        ("the first retry of billing", at(10.5)),
        ("consumed by billing", at(10.7)),
    ]
    assert [(each.kind, each.source, each.target) for each in story.edges] == [
        ("consumed", "broker-a:1000", "consumption:broker-a:900000:0"),
        ("retried", "broker-a:1000", "broker-a:2000"),
        ("delayed", "broker-a:2000", "broker-a:3000"),
        ("consumed", "broker-a:3000", "consumption:broker-a:900010:0"),
    ]
    assert story.as_of == at(3600)
    billing = outcome_of(story, "billing")
    assert (billing.text, billing.proof) == (
        "consumed by billing at the second try, 11 s after it was sent",
        Evidence.TRACE,
    )
    audit = outcome_of(story, "audit")
    assert (audit.state, audit.proof, audit.at) == (OutcomeState.PASSED, Evidence.OFFSETS, at(60))
    assert audit.text == ("passed by audit before 14:01:00 (offset 1,203, group at 1,204): consumed, or skipped")
    late = outcome_of(story, "late")
    assert late.text == "not yet consumed by late: offset 1,203, group at 1,190 as of 14:58:20"
    assert "sent by shop in 12 ms" in story.steps[0].text
    assert story.records[0].producer_group == "shop"


def test_a_group_without_an_offset_in_the_queue_of_the_message_is_named(tmp_path: Path) -> None:
    offsets = snapshot(60, {("audit", "orders", 0): 1204, ("billing", "orders", 1): 7, ("mailer", "payments", 0): 1})
    lake = make_lake(tmp_path, [record(1000, 0, "orders", queue_offset=1203)], offsets=offsets)
    story = read_story(lake, Question(key=KEY))
    assert {each.group: each.state for each in story.outcomes} == {
        "audit": OutcomeState.PASSED,
        "billing": OutcomeState.UNKNOWN,
    }
    assert outcome_of(story, "billing").text == (
        "it is not known what billing did with it: there is no trace of it, and no offset in its queue"
    )


@pytest.mark.parametrize(
    "question",
    [
        Question(key=KEY),
        Question(message_id="7F00A1"),
        Question(message_id="0A00000100002A9F00000000000003E8"),
        Question(place=(BROKER, 2000)),
    ],
)
def test_each_way_to_ask_gives_the_same_steps(tmp_path: Path, question: Question) -> None:
    story = read_story(order_lake(tmp_path), question)
    assert len(story.steps) == 5
    assert any(each.matched for each in story.records)


def test_depth_leaves_out_distant_steps_with_a_caution(tmp_path: Path) -> None:
    story = read_story(order_lake(tmp_path), Question(place=(BROKER, 3000), depth=1))
    assert [step.title for step in story.steps] == [
        "waits in level 3 for the first retry of billing", "the first retry of billing", "consumed by billing",
    ]  # fmt: skip
    assert any("more than 1 edge" in caution for caution in story.cautions)


@pytest.mark.parametrize("depth", range(4))
def test_depth_changes_neither_texts_nor_outcomes_of_the_steps_that_are_shown(tmp_path: Path, depth: int) -> None:
    lake = order_lake(tmp_path)
    whole = read_story(lake, Question(place=(BROKER, 3000)))
    part = read_story(lake, Question(place=(BROKER, 3000), depth=depth))
    shown = {step.id for step in part.steps}
    assert f"{BROKER}:3000" in shown
    assert part.steps == [step for step in whole.steps if step.id in shown]
    assert part.outcomes == [outcome for outcome in whole.outcomes if outcome.step in shown]


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        (None, "no client has traced these messages, so"),
        ('{"rules": ["property.phone=hash"]}', "no client has traced these messages, so"),
        ('{"rules": ["body.email=hash"]}', "the masks of this lake leave out the bodies of traces, so"),
    ],
)
def test_a_caution_says_why_there_are_no_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, masks: str | None, expected: str
) -> None:
    lake = make_lake(tmp_path, [record(1000, 0, "orders")], [])
    monkeypatch.setattr(history_reader, "newest_commit", lambda *_: (0, ArchiveCommit(1, "run", masks=masks)))
    (caution,) = (each for each in read_story(lake, Question(key=KEY)).cautions if "traces" in each or "traced" in each)
    assert caution.startswith(expected)


def test_a_question_without_matches_gives_a_story_without_steps(tmp_path: Path) -> None:
    lake = order_lake(tmp_path)
    for question in (Question(key="order-1"), Question(key=KEY, start=at(100)), Question(place=(BROKER, 1))):
        story = read_story(lake, question)
        assert (story.steps, story.outcomes, story.as_of) == ([], [], None)


def test_without_edges_records_are_in_time_order_with_a_caution(tmp_path: Path) -> None:
    records = [record(3000, 9, "%DLQ%billing", reconsume_times=3), record(1000, 0, "orders"),
               record(500, 0.1, "SCHEDULE_TOPIC_XXXX")]  # fmt: skip
    story = read_story(make_lake(tmp_path, records, None), Question(key=KEY))
    assert [step.title for step in story.steps] == [
        "sent to orders",
        "waits in level 1, for orders",
        "dead letter of billing",
    ]
    assert not story.edges
    assert NO_EDGES in story.cautions
    assert outcome_of(story, "billing").state is OutcomeState.DEAD
    assert "without the table edges" in outcome_of(story, "billing").text


def test_a_missing_lake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LakeError):
        read_story(Lake(str(tmp_path / "none")), Question(key=KEY))


def test_a_delayed_message_is_waiting_and_later_overdue(tmp_path: Path) -> None:
    waits = record(1000, 0, "SCHEDULE_TOPIC_XXXX", queue_id=4)
    open_edge = edge(
        "delayed", waits, due_timestamp=at(420), to_topic="orders", absent_end="to", absent_reason="not_yet"
    )
    for number, (newest, state, text) in enumerate([
        (60, OutcomeState.WAITING, "waiting in level 5, due 14:07:00"),
        (600, OutcomeState.OVERDUE, "overdue in level 5, due 14:07:00, and not delivered by 14:10:00"),
    ]):  # fmt: skip
        other = record(5000, newest, "payments", keys=None, unique_key="other")
        story = read_story(make_lake(tmp_path / str(number), [waits, other], open_edge), Question(key=KEY))
        (outcome,) = story.outcomes
        assert (outcome.state, outcome.text, outcome.at) == (state, text, at(420))
        assert [step.kind for step in story.steps] == [StepKind.DELAY, StepKind.MISSING]
        assert story.steps[1].text == "not delivered so far: due 14:07:00"
        assert story.steps[1].at is None


def test_a_dead_letter_has_its_day_and_a_redrive_has_its_own_outcomes(tmp_path: Path) -> None:
    sent = record(1000, 0, "orders")
    dead = record(2000, 5, "%DLQ%billing", reconsume_times=2)
    again = record(7000, 86_400 * 3, "orders", unique_key="NEW", queue_offset=8000)
    rows = edge("dead", sent, dead, consumer_group="billing", attempt=2)
    lonely = read_story(make_lake(tmp_path / "1", [sent, dead, again], rows), Question(place=(BROKER, 1000)))
    assert outcome_of(lonely, "billing").text == "dead letter of billing since Fri 2026-11-20 14:00:05, not redriven"
    assert lonely.edges[0].text == "billing gave up after 2 tries"
    rows += edge("redriven", dead, again, replay_id="r-17")
    rows += consumption(again, "billing", 0, 86_400 * 3 + 4.2, "success")
    story = read_story(make_lake(tmp_path / "2", [sent, dead, again], rows), Question(place=(BROKER, 1000)))
    assert [(outcome.state, outcome.text) for outcome in story.outcomes] == [
        (OutcomeState.REDRIVEN, "dead letter of billing since Fri 2026-11-20 14:00:05, redriven 3 d later"),
        (OutcomeState.CONSUMED, "consumed by billing at the first try, 4.2 s after it was sent"),
    ]
    assert len([each for each in story.edges if each.kind == "redriven"]) == 1  # it is filed under both messages


@pytest.mark.parametrize("question", [Question(key=KEY), Question(place=(BROKER, 1000))])
def test_a_dead_letter_that_an_application_sent_again_is_not_called_abandoned(
    question: Question, tmp_path: Path
) -> None:
    sent, dead = record(1000, 0, "orders"), record(2000, 5, "%DLQ%billing", reconsume_times=2)
    again = record(7000, 125, "orders")  # with the same unique key, and without properties of a replay
    rows = edge("dead", sent, dead, consumer_group="billing", attempt=2)
    story = read_story(make_lake(tmp_path, [sent, dead, again], rows), question)
    found = outcome_of(story, "billing")
    assert (found.state, found.text) == (
        OutcomeState.REDRIVEN,
        "dead letter of billing since 14:00:05, sent again by an application 2 min later, to orders (broker-a:7000)",
    )


def test_a_dead_letter_that_a_client_sent_with_a_delay_is_dead(tmp_path: Path) -> None:
    sent = record(1000, 0, "orders")
    properties = {"DELAY": "5", "REAL_TOPIC": "%DLQ%billing", "UNIQ_KEY": "7F00A1", "KEYS": KEY}
    waits = record(2000, 5, "SCHEDULE_TOPIC_XXXX", queue_id=4, reconsume_times=3, properties=properties)
    dead = record(3000, 65, "%DLQ%billing", reconsume_times=3, properties=properties)
    rows = edge("dead", sent, waits, consumer_group="billing", attempt=3)
    rows += edge("delayed", waits, dead, consumer_group="billing", attempt=3, due_timestamp=at(65))
    story = read_story(make_lake(tmp_path, [sent, waits, dead], rows), Question(key=KEY))
    assert [step.title for step in story.steps] == [
        "sent to orders", "waits in level 5 to become a dead letter of billing", "dead letter of billing",
    ]  # fmt: skip
    assert outcome_of(story, "billing").text == "dead letter of billing since 14:01:05, not redriven"


def test_a_pop_retry_says_only_what_the_broker_knows(tmp_path: Path) -> None:
    sent = record(1000, 0, "orders")
    retry = record(2000, 60, "%RETRY%billing+orders", reconsume_times=4, properties={"ORIGIN_GROUP": "billing"})
    rows = edge("retried", sent, retry, consumer_group="billing", attempt=4)
    story = read_story(make_lake(tmp_path, [sent, retry], rows), Question(key=KEY))
    assert story.edges[0].text == "billing did not acknowledge it in time, the fourth time"


def test_a_half_message_that_was_given_up_names_its_own_topic(tmp_path: Path) -> None:
    half = record(1000, 0, "RMQ_SYS_TRANS_HALF_TOPIC", properties={"REAL_TOPIC": "orders"}, origin_topic=None)
    gone = record(2000, 60, "TRANS_CHECK_MAX_TIME_TOPIC", properties={"REAL_TOPIC": "orders"}, origin_topic=None)
    story = read_story(make_lake(tmp_path, [half, gone], edge("given_up", half, gone)), Question(key=KEY))
    assert [step.title for step in story.steps] == ["half message for orders", "half message for orders, given up"]


def test_an_erased_record_is_called_erased(tmp_path: Path) -> None:
    erased = record(1000, 0, "orders", unique_key=None, keys=None, properties={"COMMITLAKE_ERASED": "e-1"})
    forged = record(2000, 1, "orders", properties={"COMMITLAKE_ERASED": "e-1"})
    lake = make_lake(tmp_path, [erased, forged], [])
    (step,) = read_story(lake, Question(place=(BROKER, 1000))).steps
    assert step.title == "sent to orders (erased)"
    assert "its key, properties and body were erased (erasure e-1)" in step.text
    assert [step.title for step in read_story(lake, Question(place=(BROKER, 2000))).steps] == ["sent to orders"]


def test_transactions_are_prepared_committed_or_rolled_back(tmp_path: Path) -> None:
    half = record(1000, 0, "RMQ_SYS_TRANS_HALF_TOPIC")
    op = record(1500, 2, "RMQ_SYS_TRANS_OP_HALF_TOPIC", unique_key=None, keys=None)
    sent = record(1200, 1, "orders")
    cases = {
        OutcomeState.PREPARED: edge("finished", half, absent_end="to", absent_reason="not_yet"),
        OutcomeState.ROLLED_BACK: edge("finished", half, op, outcome="rolled_back"),
        OutcomeState.UNKNOWN: [*edge("finished", half, op, outcome="committed"), *edge("committed", half, sent)],
    }
    for state, rows in cases.items():
        records = [half, op, sent] if state is OutcomeState.UNKNOWN else [half, op]
        story = read_story(make_lake(tmp_path / state, records, rows), Question(place=(BROKER, 1000)))
        assert [outcome.state for outcome in story.outcomes] == [state]
    assert [step.title for step in story.steps] == [
        "half message for orders",
        "committed to orders",
        "transaction committed",
    ]


def test_a_retry_that_no_trace_names_yet_is_judged_by_the_offset_of_its_group(tmp_path: Path) -> None:
    sent = record(1000, 0, "orders")
    retry = record(3000, 10.5, "%RETRY%billing", reconsume_times=1, queue_offset=7)
    rows = [
        *consumption(sent, "billing", 0, 0.3, "exception"),
        *edge("retried", sent, retry, consumer_group="billing", attempt=1),
    ]
    for number, (offset, text) in enumerate([
        (7, "not yet consumed by billing: offset 7, group at 7 as of 14:00:20"),
        (8, "its newest copy was passed by billing before 14:00:20 (offset 7, group at 8): consumed, or skipped"),
    ]):  # fmt: skip
        offsets = snapshot(20, {("billing", "%RETRY%billing", 0): offset})
        story = read_story(make_lake(tmp_path / str(number), [sent, retry], rows, offsets), Question(key=KEY))
        assert outcome_of(story, "billing").text == text


def test_a_checked_transaction_is_prepared_since_its_first_half(tmp_path: Path) -> None:
    halves = [record(1000 + number, 60 * number, "RMQ_SYS_TRANS_HALF_TOPIC") for number in range(3)]
    checks = [row for one, next_one in pairwise(halves) for row in edge("rechecked", one, next_one)]
    open_end = edge("finished", halves[2], absent_end="to", absent_reason="not_yet")
    story = read_story(make_lake(tmp_path, halves, [*checks, *open_end]), Question(key=KEY))
    (outcome,) = story.outcomes
    assert (outcome.state, outcome.at) == (OutcomeState.PREPARED, at(0))
    assert outcome.text.startswith("prepared since 14:00:00")


def test_ends_that_are_missing_are_steps_with_their_reasons(tmp_path: Path) -> None:
    retry = record(3000, 10, "%RETRY%billing", reconsume_times=1)
    gone = edge("retried", None, retry, consumer_group="billing", attempt=1, absent_end="from",
                absent_reason="before_archive", from_broker=BROKER, from_physical_offset=17,
                from_topic="orders")  # fmt: skip
    refused = edge("produced", unique_key="7F00A1", absent_end="to", absent_reason="refused", to_topic="orders",
                   producer_group="shop", evidence_broker=BROKER, evidence_physical_offset=4,
                   evidence_entry=0)  # fmt: skip
    lost = edge("delayed", retry, record(4000, 20, "orders"), due_timestamp=at(20))  # messages has no such row
    story = read_story(make_lake(tmp_path, [retry], [*gone, *refused, *lost]), Question(key=KEY))
    missing = {step.id: step.missing for step in story.steps if step.missing is not None}
    found = {name: (each.reason, each.name) for name, each in missing.items()}
    assert found["missing:broker-a:17"] == ("before_archive", "broker-a:17")
    assert found["missing:broker-a:4000"] == ("gone", "broker-a:4000")
    assert ("refused", "orders, 7F00A1") in found.values()
    assert story.steps[0].missing is not None  # the cause of the first record is before it


def test_a_snapshot_older_than_a_message_proves_no_outcome(tmp_path: Path) -> None:
    sent = record(1000, 100, "orders")
    offsets = snapshot(0, {("billing", "orders", 0): 2_000})
    story = read_story(make_lake(tmp_path, [sent], [], offsets), Question(key=KEY))
    outcome = outcome_of(story, "billing")
    assert (outcome.state, outcome.proof) == (OutcomeState.UNKNOWN, Evidence.NONE)
    assert "is older than the record" in outcome.text


def test_failed_and_begun_consumptions_have_their_texts(tmp_path: Path) -> None:
    sent = record(1000, 0, "orders")
    rows = [
        *consumption(sent, "a", 0, 1, "time_out"),
        *consumption(sent, "b", 0, 2, None),
        *consumption(None, "c", 0, 3, "success"),
    ]
    story = read_story(make_lake(tmp_path, [sent], rows), Question(key=KEY))
    assert (
        outcome_of(story, "a").text
        == "failed in a at the first try (time-out), and no later record of it is in the lake"
    )
    assert outcome_of(story, "b").text == "b began to consume it at the first try; the result is not known"
    assert "several records match" in "".join(step.text for step in story.steps if step.missing is not None)


def test_a_message_without_known_consumers_is_reported(tmp_path: Path) -> None:
    story = read_story(make_lake(tmp_path, [record(1000, 0, "orders")]), Question(key=KEY))
    (outcome,) = story.outcomes
    assert (outcome.state, outcome.group) == (OutcomeState.UNKNOWN, None)
    assert "no snapshot of the broker's offsets" in outcome.text
    assert any("no snapshot of the groups' offsets" in caution for caution in story.cautions)


def test_records_related_by_a_property_are_in_the_story_and_marked(tmp_path: Path) -> None:
    def of(offset: int, seconds: float, customer: str, **changes: object) -> dict[str, object]:
        return record(offset, seconds, "orders", properties={"customer": customer}, **changes)

    other: dict[str, object] = {"keys": ["order-2"], "unique_key": "B"}
    far: dict[str, object] = {"keys": ["order-3"], "unique_key": "C"}
    lake = make_lake(tmp_path, [of(1000, 0, "it's"), of(2000, 60, "it's", **other), of(3000, 400_000, "it's", **far)])
    story = read_story(lake, Question(key=KEY, related_by="customer"))
    assert [(each.physical_offset, each.matched, each.related_by) for each in story.records] == [
        (1000, True, None), (2000, False, "customer"),
    ]  # fmt: skip
    assert any("were searched from" in caution for caution in story.cautions)
    none = read_story(lake, Question(key=KEY, related_by="colour"))
    assert any("has the property colour" in caution for caution in none.cautions)
    by_key = read_story(lake, Question(place=(BROKER, 1000), related_by="KEYS"))
    assert len(by_key.records) == 1


def test_the_newest_of_too_many_records_are_shown_and_others_counted(tmp_path: Path) -> None:
    records = [record(1000 + n, n, "orders", unique_key=f"U{n}") for n in range(30)]
    story = read_story(make_lake(tmp_path, records), Question(key=KEY, limit=10))
    assert (len(story.steps), story.not_shown) == (10, 20)
    assert story.records[0].physical_offset == 1020


def test_trace_records_with_the_key_are_not_steps(tmp_path: Path) -> None:
    records = [record(1000, 0, "orders"), record(2000, 1, "RMQ_SYS_TRACE_TOPIC", unique_key="T")]
    story = read_story(make_lake(tmp_path, records), Question(key=KEY))
    assert [step.lane for step in story.steps] == ["orders"]


def test_records_alone_are_given_in_time_order(tmp_path: Path) -> None:
    found = read_matching_records(order_lake(tmp_path), Question(key=KEY))
    assert [each.physical_offset for each in found] == [1000, 2000, 3000]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "found none"),
        ({"key": "a", "message_id": "b"}, "key and message_id"),
        ({"key": "a", "depth": -1}, "depth"),
        ({"key": "a", "limit": 0}, "limit"),
        ({"place": ("a", -1)}, "offset: .*, found -1$"),
        ({"place": ("a", 10**5_000)}, "offset: .*, found a number of more than 128 bits"),
    ],
)
def test_questions_without_a_meaning_are_refused(arguments: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Question(**arguments)  # type: ignore[arg-type]


def test_a_place_before_the_lakes_first_record_has_expired(tmp_path: Path) -> None:
    lake = order_lake(tmp_path)
    assert read_story(lake, Question(place=(BROKER, 5))).cautions == []
    record_expiry(lake, "messages", datetime.date(2026, 11, 2))
    dropped = "the lake has dropped messages from before 2026-11-02"
    old = serialize_message_id(BROKER_HOST, 5)
    for question in (Question(place=(BROKER, 5)), Question(message_id=old)):
        assert read_story(lake, question).cautions == [f"it has expired: {dropped}"]
    assert read_story(lake, Question(key="none")).cautions == [f"{dropped}, and an older one would not be found"]
    assert read_story(lake, Question(place=(BROKER, 1001))).cautions == []
