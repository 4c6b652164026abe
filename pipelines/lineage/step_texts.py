"""Titles and sentences of steps and edges: descriptions of records, of consumptions, and of missing ends."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence

from commitlake.connectors.lake.erasures import MARKER
from commitlake.pipelines.lineage.table_lookups import Row
from commitlake.pipelines.lineage.value_texts import (
    approximate_duration_text,
    consumer_group_of,
    ordinal_text,
    relative_time_text,
)
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.properties import REAL_TOPIC
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, POP_SEPARATORS, RETRY_PREFIX, Kind
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome
from commitlake.schemas.times import MILLISECOND

_ARRIVALS: Mapping[str, str] = {
    EdgeKind.DELAYED: "delivered to",
    EdgeKind.TIMER: "delivered to",
    EdgeKind.COMMITTED: "committed to",
    EdgeKind.REPLAYED: "sent again to",
    EdgeKind.REDRIVEN: "redriven to",
}
_REASONS: Mapping[str, str] = {
    AbsentReason.NOT_YET: "it is not archived yet",
    AbsentReason.BEFORE_ARCHIVE: "it was stored before the first archived record of its broker",
    AbsentReason.EXPIRED: "the lake has dropped rows of that age",
    AbsentReason.OTHER_CLUSTER: "it is on a broker that the lake does not have",
    AbsentReason.LOST: "there is no intact record at its place in the log: see the tables quarantine and gaps",
    AbsentReason.OVERDUE: "it was due long ago but was never stored",
    AbsentReason.AMBIGUOUS: "several records match and cannot be distinguished",
    AbsentReason.REFUSED: "the producer was told that its message was not stored",
    AbsentReason.RETRY_STORE: "it is in the broker's retry store, not in its log",
}
GONE = "gone"
"""Reason why a record that `edges` refers to is missing: `messages` no longer has the row."""
_OUTCOMES: Mapping[str, str] = {
    StepOutcome.TIME_OUT: "time-out",
    StepOutcome.RETURNED_NULL: "returned null",
    StepOutcome.ROLLED_BACK: "rolled back",
}
_JOINED_BY: Mapping[str, str] = {
    EdgeKind.DELAYED: "UNIQ_KEY",
    EdgeKind.TIMER: "UNIQ_KEY",
    EdgeKind.RETRIED: "UNIQ_KEY",
    EdgeKind.DEAD: "UNIQ_KEY",
    EdgeKind.RECHECKED: "UNIQ_KEY",
    EdgeKind.GIVEN_UP: "UNIQ_KEY",
    EdgeKind.COMMITTED: "the half message's offset",
    EdgeKind.FINISHED: "the half message's queue offset",
    EdgeKind.REPLAYED: "ORIGIN_PHYSICAL_OFFSET",
    EdgeKind.REDRIVEN: "ORIGIN_PHYSICAL_OFFSET",
    EdgeKind.CONSUMED: "the client's trace, or the broker's consume log",
}
_PLACE_IN_STORE = "the message's place, in the broker's retry store"


def shared_edge_value(edge: Row) -> str | None:
    """Return the name of the value by which an edge's two ends were linked, such as UNIQ_KEY; None if unknown."""
    return _PLACE_IN_STORE if is_in_retry_store(edge) else _JOINED_BY.get(edge["kind"])


def is_in_retry_store(edge: Row) -> bool:
    """Return whether an edge leads to an entry of a broker's retry store."""
    is_copy: bool = edge["kind"] in (EdgeKind.RETRIED, EdgeKind.DEAD)
    return is_copy and edge["to_physical_offset"] is None


def outcome_text(outcome: str | None) -> str | None:
    """Return the outcome of a consumption that a client reported, as readable text."""
    return None if outcome is None else _OUTCOMES.get(outcome, outcome.replace("_", " "))


def record_title(row: Row, incoming: Sequence[Row]) -> str:
    """Return a short title of a record, such as `sent to orders`.

    Args:
        row: Row of `messages`.
        incoming: Edges that lead to it.
    """
    title = _title_by_kind(row, incoming)
    return f"{title} (erased)" if is_erased(row) else title


def is_erased(row: Row) -> bool:
    """Return whether a row was erased: it has the property that marks erased rows, but no keys."""
    return MARKER in row["properties"] and row["unique_key"] is None and not row["keys"]


