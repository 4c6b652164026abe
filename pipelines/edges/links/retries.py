"""Finds the steps from records on which consumer groups failed to their copies, as retries or dead letters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import mask_of
from commitlake.pipelines.edges.family import Families
from commitlake.pipelines.edges.links.common import definer, either, is_null
from commitlake.pipelines.edges.matching import NONE, Column, count_before, key_codes
from commitlake.pipelines.edges.members import Role
from commitlake.pipelines.edges.spans import Spans
from commitlake.pipelines.edges.steps import FROM, absent, make_steps
from commitlake.schemas.layouts.rocketmq.message_id import offset_in
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind

_OF_ONE = ["broker", "unique_key"]


def link_retries(f: Families, spans: Spans) -> list[pa.Table]:
    """Return the steps from records on which a consumer group failed to their copies, as retry or dead letter.

    A copy has one failure more than the record before it. That record is in the group's retry topic or, for the first
    failure, in the message's own topic, where ORIGIN_MESSAGE_ID names it if a broker made the copy. A group that
    consumes in order makes no copies of failures until the message is dead.

    Below, a message failed, was retried once, failed again and became a dead letter. The record from which the copy of
    K2 was made is older than the lake:

    >>> from commitlake.pipelines.edges.links.examples import LAKE, members_of, print_steps
    >>> members = members_of('''
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

    >>> from commitlake.pipelines.edges.links.examples import EXPIRED
    >>> print_steps(link_retries(members, EXPIRED)[0].slice(2), "consumer_group")
    kind    from to  outcome absent_reason consumer_group
    retried -    400 -       expired       bill
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
    found = either(found, f.before(copies, retried, ["broker", *of_group], shifts={"attempt"}))
    across = f.before(copies, retried, of_group, shifts={"attempt"}, by_time=True)
    found = either(found, np.where(by_client, across, NONE))
    may_be_first = (found < 0) & ((attempts <= 1) | by_client)
    first = f.before(copies, own, [*_OF_ONE, ("origin_id", "msg_id")])
    same_topic: list[str | tuple[str, str]] = ["unique_key", ("origin_topic", "topic")]
    first = either(first, f.before(copies, own, ["broker", *same_topic]))
    first = either(first, np.where(by_client, f.before(copies, own, same_topic, by_time=True), NONE))
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
    reasons = pc.if_else(mask_of(is_null(keys) & (offsets < 0)), str(AbsentReason.AMBIGUOUS), reasons)
    more: dict[str, Column] = {
        "attempt": f.column("attempt", copies),
        "consumer_group": f.column("group", copies),
        "from_key": keys,
        "from_broker": pc.if_else(is_placed, brokers, None),
        "from_physical_offset": pa.array(offsets, mask=offsets < 0),
        "from_topic": pc.if_else(is_placed, f.column("origin_topic", copies), None),
        **definer(f, copies),
        **absent(FROM, found, reasons),
    }
    is_dead = mask_of(leads_to_dead_letters(f)[copies])
    return [make_steps(pc.if_else(is_dead, str(EdgeKind.DEAD), str(EdgeKind.RETRIED)), f.table, found, copies, more)]


def leads_to_dead_letters(f: Families) -> Array:
    """Return which members are dead letters, or wait to become one.

    A client that consumes in order sends its dead letter itself, to the retry topic and with a delay. Brokers 4.9 keep
    the delay when they redirect it to the topic of dead letters.
    """
    names = pc.coalesce(f.column("next_topic"), f.column("topic"))
    found: Array = pc.starts_with(names, DLQ_PREFIX).to_numpy(zero_copy_only=False)
    return f.has("role", Role.DEAD) | (f.has("role", Role.WAITING, Role.DELIVERED) & found)


def consumable(f: Families) -> tuple[Array, Array]:
    """Return the members that groups consume: those in retry topics, and those in the messages' own topics."""
    retried = f.has("role", Role.RETRY, Role.DELIVERED) & f.has("kind", Kind.RETRY)
    own = f.has("role", Role.SENT, Role.DELIVERED, Role.COMMITTED) & f.has("kind", Kind.NORMAL)
    return f.where(retried), f.where(own)


def _is_one_of_many(f: Families, copies: Array, own: Array) -> Array:
    """Return whether several earlier records of a message match, as after it was sent twice, and no id names one.

    If the group has made a copy before, it has consumed what was stored until then, so only records since then match.
    """
    left, right = key_codes(
        f.columns(["broker", "unique_key", "origin_topic"], copies), f.columns(["broker", "unique_key", "topic"], own)
    )
    exact = f.before(copies, own, [*_OF_ONE, ("origin_id", "msg_id")])
    counts = count_before(left, f.offsets[copies], right, f.offsets[own])
    before = f.before(copies, copies, [*_OF_ONE, "group", "origin_topic"])
    until = np.where(before >= 0, f.offsets[before], -1)
    since = counts - count_before(left, until, right, f.offsets[own])
    found: Array = (counts > 1) & (since != 1) & (exact < 0)
    return found


def _origin_offsets(f: Families, copies: Array, found: Array) -> Array:
    """Return the physical offset in ORIGIN_MESSAGE_ID of first failures whose record is absent; -1 for others."""
    offsets = np.full(len(copies), NONE, np.int64)
    first = (found < 0) & (f.numbers("attempt")[copies] <= 1) & (f.numbers("by_client")[copies] == 0)
    wanted = np.flatnonzero(first)
    for row, text in zip(wanted.tolist(), f.column("origin_id", copies[wanted]).to_pylist(), strict=True):
        offsets[row] = offset_in(text)
    return offsets
