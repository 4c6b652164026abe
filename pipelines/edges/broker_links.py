"""Finds steps in which a broker stored a message again; one function for each kind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import mask_of, numbers_of
from commitlake.pipelines.edges.family import Families
from commitlake.pipelines.edges.matching import NONE, Column, count_same, key_codes, latest_before, rank_within
from commitlake.pipelines.edges.members import Role
from commitlake.pipelines.edges.spans import LINK_US, Spans
from commitlake.pipelines.edges.steps import FROM, TO, absent, make_steps, repeated
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, HALF_TOPIC, Kind
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome

OPS = pa.schema([
    ("broker", pa.string()),
    ("physical_offset", pa.int64()),
    ("queue_id", pa.int32()),
    ("half_offset", pa.int64()),  # queue offset of a finished half message
])  # fmt: skip
"""Columns of a table with the contents of op records: one row for each half message in them."""
_OF_ONE = ["broker", "unique_key"]


def link_deliveries(f: Families, spans: Spans) -> list[pa.Table]:
    """Return the steps from delayed records to their copies, by level or by timer.

    The copy has the same unique key, the topic that the first record names, and as many failures. If a message waits
    several times with equal keys, for example because it was sent twice, the first copy belongs to the first record,
    because the queue of a level and a timer keep the order. A broker that was killed may deliver a record twice; both
    records are copies of it.
    """
    waiting, delivered = f.with_role(Role.WAITING), f.with_role(Role.DELIVERED)
    marks = f.with_role(Role.CANCELLED)
    timers = waiting[f.numbers("by_timer")[waiting] != 0]
    again = timers[f.numbers("rolls")[timers] > 0]
    rolled_from = f.before(again, timers, [*_OF_ONE, "next_topic"])
    cancelled = _cancelled(f, marks, timers)
    gone = np.union1d(rolled_from[rolled_from >= 0], cancelled[cancelled >= 0])
    left = np.setdiff1d(waiting, rolled_from[rolled_from >= 0])
    found = _in_order(f, delivered, left)
    due = f.numbers("due")
    found[(found >= 0) & (f.times[delivered] > due[found] + LINK_US) & (due[found] > 0)] = NONE
    pending = np.setdiff1d(left, np.concatenate([found[found >= 0], gone]))
    nothing = np.full(len(pending), NONE)
    called_back = repeated(str(StepOutcome.CANCELLED), len(marks))
    not_yet = absent(TO, nothing, _unless_no_key(f, pending, AbsentReason.NOT_YET))
    return [
        _waits(f, pending, nothing, pending, not_yet),
        _waits(f, found, delivered, delivered, absent(FROM, found, _before(f, delivered, spans))),
        _waits(f, rolled_from, again, again, absent(FROM, rolled_from, _before(f, again, spans))),
        _waits(
            f, cancelled, marks, marks, {"outcome": called_back, **absent(FROM, cancelled, _before(f, marks, spans))}
        ),
    ]


def _waits(f: Families, from_rows: Array, to_rows: Array, definers: Array, more: dict[str, Column]) -> pa.Table:
    """Return steps from a delayed record."""
    by_timer = f.numbers("by_timer")[definers] != 0
    known = np.where(from_rows >= 0, from_rows, to_rows)
    columns: dict[str, Column] = {
        "attempt": f.column("attempt", known),
        "consumer_group": f.column("group", known),
        "due_timestamp": f.column("due").take(pa.array(from_rows, mask=from_rows < 0)),
        "to_topic": f.column("next_topic").take(pa.array(from_rows, mask=from_rows < 0)),
        "from_key": f.column("unique_key", known),
        "to_key": f.column("unique_key", known),
        "from_broker": f.column("broker", known),
        "to_broker": f.column("broker", known),
        **_definer(f, definers),
        **more,
    }
    kinds = pc.if_else(mask_of(by_timer), str(EdgeKind.TIMER), str(EdgeKind.DELAYED))
    return make_steps(kinds, f.table, from_rows, to_rows, columns)


def _in_order(f: Families, delivered: Array, waiting: Array) -> Array:
    same = ["broker", "unique_key", "attempt"]
    left, right = key_codes(
        [*f.columns([*same, "topic"], delivered), _flags(f, "by_timer", delivered)],
        [*f.columns([*same, "next_topic"], waiting), _flags(f, "by_timer", waiting)],
    )
    if not len(waiting):
        return np.full(len(delivered), NONE, np.int64)
    order = np.lexsort((f.offsets[waiting], right))
    ordered = right[order]
    starts, ends = np.searchsorted(ordered, left, side="left"), np.searchsorted(ordered, left, side="right")
    ranks = rank_within(left, f.offsets[delivered])
    is_known = (left >= 0) & (ends > starts)
    at = np.where(is_known, starts + np.minimum(ranks, ends - starts - 1), 0)
    found = np.where(is_known, waiting[order[at]], NONE)
    late = (found >= 0) & (f.offsets[found] >= f.offsets[delivered])
    if late.any():  # an earlier record of the same kind is not in the lake
        latest = latest_before(left, f.offsets[delivered], right, f.offsets[waiting])
        found[late] = np.where(latest[late] >= 0, waiting[latest[late]], NONE)
    return found


def _flags(f: Families, name: str, rows: Array) -> pa.Array:
    return pa.array((f.numbers(name)[rows] != 0).astype(np.int64))


def _cancelled(f: Families, marks: Array, timers: Array) -> Array:
    """Find the records that marks cancel. A mark names a unique key, since 5.3 with its topic as prefix."""
    plain = f.before(marks, timers, ["broker", ("cancels", "unique_key")])
    texts = pc.binary_join_element_wise(f.column("next_topic", timers), f.column("unique_key", timers), "_")
    left, right = key_codes(
        [f.column("broker", marks), f.column("cancels", marks)], [f.column("broker", timers), texts]
    )
    found = latest_before(left, f.offsets[marks], right, f.offsets[timers])
    named = np.where(found >= 0, timers[found], NONE) if len(timers) else found
    return np.where(plain >= 0, plain, named)


def link_retries(f: Families, spans: Spans) -> list[pa.Table]:
    """Return the steps from records on which a consumer group failed to their copies, as retry or dead letter.

    A copy has one failure more than the record before it. That record is in the group's retry topic or, for the first
    failure, in the message's own topic, where ORIGIN_MESSAGE_ID names it if a broker made the copy. A group that
    consumes in order makes no copies of failures until the message is dead.
    """
    is_copy = f.has("role", Role.RETRY, Role.DEAD) | (
        f.has("role", Role.WAITING) & (f.numbers("attempt") > 0) & ~f.is_null("group")
    )
    copies = f.where(is_copy)
    if not len(copies):
        return []
    retried, own = consumable(f)
    attempts, by_client = f.numbers("attempt")[copies], f.numbers("by_client")[copies] != 0
    of_group = ["unique_key", "group", "attempt"]
    found = f.before(copies, retried, ["broker", "origin_id", *of_group], shifts={"attempt"})
    found = _or(found, f.before(copies, retried, ["broker", *of_group], shifts={"attempt"}))
    across = f.before(copies, retried, of_group, shifts={"attempt"}, by_time=True)
    found = _or(found, np.where(by_client, across, NONE))
    may_be_first = (found < 0) & ((attempts <= 1) | by_client)
    first = f.before(copies, own, [*_OF_ONE, ("origin_id", "msg_id")])
    same_topic: list[str | tuple[str, str]] = ["unique_key", ("origin_topic", "topic")]
    first = _or(first, f.before(copies, own, ["broker", *same_topic]))
    first = _or(first, np.where(by_client, f.before(copies, own, same_topic, by_time=True), NONE))
    is_ambiguous = may_be_first & _is_one_of_many(f, copies, own) & (first >= 0)
    found = np.where(may_be_first & ~is_ambiguous, first, found)
    offsets = _origin_offsets(f, copies, found)
    is_placed = mask_of(offsets >= 0)
    brokers = f.column("broker", copies)
    reasons = pc.if_else(
        is_placed, spans.at_places(brokers, pa.array(offsets)), spans.before(brokers, f.times[copies], by_client)
    )
    reasons = pc.if_else(mask_of(is_ambiguous), str(AbsentReason.AMBIGUOUS), reasons)
    keys = f.column("unique_key", copies)
    reasons = pc.if_else(mask_of(_is_null(keys) & (offsets < 0)), str(AbsentReason.AMBIGUOUS), reasons)
    more: dict[str, Column] = {
        "attempt": f.column("attempt", copies),
        "consumer_group": f.column("group", copies),
        "from_key": keys,
        "from_broker": pc.if_else(is_placed, brokers, None),
        "from_physical_offset": pa.array(offsets, mask=offsets < 0),
        "from_topic": pc.if_else(is_placed, f.column("origin_topic", copies), None),
        **_definer(f, copies),
        **absent(FROM, found, reasons),
    }
    is_dead = mask_of(f.has("role", Role.DEAD)[copies])
    return [make_steps(pc.if_else(is_dead, str(EdgeKind.DEAD), str(EdgeKind.RETRIED)), f.table, found, copies, more)]


def consumable(f: Families) -> tuple[Array, Array]:
    """Return the members that groups consume: those in retry topics, and those in the messages' own topics."""
    retried = f.has("role", Role.RETRY, Role.DELIVERED) & f.has("kind", Kind.RETRY)
    own = f.has("role", Role.SENT, Role.DELIVERED, Role.COMMITTED) & f.has("kind", Kind.NORMAL)
    return f.where(retried), f.where(own)


