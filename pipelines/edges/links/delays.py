"""Finds the steps from delayed records to their copies, by level and by timer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import mask_of
from commitlake.pipelines.edges.family import Families
from commitlake.pipelines.edges.links.common import definer, unless_no_key, why_nothing_before
from commitlake.pipelines.edges.matching import NONE, Column, key_codes, latest_before, rank_within
from commitlake.pipelines.edges.members import Role
from commitlake.pipelines.edges.spans import LINK_US, Spans
from commitlake.pipelines.edges.steps import FROM, TO, absent, make_steps, repeated
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome

_OF_ONE = ["broker", "unique_key"]


def link_deliveries(f: Families, spans: Spans) -> list[pa.Table]:
    """Return the steps from delayed records to their copies, by level or by timer.

    The copy has the same unique key, the topic that the first record names, and as many failures. If a message waits
    several times with equal keys, for example because it was sent twice, the first copy belongs to the first record,
    because the queue of a level and a timer keep the order. A broker that was killed may deliver a record twice; both
    records are copies of it.

    The first delayed record below was delivered and the second is still waiting. The timer record was stored again,
    because it was due in more than its broker's limit, and then cancelled by a mark:

    >>> from commitlake.pipelines.edges.links.examples import LAKE, members_of, print_steps
    >>> members = members_of('''
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
    not_yet = absent(TO, nothing, unless_no_key(f, pending, AbsentReason.NOT_YET))
    return [
        _waits(f, pending, nothing, pending, not_yet),
        _waits(f, found, delivered, delivered, absent(FROM, found, why_nothing_before(f, delivered, spans))),
        _waits(f, rolled_from, again, again, absent(FROM, rolled_from, why_nothing_before(f, again, spans))),
        _waits(
            f,
            cancelled,
            marks,
            marks,
            {"outcome": called_back, **absent(FROM, cancelled, why_nothing_before(f, marks, spans))},
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
        **definer(f, definers),
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
