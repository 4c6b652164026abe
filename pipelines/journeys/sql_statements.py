"""SQL for journeys and hops, over the tables `messages` and `edges`, for Spark and for DataFusion.

A statement is a chain of named queries (`WITH`), each of which needs the rows of one key, one message or one record:

    stored      records with keys: time, message, and topic that the message was sent to
    known       steps of `edges` that are known at the end of the time
    links       what these steps say about a record, one row for each
    keyed       one row for each record and key
    wanted      the keys that have a record in the window
    near        the rows of these keys
    linked      with what is known of each record
    sent        one row for each key and message: copies have its topic and its client message id
    numbered    messages that are steps; those that a replay sent again belong to the step before
    merged      one row for each step
    placed      with its number in the journey, and the time since the step before

What a message sums up over its records is declared in `SENT_TIMES`, `SENT_FLAGS` and `SENT_COUNTS`, and what a journey
sums up over its steps in `TOTALS`. The queries after `linked` are for Spark: `arrow_journeys` does the same with the
rows of `records_sql`, for which DataFusion would need all keys in memory, and a window for each of them. Times are
microseconds since 1970, so that neither the session's time zone nor the engines' functions of time matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from commitlake.connectors.lake.sql import Engine, in_condition, microseconds_literal
from commitlake.pipelines.journeys.journeys_query import KINDS, JourneysQuestion
from commitlake.schemas.layouts.rocketmq.topics import SYSTEM_PREFIX
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind, StepOutcome
from commitlake.schemas.tables.journeys import OPEN_STATES, STEP, JourneyState

_HOUR_US = 3_600_000_000
_COPIES = (
    EdgeKind.DELAYED, EdgeKind.TIMER, EdgeKind.RETRIED, EdgeKind.DEAD, EdgeKind.COMMITTED, EdgeKind.RECHECKED,
)  # fmt: skip
_REPLAYS = (EdgeKind.REPLAYED, EdgeKind.REDRIVEN)
_WAITS = (EdgeKind.DELAYED, EdgeKind.TIMER)
_KINDS = (*_COPIES, *_REPLAYS, EdgeKind.FINISHED, EdgeKind.GIVEN_UP, EdgeKind.CONSUMED)
MAX_DIGITS = 18
"""Number of digits of the longest delay."""
_DIGIT_UNITS = tuple(10**power for power in range(1, MAX_DIGITS - 1))
"""Units to which delays of three and more digits are rounded up."""
PERCENTS = (50, 95, 99)
"""Percentiles of delays."""


class Sources(NamedTuple):
    """Tables, or queries in parentheses, that a statement reads.

    Attributes:
        messages: rows of `messages` that meet the conditions of the question, in any range of time.
        edges: rows of `edges`.
    """

    messages: str
    edges: str


class _Dialect(NamedTuple):
    """Functions in SQL that differ between the engines.

    Attributes:
        micros: microseconds since 1970 of a time.
        explode: one row for each element of a list.
        first: value of the first row of a group.
        clustered: keeps the rows of a key together for all later queries; DataFusion finds that itself.
    """

    micros: str
    explode: str
    first: str
    clustered: str


_ORDER = "stored_us, broker, physical_offset"
_DIALECTS: Mapping[Engine, _Dialect] = {
    Engine.SPARK: _Dialect("unix_micros(%s)", "explode(%s)", f"min_by(%s, struct({_ORDER}))", " DISTRIBUTE BY key"),
    Engine.DELTALAKE: _Dialect("arrow_cast(%s, 'Int64')", "unnest(%s)", f"first_value(%s ORDER BY {_ORDER})", ""),
}
RECORD_TEXTS = ("key", "node", "topic", "broker")
"""Text columns of the rows of `records_sql`."""
RECORD_NUMBERS = ("stored_us", "physical_offset", "due_us")
"""Columns of whole numbers of the rows of `records_sql`; columns named in `SENT_TIMES` and below follow."""
STEP_TEXTS = ("key", "topic", "broker", "state")
"""Text columns of the rows of `steps_sql`."""
STEP_NUMBERS = (
    "number", "sent_us", "hop_ms", "visible_us", "retries", "dead_letters", "physical_offset", "last_us", "records",
    "replays", "due_us", "is_waiting", "is_prepared", "lacks_first", "is_back", "openness",
)  # fmt: skip
"""Columns of whole numbers of the rows of `steps_sql`."""
STEP_COLUMNS: Mapping[str, str] = {
    **{name: name for name in STEP.names}, "sent_at": "sent_us", "visible_at": "visible_us"
}  # fmt: skip
"""Columns of the rows of `steps_sql` from which the fields of a step are made, by name."""


class Sum(StrEnum):
    """How a column is summed up over the steps of a journey."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


