"""Journeys and hops as Arrow tables, computed by DataFusion and numpy in this process, without a JVM.

DataFusion finds the messages of each key. What follows needs their order, which it would compute with a window for each
key, ten times as slowly: there, numpy does what the queries `numbered`, `merged` and `placed` do in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays import Array
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.reader import run_sql_over
from commitlake.connectors.lake.sql import Engine
from commitlake.connectors.plain_arrays import to_boolean_array, to_numpy_numbers, to_single_array
from commitlake.pipelines.journeys.question import JourneysQuestion
from commitlake.pipelines.journeys.statements import STEP_COLUMNS, TOTALS, Sources, Statements, Sum
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS, OPEN_STATES, STEP, JourneyState

Tables = Mapping[str, DeltaTable]
Column: TypeAlias = pa.Array | pa.ChunkedArray
_NONE = -1
"""Stands for null in numbers, none of which is negative."""
_REDUCE = {Sum.SUM: np.add, Sum.MIN: np.minimum, Sum.MAX: np.maximum}
_MERGED = {
    Sum.SUM: ("records", "retries", "dead_letters", "waiting", "replays"),
    Sum.MAX: ("last_us", "last_send_us", "died_us", "dead_us", "due_us", "is_visible", "is_prepared", "is_rolled_back",
              "is_cancelled", "lacks_origin"),
}  # fmt: skip
"""Columns of messages, by how they are summed up over those that belong to one step."""
_STATES = tuple(JourneyState)


@dataclass(frozen=True)
class _Messages:
    """Messages of keys, in the order of keys, and for each key in the order in which they were sent.

    Attributes:
        numbers: their columns, with `_NONE` for null; texts as codes: `key`, `topic` and `broker`.
        texts: the values of these codes, in alphabetical order.
    """

    numbers: Mapping[str, Array]
    texts: Mapping[str, pa.Array]

    def __getitem__(self, name: str) -> Array:
        return self.numbers[name]

    def __len__(self) -> int:
        return len(self.numbers["key"])

    @cached_property
    def starts(self) -> Array:
        """Index of the first message of each key."""
        return _starts(self["key"])

    def with_columns(self, more: Mapping[str, Array]) -> _Messages:
        """Return the same messages with further columns."""
        return _Messages({**self.numbers, **more}, self.texts)

    def only(self, chosen: Array) -> _Messages:
        """Return the messages of a mask."""
        if chosen.all():
            return self
        return _Messages({name: column[chosen] for name, column in self.numbers.items()}, self.texts)

    def text(self, name: str) -> pa.Array:
        """Return a column of texts."""
        return self.texts[name].take(pa.array(self[name]))


def journeys_table(tables: Tables, sources: Sources, question: JourneysQuestion) -> pa.Table:
    """Return the journeys of the keys that have a record in a window.

    Args:
        tables: tables that the sources name.
        sources: `messages` and `edges`, or queries of them.
        question: the question.

    Returns:
        A table with the columns `JOURNEYS`, sorted by key.

    Raises:
        QueryError: if a condition of the question is not valid.
    """
    sql = Statements(question, Engine.DELTALAKE, sources).sent_sql()
    steps = _placed(_merged(_in_order(run_sql_over(tables, sql).read_all())))
    totals = {name: _total(steps, *how) for name, how in TOTALS.items()}
    shown = steps.only(steps["number"] <= question.max_steps)
    opened = np.array([_STATES.index(state) for state in reversed(OPEN_STATES)])
    ends = np.append(steps.starts, len(steps))[1:] - 1
    last = steps["state"][ends]
    outcome = np.where(totals["openness"] > 0, opened[totals["openness"] - 1], last)
    flags = {
        "began_before": (totals["first_at"] < question.since_us) | (totals["lacks_first"] > 0),
        "went_on_after": totals["last_at"] >= question.until_us,
        "is_cut": totals["messages"] > question.max_steps,
        "order_uncertain": totals["order_uncertain"] > 0,
    }
    columns: dict[str, Column] = {
        **{name: _with_nulls(column) for name, column in totals.items()},
        **{name: to_boolean_array(column) for name, column in flags.items()},
        "key": steps.texts["key"].take(pa.array(steps["key"][steps.starts])),
        "path": _lists(shown.starts, shown.text("topic")),
        "steps": _lists(shown.starts, _structs(shown)),
        "last_topic": steps.texts["topic"].take(pa.array(steps["topic"][ends])),
        "outcome": _state_texts(outcome),
    }
    return _table(columns, JOURNEYS)


def _in_order(rows: pa.Table) -> _Messages:
    """Return the rows of `Statements.sent_sql` in the order of their keys, and in that of time for each key."""
    texts, numbers = {}, {}
    for name in rows.column_names:
        column = rows.column(name)
        if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
            encoded = to_single_array(column.cast(pa.string())).dictionary_encode()
            order = pc.sort_indices(encoded.dictionary).to_numpy()
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            texts[name] = encoded.dictionary.take(pa.array(order))
            numbers[name] = rank[encoded.indices.to_numpy()]
        else:
            numbers[name] = to_numpy_numbers(column, null=_NONE)
    by = [numbers[name] for name in ("physical_offset", "broker", "stored_us", "key")]
    order = np.lexsort(by)
    return _Messages({name: column[order] for name, column in numbers.items()}, texts)


def _starts(codes: Array) -> Array:
    """Return the indexes at which a column of codes has another value than before."""
    is_new = np.ones(len(codes), bool)
    is_new[1:] = codes[1:] != codes[:-1]
    return np.flatnonzero(is_new)


def _merged(messages: _Messages) -> _Messages:
    """Return one row for each step: messages whose first record is not there come to the step before of their topic.

    Those before any such step are one step.
    """
    is_start = messages["has_first"] > 0
    lacks_first = np.where(is_start, 0, messages["lacks_origin"])
    columns = {**messages.numbers, "lacks_origin": lacks_first}
    if not is_start.all():
        topics = messages["key"] * (len(messages.texts["topic"]) + 1) + messages["topic"]
        order = np.argsort(topics, kind="stable")
        first_of_topic = np.zeros(len(messages), bool)
        first_of_topic[order[_starts(topics[order])]] = True
        is_start = is_start | first_of_topic
        starts = order[is_start[order]]
        step = starts[np.cumsum(is_start[order]) - 1]
        others = ~is_start[order]
        rows, targets = order[others], step[others]
        for how, names in _MERGED.items():
            for name in names:
                columns[name] = columns[name].copy()
                _REDUCE[how].at(columns[name], targets, columns[name][rows])
        columns["visible_us"] = _earliest(columns["visible_us"], rows, targets)
    return _Messages(columns, messages.texts).only(is_start)


def _earliest(times: Array, rows: Array, targets: Array) -> Array:
    """Return times, with those of some rows taken into account for others; null is later than any time."""
    latest = np.iinfo(np.int64).max
    found = np.where(times == _NONE, latest, times)
    np.minimum.at(found, targets, found[rows])
    return np.where(found == latest, _NONE, found)


def _placed(steps: _Messages) -> _Messages:
    """Add to steps their state, their number in the journey, the time since the step before, and flags."""
    sent, starts = steps["stored_us"], steps.starts
    first = np.repeat(starts, np.diff(np.append(starts, len(steps))))
    number = np.arange(len(steps)) - first + 1
    hop_ms = np.full(len(steps), _NONE, np.int64)
    hop_ms[1:] = np.diff(sent) // 1000
    hop_ms[starts] = _NONE
    state = _state_codes(steps)
    openness = np.zeros(len(_STATES), np.int64)
    for rank, each in enumerate(reversed(OPEN_STATES), 1):
        openness[_STATES.index(each)] = rank
    return steps.with_columns({
        "number": number,
        "sent_us": sent,
        "hop_ms": hop_ms,
        "state": state,
        "is_waiting": (steps["waiting"] > 0).astype(np.int64),
        "lacks_first": steps["lacks_origin"],
        "is_back": _is_back(steps).astype(np.int64),
        "openness": openness[state],
    })  # fmt: skip


def _is_back(steps: _Messages) -> Array:
    """Return a mask of the steps that are before an earlier one of their key in the log of their broker."""
    brokers = steps["key"] * (len(steps.texts["broker"]) + 1) + steps["broker"]
    order = np.argsort(brokers, kind="stable")
    brokers, offsets = brokers[order], steps["physical_offset"][order]
    found = np.zeros(len(steps), bool)
    found[order[1:]] = (brokers[1:] == brokers[:-1]) & (offsets[1:] < offsets[:-1])
    return found


def _state_codes(steps: _Messages) -> Array:
    """Return the state of each step as a code, by the rules of the query `merged`."""
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


def _total(steps: _Messages, how: Sum, name: str) -> Array:
    """Return a column of steps, summed up over each journey; `_NONE` where all its values are."""
    return _REDUCE[how].reduceat(steps[name], steps.starts) if len(steps) else np.empty(0, np.int64)


def _structs(steps: _Messages) -> pa.StructArray:
    columns: dict[str, Column] = {
        name: _with_nulls(steps[column])
        for name, column in STEP_COLUMNS.items()
        if name not in {"topic", "broker", "state"}
    }
    texts = {"topic": steps.text("topic"), "broker": steps.text("broker"), "state": _state_texts(steps["state"])}
    table = _table({**columns, **texts}, STEP)
    return pa.StructArray.from_arrays([to_single_array(column) for column in table.columns], fields=list(table.schema))


def _state_texts(codes: Array) -> pa.Array:
    return pa.array(list(map(str, _STATES)), pa.string()).take(pa.array(codes))


def _with_nulls(numbers: Array) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=numbers == _NONE)


def _lists(starts: Array, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.append(starts, len(values)).astype(np.int32)), values)


def _table(known: Mapping[str, Column], columns: Columns) -> pa.Table:
    """Return a table of declared columns."""
    schema = arrow_schema(columns)
    return pa.table([known[field.name].cast(field.type) for field in schema], schema=schema)


def hops_table(tables: Tables, sources: Sources, question: JourneysQuestion, window_us: int | None) -> pa.Table:
    """Return the hops between topics, for each window of a time range.

    Args:
        tables: tables that the sources name.
        sources: `messages` and `edges`, or queries of them.
        question: the question.
        window_us: length of the windows, microseconds; None for one window.

    Returns:
        A table with the columns `HOPS`, sorted by the first three.

    Raises:
        QueryError: if a condition of the question is not valid.
    """
    sql = Statements(question, Engine.DELTALAKE, sources).hops_sql(window_us)
    found = run_sql_over(tables, f"{sql} ORDER BY hour_us, source, target, bound_ms").read_all()
    plain = [each.with_type(pa.string()) if pa.types.is_string_view(each.type) else each for each in found.schema]
    rows = found.cast(pa.schema(plain))
    keys = [pc.rank(rows.column(name), tiebreaker="dense").to_numpy() for name in ("hour_us", "source", "target")]
    starts = np.unique(np.concatenate([_starts(key) for key in keys]))
    offsets = pa.array(np.append(starts, rows.num_rows).astype(np.int32))
    delays = pa.MapArray.from_arrays(
        offsets, to_single_array(rows.column("bound_ms")), to_single_array(rows.column("hops"))
    )
    firsts = rows.take(pa.array(starts))
    columns: dict[str, Column] = {
        name: firsts.column(name) for name in ("source", "target", "p50_ms", "p95_ms", "p99_ms")
    }
    hops, hours = firsts.column("total"), firsts.column("hour_us")
    return _table({**columns, "hour": hours, "hops": hops, "delays": delays}, HOPS)
