"""Finds the steps from records to their copies.

A broker copies a delayed record when it is due, by level or by timer, and a record on which a consumer group failed, as
a retry or a dead letter. `commitlake replay` copies archived messages.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.key_matching import (
    NONE,
    Column,
    LinkableRecords,
    count_before,
    encode_key_columns,
    match_latest_before,
    rank_within_key,
)
from commitlake.pipelines.edges.lake_spans import LINK_US, BrokerSpans
from commitlake.pipelines.edges.links.shared_columns import (
    is_null,
    no_predecessor_reasons,
    reasons_or_ambiguous,
    replace_unmatched,
    step_definer_columns,
)
from commitlake.pipelines.edges.step_records import Role
from commitlake.pipelines.edges.steps import FROM, TO, absent_end_columns, make_steps, repeat_text
from commitlake.schemas.layouts.rocketmq.message_id import parse_id_offset
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome

_MESSAGE_KEY = ["broker", "unique_key"]


def link_deliveries(members: LinkableRecords, spans: BrokerSpans) -> list[pa.Table]:
    """Return the edges from delayed records to their delivered copies, for delay levels and for timers.

    The copy has the same unique key, the topic that the first record names, and as many failures. If a message waits
    several times with equal keys, for example because it was sent twice, the first copy belongs to the first record,
    because the queue of a level and a timer keep the order. A broker that was killed may deliver a record twice; both
    records are copies of it.

    The first delayed record below was delivered and the second is still waiting. The timer record was stored again,
    because it was due in more than its broker's limit, and then cancelled by a mark:

    >>> from tests.support.link_examples import LAKE, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset role      unique_key topic               next_topic by_timer rolls due cancels
    ...     100             waiting   K1         SCHEDULE_TOPIC_XXXX orders     no       0     200 -
    ...     150             waiting   K2         SCHEDULE_TOPIC_XXXX orders     no       0     900 -
    ...     200             delivered K1         orders              -          no       0     -   -
    ...     300             waiting   K3         rmq_sys_wheel_timer orders     yes      0     900 -
    ...     400             waiting   K3         rmq_sys_wheel_timer orders     yes      1     900 -
    ...     500             cancelled M          rmq_sys_wheel_timer orders     yes      0     -   K3
    ... ''')
    >>> print_steps(link_deliveries(members, LAKE))
    kind    from to  outcome   absent_reason
    delayed 150  -   -         not_yet
    delayed 100  200 -         -
    timer   300  400 -         -
    timer   400  500 cancelled -
    """
    waiting, delivered = members.indexes_with_role(Role.WAITING), members.indexes_with_role(Role.DELIVERED)
    marks = members.indexes_with_role(Role.CANCELLED)
    timers = waiting[members.numbers("by_timer")[waiting] != 0]
    again = timers[members.numbers("rolls")[timers] > 0]
    rolled_from = members.match_before(again, timers, [*_MESSAGE_KEY, "next_topic"])
    cancelled = _find_cancelled_timers(members, marks, timers)
    gone = np.union1d(rolled_from[rolled_from >= 0], cancelled[cancelled >= 0])
    left = np.setdiff1d(waiting, rolled_from[rolled_from >= 0])
    found = _pair_with_waiting_records(members, delivered, left)
    due = members.numbers("due")
    # A copy so long after the due time is one of another record with the same key.
    found[(found >= 0) & (members.times[delivered] > due[found] + LINK_US) & (due[found] > 0)] = NONE
    pending = np.setdiff1d(left, np.concatenate([found[found >= 0], gone]))
    nothing = np.full(len(pending), NONE)
    called_back = repeat_text(str(StepOutcome.CANCELLED), len(marks))
    not_yet = absent_end_columns(TO, nothing, reasons_or_ambiguous(members, pending, AbsentReason.NOT_YET))
    return [
        _make_delay_steps(members, pending, nothing, pending, not_yet),
        _make_delay_steps(
            members,
            found,
            delivered,
            delivered,
            absent_end_columns(FROM, found, no_predecessor_reasons(members, delivered, spans)),
        ),
        _make_delay_steps(
            members,
            rolled_from,
            again,
            again,
            absent_end_columns(FROM, rolled_from, no_predecessor_reasons(members, again, spans)),
        ),
        _make_delay_steps(
            members,
            cancelled,
            marks,
            marks,
            {
                "outcome": called_back,
                **absent_end_columns(FROM, cancelled, no_predecessor_reasons(members, marks, spans)),
            },
        ),
    ]


def _make_delay_steps(
    members: LinkableRecords, from_rows: Array, to_rows: Array, definer_rows: Array, extra_columns: dict[str, Column]
) -> pa.Table:
    """Return the edges from delayed records to their deliveries, of which one may be absent."""
    by_timer = members.numbers("by_timer")[definer_rows] != 0
    known = np.where(from_rows >= 0, from_rows, to_rows)
    columns: dict[str, Column] = {
        "attempt": members.column("attempt", known),
        "consumer_group": members.column("group", known),
        "due_timestamp": members.column("due").take(pa.array(from_rows, mask=from_rows < 0)),
        "to_topic": members.column("next_topic").take(pa.array(from_rows, mask=from_rows < 0)),
        "from_key": members.column("unique_key", known),
        "to_key": members.column("unique_key", known),
        "from_broker": members.column("broker", known),
        "to_broker": members.column("broker", known),
        **step_definer_columns(members, definer_rows),
        **extra_columns,
    }
    kinds = pc.if_else(to_boolean_array(by_timer), str(EdgeKind.TIMER), str(EdgeKind.DELAYED))
    return make_steps(kinds, members.table, from_rows, to_rows, columns)


def _pair_with_waiting_records(members: LinkableRecords, delivered_rows: Array, waiting_rows: Array) -> Array:
    same = ["broker", "unique_key", "attempt"]
    left, right = encode_key_columns(
        [*members.columns([*same, "topic"], delivered_rows), _boolean_column(members, "by_timer", delivered_rows)],
        [*members.columns([*same, "next_topic"], waiting_rows), _boolean_column(members, "by_timer", waiting_rows)],
    )
    if not len(waiting_rows):
        return np.full(len(delivered_rows), NONE, np.int64)
    order = np.lexsort((members.offsets[waiting_rows], right))
    ordered = right[order]
    starts, ends = np.searchsorted(ordered, left, side="left"), np.searchsorted(ordered, left, side="right")
    ranks = rank_within_key(left, members.offsets[delivered_rows])
    is_known = (left >= 0) & (ends > starts)
    # A broker that was killed delivers some records twice: all further copies are of the last record.
    at = np.where(is_known, starts + np.minimum(ranks, ends - starts - 1), 0)
    found = np.where(is_known, waiting_rows[order[at]], NONE)
    late = (found >= 0) & (members.offsets[found] >= members.offsets[delivered_rows])
    if late.any():  # an earlier record of the same kind is not in the lake
        latest = match_latest_before(left, members.offsets[delivered_rows], right, members.offsets[waiting_rows])
        found[late] = np.where(latest[late] >= 0, waiting_rows[latest[late]], NONE)
    return found


def _boolean_column(members: LinkableRecords, name: str, rows: Array) -> pa.Array:
    return pa.array((members.numbers(name)[rows] != 0).astype(np.int64))


def _find_cancelled_timers(members: LinkableRecords, cancel_marks: Array, timers: Array) -> Array:
    """Find the timer message that each cancel mark refers to by unique key.

    Since RocketMQ 5.3, the topic precedes the key in the mark.
    """
    plain = members.match_before(cancel_marks, timers, ["broker", ("cancels", "unique_key")])
    texts = pc.binary_join_element_wise(members.column("next_topic", timers), members.column("unique_key", timers), "_")
    left, right = encode_key_columns(
        [members.column("broker", cancel_marks), members.column("cancels", cancel_marks)],
        [members.column("broker", timers), texts],
    )
    found = match_latest_before(left, members.offsets[cancel_marks], right, members.offsets[timers])
    named = np.where(found >= 0, timers[found], NONE) if len(timers) else found
    return np.where(plain >= 0, plain, named)


def link_retries(members: LinkableRecords, spans: BrokerSpans) -> list[pa.Table]:
    """Return the edges from records that a consumer group failed to consume to their retry or dead-letter copies.

    A copy has one failure more than the record before it. That record is in the group's retry topic or, for the first
    failure, in the message's own topic, where ORIGIN_MESSAGE_ID names it if a broker made the copy. A group that
    consumes in order makes no copies of failures until the message is dead.

    Below, a message failed, was retried once, failed again and became a dead letter. The record from which the copy of
    K2 was made is older than the lake:

    >>> from tests.support.link_examples import LAKE, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset unique_key role  kind   topic      origin_topic group attempt
    ...     100             K1         sent  normal orders     orders       -     0
    ...     200             K1         retry retry  %RETRY%bill orders      bill  1
    ...     300             K1         dead  dlq    %DLQ%bill  orders       bill  2
    ...     400             K2         retry retry  %RETRY%bill orders      bill  1
    ... ''')
    >>> print_steps(link_retries(members, LAKE), "attempt", "consumer_group")
    kind    from to  outcome absent_reason  attempt consumer_group
    retried 100  200 -       -              1       bill
    dead    200  300 -       -              2       bill
    retried -    400 -       before_archive 1       bill

    If the lake has dropped messages of earlier days, the reason is that:

    >>> from tests.support.link_examples import EXPIRED
    >>> print_steps(link_retries(members, EXPIRED)[0].slice(2), "consumer_group")
    kind    from to  outcome absent_reason consumer_group
    retried -    400 -       expired       bill
    """
    is_copy = members.has_value("role", Role.RETRY, Role.DEAD) | (
        members.has_value("role", Role.WAITING) & (members.numbers("attempt") > 0) & ~members.is_null("group")
    )
    copies = members.indexes_where(is_copy)
    if not len(copies):
        return []
    retried, own = consumable_record_mask(members)
    attempts, by_client = members.numbers("attempt")[copies], members.numbers("by_client")[copies] != 0
    of_group = ["unique_key", "group", "attempt"]
    found = members.match_before(copies, retried, ["broker", "origin_id", *of_group], shifted_columns={"attempt"})
    found = replace_unmatched(
        found, members.match_before(copies, retried, ["broker", *of_group], shifted_columns={"attempt"})
    )
    # Only a client may send its copy to another broker.
    across = members.match_before(copies, retried, of_group, shifted_columns={"attempt"}, orders_by_time=True)
    found = replace_unmatched(found, np.where(by_client, across, NONE))
    may_be_first = (found < 0) & ((attempts <= 1) | by_client)
    first = members.match_before(copies, own, [*_MESSAGE_KEY, ("origin_id", "msg_id")])
    same_topic: list[str | tuple[str, str]] = ["unique_key", ("origin_topic", "topic")]
    first = replace_unmatched(first, members.match_before(copies, own, ["broker", *same_topic]))
    first = replace_unmatched(
        first, np.where(by_client, members.match_before(copies, own, same_topic, orders_by_time=True), NONE)
    )
    is_ambiguous = may_be_first & _has_ambiguous_original(members, copies, own) & (first >= 0)
    found = np.where(may_be_first & ~is_ambiguous, first, found)
    offsets = _origin_offsets(members, copies, found)
    is_placed = to_boolean_array(offsets >= 0)
    brokers = members.column("broker", copies)
    reasons = pc.if_else(
        is_placed,
        spans.reasons_at_positions(brokers, pa.array(offsets)),
        spans.reasons_before(brokers, members.times[copies], by_client),
    )
    reasons = pc.if_else(to_boolean_array(is_ambiguous), str(AbsentReason.AMBIGUOUS), reasons)
    keys = members.column("unique_key", copies)
    reasons = pc.if_else(to_boolean_array(is_null(keys) & (offsets < 0)), str(AbsentReason.AMBIGUOUS), reasons)
    more: dict[str, Column] = {
        "attempt": members.column("attempt", copies),
        "consumer_group": members.column("group", copies),
        "from_key": keys,
        "from_broker": pc.if_else(is_placed, brokers, None),
        "from_physical_offset": pa.array(offsets, mask=offsets < 0),
        "from_topic": pc.if_else(is_placed, members.column("origin_topic", copies), None),
        **step_definer_columns(members, copies),
        **absent_end_columns(FROM, found, reasons),
    }
    is_dead = to_boolean_array(leads_to_dead_letters(members)[copies])
    return [
        make_steps(pc.if_else(is_dead, str(EdgeKind.DEAD), str(EdgeKind.RETRIED)), members.table, found, copies, more)
    ]


def leads_to_dead_letters(members: LinkableRecords) -> Array:
    """Return a mask of the records that are dead letters, or delayed messages with a dead-letter topic as target.

    A client that consumes in order sends its dead letter itself, to the retry topic and with a delay. Brokers 4.9 keep
    the delay when they redirect it to the topic of dead letters.
    """
    names = pc.coalesce(members.column("next_topic"), members.column("topic"))
    found: Array = pc.starts_with(names, DLQ_PREFIX).to_numpy(zero_copy_only=False)
    return members.has_value("role", Role.DEAD) | (members.has_value("role", Role.WAITING, Role.DELIVERED) & found)


def consumable_record_mask(members: LinkableRecords) -> tuple[Array, Array]:
    """Return the row numbers of records that groups consume: those in retry topics, and those in original topics."""
    retried = members.has_value("role", Role.RETRY, Role.DELIVERED) & members.has_value("kind", Kind.RETRY)
    own = members.has_value("role", Role.SENT, Role.DELIVERED, Role.COMMITTED) & members.has_value("kind", Kind.NORMAL)
    return members.indexes_where(retried), members.indexes_where(own)


def _has_ambiguous_original(members: LinkableRecords, copies: Array, originals: Array) -> Array:
    """Return a mask of the retry copies with several possible originals and no message id that decides.

    If the group has made a copy before, it has consumed what was stored until then, so only records since then match.
    """
    left, right = encode_key_columns(
        members.columns(["broker", "unique_key", "origin_topic"], copies),
        members.columns(["broker", "unique_key", "topic"], originals),
    )
    exact = members.match_before(copies, originals, [*_MESSAGE_KEY, ("origin_id", "msg_id")])
    counts = count_before(left, members.offsets[copies], right, members.offsets[originals])
    before = members.match_before(copies, copies, [*_MESSAGE_KEY, "group", "origin_topic"])
    until = np.where(before >= 0, members.offsets[before], -1)
    since = counts - count_before(left, until, right, members.offsets[originals])
    found: Array = (counts > 1) & (since != 1) & (exact < 0)
    return found


def _origin_offsets(members: LinkableRecords, copies: Array, originals: Array) -> Array:
    """Return the physical offset in ORIGIN_MESSAGE_ID of first retry copies whose original is absent; else -1.

    It is -1 for all other copies.
    """
    offsets = np.full(len(copies), NONE, np.int64)
    first = (originals < 0) & (members.numbers("attempt")[copies] <= 1) & (members.numbers("by_client")[copies] == 0)
    wanted = np.flatnonzero(first)
    for row, text in zip(wanted.tolist(), members.column("origin_id", copies[wanted]).to_pylist(), strict=True):
        offsets[row] = parse_id_offset(text)
    return offsets


def link_replays(members: LinkableRecords, spans: BrokerSpans) -> list[pa.Table]:
    """Return the edges from archived messages to their replayed copies, whose properties name the original.

    Copies that a broker makes of a message that was sent again keep these properties; they are left out.

    Below, R1 sent an archived message again, and R2 a dead letter of a broker that is not in the lake:

    >>> from tests.support.link_examples import LAKE, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset unique_key role topic  replay_id replay_broker replay_offset replay_topic
    ...     100             K1         sent orders -         -             -             -
    ...     200             K2         sent orders R1        a             100           orders
    ...     300             K3         sent orders R2        b             700           %DLQ%bill
    ... ''')
    >>> print_steps(link_replays(members, LAKE), "from_broker", "replay_id")
    kind     from to  outcome absent_reason from_broker replay_id
    replayed 100  200 -       -             a           R1
    redriven 700  300 -       not_yet       b           R2
    """
    is_sent = members.has_value("role", Role.SENT, Role.COMMITTED) & ~members.is_null("replay_id")
    sent = members.indexes_where(is_sent & ~members.is_null("replay_broker") & ~members.is_null("replay_offset"))
    everything = np.arange(len(members))
    places = ("replay_broker", "broker"), ("replay_offset", "physical_offset")
    left, right = encode_key_columns(
        members.columns([one for one, _ in places], sent), members.columns([one for _, one in places], everything)
    )
    # A place has one record, so the order in time does not matter.
    zeros = np.zeros(len(left), np.int64)
    found = match_latest_before(left, zeros + 1, right, np.zeros(len(right), np.int64))
    topics = members.column("replay_topic", sent)
    is_dead = pc.fill_null(pc.starts_with(topics, DLQ_PREFIX), False)
    brokers, offsets = members.column("replay_broker", sent), members.column("replay_offset", sent)
    return [
        make_steps(pc.if_else(is_dead, str(EdgeKind.REDRIVEN), str(EdgeKind.REPLAYED)), members.table, found, sent, {
            "from_broker": brokers,
            "from_physical_offset": offsets,
            "from_topic": topics,
            "replay_id": members.column("replay_id", sent),
            **step_definer_columns(members, sent),
            **absent_end_columns(FROM, found, spans.reasons_at_positions(brokers, offsets)),
        })
    ]  # fmt: skip