TOTALS: Mapping[str, tuple[Sum, str]] = {
    "messages": (Sum.MAX, "number"),
    "records": (Sum.SUM, "records"),
    "first_at": (Sum.MIN, "sent_us"),
    "last_at": (Sum.MAX, "last_us"),
    "last_sent_at": (Sum.MAX, "sent_us"),
    "retries": (Sum.SUM, "retries"),
    "dead_letters": (Sum.SUM, "dead_letters"),
    "open_transactions": (Sum.SUM, "is_prepared"),
    "waiting": (Sum.SUM, "is_waiting"),
    "due_at": (Sum.MAX, "due_us"),
    "replays": (Sum.SUM, "replays"),
    "lacks_first": (Sum.MAX, "lacks_first"),
    "order_uncertain": (Sum.MAX, "is_back"),
    "openness": (Sum.MAX, "openness"),
}
"""Columns of a journey by name: how, and over which column of its steps they are summed up.

`openness` is the place of a state in `OPEN_STATES`, counted from its end, or 0 for other states.
"""
HOP_NUMBERS = ("hour_us", "bound_ms", "hops", "total", "p50_ms", "p95_ms", "p99_ms")
"""Columns of whole numbers of the rows of `hops_sql`."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Writer of statements for a question and an engine.

    Attributes:
        question: the question.
        engine: the engine that runs the SQL.
        sources: the tables.
    """

    question: JourneysQuestion
    engine: Engine
    sources: Sources

    def records_sql(self, first_us: int, end_us: int, *, only_window_keys: bool) -> str:
        """Return SQL for the records of keys within a part of the time, one row for each record and key.

        Its columns are `RECORD_TEXTS`, `RECORD_NUMBERS`, and those of `SENT_TIMES`, `SENT_FLAGS` and `SENT_COUNTS`. In
        those of times, 1 stands for the store time of the record, and 0 for none.

        Args:
            first_us: start of the part.
            end_us: its end.
            only_window_keys: False to take all keys, instead of those that have a record in the window.
        """
        conditions = {**{name: condition for name, (_, condition) in SENT_TIMES.items()}, **SENT_FLAGS}
        flags = (f"CAST(CASE WHEN {condition} THEN 1 ELSE 0 END AS TINYINT) AS {name}"
                 for name, condition in conditions.items())  # fmt: skip
        counts = (f"CAST({count} AS INT) AS {name}" for name, count in SENT_COUNTS.items())
        columns = ", ".join((*RECORD_TEXTS, "stored_us", "physical_offset", f"{_DUE} AS due_us", *flags, *counts))
        queries = self._queries_up_to_linked(first_us, end_us, only_window_keys=only_window_keys, is_part=True)
        return f"{_with_clause(queries)}SELECT {columns} FROM linked"

    def keys_sql(self, end_us: int, condition: str) -> str:
        """Return SQL for the keys of the records up to a time, as `key`, where a condition holds."""
        stored = self._stored_query(self.question.begin_us, end_us)
        return (
            f"{_with_clause({'stored': stored})}SELECT {self._explode_sql('keys')} AS key FROM stored WHERE {condition}"
        )

    def step_times_sql(self, end_us: int, condition: str) -> str:
        """Return SQL for the times at which steps of `edges` begin, as `from_us`, where a condition holds."""
        known = self._known_steps_query(self.question.begin_us, end_us)
        return f"{_with_clause({'known': known})}SELECT from_us FROM known WHERE {condition}"

    def _queries_up_to_sent(self) -> dict[str, str]:
        asked = self.question
        queries = self._queries_up_to_linked(asked.begin_us, asked.end_us, only_window_keys=asked.margin_us > 0)
        return {**queries, "sent": self._sent_query()}

    def steps_sql(self) -> str:
        """Return SQL for the steps of journeys, one row for each key and step: `STEP_TEXTS` and `STEP_NUMBERS`."""
        queries = {
            **self._queries_up_to_sent(),
            "numbered": _NUMBERED,
            "merged": _merged_query(_DIALECTS[self.engine].first),
            "placed": _PLACED,
        }
        columns = ", ".join((*STEP_TEXTS, *(f"CAST({name} AS BIGINT) AS {name}" for name in STEP_NUMBERS)))
        return f"{_with_clause(queries)}SELECT {columns} FROM placed"

    def hops_sql(self, window_us: int | None = _HOUR_US) -> str:
        """Return SQL for hops from topic to topic, one row for each window, pair of topics and rounded delay.

        Its columns are `source`, `target` and `HOP_NUMBERS`; `hour_us` is the start of the window. Only messages whose
        first record is in the lake are steps here, and only those at most the margin apart are a hop, so that the
        result does not depend on how a time is divided into windows.

        Args:
            window_us: length of the windows, which begin at multiples of it since 1970; None for one window.
        """
        asked = self.question
        window = str(asked.since_us)
        if window_us is not None:
            window = f"sent_us - (sent_us % {window_us} + {window_us}) % {window_us}"
        queries = {
            **self._queries_up_to_linked(asked.begin_us, asked.until_us, only_window_keys=False),
            "sent": self._sent_query(),
            "following": _FOLLOWING,
            "rounded": f"""
    SELECT {window} AS hour_us, source, topic AS target, {_round_up_sql("hop_ms")} AS bound_ms
    FROM following
    WHERE sent_us >= {asked.since_us} AND hop_us <= {asked.margin_us}""",
            "counted": _COUNTED,
            "summed": _SUMMED,
            "ranked": _RANKED,
        }
        columns = ", ".join(("source", "target", *(f"CAST({name} AS BIGINT) AS {name}" for name in HOP_NUMBERS)))
        return f"{_with_clause(queries)}SELECT {columns} FROM ranked"

    def _queries_up_to_linked(
        self, first_us: int, end_us: int, *, only_window_keys: bool, is_part: bool = False
    ) -> dict[str, str]:
        """Return the queries up to `linked`, for the records from one time to before another.

        Args:
            first_us: the first time.
            end_us: the other time.
            only_window_keys: False to keep all keys.
            is_part: True if they are a part of the records that are read.
        """
        asked = self.question
        queries = {
            "stored": self._stored_query(first_us, end_us),
            "known": self._known_steps_query(first_us, end_us, is_part=is_part),
            "links": _links_query(asked.begin_us, (first_us, end_us) if is_part else None),
            "keyed": f"""
    SELECT {self._explode_sql("array_distinct(keys)")} AS key, broker, physical_offset, kind, topic, node, stored_us
    FROM stored""",
        }
        if only_window_keys:
            window = self._time_range_condition("store_timestamp", asked.since_us, asked.until_us)
            rows = f"({self._stored_query(asked.since_us, asked.until_us)}) AS windowed" if is_part else "stored"
            queries["wanted"] = f"""
    SELECT {self._explode_sql("keys")} AS key
    FROM {rows}
    WHERE {window}"""
            queries["near"] = """
    SELECT keyed.* FROM keyed WHERE key IN (SELECT key FROM wanted)"""
        queries["linked"] = _linked_query("near" if only_window_keys else "keyed", _DIALECTS[self.engine].clustered)
        return queries

    def _explode_sql(self, values: str) -> str:
        return _DIALECTS[self.engine].explode % values

    def _stored_query(self, begin_us: int, end_us: int) -> str:
        return f"""
    SELECT broker, physical_offset, kind, keys, store_timestamp, coalesce(origin_topic, topic) AS topic,
        coalesce(unique_key, concat(broker, '@', CAST(physical_offset AS STRING))) AS node,
        {_DIALECTS[self.engine].micros % "store_timestamp"} AS stored_us
    FROM {self.sources.messages} AS messages
    WHERE {_is_any_of_sql("kind", KINDS)} AND cardinality(keys) > 0
        AND substr(coalesce(origin_topic, topic), 1, {len(SYSTEM_PREFIX)}) <> '{SYSTEM_PREFIX}'
        AND {self._time_range_condition("store_timestamp", begin_us, end_us)}"""

    def _known_steps_query(self, begin_us: int, end_us: int, *, is_part: bool = False) -> str:
        asked, micros = self.question, _DIALECTS[self.engine].micros
        known_until = asked.end_us if is_part else end_us
        ends = [self._time_range_condition(f"{end}_timestamp", begin_us, end_us) for end in ("from", "to")]
        if is_part:  # a record that is not in the lake has no time
            read = self._time_range_condition("to_timestamp", asked.begin_us, asked.end_us)
            ends.append(f"from_timestamp IS NULL AND {read}")
        # Of consumptions, only those in a broker's own log count, see `_links_query`.
        return f"""
    SELECT from_broker, from_physical_offset, to_broker, to_physical_offset, kind, outcome, absent_end, absent_reason,
        evidence_physical_offset, {micros % "from_timestamp"} AS from_us, {micros % "to_timestamp"} AS to_us,
        {micros % "due_timestamp"} AS due_us,
        CASE WHEN {micros % "coalesce(to_timestamp, event_timestamp)"} < {known_until} THEN 1 ELSE 0 END AS is_done
    FROM {self.sources.edges} AS edges
    WHERE side <> 'to' AND {_is_any_of_sql("kind", _KINDS)}
        AND (kind <> '{EdgeKind.CONSUMED}' OR evidence_physical_offset < 0)
        AND ({" OR ".join(f"({end})" for end in ends)})"""

    def _time_range_condition(self, column: str, begin_us: int, end_us: int) -> str:
        first, last = (microseconds_literal(count, self.engine) for count in (begin_us, end_us))
        return f"{column} >= {first} AND {column} < {last}"

    def _sent_query(self) -> str:
        places = ", ".join(f"{_DIALECTS[self.engine].first % name} AS {name}" for name in ("broker", "physical_offset"))
        times = (f"{how}(CASE WHEN {condition} THEN stored_us END) AS {name}"
                 for name, (how, condition) in SENT_TIMES.items())  # fmt: skip
        flags = (_flag_column_sql(name, condition) for name, condition in SENT_FLAGS.items())
        counts = (f"{Sum.SUM}({count}) AS {name}" for name, count in SENT_COUNTS.items())
        totals = ",\n        ".join((*times, *flags, *counts, f"max({_DUE}) AS due_us"))
        return f"""
    SELECT key, topic, node, min(stored_us) AS stored_us, {places},
        {totals}
    FROM linked
    GROUP BY key, topic, node"""