def _is_one_of_many(f: Families, copies: Array, own: Array) -> Array:
    """Return whether several records of a message match, as after it was sent twice, and no id names the failed one."""
    left, right = key_codes(
        f.columns(["broker", "unique_key", "origin_topic"], copies), f.columns(["broker", "unique_key", "topic"], own)
    )
    exact = f.before(copies, own, [*_OF_ONE, ("origin_id", "msg_id")])
    return (count_same(left, right) > 1) & (exact < 0)


def _origin_offsets(f: Families, copies: Array, found: Array) -> Array:
    """Return the physical offset in ORIGIN_MESSAGE_ID of first failures whose record is absent; -1 for others."""
    offsets = np.full(len(copies), NONE, np.int64)
    first = (found < 0) & (f.numbers("attempt")[copies] <= 1) & (f.numbers("by_client")[copies] == 0)
    wanted = np.flatnonzero(first)
    for row, text in zip(wanted.tolist(), f.column("origin_id", copies[wanted]).to_pylist(), strict=True):
        offsets[row] = offset_of(text)
    return offsets


def offset_of(message_id: str | None) -> int:
    """Return the physical offset in an offset message id; -1 for other text."""
    try:
        return NONE if message_id is None else parse_message_id(message_id.strip()).physical_offset
    except LayoutError:
        return NONE


