"""Finds steps that only traces and consume logs record: messages that were sent, ended or recalled; consumptions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import mask_of, numbers_of
from commitlake.pipelines.edges.broker_links import consumable
from commitlake.pipelines.edges.family import Families
from commitlake.pipelines.edges.matching import (
    NONE,
    Column,
    count_before,
    count_same,
    first_after,
    key_codes,
    latest_before,
    only_same,
    rank_within,
)
from commitlake.pipelines.edges.members import Role
from commitlake.pipelines.edges.spans import Spans
from commitlake.pipelines.edges.steps import FROM, TO, absent, make_steps, repeated
from commitlake.pipelines.edges.traces import ENTRIES, Action
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome

_LATE_US = 60_000_000


def link_clients(f: Families, entries: pa.Table, spans: Spans) -> list[pa.Table]:
    """Return all steps from entries of traces.

    Args:
        f: members of the messages.
        entries: a table of `ENTRIES`.
        spans: extent of the lake.
    """
    return [
        _produced(f, _of(entries, Action.PUB)),
        _consumed(f, join_consumptions(_of(entries, Action.BEFORE), _of(entries, Action.AFTER)), spans),
        _logged(f, _of(entries, Action.LOGGED), spans),
        _ended(f, _of(entries, Action.END)),
        _recalled(f, _of(entries, Action.RECALL)),
    ]


def _of(entries: pa.Table, action: Action) -> pa.Table:
    return entries.filter(pc.equal(entries.column("action"), str(action))).combine_chunks()


def _produced(f: Families, entries: pa.Table) -> pa.Table:
    """Return the steps to the records that producers sent, by the offset message id or by the unique key alone."""
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
    only, others = only_same(left, right)
    has_place = ~_is_null(placed)
    counts = np.where(has_place, counts, others)
    found = np.where(has_place, _rows(sent, exact), _rows(plain, only))
    found = np.where(counts == 1, found, NONE)
    failed = pc.fill_null(pc.equal(entries.column("outcome"), str(StepOutcome.FAILED)), False)
    reasons = pc.if_else(failed, str(AbsentReason.REFUSED), str(AbsentReason.NOT_YET))
    reasons = pc.if_else(mask_of(counts > 1), str(AbsentReason.AMBIGUOUS), reasons)
    return make_steps(EdgeKind.PRODUCED, f.table, None, found, {
        "to_key": entries.column("unique_key"),
        "to_topic": entries.column("topic"),
        "to_physical_offset": placed,
        "producer_group": entries.column("group"),
        **_told(entries),
        **absent(TO, found, reasons),
    })  # fmt: skip


def join_consumptions(begun: pa.Table, ended: pa.Table) -> pa.Table:
    """Join the trace entries on the start and the end of each consumption, by request and message.

    Args:
        begun: entries of `SubBefore`.
        ended: entries of `SubAfter`.

    Returns:
        A table of `ENTRIES` with the column `is_begun`: True if only one of the two entries exists. The evidence is
        that of the end, if it exists.
    """
    begun, ended = _once(begun), _once(ended)
    same = ["request_id", "unique_key"]
    left, right = key_codes([begun.column(name) for name in same], [ended.column(name) for name in same])
    ranks = [rank_within(codes, np.arange(len(codes))) for codes in (left, right)]
    left, right = key_codes([_codes(left), pa.array(ranks[0])], [_codes(right), pa.array(ranks[1])])
    after, _ = only_same(left, right)
    lonely = np.setdiff1d(np.arange(len(right)), after[after >= 0])
    index = np.concatenate([np.arange(len(left)), np.full(len(lonely), NONE)])
    other = np.concatenate([after, lonely])
    first, last = pa.array(index, mask=index < 0), pa.array(other, mask=other < 0)
    columns = {}
    for field in ENTRIES:
        tables = ((begun, first), (ended, last))
        sides = [table.column(field.name).combine_chunks().take(taken) for table, taken in tables]
        prefers_end = field.name in {"broker", "physical_offset", "entry", "store_timestamp", "client_host", "action"}
        columns[field.name] = pc.coalesce(*(reversed(sides) if prefers_end else sides))
    joined = pa.table([columns[field.name] for field in ENTRIES], schema=ENTRIES)
    return joined.append_column("is_begun", pa.array((index < 0) | (other < 0)))


def _once(entries: pa.Table) -> pa.Table:
    """Return entries in the order of their records, each record once."""
    order = [("broker", "ascending"), ("physical_offset", "ascending"), ("entry", "ascending")]
    return entries.sort_by(order).combine_chunks() if entries.num_rows > 1 else entries.combine_chunks()


def _codes(codes: Array) -> pa.Array:
    return pa.array(codes, pa.int64(), mask=codes < 0)


def _consumed(f: Families, entries: pa.Table, spans: Spans) -> pa.Table:
    """Return the steps from records that groups consumed.

    The first attempt is on the record in the message's own topic; later attempts are on records in the group's retry
    topic. A group that consumes in order has no records there, and tries the first one again.
    """
    retried, own = consumable(f)
    attempts = numbers_of(entries.column("attempt"), null=-1)
    until = numbers_of(entries.column("event_timestamp")) + 1
    left, right = key_codes([entries.column("unique_key")], f.columns(["unique_key"], own))
    first, counts = _known_then(left, until, right, own, f)
    left, right = key_codes(
        [entries.column(name) for name in ("unique_key", "group", "attempt")],
        f.columns(["unique_key", "group", "attempt"], retried),
    )
    later, copies = _known_then(left, until, right, retried, f)
    in_order = (attempts > 0) & (copies == 0) & (counts == 1) & _consumes_in_order(f, entries, first, spans)
    on_first = (attempts == 0) | in_order
    counts = np.where(on_first, counts, copies)
    found = np.where(on_first, first, later)
    found = np.where((counts == 1) & (attempts >= 0), found, NONE)
    is_ambiguous = mask_of((counts > 1) & (attempts >= 0))
    reasons = pc.if_else(is_ambiguous, str(AbsentReason.AMBIGUOUS), str(AbsentReason.NOT_YET))
    return make_steps(EdgeKind.CONSUMED, f.table, found, None, {
        "from_key": entries.column("unique_key"),
        "consumer_group": entries.column("group"),
        "attempt": entries.column("attempt"),
        "request_id": entries.column("request_id"),
        "is_begun": entries.column("is_begun"),
        **_told(entries),
        **absent(FROM, found, reasons),
    })  # fmt: skip


def _logged(f: Families, entries: pa.Table, spans: Spans) -> pa.Table:
    """Return the steps from records whose consumption the broker has logged, with their places."""
    left, right = key_codes(
        [entries.column(name) for name in ("broker", "sent_offset", "unique_key")],
        f.columns(["broker", "physical_offset", "unique_key"], np.arange(f.table.num_rows)),
    )
    found, _ = only_same(left, right)
    brokers, places = (entries.column(name).combine_chunks() for name in ("broker", "sent_offset"))
    return make_steps(EdgeKind.CONSUMED, f.table, found, None, {
        "from_key": entries.column("unique_key"),
        "from_broker": brokers,
        "from_physical_offset": places,
        "from_topic": entries.column("topic"),
        "consumer_group": entries.column("group"),
        "attempt": entries.column("attempt"),
        **_told(entries),
        **absent(FROM, found, spans.at_places(brokers, places)),
    })  # fmt: skip


def _known_then(left: Array, until: Array, right: Array, rows: Array, f: Families) -> tuple[Array, Array]:
    """Find the record that existed when a group consumed it, and the number of such records.

    If there was none, the client's clock is slow, and all records count.
    """
    counts = count_before(left, until, right, f.times[rows])
    found = latest_before(left, until, right, f.times[rows])
    only, all_counts = only_same(left, right)
    is_late = counts == 0
    return _rows(rows, np.where(is_late, only, found)), np.where(is_late, all_counts, counts)


def _consumes_in_order(f: Families, entries: pa.Table, first: Array, spans: Spans) -> Array:
    """Return which consumptions are of groups that have no copies of the message, and will not get any."""
    copies = f.where(~f.is_null("group") & (f.numbers("attempt") > 0) & ~f.has("role", Role.DEAD))
    left, right = key_codes(
        [entries.column(name) for name in ("unique_key", "group")], f.columns(["unique_key", "group"], copies)
    )
    lasts = spans.last_of(f.column("broker").take(pa.array(first, mask=first < 0)))
    is_complete = lasts > numbers_of(entries.column("event_timestamp")) + _LATE_US
    found: Array = (count_same(left, right) == 0) & is_complete & (first >= 0)
    return found


def _ended(f: Families, entries: pa.Table) -> pa.Table:
    """Return the steps from half messages that producers ended; each is on the newest half message at that time."""
    halves = f.with_role(Role.HALF)
    left, right = key_codes([entries.column("unique_key")], f.columns(["unique_key"], halves))
    until = numbers_of(entries.column("event_timestamp")) + 1
    latest = latest_before(left, until, right, f.times[halves])
    first = first_after(left, np.zeros(len(left), np.int64), right, f.times[halves])
    found = _rows(halves, np.where(latest >= 0, latest, first))
    return make_steps(EdgeKind.ENDED, f.table, found, None, _of_producer(entries, found))


def _recalled(f: Families, entries: pa.Table) -> pa.Table:
    """Return the steps from timer messages that producers recalled."""
    is_first = (f.numbers("by_timer") != 0) & (f.numbers("rolls") == 0)
    timers = f.where(f.has("role", Role.WAITING) & is_first)
    left, right = key_codes([entries.column("unique_key")], f.columns(["unique_key"], timers))
    found = _rows(timers, only_same(left, right)[0])
    return make_steps(EdgeKind.RECALLED, f.table, found, None, _of_producer(entries, found))


def _of_producer(entries: pa.Table, found: Array) -> dict[str, Column]:
    return {
        "from_key": entries.column("unique_key"),
        "producer_group": entries.column("group"),
        **_told(entries),
        **absent(FROM, found, repeated(str(AbsentReason.NOT_YET), len(found))),
    }


def _told(entries: pa.Table) -> dict[str, Column]:
    return {
        "client_host": entries.column("client_host"),
        "outcome": entries.column("outcome"),
        "cost_ms": entries.column("cost_ms"),
        "event_timestamp": entries.column("event_timestamp"),
        "evidence_broker": entries.column("broker"),
        "evidence_physical_offset": entries.column("physical_offset"),
        "evidence_entry": entries.column("entry"),
        "definer_broker": entries.column("broker"),
        "definer_offset": entries.column("physical_offset"),
    }


def _rows(rows: Array, found: Array) -> Array:
    """Translate positions in a selection of members to member numbers."""
    return np.where(found >= 0, rows[found], NONE) if len(rows) else np.full(len(found), NONE, np.int64)


def _is_null(column: pa.Array) -> Array:
    found: Array = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found