def _with_clause(queries: Mapping[str, str]) -> str:
    return "WITH " + ",\n".join(f"{name} AS ({sql})" for name, sql in queries.items()) + "\n"


def _is_any_of_sql(column: str, values: tuple[str, ...]) -> str:
    return in_condition(column, (f"'{value}'" for value in values))


def _flag_column_sql(name: str, condition: str) -> str:
    return f"max(CASE WHEN {condition} THEN 1 ELSE 0 END) AS {name}"


def _count_sql(condition: str) -> str:
    return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"


_IS_CANCELLED = f"coalesce(outcome, '') = '{StepOutcome.CANCELLED}'"
_IS_STORED = f"coalesce(absent_reason, '') = '{AbsentReason.RETRY_STORE}'"
_OF_CONSUME_LOG = f"kind = '{EdgeKind.CONSUMED}' AND evidence_physical_offset < 0 AND is_done = 1"


def _links_query(begin_us: int, time_range_us: tuple[int, int] | None) -> str:
    """Return the query that sums up, for each record, the steps of `edges` that begin or end at it.

    A consumption counts only if the broker's own log has it: for others, the broker stores copies.

    Args:
        begin_us: time from which records are read.
        time_range_us: times between which the records are; None if this leaves no row out.
    """
    waits = _is_any_of_sql("kind", _WAITS)
    moved = f"{_is_any_of_sql('kind', (*_WAITS, EdgeKind.COMMITTED, EdgeKind.RECHECKED))} AND NOT {_IS_CANCELLED}"
    is_committed = f"kind = '{EdgeKind.FINISHED}' AND coalesce(outcome, '') = '{StepOutcome.COMMITTED}'"
    is_rolled_back = f"kind = '{EdgeKind.FINISHED}' AND coalesce(outcome, '') = '{StepOutcome.ROLLED_BACK}'"
    is_tracked = f"{_is_any_of_sql('kind', (*_WAITS, EdgeKind.FINISHED, EdgeKind.COMMITTED, EdgeKind.RECHECKED))}"
    is_clear = f"coalesce(absent_reason, '') <> '{AbsentReason.AMBIGUOUS}'"
    done = "is_from = 1 AND is_there = 1 AND is_done = 1"
    logged = f"is_from = 1 AND {_OF_CONSUME_LOG} AND outcome = '%s'"
    in_store = f"is_from = 1 AND {_IS_STORED} AND is_done = 1 AND kind = '%s'"
    comes = f"is_from = 0 AND {_is_any_of_sql('kind', (*_COPIES, *_REPLAYS))}"
    facts = ",\n        ".join(
        (
            _flag_column_sql("is_tracked", f"is_from = 1 AND {is_tracked} AND {is_clear}"),
            _flag_column_sql("has_moved", f"{done} AND (({moved}) OR ({is_committed}))"),
            _flag_column_sql("is_rolled_back", f"{done} AND {is_rolled_back}"),
            _flag_column_sql("is_cancelled", f"{done} AND ({_IS_CANCELLED} OR kind = '{EdgeKind.GIVEN_UP}')"),
            _flag_column_sql("was_sent_again", f"{done} AND {_is_any_of_sql('kind', _REPLAYS)}"),
            f"max(CASE WHEN is_from = 1 AND ({waits} OR {_IS_STORED}) THEN due_us END) AS due_us",
            f"{_count_sql(in_store % EdgeKind.RETRIED)} AS kept",
            f"{_count_sql(logged % StepOutcome.FAILED)} AS failures",
            f"greatest({_count_sql(logged % StepOutcome.DEAD)}, {_count_sql(in_store % EdgeKind.DEAD)}) AS deaths",
            _flag_column_sql("is_copy", f"is_from = 0 AND {_is_any_of_sql('kind', _COPIES)}"),
            _flag_column_sql("is_again", f"is_from = 0 AND {_is_any_of_sql('kind', _REPLAYS)}"),
            _flag_column_sql("is_mark", f"is_from = 0 AND {_IS_CANCELLED}"),
            _flag_column_sql("has_origin", f"{comes} AND is_there = 1 AND from_us >= {begin_us}"),
        )
    )
    columns = (
        "kind, outcome, absent_reason, evidence_physical_offset, from_us, due_us, is_done, "
        "CASE WHEN absent_end IS NULL THEN 1 ELSE 0 END AS is_there"
    )
    ends = (
        f"SELECT {end}_broker AS broker, {end}_physical_offset AS physical_offset, {is_from} AS is_from, "
        f"{end}_us AS record_us, {columns} FROM known"
        for end, is_from in (("from", 1), ("to", 0))
    )
    in_part = (
        ""
        if time_range_us is None
        else f" AND (record_us IS NULL OR record_us >= {time_range_us[0]} AND record_us < {time_range_us[1]})"
    )
    return f"""
    SELECT broker, physical_offset,
        {facts}
    FROM ({" UNION ALL ".join(ends)}) AS ends
    WHERE broker IS NOT NULL AND physical_offset IS NOT NULL{in_part}
    GROUP BY broker, physical_offset"""


