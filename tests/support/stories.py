"""Stories as plain objects: one of an order, one with hostile texts, and one with any number of messages."""

from __future__ import annotations

import datetime
from dataclasses import replace

from commitlake.pipelines.lineage.message_history import (
    Consumption,
    Edge,
    Evidence,
    MissingRecord,
    Outcome,
    OutcomeState,
    Record,
    Step,
    StepKind,
    Story,
)

START = datetime.datetime(2026, 11, 20, 14, 0, 0, 120_000, tzinfo=datetime.UTC)
FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
LAST = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
HOSTILE = "</script><svg onload=alert(1)>\"'`]:::&#35; %%{init: {}}%%\u202e\x00\x1b[31m\nend"
BODY = b'{"order":4711,"customer":{"name":"Ada","email":"ada@example.com"},"lines":[{"sku":"A-1","count":2}]}'


def at(seconds: float) -> datetime.datetime:
    """Return the time a number of seconds after the beginning."""
    return START + datetime.timedelta(seconds=seconds)


def record_step(
    offset: int,
    seconds: float | None,
    topic: str,
    title: str,
    kind: StepKind = StepKind.NORMAL,
    **columns: object,
) -> Step:
    """Return a stored record."""
    moment = None if seconds is None else at(seconds)
    unique_key = str(columns.get("unique_key", "7F00A1"))
    properties = {"UNIQ_KEY": unique_key, "KEYS": "order-4711", "phone": "555-0199"}
    given: dict[str, object] = {
        "broker": "broker-a", "physical_offset": offset, "msg_id": f"C0A80001{offset:08X}", "unique_key": unique_key,
        "keys": ("order-4711",), "tags": "created", "kind": str(kind), "topic": topic, "origin_topic": "orders",
        "queue_id": 2, "queue_offset": 1203, "born_at": moment, "stored_at": moment, "born_host": "10.0.0.7:51234",
        "store_host": "10.0.0.1:10911", "reconsume_times": 0, "producer_group": "shop", "body_size": len(BODY),
        "properties": properties, "body": BODY, **columns,
    }  # fmt: skip
    record = Record(**given)  # type: ignore[arg-type]
    text = f"{title}, in {topic}, queue {record.queue_id}, by shop from {record.born_host}"
    return Step(f"broker-a:{offset}", kind, moment, topic, title, text, record=record)


def consumed(name: str, seconds: float, group: str, attempt: int, *, succeeded: bool | None = True) -> Step:
    """Return a consumption."""
    consumption = Consumption(group, "10.0.0.9:40112", attempt, 36, succeeded, "success" if succeeded else "exception")
    title = f"consumed by {group}" if succeeded else f"failed in {group}"
    return Step(name, StepKind.CONSUMPTION, at(seconds), group, title, f"{title}, try {attempt}", None, consumption)


def edge(kind: str, source: Step, target: Step, text: str = "") -> Edge:
    """Return an edge between two steps."""
    gap = None if source.at is None or target.at is None else target.at - source.at
    return Edge(kind, source.id, target.id, gap, text or kind, "UNIQ_KEY")