def link_transactions(f: Families, ops: pa.Table, spans: Spans) -> list[pa.Table]:
    """Return the steps from half messages: committed, finished, rechecked, and given up.

    A committed copy has the half message's physical offset, an op record its queue offset. A half message that is
    stored again has the same unique key. The outcome of an op record is a rollback if no copy was committed before it.
    """
    halves, copies = f.with_role(Role.HALF), f.with_role(Role.COMMITTED)
    prepared = f.before(copies, halves, ["broker", ("prepared_offset", "physical_offset")])
    places = f.column("prepared_offset", copies)
    committed = make_steps(EdgeKind.COMMITTED, f.table, prepared, copies, {
        "from_key": f.column("unique_key", copies),
        "from_broker": f.column("broker", copies),
        "from_physical_offset": places,
        "from_topic": repeated(HALF_TOPIC, len(copies)),
        "outcome": repeated(str(StepOutcome.COMMITTED), len(copies)),
        **_definer(f, copies),
        **absent(FROM, prepared, spans.at_places(f.column("broker", copies), places)),
    })  # fmt: skip
    checks = f.numbers("checks")[halves] > 0
    again = halves[checks | ~_is_null(f.column("first_half", halves))]
    given_up = f.with_role(Role.GIVEN_UP)
    before, last = f.before(again, halves, _OF_ONE), f.before(given_up, halves, _OF_ONE)
    steps = [committed]
    for kind, from_rows, to_rows in (
        (EdgeKind.RECHECKED, before, again),
        (EdgeKind.GIVEN_UP, last, given_up),
    ):
        more = {
            "from_key": f.column("unique_key", to_rows),
            **_definer(f, to_rows),
            **absent(FROM, from_rows, _before(f, to_rows, spans)),
        }
        steps.append(make_steps(kind, f.table, from_rows, to_rows, more))
    finished, named = _finished(f, ops, halves, copies, spans)
    done = np.concatenate([before, last, named])
    pending = np.setdiff1d(halves, done[done >= 0])
    is_there = _has_copy(f, pending, copies, None)
    nothing = np.full(len(pending), NONE)
    waiting = make_steps(EdgeKind.FINISHED, f.table, pending, nothing, {
        "to_key": f.column("unique_key", pending),
        "outcome": pc.if_else(mask_of(is_there), str(StepOutcome.COMMITTED), pa.scalar(None, pa.string())),
        **_definer(f, pending),
        **absent(TO, nothing, repeated(str(AbsentReason.NOT_YET), len(pending))),
    })  # fmt: skip
    return [*steps, finished, waiting]


