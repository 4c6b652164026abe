"""Finds the steps that clients record: messages that producers sent, ended or recalled, and that groups consumed.

Producers' actions come from traces, consumptions from traces and from consume logs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.client_actions import ENTRIES
from commitlake.pipelines.edges.key_matching import (
    NONE,
    LinkableRecords,
    count_same_key,
    encode_key_columns,
    match_same_key,
    rank_within_key,
)
from commitlake.pipelines.edges.lake_spans import BrokerSpans
from commitlake.pipelines.edges.links.copies import consumable_record_mask, leads_to_dead_letters
from commitlake.pipelines.edges.links.shared_columns import (
    action_columns,
    is_null,
    may_link_otherwise,
    newest_record_at_time,
    take_record_numbers,
)
from commitlake.pipelines.edges.step_records import Role
from commitlake.pipelines.edges.steps import FROM, TO, absent_end_columns, make_steps, repeat_text
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome

LATE_US = 60_000_000
"""Time within which a broker has stored the copy of a message after a consumption failed, microseconds."""


def link_produced_records(members: LinkableRecords, entries: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Return the edges from producers to the records they sent, matched by offset message id or unique key.

    With the unique key alone, a record that was sent again after the trace was stored is not taken into account. A send
    that failed for its producer, for example because of a timeout, may have been stored before the trace.

    Below, the broker refused the second message, which the application sent again later. It stored the third one, but
    its answer came too late:

    >>> from tests.support.link_examples import LAKE, parse_entries, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset unique_key role kind   topic
    ...     100             K1         sent normal orders
    ...     200             K3         sent normal orders
    ...     990             K2         sent normal orders
    ... ''')
    >>> entries = parse_entries('''
    ...     physical_offset unique_key group topic  sent_offset outcome store_timestamp
    ...     900             K1         shop  orders 100         success 900
    ...     950             K2         shop  orders -           failed  950
    ...     960             K3         shop  orders -           failed  960
    ... ''')
    >>> print_steps(link_produced_records(members, entries, LAKE), "producer_group")
    kind     from to  outcome absent_reason producer_group
    produced -    100 success -             shop
    produced -    -   failed  refused       shop
    produced -    200 failed  -             shop
    """
    is_first = members.has_value("role", Role.SENT, Role.HALF, Role.COMMITTED, Role.RETRY) | (
        members.has_value("role", Role.WAITING) & (members.numbers("attempt") == 0) & (members.numbers("rolls") == 0)
    )
    sent = members.indexes_where(is_first)
    placed = entries.column("sent_offset").combine_chunks()
    left, right = encode_key_columns(
        [entries.column("unique_key"), placed], members.columns(["unique_key", "physical_offset"], sent)
    )
    exact, counts = match_same_key(left, right)
    is_plain = (
        is_first
        & ~members.has_value("role", Role.COMMITTED)
        & (members.numbers("checks") == 0)
        & members.is_null("replay_id")
    )
    plain = members.indexes_where(is_plain)
    left, right = encode_key_columns([entries.column("unique_key")], members.columns(["unique_key"], plain))
    # Plus one, because a record that was stored in the same moment counts.
    until = to_numpy_numbers(entries.column("store_timestamp")) + 1
    then, others = newest_record_at_time(left, until, right, plain, members)
    has_place = ~is_null(placed)
    counts = np.where(has_place, counts, others)
    found = np.where(has_place, take_record_numbers(sent, exact), then)
    failed = pc.fill_null(pc.equal(entries.column("outcome"), str(StepOutcome.FAILED)), False).to_numpy()
    # What an application sends after a failure is another message, with the same key if it is the same object.
    counts = np.where(failed & (take_record_numbers(members.times, found) >= until), 0, counts)
    found = np.where(counts == 1, found, NONE)
    reasons = pc.if_else(to_boolean_array(failed), str(AbsentReason.REFUSED), str(AbsentReason.NOT_YET))
    reasons = pc.if_else(to_boolean_array(counts > 1), str(AbsentReason.AMBIGUOUS), reasons)
    # A send that failed may have reached any broker.
    may_be_stored = (counts == 0) & failed & (spans.all_linked_until_us <= until)
    may_change = may_link_otherwise(members, np.where(has_place, NONE, found), entries, until, spans)
    origin_topics = members.column("origin_topic").take(pa.array(then, mask=then < 0))
    return make_steps(EdgeKind.PRODUCED, members.table, None, found, {
        "to_key": entries.column("unique_key"),
        "to_topic": pc.coalesce(entries.column("topic").combine_chunks(), origin_topics),
        "to_physical_offset": placed,
        "producer_group": entries.column("group"),
        "may_change": to_boolean_array(may_change | may_be_stored),
        **action_columns(entries),
        **absent_end_columns(TO, found, reasons),
    })  # fmt: skip


