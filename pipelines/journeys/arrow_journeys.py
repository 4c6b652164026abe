"""Journeys and hops as Arrow tables, computed by numpy from the records of keys (`key_records`).

DataFusion or Spark finds these records. What follows needs their order, for which either engine would need several
windows for each key, and ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import join_chunks, to_boolean_array, to_numpy_numbers
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.key_records import KeySlice
from commitlake.pipelines.journeys.sql_statements import (
    MAX_DIGITS,
    PERCENTS,
    SENT_COUNTS,
    SENT_FLAGS,
    SENT_TIMES,
    STEP_COLUMNS,
    TOTALS,
    StepAggregate,
)
from commitlake.schemas.tables.columns import INT64, TEXT, Column, Columns
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS, OPEN_STATES, STEP, JourneyState

Values: TypeAlias = pa.Array | pa.ChunkedArray
_NONE = -1
"""Stands for null in numbers, none of which is negative."""
_LATEST = np.iinfo(np.int64).max
_REDUCE = {StepAggregate.SUM: np.add, StepAggregate.MIN: np.minimum, StepAggregate.MAX: np.maximum}
_SENT: Mapping[str, StepAggregate] = {
    **{name: how for name, (how, _) in SENT_TIMES.items()},
    **dict.fromkeys(SENT_FLAGS, StepAggregate.MAX),
    **dict.fromkeys(SENT_COUNTS, StepAggregate.SUM),
    "due_us": StepAggregate.MAX,
}
"""Columns of messages, by how they are summed up over records, and over messages that belong to one step."""
_STATES = tuple(JourneyState)


@dataclass(frozen=True)
class KeyRows:
    """Records or messages of business keys, sorted by key and, within a key, by the time at which they were sent.

    Attributes:
        numbers: their columns, with `_NONE` for null; texts as codes: `key`, `topic`, `broker`, and `node` of records.
        texts: the values of these codes, in alphabetical order.
    """

    numbers: Mapping[str, Array]
    texts: Mapping[str, pa.Array]

    def __getitem__(self, name: str) -> Array:
        return self.numbers[name]

    def __len__(self) -> int:
        return len(self.numbers["key"])

    @cached_property
    def key_starts(self) -> Array:
        """Index of the first row of each key."""
        return _value_change_indexes(self["key"])

    def add_columns(self, new_columns: Mapping[str, Array]) -> KeyRows:
        """Return the same rows with further columns."""
        return KeyRows({**self.numbers, **new_columns}, self.texts)

    def filter_rows(self, mask: Array) -> KeyRows:
        """Return the rows for which a mask is True."""
        if mask.all():
            return self
        return KeyRows({name: column[mask] for name, column in self.numbers.items()}, self.texts)

    def text_column(self, name: str) -> pa.Array:
        """Return a column of codes as texts."""
        return self.texts[name].take(pa.array(self[name]))


def journeys_table(records: KeyRows, question: JourneysQuestion, columns: Columns = JOURNEYS) -> pa.Table:
    """Return one row for each business key, with its path over topics and its outcome, from the key's records.

    Args:
        records: the records of keys that have one in the window.
        question: the question.
        columns: those of `JOURNEYS` that are wanted.

    Returns:
        A table with these columns, sorted by key.
    """
    steps = _add_step_columns(_merge_into_steps(_group_into_messages(records)))
    totals = {name: _aggregate_by_journey(steps, *how) for name, how in TOTALS.items()}
    shown = steps.filter_rows(steps["number"] <= question.max_steps)
    opened = np.array([_STATES.index(state) for state in reversed(OPEN_STATES)])
    ends = np.append(steps.key_starts, len(steps))[1:] - 1
    last = steps["state"][ends]
    outcome = np.where(totals["openness"] > 0, opened[totals["openness"] - 1], last)
    flags = {
        "began_before": (totals["first_at"] < question.since_us) | (totals["lacks_first"] > 0),
        "went_on_after": totals["last_at"] >= question.until_us,
        "is_cut": totals["messages"] > question.max_steps,
        "order_uncertain": totals["order_uncertain"] > 0,
    }
    known: dict[str, Values] = {
        **{name: _to_nullable_array(column) for name, column in totals.items()},
        **{name: to_boolean_array(column) for name, column in flags.items()},
        "key": steps.texts["key"].take(pa.array(steps["key"][steps.key_starts])),
        "path": _list_array(shown.key_starts, shown.text_column("topic")),
        "last_topic": steps.texts["topic"].take(pa.array(steps["topic"][ends])),
        "outcome": _state_texts(outcome),
    }
    if "steps" in columns.names:
        known["steps"] = _list_array(shown.key_starts, _step_structs(shown))
    return _to_declared_table(known, columns)


def sorted_key_rows(key_slice: KeySlice, question: JourneysQuestion) -> KeyRows:
    """Return the records of those keys that have a record in the time window, sorted by key and store time."""
    texts, numbers = {}, {}
    for name in ("key", "node"):
        encoded = join_chunks(key_slice.rows.column(name)).dictionary_encode()
        texts[name], numbers[name] = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    for name, values in key_slice.texts.items():
        texts[name] = pa.array(values, pa.string())
        numbers[name] = to_numpy_numbers(key_slice.rows.column(name)).astype(np.int64)
    # Codes in the order of the texts, so that sorting by codes sorts by texts.
    for name in ("key", *key_slice.texts):
        order = pc.sort_indices(texts[name]).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        texts[name], numbers[name] = texts[name].take(pa.array(order)), rank[numbers[name]]
    for name in key_slice.rows.column_names:
        if name not in numbers:
            numbers[name] = to_numpy_numbers(key_slice.rows.column(name), null_value=_NONE).astype(np.int64)
    sent, key = numbers["stored_us"], numbers["key"]
    in_window = (sent >= question.since_us) & (sent < question.until_us)
    is_wanted = np.zeros(len(texts["key"]), bool)
    is_wanted[key[in_window]] = True
    # With broker and offset, equal times have a fixed order, and results do not depend on the order of files.
    order = np.lexsort([numbers[name] for name in ("physical_offset", "broker", "stored_us", "key")])
    order = order[is_wanted[key[order]]]
    return KeyRows({name: column[order] for name, column in numbers.items()}, texts)


def _group_into_messages(records: KeyRows) -> KeyRows:
    """Combine the records of each key and message, such as a delayed record and its delivery, into one row."""
    order = np.lexsort([records[name] for name in ("topic", "node", "key")])
    is_new = np.zeros(len(order), bool)
    for name in ("topic", "node", "key"):
        is_new[_value_change_indexes(records[name][order])] = True
    starts = np.flatnonzero(is_new)
    firsts = order[starts]
    # Back to the order of the first record of each message.
    by_time = np.argsort(firsts)
    columns = {
        name: records[name][firsts[by_time]] for name in ("key", "topic", "broker", "stored_us", "physical_offset")
    }
    for name, how in _SENT.items():
        values = records[name]
        if name in SENT_TIMES:
            # A record counts with its time only if the flag says so; other values must not win.
            values = np.where(values > 0, records["stored_us"], _LATEST if how is StepAggregate.MIN else _NONE)
        columns[name] = _aggregate_groups(how, values[order], starts)[by_time]
    columns["visible_us"] = np.where(columns["visible_us"] == _LATEST, _NONE, columns["visible_us"])
    return KeyRows(columns, records.texts)


def _aggregate_groups(aggregation: StepAggregate, values: Array, group_starts: Array) -> Array:
    """Return the sum, minimum or maximum of each group of consecutive values, given where the groups begin."""
    return _REDUCE[aggregation].reduceat(values, group_starts) if len(values) else np.empty(0, np.int64)


def _value_change_indexes(codes: Array) -> Array:
    """Return the indexes at which a sorted column of codes changes its value."""
    is_new = np.ones(len(codes), bool)
    is_new[1:] = codes[1:] != codes[:-1]
    return np.flatnonzero(is_new)


def _merge_into_steps(messages: KeyRows) -> KeyRows:
    """Merge a key's messages into one row for each topic that the key reached (a step of its journey).

    Messages without their first record join the last step of their topic.

    Those before any such step are one step.
    """
    is_start = messages["has_first"] > 0
    lacks_first = np.where(is_start, 0, messages["lacks_origin"])
    columns = {**messages.numbers, "lacks_origin": lacks_first}
    if not is_start.all():
        # One number for key and topic: sorting once is faster than by two columns.
        topics = messages["key"] * (len(messages.texts["topic"]) + 1) + messages["topic"]
        order = np.argsort(topics, kind="stable")
        first_of_topic = np.zeros(len(messages), bool)
        first_of_topic[order[_value_change_indexes(topics[order])]] = True
        is_start = is_start | first_of_topic
        starts = order[is_start[order]]
        step = starts[np.cumsum(is_start[order]) - 1]
        others = ~is_start[order]
        rows, targets = order[others], step[others]
        for name, how in _SENT.items():
            if how is StepAggregate.MIN:
                columns[name] = _merge_earliest_times(columns[name], rows, targets)
            else:
                # A copy, because the columns of `messages` may be shared with other tables.
                columns[name] = columns[name].copy()
                # `at`, because several rows may have the same target.
                _REDUCE[how].at(columns[name], targets, columns[name][rows])
    return KeyRows(columns, messages.texts).filter_rows(is_start)


def _merge_earliest_times(times: Array, source_rows: Array, target_rows: Array) -> Array:
    """Return `times`, with each target row set to the earliest of its own and its source rows' times."""
    found = np.where(times == _NONE, _LATEST, times)
    np.minimum.at(found, target_rows, found[source_rows])
    return np.where(found == _LATEST, _NONE, found)