def order_story() -> Story:
    """Return the story of an order: a transaction, two groups, retries, a dead letter, a redrive, a reminder."""
    half = record_step(4096, 0, "RMQ_SYS_TRANS_HALF_TOPIC", "half message of a transaction, for orders", StepKind.HALF)
    op = record_step(4600, 0.31, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "transaction committed", StepKind.OP, body=b"d4096")
    sent = record_step(5000, 0.312, "orders", "committed to orders")
    audit = consumed("c1", 0.35, "audit", 1)
    first = consumed("c2", 0.36, "billing", 1, succeeded=False)
    wait = record_step(6000, 0.42, "SCHEDULE_TOPIC_XXXX", "waits in level 3 for the first retry of billing",
                       StepKind.DELAY, queue_id=2)  # fmt: skip
    retry = record_step(7000, 10.43, "%RETRY%billing", "first retry of billing", StepKind.RETRY, reconsume_times=1)
    second = consumed("c3", 10.5, "billing", 2, succeeded=False)
    dead = record_step(8000, 10.61, "%DLQ%billing", "dead letter of billing", StepKind.DLQ, reconsume_times=2)
    again = record_step(9000, 93_000, "orders", "redriven to orders")
    third = consumed("c4", 93_000.2, "billing", 1)
    remind = record_step(9100, 93_100, "SCHEDULE_TOPIC_XXXX", "waits in level 18 for reminders", StepKind.DELAY,
                         unique_key="7F00A2", body=None, body_problem="the lake has no body of this one")  # fmt: skip
    due = Step("missing:1", StepKind.MISSING, None, "reminders", "not delivered so far", "due Sat 2026-11-21 17:52",
               missing=MissingRecord("not_yet", "not delivered so far: due Sat 2026-11-21 17:52:00"))  # fmt: skip
    steps = [half, op, sent, audit, first, wait, retry, second, dead, again, third, remind, due]
    edges = [
        edge("finished", half, op, "transaction committed"), edge("committed", half, sent, "committed"),
        edge("consumed", sent, audit, "audit consumed it"), edge("consumed", sent, first, "billing tried"),
        edge("retried", sent, wait, "billing failed at the first try"),
        edge("delayed", wait, retry, "delivered when it was due"), edge("consumed", retry, second, "billing tried"),
        edge("dead", retry, dead, "billing gave up after 2 tries"), edge("redriven", dead, again, "redriven by r-17"),
        edge("consumed", again, third, "billing consumed it"), edge("delayed", remind, due, "due"),
    ]  # fmt: skip
    outcomes = [
        Outcome(audit.id, OutcomeState.CONSUMED, "consumed by audit at the first try, 38 ms after it was sent",
                Evidence.TRACE, "audit", audit.at),
        Outcome(dead.id, OutcomeState.REDRIVEN, "dead letter of billing, redriven after 1.1 d", Evidence.RECORDS,
                "billing", dead.at),
        Outcome(third.id, OutcomeState.CONSUMED, "consumed by billing at the first try, 200 ms after it was redriven",
                Evidence.TRACE, "billing", third.at),
        Outcome(remind.id, OutcomeState.WAITING, "waiting in level 18, due Sat 2026-11-21 17:52:00", Evidence.RECORDS,
                None, at(100_300)),
    ]  # fmt: skip
    cautions = ["the groups' offsets were last taken 12 min before the newest record"]
    return Story("key order-4711", at(93_200), steps, edges, outcomes, cautions)


def hostile_story() -> Story:
    """Return the story of an order with hostile texts, a cycle, and times at both limits."""
    plain = order_story()
    steps = []
    for number, step in enumerate(plain.steps):
        record = step.record
        if record is not None:
            record = replace(
                record, topic=HOSTILE, origin_topic=HOSTILE, msg_id=HOSTILE, unique_key=HOSTILE, keys=(HOSTILE,) * 3,
                tags=HOSTILE, born_host=HOSTILE, properties={HOSTILE * number: HOSTILE * 5_000},
                body=[HOSTILE.encode(), b"\x00\xff" * 9_000, b'{"a":' * 9_000, b"[" + b"9" * 5_000 + b"]"][number % 4],
            )  # fmt: skip
        moment = (FIRST, LAST)[number // 7]
        steps.append(
            replace(step, title=HOSTILE * 200, text=HOSTILE * 200, lane=f"{HOSTILE}{number}", at=moment, record=record)
        )
    edges = [replace(edge, text=HOSTILE * 100, joined_by=HOSTILE, kind=HOSTILE) for edge in plain.edges]
    edges.append(Edge("delayed", steps[-1].id, steps[0].id, datetime.timedelta.min, HOSTILE))
    edges += [Edge("dead", steps[2].id, steps[2].id, None, HOSTILE), Edge("dead", "nowhere", steps[2].id, None, "")]
    outcomes = [replace(outcome, text=HOSTILE * 100, group=HOSTILE) for outcome in plain.outcomes]
    return Story(HOSTILE * 50, LAST, steps, edges, outcomes,
                 [HOSTILE * 100] * 200, not_shown=12)  # fmt: skip


def many_messages(count: int, topics: int = 5) -> Story:
    """Return a story of many messages, each stored and consumed; every hundredth became a dead letter."""
    steps: list[Step] = []
    edges: list[Edge] = []
    outcomes: list[Outcome] = []
    for number in range(count):
        topic = f"topic-{number % topics}"
        sent = record_step(number * 3, number * 60, topic, f"sent to {topic}", queue_offset=number)
        steps.append(sent)
        if number % 100 == 99:
            after = record_step(number * 3 + 1, number * 60 + 90, "%DLQ%billing", "dead letter", StepKind.DLQ)
            edges.append(edge("dead", sent, after, "billing gave up"))
            outcomes.append(Outcome(after.id, OutcomeState.DEAD, "dead letter of billing", Evidence.RECORDS, "billing"))
        else:
            after = consumed(f"c{number}", number * 60 + 0.2, "billing", 1)
            edges.append(edge("consumed", sent, after, "billing consumed it"))
            outcomes.append(Outcome(after.id, OutcomeState.CONSUMED, "consumed", Evidence.TRACE, "billing", after.at))
        steps.append(after)
    steps.sort(key=lambda step: step.at or START)
    return Story("key customer-1", steps[-1].at, steps, edges, outcomes)