_FACTS = (
    "is_tracked", "has_moved", "is_rolled_back", "is_cancelled", "was_sent_again", "kept", "failures", "deaths",
    "is_copy", "is_again", "has_origin",
)  # fmt: skip
_ENDED = "has_moved = 0 AND is_rolled_back = 0 AND is_cancelled = 0"
_IS_HELD = f"CASE WHEN kind IN ('delay', 'timer') AND is_tracked = 1 AND {_ENDED} THEN 1 ELSE 0 END"
_DUE = f"CASE WHEN {_IS_HELD} + kept > 0 THEN due_us END"
SENT_TIMES: Mapping[str, tuple[Sum, str]] = {
    "last_us": (Sum.MAX, "stored_us IS NOT NULL"),
    "last_send_us": (Sum.MAX, "is_copy = 0"),
    "visible_us": (Sum.MIN, "kind = 'normal'"),
    "died_us": (Sum.MAX, "kind = 'dlq' OR deaths > 0"),
    # A dead letter is open if nothing was sent later under the same id, by its application or by a replay.
    "dead_us": (Sum.MAX, "(kind = 'dlq' AND was_sent_again = 0) OR deaths > 0"),
}
"""First or last store time of the records of a message that meet a condition; null if none does."""
SENT_FLAGS: Mapping[str, str] = {
    "has_first": "is_copy = 0 AND is_again = 0",
    "is_visible": "kind IN ('normal', 'retry')",
    "is_prepared": f"kind = 'half' AND is_tracked = 1 AND {_ENDED}",
    "is_rolled_back": "is_rolled_back = 1",
    "is_cancelled": "is_cancelled = 1",
    "lacks_origin": "lacks_origin = 1",
}
"""1 if any record of a message meets a condition, otherwise 0."""
SENT_COUNTS: Mapping[str, str] = {
    "records": "1",
    "retries": "CASE WHEN kind = 'retry' THEN 1 ELSE 0 END + failures",
    "dead_letters": "CASE WHEN kind = 'dlq' THEN 1 ELSE 0 END + deaths",
    "waiting": f"{_IS_HELD} + kept",
    "replays": "is_again",
}
"""Numbers, summed up over the records of a message."""