def link_ended_transactions(members: LinkableRecords, entries: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Return an edge for each transaction a producer ended, from the newest half message with its key until then.

    >>> from tests.support.link_examples import LAKE, parse_entries, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset role
    ...     100             half
    ...     300             half
    ... ''')
    >>> entries = parse_entries('''
    ...     physical_offset group event_timestamp outcome
    ...     900             shop  200             unknown
    ...     950             shop  400             committed
    ... ''')
    >>> print_steps(link_ended_transactions(members, entries, LAKE))
    kind  from to outcome   absent_reason
    ended 100  -  unknown   -
    ended 300  -  committed -
    """
    return _link_decisions(EdgeKind.ENDED, members, entries, members.indexes_with_role(Role.HALF), spans)


def link_recalled_timers(members: LinkableRecords, entries: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Return an edge for each timer message a producer recalled, from the newest record with its key until then.

    >>> from tests.support.link_examples import LAKE, parse_entries, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset role    by_timer
    ...     100             waiting yes
    ... ''')
    >>> entries = parse_entries('''
    ...     physical_offset group outcome
    ...     900             shop  success
    ... ''')
    >>> print_steps(link_recalled_timers(members, entries, LAKE))
    kind     from to outcome absent_reason
    recalled 100  -  success -
    """
    is_first = (members.numbers("by_timer") != 0) & (members.numbers("rolls") == 0)
    timers = members.indexes_where(members.has_value("role", Role.WAITING) & is_first)
    return _link_decisions(EdgeKind.RECALLED, members, entries, timers, spans)


def _link_decisions(
    kind: EdgeKind, members: LinkableRecords, entries: pa.Table, records: Array, spans: BrokerSpans
) -> pa.Table:
    """Return an edge for each decision of a producer, from the newest record with the same key up to its time."""
    left, right = encode_key_columns([entries.column("unique_key")], members.columns(["unique_key"], records))
    until = to_numpy_numbers(entries.column("event_timestamp")) + 1
    found, _ = newest_record_at_time(left, until, right, records, members)
    return make_steps(kind, members.table, found, None, {
        "from_key": entries.column("unique_key"),
        "producer_group": entries.column("group"),
        "may_change": to_boolean_array(may_link_otherwise(members, found, entries, until, spans)),
        **action_columns(entries),
        **absent_end_columns(FROM, found, repeat_text(str(AbsentReason.NOT_YET), len(found))),
    })  # fmt: skip


def link_consumptions(members: LinkableRecords, entries: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Return an edge for each consumption in traces, from the record that the consumer group consumed.

    The first attempt is on the record in the message's own topic; later attempts are on records in the group's retry
    topic. A group that consumes in order has no records there, and tries the first one again.

    Below, the first attempt failed and the second one, on the retry, was successful. The third message is
    not in the lake; the reason becomes `other_cluster` if it does not appear within `LINK_DAYS`:

    >>> from tests.support.link_examples import LAKE, parse_entries, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset role  kind   topic      group attempt
    ...     100             sent  normal orders     -     0
    ...     300             retry retry  %RETRY%bill bill  1
    ... ''')
    >>> entries = parse_entries('''
    ...     physical_offset unique_key group attempt event_timestamp outcome
    ...     900             K          bill  0       200             failed
    ...     910             K          bill  1       400             success
    ...     920             K9         bill  0       500             success
    ... ''')
    >>> print_steps(link_consumptions(members, entries.append_column("is_begun", [[False] * 3]), LAKE), "attempt")
    kind     from to outcome absent_reason attempt
    consumed 100  -  failed  -             0
    consumed 300  -  success -             1
    consumed -    -  success not_yet       0
    """
    retried, own = consumable_record_mask(members)
    attempts = to_numpy_numbers(entries.column("attempt"), null_value=-1)
    until = to_numpy_numbers(entries.column("event_timestamp")) + 1
    left, right = encode_key_columns([entries.column("unique_key")], members.columns(["unique_key"], own))
    first, counts = newest_record_at_time(left, until, right, own, members)
    left, right = encode_key_columns(
        [entries.column(name) for name in ("unique_key", "group", "attempt")],
        members.columns(["unique_key", "group", "attempt"], retried),
    )
    later, copies = newest_record_at_time(left, until, right, retried, members)
    in_order = (
        (attempts > 0) & (copies == 0) & (counts == 1) & _is_consumed_without_retry(members, entries, first, spans)
    )
    on_first = (attempts == 0) | in_order
    counts = np.where(on_first, counts, copies)
    found = np.where(on_first, first, later)
    found = np.where((counts == 1) & (attempts >= 0), found, NONE)
    is_ambiguous = to_boolean_array((counts > 1) & (attempts >= 0))
    reasons = pc.if_else(is_ambiguous, str(AbsentReason.AMBIGUOUS), str(AbsentReason.NOT_YET))
    may_change = pc.or_(
        entries.column("is_begun"), to_boolean_array(may_link_otherwise(members, found, entries, until, spans))
    )
    return make_steps(EdgeKind.CONSUMED, members.table, found, None, {
        "from_key": entries.column("unique_key"),
        "consumer_group": entries.column("group"),
        "attempt": entries.column("attempt"),
        "request_id": entries.column("request_id"),
        "may_change": may_change,
        **action_columns(entries),
        **absent_end_columns(FROM, found, reasons),
    })  # fmt: skip