def _title_by_kind(row: Row, incoming: Sequence[Row]) -> str:
    topic, kind = row["topic"] or "", row["kind"]
    group = consumer_group_of(topic, row["properties"])
    goal = row["origin_topic"] or row["properties"].get(REAL_TOPIC) or topic
    if kind in (Kind.RETRY, Kind.DLQ):
        return _failed_message_title(row, group)
    if kind in (Kind.DELAY, Kind.TIMER):
        return _waiting_message_title(row, group, incoming)
    if kind == Kind.OP:
        told = {edge["outcome"] for edge in incoming if edge["kind"] == EdgeKind.FINISHED}
        outcome = told.pop() if len(told) == 1 else None
        title = "end of transactions" if outcome is None else f"transaction {outcome_text(outcome)}"
    elif any(edge["kind"] == EdgeKind.GIVEN_UP for edge in incoming):
        title = f"half message for {goal}, given up"
    elif kind == Kind.HALF:
        again = any(edge["kind"] == EdgeKind.RECHECKED for edge in incoming)
        title = f"half message for {goal}" + (", checked again" if again else "")
    else:
        arrival = next((_ARRIVALS[edge["kind"]] for edge in incoming if edge["kind"] in _ARRIVALS), "sent to")
        title = f"{arrival} {topic}"
    return title


def _failed_message_title(row: Row, group: str | None) -> str:
    times = row["reconsume_times"] or 0
    if row["kind"] == Kind.DLQ:
        return f"dead letter of {group}"
    return _retry_text(group, times) if times else f"in the retry topic of {group}"


def _waiting_message_title(row: Row, group: str | None, incoming: Sequence[Row]) -> str:
    goal = row["origin_topic"] or row["topic"]
    if row["kind"] == Kind.TIMER:
        is_call = any(edge["outcome"] == StepOutcome.CANCELLED for edge in incoming)
        return f"cancels a timer for {goal}" if is_call else f"waits in the timer, for {goal}"
    waits = "waits" if row["queue_id"] is None else f"waits in level {row['queue_id'] + 1}"
    if is_for_dead_letters(row):
        return f"{waits} to become a dead letter of {group}"
    return (
        f"{waits} for {_retry_text(group, row['reconsume_times'] or 0)}"
        if group is not None
        else f"{waits}, for {goal}"
    )


def is_for_dead_letters(row: Row) -> bool:
    """Return whether a delayed record will be delivered to a topic of dead letters.

    A client that consumes in order sends its dead letters itself, with a delay that brokers 4.9 keep.
    """
    return str(row["properties"].get(REAL_TOPIC, "")).startswith(DLQ_PREFIX)


def _retry_text(group: str | None, retry_number: int) -> str:
    return f"the {ordinal_text(retry_number)} retry of {group}" if retry_number else f"a retry of {group}"


def record_text(row: Row, incoming: Sequence[Row], outgoing: Sequence[Row], now: datetime.datetime | None) -> str:
    """Return a sentence on a record: its queue, its sender, and the event that it waits for."""
    parts = [f"queue {row['queue_id']}, offset {row['queue_offset']:,}" if row["queue_offset"] is not None else ""]
    for edge in incoming:
        if edge["kind"] == EdgeKind.PRODUCED:
            took = f" in {edge['cost_ms']} ms" if edge["cost_ms"] is not None else ""
            parts.append(f"sent by {edge['producer_group'] or 'a producer'}{took}")
    parts += [text for edge in outgoing if (text := _decision_text(edge))]
    due = next((edge["due_timestamp"] for edge in outgoing if edge["due_timestamp"] is not None), None)
    if due is not None:
        parts.append(f"due {relative_time_text(due, now)}")
    if is_erased(row):
        parts.append(f"its key, properties and body were erased (erasure {row['properties'][MARKER]})")
    if row["tags"]:
        parts.append(f"tag {row['tags']}")
    if row["body_size"] is not None:
        parts.append(format_count(row["body_size"], "byte"))
    return ", ".join(part for part in parts if part)