def _linked_query(rows_query_name: str, cluster_clause: str) -> str:
    """Return the query that adds what is known of each record, without marks that only cancel a timer."""
    facts = ", ".join(f"coalesce(links.{name}, 0) AS {name}" for name in _FACTS)
    return f"""
    SELECT key, topic, node, kind, stored_us, broker, physical_offset, {", ".join(_FACTS)}, due_us,
        CASE WHEN is_copy + is_again > 0 AND has_origin = 0 THEN 1 ELSE 0 END AS lacks_origin
    FROM (
        SELECT {rows_query_name}.key, {rows_query_name}.topic, {rows_query_name}.node, {rows_query_name}.kind,
            {rows_query_name}.stored_us, {rows_query_name}.broker, {rows_query_name}.physical_offset,
            links.due_us, coalesce(links.is_mark, 0) AS is_mark, {facts}
        FROM links RIGHT JOIN {rows_query_name}
            ON {rows_query_name}.broker = links.broker AND {rows_query_name}.physical_offset = links.physical_offset
    ) AS joined
    WHERE is_mark = 0{cluster_clause}"""


# Messages whose first record is not there come to the step before of their topic; those before any are one step.
_NUMBERED = f"""
    SELECT sent.*, sum(has_first) OVER (
        PARTITION BY key, topic ORDER BY {_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS step
    FROM sent"""


