"""Finds the steps from half messages: committed, finished, rechecked and given up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.key_matching import NONE, LinkableRecords, encode_key_columns, match_latest_before
from commitlake.pipelines.edges.lake_spans import BrokerSpans
from commitlake.pipelines.edges.links.shared_columns import is_null, no_predecessor_reasons, step_definer_columns
from commitlake.pipelines.edges.step_records import Role
from commitlake.pipelines.edges.steps import FROM, TO, absent_end_columns, make_steps, repeat_text
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome

OPS = pa.schema([
    ("broker", pa.string()),
    ("physical_offset", pa.int64()),
    ("queue_id", pa.int32()),
    ("half_offset", pa.int64()),  # queue offset of a finished half message
])  # fmt: skip
"""Columns of a table with the contents of op records: one row for each half message in them."""


_MESSAGE_KEY = ["broker", "unique_key"]


def link_transactions(members: LinkableRecords, op_records: pa.Table, spans: BrokerSpans) -> list[pa.Table]:
    """Return the edges from half messages to committed copies, op records, rechecked copies and given-up records.

    A committed copy has the half message's physical offset, an op record its queue offset. A half message that is
    stored again has the same unique key. The outcome of an op record is a rollback if no copy was committed before it.

    Below, K1 was committed. K2 was stored again for a check with its producer, and then rolled back. K3 is in doubt. K4
    was given up:

    >>> from tests.support.link_examples import LAKE, parse_members, parse_ops, print_steps
    >>> members = parse_members('''
    ...     physical_offset unique_key role      queue_id queue_offset prepared_offset checks
    ...     100             K1         half      0        0            -               0
    ...     200             K2         half      0        1            -               0
    ...     300             K1         committed 2        7            100             0
    ...     400             -          op        0        0            -               0
    ...     500             K2         half      0        2            -               1
    ...     600             -          op        0        1            -               0
    ...     700             K3         half      0        3            -               0
    ...     800             K4         half      0        4            -               0
    ...     900             K4         given_up  0        0            -               0
    ... ''')
    >>> ops = parse_ops('''
    ...     physical_offset queue_id half_offset
    ...     400             0        0
    ...     600             0        2
    ... ''')
    >>> print_steps(link_transactions(members, ops, LAKE))
    kind      from to  outcome     absent_reason
    committed 100  300 committed   -
    rechecked 200  500 -           -
    given_up  800  900 -           -
    finished  100  400 committed   -
    finished  500  600 rolled_back -
    finished  700  -   -           not_yet
    """
    halves, copies = members.indexes_with_role(Role.HALF), members.indexes_with_role(Role.COMMITTED)
    prepared = members.match_before(copies, halves, ["broker", ("prepared_offset", "physical_offset")])
    places = members.column("prepared_offset", copies)
    committed = make_steps(EdgeKind.COMMITTED, members.table, prepared, copies, {
        "from_key": members.column("unique_key", copies),
        "from_broker": members.column("broker", copies),
        "from_physical_offset": places,
        "from_topic": repeat_text(HALF_TOPIC, len(copies)),
        "outcome": repeat_text(str(StepOutcome.COMMITTED), len(copies)),
        **step_definer_columns(members, copies),
        **absent_end_columns(FROM, prepared, spans.reasons_at_positions(members.column("broker", copies), places)),
    })  # fmt: skip
    checks = members.numbers("checks")[halves] > 0
    again = halves[checks | ~is_null(members.column("first_half", halves))]
    given_up = members.indexes_with_role(Role.GIVEN_UP)
    before, last = (
        members.match_before(again, halves, _MESSAGE_KEY),
        members.match_before(given_up, halves, _MESSAGE_KEY),
    )
    steps = [committed]
    for kind, from_rows, to_rows in (
        (EdgeKind.RECHECKED, before, again),
        (EdgeKind.GIVEN_UP, last, given_up),
    ):
        more = {
            "from_key": members.column("unique_key", to_rows),
            **step_definer_columns(members, to_rows),
            **absent_end_columns(FROM, from_rows, no_predecessor_reasons(members, to_rows, spans)),
        }
        steps.append(make_steps(kind, members.table, from_rows, to_rows, more))
    finished, named = _link_transaction_ends(members, op_records, halves, copies, spans)
    done = np.concatenate([before, last, named])
    pending = np.setdiff1d(halves, done[done >= 0])
    is_there = _has_committed_copy(members, pending, copies, None)
    nothing = np.full(len(pending), NONE)
    waiting = make_steps(EdgeKind.FINISHED, members.table, pending, nothing, {
        "to_key": members.column("unique_key", pending),
        "outcome": pc.if_else(to_boolean_array(is_there), str(StepOutcome.COMMITTED), pa.scalar(None, pa.string())),
        **step_definer_columns(members, pending),
        **absent_end_columns(TO, nothing, repeat_text(str(AbsentReason.NOT_YET), len(pending))),
    })  # fmt: skip
    return [*steps, finished, waiting]


def _link_transaction_ends(
    members: LinkableRecords, op_records: pa.Table, halves: Array, copies: Array, spans: BrokerSpans
) -> tuple[pa.Table, Array]:
    records = members.indexes_with_role(Role.OP)
    left, right = encode_key_columns(
        [op_records.column("broker"), op_records.column("physical_offset")],
        members.columns(["broker", "physical_offset"], records),
    )
    zeros = np.zeros(len(left), np.int64)
    of_op = match_latest_before(left, zeros + 1, right, np.zeros(len(right), np.int64))
    op_records, of_op = op_records.filter(to_boolean_array(of_op >= 0)), records[of_op[of_op >= 0]]
    left, right = encode_key_columns(
        [op_records.column(name) for name in ("broker", "queue_id", "half_offset")],
        members.columns(["broker", "queue_id", "queue_offset"], halves),
    )
    at = match_latest_before(left, members.offsets[of_op], right, members.offsets[halves])
    found = np.where(at >= 0, halves[at], NONE) if len(halves) else at
    is_there = _has_committed_copy(members, found, copies, members.offsets[of_op])
    outcome = pc.if_else(to_boolean_array(is_there), str(StepOutcome.COMMITTED), str(StepOutcome.ROLLED_BACK))
    steps = make_steps(EdgeKind.FINISHED, members.table, found, of_op, {
        "from_broker": op_records.column("broker"),
        "from_topic": repeat_text(HALF_TOPIC, len(of_op)),
        "from_queue_id": op_records.column("queue_id"),
        "from_queue_offset": op_records.column("half_offset"),
        "outcome": pc.if_else(to_boolean_array(found >= 0), outcome, pa.scalar(None, pa.string())),
        **step_definer_columns(members, of_op),
        **absent_end_columns(FROM, found, spans.reasons_before(members.column("broker", of_op), members.times[of_op])),
    })  # fmt: skip
    return steps, found


def _has_committed_copy(members: LinkableRecords, halves: Array, copies: Array, end_offsets: Array | None) -> Array:
    """Return a mask of the half messages that have a committed copy.

    If `end_offsets` are given, the copy must be before them.
    """
    index = pa.array(halves, mask=halves < 0)
    left, right = encode_key_columns(
        [members.column(name).take(index) for name in ("broker", "physical_offset")],
        members.columns(["broker", "prepared_offset"], copies),
    )
    ends = np.full(len(halves), np.iinfo(np.int64).max) if end_offsets is None else end_offsets
    seen = (to_numpy_numbers(members.column("is_committed").take(index)) != 0) & (halves >= 0)
    found: Array = (match_latest_before(left, ends, right, members.offsets[copies]) >= 0) | seen
    return found