def _finished(f: Families, ops: pa.Table, halves: Array, copies: Array, spans: Spans) -> tuple[pa.Table, Array]:
    records = f.with_role(Role.OP)
    left, right = key_codes(
        [ops.column("broker"), ops.column("physical_offset")], f.columns(["broker", "physical_offset"], records)
    )
    zeros = np.zeros(len(left), np.int64)
    of_op = latest_before(left, zeros + 1, right, np.zeros(len(right), np.int64))
    ops, of_op = ops.filter(mask_of(of_op >= 0)), records[of_op[of_op >= 0]]
    left, right = key_codes(
        [ops.column(name) for name in ("broker", "queue_id", "half_offset")],
        f.columns(["broker", "queue_id", "queue_offset"], halves),
    )
    at = latest_before(left, f.offsets[of_op], right, f.offsets[halves])
    found = np.where(at >= 0, halves[at], NONE) if len(halves) else at
    is_there = _has_copy(f, found, copies, f.offsets[of_op])
    outcome = pc.if_else(mask_of(is_there), str(StepOutcome.COMMITTED), str(StepOutcome.ROLLED_BACK))
    steps = make_steps(EdgeKind.FINISHED, f.table, found, of_op, {
        "from_broker": ops.column("broker"),
        "from_topic": repeated(HALF_TOPIC, len(of_op)),
        "from_queue_id": ops.column("queue_id"),
        "from_queue_offset": ops.column("half_offset"),
        "outcome": pc.if_else(mask_of(found >= 0), outcome, pa.scalar(None, pa.string())),
        **_definer(f, of_op),
        **absent(FROM, found, spans.before(f.column("broker", of_op), f.times[of_op])),
    })  # fmt: skip
    return steps, found


def _has_copy(f: Families, halves: Array, copies: Array, until: Array | None) -> Array:
    """Return which half messages have a committed copy, before given offsets of the log or anywhere."""
    index = pa.array(halves, mask=halves < 0)
    left, right = key_codes(
        [f.column(name).take(index) for name in ("broker", "physical_offset")],
        f.columns(["broker", "prepared_offset"], copies),
    )
    ends = np.full(len(halves), np.iinfo(np.int64).max) if until is None else until
    seen = (numbers_of(f.column("is_committed").take(index)) != 0) & (halves >= 0)
    found: Array = (latest_before(left, ends, right, f.offsets[copies]) >= 0) | seen
    return found


def link_replays(f: Families, spans: Spans) -> list[pa.Table]:
    """Return the steps from archived messages to their replayed copies, found by the origin in the copies' properties.

    Copies that a broker makes of a message that was sent again keep these properties; they are left out.
    """
    is_sent = f.has("role", Role.SENT, Role.COMMITTED) & ~f.is_null("replay_id")
    sent = f.where(is_sent & ~f.is_null("replay_broker") & ~f.is_null("replay_offset"))
    everything = np.arange(len(f))
    places = ("replay_broker", "broker"), ("replay_offset", "physical_offset")
    left, right = key_codes(
        f.columns([one for one, _ in places], sent), f.columns([one for _, one in places], everything)
    )
    zeros = np.zeros(len(left), np.int64)
    found = latest_before(left, zeros + 1, right, np.zeros(len(right), np.int64))
    topics = f.column("replay_topic", sent)
    is_dead = pc.fill_null(pc.starts_with(topics, DLQ_PREFIX), False)
    brokers, offsets = f.column("replay_broker", sent), f.column("replay_offset", sent)
    return [
        make_steps(pc.if_else(is_dead, str(EdgeKind.REDRIVEN), str(EdgeKind.REPLAYED)), f.table, found, sent, {
            "from_broker": brokers,
            "from_physical_offset": offsets,
            "from_topic": topics,
            "replay_id": f.column("replay_id", sent),
            **_definer(f, sent),
            **absent(FROM, found, spans.at_places(brokers, offsets)),
        })
    ]  # fmt: skip


def _or(found: Array, other: Array) -> Array:
    return np.where(found >= 0, found, other)


def _is_null(column: Column) -> Array:
    found: Array = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found


def _definer(f: Families, rows: Array) -> dict[str, Column]:
    return {"definer_broker": f.column("broker", rows), "definer_offset": f.column("physical_offset", rows)}


def _before(f: Families, rows: Array, spans: Spans) -> Column:
    """Return the reason why some records, which only a unique key could link, have no predecessor."""
    reasons = spans.before(f.column("broker", rows), f.times[rows])
    return pc.if_else(mask_of(_is_null(f.column("unique_key", rows))), str(AbsentReason.AMBIGUOUS), reasons)


def _unless_no_key(f: Families, rows: Array, reason: AbsentReason) -> Column:
    no_key = mask_of(_is_null(f.column("unique_key", rows)))
    return pc.if_else(no_key, str(AbsentReason.AMBIGUOUS), str(reason)) if len(rows) else repeated(None, 0)