def _merged_query(first_function: str) -> str:
    """Return the query that merges the messages of each step into one row.

    Args:
        first_function: function that returns the value of the first row of a group.
    """
    places = ", ".join(f"{first_function % name} AS {name}" for name in ("broker", "physical_offset"))
    return f"""
    SELECT key, topic, step, min(stored_us) AS sent_us, max(last_us) AS last_us,
        {places},
        min(visible_us) AS visible_us, sum(records) AS records, sum(retries) AS retries,
        sum(dead_letters) AS dead_letters, sum(replays) AS replays, max(due_us) AS due_us,
        max(CASE WHEN has_first = 0 THEN lacks_origin ELSE 0 END) AS lacks_first,
        max(CASE WHEN waiting > 0 THEN 1 ELSE 0 END) AS is_waiting, max(is_prepared) AS is_prepared,
        CASE
            WHEN max(dead_us) >= coalesce(max(last_send_us), max(dead_us)) THEN '{JourneyState.DEAD}'
            WHEN max(is_prepared) = 1 THEN '{JourneyState.PREPARED}'
            WHEN sum(waiting) > 0 THEN '{JourneyState.WAITING}'
            WHEN max(died_us) >= coalesce(max(last_send_us), max(died_us)) THEN '{JourneyState.REDRIVEN}'
            WHEN max(is_visible) = 1 THEN '{JourneyState.DELIVERED}'
            WHEN max(is_rolled_back) = 1 THEN '{JourneyState.ROLLED_BACK}'
            WHEN max(is_cancelled) = 1 THEN '{JourneyState.CANCELLED}'
            ELSE '{JourneyState.UNKNOWN}'
        END AS state
    FROM numbered
    GROUP BY key, topic, step"""