def _decision_text(edge: Row) -> str:
    if edge["kind"] == EdgeKind.ENDED:
        return f"its producer said: {outcome_text(edge['outcome']) or 'nothing'}"
    return "its producer cancelled it" if edge["kind"] == EdgeKind.RECALLED else ""


def consumption_title(edge: Row) -> str:
    """Return a short title of a consumption, such as `consumed by billing`."""
    group, outcome = edge["consumer_group"] or "a group", edge["outcome"]
    if outcome is None:
        return f"begun by {group}"
    if outcome == StepOutcome.DEAD:
        return f"given up by {group}"
    return f"consumed by {group}" if outcome == StepOutcome.SUCCESS else f"failed in {group}"


def consumption_text(edge: Row) -> str:
    """Return a sentence on a consumption: its client, its duration and its result."""
    attempt, outcome = edge["attempt"], edge["outcome"]
    parts = [f"the {ordinal_text(attempt + 1)} try" if attempt is not None else ""]
    parts.append(f"on {edge['client_host']}" if edge["client_host"] else "")
    parts.append(
        f"took {approximate_duration_text(edge['cost_ms'] * MILLISECOND)}" if edge["cost_ms"] is not None else ""
    )
    parts.append(outcome_text(outcome) or "the result is not known")
    return ", ".join(part for part in parts if part)


def edge_text(edge: Row) -> str:
    """Return a sentence on how an edge's later record came from the earlier one."""
    words = _EDGES.get(edge["kind"])
    return words(edge) if words is not None else str(edge["kind"]).replace("_", " ")


def _delayed_text(edge: Row) -> str:
    level = None if edge["from_queue_id"] is None else edge["from_queue_id"] + 1
    if edge["absent_end"] == "to":
        return "not delivered" if level is None else f"not delivered, in level {level}"
    return "delivered" if level is None else f"delivered after level {level}"


def _timer_text(edge: Row) -> str:
    if edge["outcome"] == StepOutcome.CANCELLED:
        return "cancelled"
    return "not delivered" if edge["absent_end"] == "to" else "by its timer"


def _retried_text(edge: Row) -> str:
    attempt, group = edge["attempt"], edge["consumer_group"] or "a group"
    if _is_pop_retry(edge):
        return f"{group} did not acknowledge it in time" + (f", the {ordinal_text(attempt)} time" if attempt else "")
    return f"{group} failed" + (f" at the {ordinal_text(attempt)} try" if attempt else "")


def _is_pop_retry(edge: Row) -> bool:
    """Return whether an edge leads to a retry for a POP consumer, which the name of its retry topic shows.

    The broker makes such a retry if it gets no acknowledgement. It does not know whether the consumer failed.
    """
    name = str(edge["to_topic"] or "").removeprefix(f"{RETRY_PREFIX}{edge['consumer_group']}")
    return name.startswith(POP_SEPARATORS)


def _gave_up_text(edge: Row) -> str:
    attempt = edge["attempt"]
    tries = f" after {format_count(attempt, 'try', 'tries')}" if attempt else ""
    return f"{edge['consumer_group'] or 'a group'} gave up{tries}"


def _finished_text(edge: Row) -> str:
    return f"transaction {outcome_text(edge['outcome']) or 'not finished'}"


def _sent_again_text(edge: Row) -> str:
    verb = "redriven" if edge["kind"] == EdgeKind.REDRIVEN else "sent again"
    return f"{verb} by replay {edge['replay_id']}" if edge["replay_id"] else verb


def _consumed_text(edge: Row) -> str:
    verb = "consumed" if edge["outcome"] == StepOutcome.SUCCESS else "tried"
    attempt = "" if edge["attempt"] is None else f", the {ordinal_text(edge['attempt'] + 1)} try"
    return f"{verb} by {edge['consumer_group'] or 'a group'}{attempt}"


_EDGES: Mapping[str, Callable[[Row], str]] = {
    EdgeKind.DELAYED: _delayed_text,
    EdgeKind.TIMER: _timer_text,
    EdgeKind.RETRIED: _retried_text,
    EdgeKind.DEAD: _gave_up_text,
    EdgeKind.FINISHED: _finished_text,
    EdgeKind.REPLAYED: _sent_again_text,
    EdgeKind.REDRIVEN: _sent_again_text,
    EdgeKind.CONSUMED: _consumed_text,
    EdgeKind.RECHECKED: lambda _: "checked again",
}