def _add_step_columns(steps: KeyRows) -> KeyRows:
    """Add to each step of a journey its state, number, time since the previous step, and flags."""
    sent, starts = steps["stored_us"], steps.key_starts
    first = np.repeat(starts, np.diff(np.append(starts, len(steps))))
    number = np.arange(len(steps)) - first + 1
    hop_ms = np.full(len(steps), _NONE, np.int64)
    hop_ms[1:] = np.diff(sent) // 1000
    hop_ms[starts] = _NONE
    state = _state_codes(steps)
    openness = np.zeros(len(_STATES), np.int64)
    for rank, each in enumerate(reversed(OPEN_STATES), 1):
        openness[_STATES.index(each)] = rank
    return steps.add_columns({
        "number": number,
        "sent_us": sent,
        "hop_ms": hop_ms,
        "state": state,
        "is_waiting": (steps["waiting"] > 0).astype(np.int64),
        "lacks_first": steps["lacks_origin"],
        "is_back": _out_of_order_mask(steps).astype(np.int64),
        "openness": openness[state],
    })  # fmt: skip


def _out_of_order_mask(steps: KeyRows) -> Array:
    """Return a mask of the steps whose record comes before that of an earlier step in the same broker's log."""
    brokers = steps["key"] * (len(steps.texts["broker"]) + 1) + steps["broker"]
    order = np.argsort(brokers, kind="stable")
    brokers, offsets = brokers[order], steps["physical_offset"][order]
    found = np.zeros(len(steps), bool)
    # By offsets, because a broker's clock may go back, and its log cannot.
    found[order[1:]] = (brokers[1:] == brokers[:-1]) & (offsets[1:] < offsets[:-1])
    return found