_STEP_ORDER = "ORDER BY sent_us, broker, physical_offset"
_OPENNESS = " ".join(f"WHEN '{state}' THEN {rank}" for rank, state in enumerate(reversed(OPEN_STATES), 1))
_PLACED = f"""
    SELECT stepped.*, CAST(hop_us / 1000 AS BIGINT) AS hop_ms, CASE state {_OPENNESS} ELSE 0 END AS openness
    FROM (
        SELECT merged.*,
            row_number() OVER (PARTITION BY key {_STEP_ORDER}) AS number,
            sent_us - lag(sent_us) OVER (PARTITION BY key {_STEP_ORDER}) AS hop_us,
            CASE WHEN physical_offset < lag(physical_offset) OVER (
                PARTITION BY key, broker ORDER BY sent_us, physical_offset) THEN 1 ELSE 0 END AS is_back
        FROM merged
    ) AS stepped"""
_FOLLOWING = f"""
    SELECT topic, sent_us, source, hop_us, CAST(hop_us / 1000 AS BIGINT) AS hop_ms
    FROM (
        SELECT topic, stored_us AS sent_us, lag(topic) OVER (PARTITION BY key ORDER BY {_ORDER}) AS source,
            stored_us - lag(stored_us) OVER (PARTITION BY key ORDER BY {_ORDER}) AS hop_us
        FROM sent
        WHERE has_first = 1
    ) AS lagging
    WHERE source IS NOT NULL"""
_COUNTED = """
    SELECT hour_us, source, target, bound_ms, count(*) AS hops
    FROM rounded
    GROUP BY hour_us, source, target, bound_ms"""
_OF_HOP = "PARTITION BY hour_us, source, target"
_SUMMED = f"""
    SELECT counted.*, sum(hops) OVER ({_OF_HOP}) AS total,
        sum(hops) OVER ({_OF_HOP} ORDER BY bound_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS at_most
    FROM counted"""
_RANKED = (
    "\n    SELECT summed.*"
    + "".join(
        f""",
        min(CASE WHEN at_most * 100 >= total * {percent} THEN bound_ms END) OVER ({_OF_HOP}) AS p{percent}_ms"""
        for percent in PERCENTS
    )
    + "\n    FROM summed"
)


def _round_up_sql(delay_column: str) -> str:
    """Return SQL that rounds a delay up to two digits: 1,234 ms to 1,300 ms."""
    units = " ".join(f"WHEN {delay_column} < {100 * unit} THEN {unit}" for unit in (1, *_DIGIT_UNITS[:-1]))
    unit = f"(CASE {units} ELSE {_DIGIT_UNITS[-1]} END)"
    return f"{delay_column} + ({unit} - {delay_column} % {unit}) % {unit}"