def missing_record_title(edge: Row, edge_end: str) -> str:
    """Return a short title for the end of an edge whose record is not in the lake."""
    kind, is_open = edge["kind"], edge["absent_reason"] == AbsentReason.NOT_YET
    if edge_end == "to" and is_in_retry_store(edge):
        group = edge["consumer_group"] or "a group"
        return f"dead letter of {group}" if kind == EdgeKind.DEAD else f"waits in the retry store for {group}"
    if edge_end == "to" and kind in (EdgeKind.DELAYED, EdgeKind.TIMER):
        group = edge["consumer_group"]
        what = f"retry of {group}" if group is not None else f"delivery to {edge['to_topic'] or 'its topic'}"
        return f"{what}: {'not yet' if is_open else 'missing'}"
    if edge_end == "to" and kind == EdgeKind.FINISHED:
        return "end of the transaction: " + ("not yet" if is_open and edge["outcome"] is None else "missing")
    if kind == EdgeKind.PRODUCED:
        refused = edge["absent_reason"] == AbsentReason.REFUSED
        return f"message to {edge['to_topic'] or 'a topic'}: {'not stored' if refused else 'missing'}"
    topic = edge[f"{edge_end}_topic"]
    return f"record of {topic}: missing" if topic else "missing record"


def missing_record_text(edge: Row, edge_end: str, now: datetime.datetime | None) -> str:
    """Return a sentence on why the lake lacks the record at an end of an edge."""
    if edge_end == "to" and is_in_retry_store(edge):
        return retry_entry_text(edge, now)
    return _not_yet_existing_text(edge, edge_end, now) or _absence_reason_text(
        edge["absent_reason"], edge["due_timestamp"], now
    )


def _not_yet_existing_text(edge: Row, edge_end: str, now: datetime.datetime | None) -> str | None:
    """Return a sentence on a record that is still to come, such as a delayed delivery; None for other reasons."""
    kind, reason, due = edge["kind"], edge["absent_reason"], edge["due_timestamp"]
    if edge_end == "to" and reason == AbsentReason.NOT_YET:
        if kind in (EdgeKind.DELAYED, EdgeKind.TIMER):
            return "not delivered so far" + (f": due {relative_time_text(due, now)}" if due is not None else "")
        if kind == EdgeKind.FINISHED:
            return (
                "neither committed nor rolled back so far"
                if edge["outcome"] is None
                else "committed; its op record is not archived yet"
            )
        if kind == EdgeKind.PRODUCED:
            return f"{edge['producer_group'] or 'a producer'} sent it; the record is not archived yet"
    return None


def _absence_reason_text(reason: str | None, due_time: datetime.datetime | None, now: datetime.datetime | None) -> str:
    if reason == AbsentReason.OVERDUE and due_time is not None:
        return f"it was due {relative_time_text(due_time, now)} but was never stored"
    if reason == GONE:
        return "the table messages no longer has it, or has it under another key"
    return "the reason is not known" if reason is None else _REASONS.get(reason, str(reason))


def retry_entry_text(edge: Row, now: datetime.datetime | None) -> str:
    """Return a sentence on an entry of a broker's retry store."""
    at, due, attempt = edge["event_timestamp"], edge["due_timestamp"], edge["attempt"]
    if edge["kind"] == EdgeKind.DEAD:
        since = "" if at is None else f" since {relative_time_text(at, now)}"
        return f"in the retry store{since}, and not delivered again"
    what = "the next try" if attempt is None else f"the {ordinal_text(attempt + 1)} try"
    what += f" of {edge['consumer_group']}" if edge["consumer_group"] else ""
    when = "at a time that is not known" if due is None else relative_time_text(due, now)
    return f"in the retry store, {what} due {when}"


def missing_record_name(edge: Row, edge_end: str) -> str | None:
    """Return the location, or else topic and unique key, of a record that is not in the lake; None if not known."""
    broker, offset = edge[f"{edge_end}_broker"], edge[f"{edge_end}_physical_offset"]
    if broker is not None and offset is not None:
        return f"{broker}:{offset}"
    known = [text for text in (edge[f"{edge_end}_topic"], edge["unique_key"]) if text]
    return ", ".join(known) or None