def _state_codes(steps: KeyRows) -> Array:
    """Return the code of each step's state, such as delivered, waiting or dead."""
    died, dead, sent = steps["died_us"], steps["dead_us"], steps["last_send_us"]
    rules = {
        JourneyState.DEAD: (dead != _NONE) & (dead >= sent),
        JourneyState.PREPARED: steps["is_prepared"] > 0,
        JourneyState.WAITING: steps["waiting"] > 0,
        JourneyState.REDRIVEN: (died != _NONE) & (died >= sent),
        JourneyState.DELIVERED: steps["is_visible"] > 0,
        JourneyState.ROLLED_BACK: steps["is_rolled_back"] > 0,
        JourneyState.CANCELLED: steps["is_cancelled"] > 0,
    }
    codes = [_STATES.index(state) for state in rules]
    return np.select(list(rules.values()), codes, _STATES.index(JourneyState.UNKNOWN))


def _aggregate_by_journey(steps: KeyRows, aggregation: StepAggregate, name: str) -> Array:
    """Return the sum, minimum or maximum of a column over the steps of each journey.

    It is `_NONE` if all values are.
    """
    return _aggregate_groups(aggregation, steps[name], steps.key_starts)


def _step_structs(steps: KeyRows) -> pa.StructArray:
    columns: dict[str, Values] = {
        name: _to_nullable_array(steps[column])
        for name, column in STEP_COLUMNS.items()
        if name not in {"topic", "broker", "state"}
    }
    texts = {
        "topic": steps.text_column("topic"),
        "broker": steps.text_column("broker"),
        "state": _state_texts(steps["state"]),
    }
    table = _to_declared_table({**columns, **texts}, STEP)
    return pa.StructArray.from_arrays([join_chunks(column) for column in table.columns], fields=list(table.schema))


def _state_texts(codes: Array) -> pa.Array:
    return pa.array(list(map(str, _STATES)), pa.string()).take(pa.array(codes))


def _to_nullable_array(numbers: Array) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=numbers == _NONE)


def _list_array(starts: Array, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.append(starts, len(values)).astype(np.int32)), values)


def _to_declared_table(arrays_by_name: Mapping[str, Values], columns: Columns) -> pa.Table:
    """Return an Arrow table of the given arrays, cast to the types of the declared columns."""
    schema = arrow_schema(columns)
    return pa.table([arrays_by_name[field.name].cast(field.type) for field in schema], schema=schema)


