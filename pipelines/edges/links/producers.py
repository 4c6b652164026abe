"""Finds the steps that traces of producers record: messages that were sent, ended or recalled."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import mask_of, numbers_of
from commitlake.pipelines.edges.family import Families
from commitlake.pipelines.edges.links.common import is_null, known_then, members_at, of_entry
from commitlake.pipelines.edges.matching import NONE, Column, first_after, key_codes, latest_before, only_same
from commitlake.pipelines.edges.members import Role
from commitlake.pipelines.edges.steps import FROM, TO, absent, make_steps, repeated
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome


def link_produced(f: Families, entries: pa.Table) -> pa.Table:
    """Return the steps to the records that producers sent, by the offset message id or by the unique key alone.

    With the unique key alone, a record that was sent again after the trace was stored is not taken into account.

    Below, the broker refused the second message:

    >>> from commitlake.pipelines.edges.links.examples import entries_of, members_of, print_steps
    >>> members = members_of('''
    ...     physical_offset unique_key role kind   topic
    ...     100             K1         sent normal orders
    ... ''')
    >>> entries = entries_of('''
    ...     physical_offset unique_key group topic  sent_offset outcome
    ...     900             K1         shop  orders 100         success
    ...     950             K2         shop  orders -           failed
    ... ''')
    >>> print_steps(link_produced(members, entries), "producer_group")
    kind     from to  outcome absent_reason producer_group
    produced -    100 success -             shop
    produced -    -   failed  refused       shop
    """
    is_first = f.has("role", Role.SENT, Role.HALF, Role.COMMITTED, Role.RETRY) | (
        f.has("role", Role.WAITING) & (f.numbers("attempt") == 0) & (f.numbers("rolls") == 0)
    )
    sent = f.where(is_first)
    placed = entries.column("sent_offset").combine_chunks()
    left, right = key_codes([entries.column("unique_key"), placed], f.columns(["unique_key", "physical_offset"], sent))
    exact, counts = only_same(left, right)
    is_plain = is_first & ~f.has("role", Role.COMMITTED) & (f.numbers("checks") == 0) & f.is_null("replay_id")
    plain = f.where(is_plain)
    left, right = key_codes([entries.column("unique_key")], f.columns(["unique_key"], plain))
    then, others = known_then(left, numbers_of(entries.column("store_timestamp")) + 1, right, plain, f)
    has_place = ~is_null(placed)
    counts = np.where(has_place, counts, others)
    found = np.where(has_place, members_at(sent, exact), then)
    found = np.where(counts == 1, found, NONE)
    failed = pc.fill_null(pc.equal(entries.column("outcome"), str(StepOutcome.FAILED)), False)
    reasons = pc.if_else(failed, str(AbsentReason.REFUSED), str(AbsentReason.NOT_YET))
    reasons = pc.if_else(mask_of(counts > 1), str(AbsentReason.AMBIGUOUS), reasons)
    return make_steps(EdgeKind.PRODUCED, f.table, None, found, {
        "to_key": entries.column("unique_key"),
        "to_topic": entries.column("topic"),
        "to_physical_offset": placed,
        "producer_group": entries.column("group"),
        **of_entry(entries),
        **absent(TO, found, reasons),
    })  # fmt: skip


def link_ended(f: Families, entries: pa.Table) -> pa.Table:
    """Return the steps from half messages that producers ended; each is on the newest half message at that time.

    >>> from commitlake.pipelines.edges.links.examples import entries_of, members_of, print_steps
    >>> members = members_of('''
    ...     physical_offset role
    ...     100             half
    ...     300             half
    ... ''')
    >>> entries = entries_of('''
    ...     physical_offset group event_timestamp outcome
    ...     900             shop  200             unknown
    ...     950             shop  400             committed
    ... ''')
    >>> print_steps(link_ended(members, entries))
    kind  from to outcome   absent_reason
    ended 100  -  unknown   -
    ended 300  -  committed -
    """
    halves = f.with_role(Role.HALF)
    left, right = key_codes([entries.column("unique_key")], f.columns(["unique_key"], halves))
    until = numbers_of(entries.column("event_timestamp")) + 1
    latest = latest_before(left, until, right, f.times[halves])
    first = first_after(left, np.zeros(len(left), np.int64), right, f.times[halves])
    found = members_at(halves, np.where(latest >= 0, latest, first))
    return make_steps(EdgeKind.ENDED, f.table, found, None, _of_producer(entries, found))


def link_recalled(f: Families, entries: pa.Table) -> pa.Table:
    """Return the steps from timer messages that producers recalled.

    >>> from commitlake.pipelines.edges.links.examples import entries_of, members_of, print_steps
    >>> members = members_of('''
    ...     physical_offset role    by_timer
    ...     100             waiting yes
    ... ''')
    >>> entries = entries_of('''
    ...     physical_offset group outcome
    ...     900             shop  success
    ... ''')
    >>> print_steps(link_recalled(members, entries))
    kind     from to outcome absent_reason
    recalled 100  -  success -
    """
    is_first = (f.numbers("by_timer") != 0) & (f.numbers("rolls") == 0)
    timers = f.where(f.has("role", Role.WAITING) & is_first)
    left, right = key_codes([entries.column("unique_key")], f.columns(["unique_key"], timers))
    found = members_at(timers, only_same(left, right)[0])
    return make_steps(EdgeKind.RECALLED, f.table, found, None, _of_producer(entries, found))


def _of_producer(entries: pa.Table, found: Array) -> dict[str, Column]:
    return {
        "from_key": entries.column("unique_key"),
        "producer_group": entries.column("group"),
        **of_entry(entries),
        **absent(FROM, found, repeated(str(AbsentReason.NOT_YET), len(found))),
    }