def join_consumptions(start_entries: pa.Table, end_entries: pa.Table) -> pa.Table:
    """Join the trace entries for the start and the end of each consumption, by request id and unique key.

    Args:
        start_entries: entries of `SubBefore`.
        end_entries: entries of `SubAfter`.

    Returns:
        A table of `ENTRIES` with the column `is_begun`: True if only one of the two entries exists. The evidence is
        that of the end, if it exists.
    """
    start_entries, end_entries = _sort_distinct_entries(start_entries), _sort_distinct_entries(end_entries)
    same = ["request_id", "unique_key"]
    left, right = encode_key_columns(
        [start_entries.column(name) for name in same], [end_entries.column(name) for name in same]
    )
    # A request may have several entries if its trace was sent twice: the first start belongs to the first end.
    ranks = [rank_within_key(codes, np.arange(len(codes))) for codes in (left, right)]
    left, right = encode_key_columns(
        [_nullable_codes(left), pa.array(ranks[0])], [_nullable_codes(right), pa.array(ranks[1])]
    )
    after, _ = match_same_key(left, right)
    lonely = np.setdiff1d(np.arange(len(right)), after[after >= 0])
    index = np.concatenate([np.arange(len(left)), np.full(len(lonely), NONE)])
    other = np.concatenate([after, lonely])
    first, last = pa.array(index, mask=index < 0), pa.array(other, mask=other < 0)
    columns = {}
    for field in ENTRIES:
        tables = ((start_entries, first), (end_entries, last))
        sides = [table.column(field.name).combine_chunks().take(taken) for table, taken in tables]
        prefers_end = field.name in {"broker", "physical_offset", "entry", "store_timestamp", "client_host", "action"}
        columns[field.name] = pc.coalesce(*(reversed(sides) if prefers_end else sides))
    joined = pa.table([columns[field.name] for field in ENTRIES], schema=ENTRIES)
    return joined.append_column("is_begun", pa.array((index < 0) | (other < 0)))


def _sort_distinct_entries(entries: pa.Table) -> pa.Table:
    """Return the trace entries sorted by the log position of their trace message, and by their number in it."""
    order = [("broker", "ascending"), ("physical_offset", "ascending"), ("entry", "ascending")]
    return entries.sort_by(order).combine_chunks() if entries.num_rows > 1 else entries.combine_chunks()


def _nullable_codes(codes: Array) -> pa.Array:
    return pa.array(codes, pa.int64(), mask=codes < 0)


def link_logged_consumptions(members: LinkableRecords, entries: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Return an edge for each consumption that a broker logged, from the record at the logged offset.

    Below, the lake lacks the second message, although its offset is in the archived range:

    >>> from tests.support.link_examples import LAKE, parse_entries, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset unique_key    topic
    ...     100             orders/0/5@a orders
    ... ''')
    >>> entries = parse_entries('''
    ...     physical_offset unique_key   sent_offset topic  group attempt outcome
    ...     -8              orders/0/5@a 100         orders bill  0       success
    ...     -9              orders/0/6@a 200         orders bill  0       success
    ... ''')
    >>> print_steps(link_logged_consumptions(members, entries, LAKE), "consumer_group")
    kind     from to outcome absent_reason consumer_group
    consumed 100  -  success -             bill
    consumed 200  -  success lost          bill
    """
    left, right = encode_key_columns(
        [entries.column(name) for name in ("broker", "sent_offset", "unique_key")],
        members.columns(["broker", "physical_offset", "unique_key"], np.arange(members.table.num_rows)),
    )
    found, _ = match_same_key(left, right)
    brokers, places = (entries.column(name).combine_chunks() for name in ("broker", "sent_offset"))
    return make_steps(EdgeKind.CONSUMED, members.table, found, None, {
        "from_key": entries.column("unique_key"),
        "from_broker": brokers,
        "from_physical_offset": places,
        "from_topic": entries.column("topic"),
        "consumer_group": entries.column("group"),
        "attempt": entries.column("attempt"),
        **action_columns(entries),
        **absent_end_columns(FROM, found, spans.reasons_at_positions(brokers, places)),
    })  # fmt: skip


def _is_consumed_without_retry(
    members: LinkableRecords, entries: pa.Table, member_numbers: Array, spans: BrokerSpans
) -> Array:
    """Return a mask of the consumptions after which the group has no retry copy, and can get none later."""
    copies = members.indexes_where(
        ~members.is_null("group") & (members.numbers("attempt") > 0) & ~leads_to_dead_letters(members)
    )
    left, right = encode_key_columns(
        [entries.column(name) for name in ("unique_key", "group")], members.columns(["unique_key", "group"], copies)
    )
    brokers = members.column("broker").take(pa.array(member_numbers, mask=member_numbers < 0))
    is_complete = spans.linked_until_time_mask(brokers, to_numpy_numbers(entries.column("event_timestamp")) + LATE_US)
    found: Array = (count_same_key(left, right) == 0) & is_complete & (member_numbers >= 0)
    return found