HOP_COUNTS = Columns(
    [
        Column("hour_us", INT64, "start of the time window, microseconds since 1970"),
        Column("source", TEXT, "topic of a step"),
        Column("target", TEXT, "topic of the next step of the same key"),
        Column("bound_ms", INT64, "time between the two, ms, rounded up to two digits"),
        Column("hops", INT64, "number of such pairs of steps"),
    ]
)
"""Hops of some keys, by time window and rounded delay."""
_HOP_KEYS = HOP_COUNTS.names[:-1]


def count_hops(records: KeyRows, question: JourneysQuestion, window_us: int | None) -> pa.Table:
    """Count how often keys go from one topic to the next (hops), by time window and by delay rounded to two digits.

    Args:
        records: the records of keys that have one in the window.
        question: the question.
        window_us: length of the windows, microseconds; None for one window.

    Returns:
        A table with the columns `HOP_COUNTS`.
    """
    messages = _group_into_messages(records.filter_rows(records["stored_us"] < question.until_us))
    messages = messages.filter_rows(messages["has_first"] > 0)
    key, sent, topic = (messages[name] for name in ("key", "stored_us", "topic"))
    hop_us = np.diff(sent)
    chosen = (key[1:] == key[:-1]) & (sent[1:] >= question.since_us) & (hop_us <= question.margin_us)
    later = np.flatnonzero(chosen) + 1
    hours = np.full(len(later), question.since_us) if window_us is None else sent[later] // window_us * window_us
    columns = {
        "hour_us": hours, "source": topic[later - 1], "target": topic[later],
        "bound_ms": round_up_to_two_digits(hop_us[later - 1] // 1000),
    }  # fmt: skip
    counted = pa.table(columns).group_by(_HOP_KEYS).aggregate([([], "count_all")])
    texts = {name: messages.texts["topic"].take(counted.column(name)) for name in ("source", "target")}
    numbers = {name: counted.column(name) for name in ("hour_us", "bound_ms")}
    return _to_declared_table({**numbers, **texts, "hops": counted.column("count_all")}, HOP_COUNTS)


def round_up_to_two_digits(numbers: Array) -> Array:
    """Return nonnegative numbers rounded up to two significant digits.

    >>> round_up_to_two_digits(np.array([0, 99, 100, 101, 1234])).tolist()
    [0, 99, 100, 110, 1300]
    """
    unit = np.ones(len(numbers), np.int64)
    for _ in range(MAX_DIGITS - 2):
        unit = np.where(numbers >= 100 * unit, 10 * unit, unit)
    return -(-numbers // unit) * unit


def sum_hop_counts(count_tables: Iterable[pa.Table]) -> pa.Table:
    """Add up tables of hop counts with the columns `HOP_COUNTS`."""
    added = pa.concat_tables(count_tables).group_by(_HOP_KEYS).aggregate([("hops", "sum")])
    return added.rename_columns([*_HOP_KEYS, "hops"])


def hops_table(hop_count_table: pa.Table) -> pa.Table:
    """Return, for each time window and pair of topics, the number of hops of keys and percentiles of their delay.

    Returns:
        A table with the columns `HOPS`, sorted by the first three.
    """
    rows = hop_count_table.sort_by([(name, "ascending") for name in _HOP_KEYS])
    keys = [pc.rank(rows.column(name), tiebreaker="dense").to_numpy() for name in _HOP_KEYS[:3]]
    starts = np.unique(np.concatenate([_value_change_indexes(key) for key in keys]))
    offsets = np.append(starts, rows.num_rows)
    hops, bounds = (to_numpy_numbers(rows.column(name)) for name in ("hops", "bound_ms"))
    totals = _aggregate_groups(StepAggregate.SUM, hops, starts)
    before = np.append(0, np.cumsum(hops))[starts]
    at_most = np.cumsum(hops) - np.repeat(before, np.diff(offsets))
    total = np.repeat(totals, np.diff(offsets))
    columns: dict[str, Values] = {
        f"p{percent}_ms": pa.array(
            _aggregate_groups(StepAggregate.MIN, np.where(at_most * 100 >= total * percent, bounds, _LATEST), starts)
        )
        for percent in PERCENTS
    }
    lists = pa.array(offsets.astype(np.int32))
    columns["delays"] = pa.MapArray.from_arrays(lists, *(join_chunks(rows.column(n)) for n in ("bound_ms", "hops")))
    firsts = rows.take(pa.array(starts))
    for name, column in {"source": "source", "target": "target", "hour": "hour_us"}.items():
        columns[name] = firsts.column(column)
    return _to_declared_table({**columns, "hops": pa.array(totals)}, HOPS)
