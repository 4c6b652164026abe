"""SQL for the records of journeys and hops, over the tables `messages` and `edges`, for Spark and for DataFusion.

A statement is a chain of named queries (`WITH`), each of which needs the rows of one key, one message or one record:

    stored      records with keys: time, message, and topic that the message was sent to
    known       steps of `edges` that are known at the end of the time
    links       what these steps say about a record, one row for each
    keyed       one row for each record and key
    wanted      the keys that have a record in the window
    near        the rows of these keys
    linked      with what is known of each record

What a message sums up over its records is declared in `SENT_TIMES`, `SENT_FLAGS` and `SENT_COUNTS`, and what a journey
sums up over its steps in `TOTALS`: `arrow_journeys` does this with the rows of `records_sql`, for which both engines
would need several windows for each key.

Times are microseconds since 1970, so that neither the session's time zone nor the engines' functions of time matter.
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
from commitlake.schemas.tables.journeys import STEP

_COPIES = (
    EdgeKind.DELAYED, EdgeKind.TIMER, EdgeKind.RETRIED, EdgeKind.DEAD, EdgeKind.COMMITTED, EdgeKind.RECHECKED,
)  # fmt: skip
_REPLAYS = (EdgeKind.REPLAYED, EdgeKind.REDRIVEN)
_WAITS = (EdgeKind.DELAYED, EdgeKind.TIMER)
_KINDS = (*_COPIES, *_REPLAYS, EdgeKind.FINISHED, EdgeKind.GIVEN_UP, EdgeKind.CONSUMED)
MAX_DIGITS = 18
"""Number of digits of the longest delay."""
PERCENTS = (50, 95, 99)
"""Percentiles of delays."""


class SourceTables(NamedTuple):
    """Names of the tables, or queries in parentheses, from which a statement reads messages and edges.

    Attributes:
        messages: rows of `messages` that meet the conditions of the question, in any range of time.
        edges: rows of `edges`.
    """

    messages: str
    edges: str


class _SqlDialect(NamedTuple):
    """SQL functions that differ between DataFusion and Spark.

    Attributes:
        micros: microseconds since 1970 of a time.
        explode: one row for each element of a list.
    """

    micros: str
    explode: str


_DIALECTS: Mapping[Engine, _SqlDialect] = {
    Engine.SPARK: _SqlDialect("unix_micros(%s)", "explode(%s)"),
    Engine.DELTALAKE: _SqlDialect("arrow_cast(%s, 'Int64')", "unnest(%s)"),
}
RECORD_TEXTS = ("key", "node", "topic", "broker")
"""Text columns of the rows of `records_sql`."""
RECORD_NUMBERS = ("stored_us", "physical_offset", "due_us")
"""Columns of whole numbers of the rows of `records_sql`; columns named in `SENT_TIMES` and below follow."""
STEP_COLUMNS: Mapping[str, str] = {
    **{name: name for name in STEP.names}, "sent_at": "sent_us", "visible_at": "visible_us"
}  # fmt: skip
"""Columns of steps from which the fields of a step are made, by name."""


class StepAggregate(StrEnum):
    """SQL function that aggregates a column over the steps of a journey."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


TOTALS: Mapping[str, tuple[StepAggregate, str]] = {
    "messages": (StepAggregate.MAX, "number"),
    "records": (StepAggregate.SUM, "records"),
    "first_at": (StepAggregate.MIN, "sent_us"),
    "last_at": (StepAggregate.MAX, "last_us"),
    "last_sent_at": (StepAggregate.MAX, "sent_us"),
    "retries": (StepAggregate.SUM, "retries"),
    "dead_letters": (StepAggregate.SUM, "dead_letters"),
    "open_transactions": (StepAggregate.SUM, "is_prepared"),
    "waiting": (StepAggregate.SUM, "is_waiting"),
    "due_at": (StepAggregate.MAX, "due_us"),
    "replays": (StepAggregate.SUM, "replays"),
    "lacks_first": (StepAggregate.MAX, "lacks_first"),
    "order_uncertain": (StepAggregate.MAX, "is_back"),
    "openness": (StepAggregate.MAX, "openness"),
}
"""Columns of a journey by name: how, and over which column of its steps they are summed up.

`openness` is the place of a state in `OPEN_STATES`, counted from its end, or 0 for other states.
"""


@dataclass(frozen=True, slots=True)
class JourneyStatements:
    """Builder of the SQL that reads the records of business keys, for one query and one SQL engine.

    Attributes:
        question: the question.
        engine: the engine that runs the SQL.
        sources: the tables.
    """

    question: JourneysQuestion
    engine: Engine
    sources: SourceTables

    def records_sql(self, first_us: int, end_us: int, *, only_window_keys: bool) -> str:
        """Return SQL for records in a part of the time range, one row for each record and business key.

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
        queries = self._queries_up_to_linked(first_us, end_us, only_window_keys=only_window_keys)
        return f"{_with_clause(queries)}SELECT {columns} FROM linked"

    def keys_sql(self, end_us: int, condition: str) -> str:
        """Return SQL for the business keys of stored records that meet `condition`, as the column `key`."""
        stored = self._stored_query(self.question.begin_us, end_us)
        return (
            f"{_with_clause({'stored': stored})}SELECT {self._explode_sql('keys')} AS key FROM stored WHERE {condition}"
        )

    def step_times_sql(self, end_us: int, condition: str) -> str:
        """Return SQL for the start times of those rows of `edges` that meet `condition`, as the column `from_us`."""
        known = self._known_steps_query(self.question.begin_us, end_us)
        return f"{_with_clause({'known': known})}SELECT from_us FROM known WHERE {condition}"

    def _queries_up_to_linked(self, first_us: int, end_us: int, *, only_window_keys: bool) -> dict[str, str]:
        """Return the SQL subqueries that join the records of a time range with their edges, by name.

        Args:
            first_us: the first time.
            end_us: the other time.
            only_window_keys: False to keep all keys.
        """
        asked = self.question
        queries = {
            "stored": self._stored_query(first_us, end_us),
            "known": self._known_steps_query(first_us, end_us),
            "links": _links_query(asked.begin_us, first_us, end_us),
            "keyed": f"""
    SELECT {self._explode_sql("array_distinct(keys)")} AS key, broker, physical_offset, kind, topic, node, stored_us
    FROM stored""",
        }
        if only_window_keys:
            queries["wanted"] = f"""
    SELECT {self._explode_sql("keys")} AS key
    FROM ({self._stored_query(asked.since_us, asked.until_us)}) AS windowed"""
            queries["near"] = """
    SELECT keyed.* FROM keyed WHERE key IN (SELECT key FROM wanted)"""
        queries["linked"] = _linked_query("near" if only_window_keys else "keyed")
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

    def _known_steps_query(self, begin_us: int, end_us: int) -> str:
        asked, micros = self.question, _DIALECTS[self.engine].micros
        ends = [self._time_range_condition(f"{end}_timestamp", begin_us, end_us) for end in ("from", "to")]
        # A record that is not in the lake has no time.
        read = self._time_range_condition("to_timestamp", asked.begin_us, asked.end_us)
        ends.append(f"from_timestamp IS NULL AND {read}")
        # Of consumptions, only those in a broker's own log count, see `_links_query`.
        return f"""
    SELECT from_broker, from_physical_offset, to_broker, to_physical_offset, kind, outcome, absent_end, absent_reason,
        evidence_physical_offset, {micros % "from_timestamp"} AS from_us, {micros % "to_timestamp"} AS to_us,
        {micros % "due_timestamp"} AS due_us,
        CASE WHEN {micros % "coalesce(to_timestamp, event_timestamp)"} < {asked.end_us} THEN 1 ELSE 0 END AS is_done
    FROM {self.sources.edges} AS edges
    WHERE side <> 'to' AND {_is_any_of_sql("kind", _KINDS)}
        AND (kind <> '{EdgeKind.CONSUMED}' OR evidence_physical_offset < 0)
        AND ({" OR ".join(f"({end})" for end in ends)})"""

    def _time_range_condition(self, column: str, begin_us: int, end_us: int) -> str:
        first, last = (microseconds_literal(count, self.engine) for count in (begin_us, end_us))
        return f"{column} >= {first} AND {column} < {last}"


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


def _links_query(begin_us: int, first_us: int, end_us: int) -> str:
    """Return the SQL query that sums up, for each record, the edges that begin or end at it.

    A consumption counts only if the broker's own log has it: for others, the broker stores copies.

    Args:
        begin_us: time from which records are read.
        first_us: time from which the records are that are wanted.
        end_us: time before which they are.
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
    return f"""
    SELECT broker, physical_offset,
        {facts}
    FROM ({" UNION ALL ".join(ends)}) AS ends
    WHERE broker IS NOT NULL AND physical_offset IS NOT NULL
        AND (record_us IS NULL OR record_us >= {first_us} AND record_us < {end_us})
    GROUP BY physical_offset, broker"""


_FACTS = (
    "is_tracked", "has_moved", "is_rolled_back", "is_cancelled", "was_sent_again", "kept", "failures", "deaths",
    "is_copy", "is_again", "has_origin",
)  # fmt: skip
_ENDED = "has_moved = 0 AND is_rolled_back = 0 AND is_cancelled = 0"
_IS_HELD = f"CASE WHEN kind IN ('delay', 'timer') AND is_tracked = 1 AND {_ENDED} THEN 1 ELSE 0 END"
_DUE = f"CASE WHEN {_IS_HELD} + kept > 0 THEN due_us END"
SENT_TIMES: Mapping[str, tuple[StepAggregate, str]] = {
    "last_us": (StepAggregate.MAX, "stored_us IS NOT NULL"),
    "last_send_us": (StepAggregate.MAX, "is_copy = 0"),
    "visible_us": (StepAggregate.MIN, "kind = 'normal'"),
    "died_us": (StepAggregate.MAX, "kind = 'dlq' OR deaths > 0"),
    # A dead letter is open if nothing was sent later under the same id, by its application or by a replay.
    "dead_us": (StepAggregate.MAX, "(kind = 'dlq' AND was_sent_again = 0) OR deaths > 0"),
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


def _linked_query(rows_query_name: str) -> str:
    """Return the SQL query that adds to each record the facts known from `edges`, without marks that cancel a timer."""
    # Spark sorts both sides by the columns in this order; offsets differ, where names of brokers are mostly the same.
    facts = ", ".join(f"coalesce(links.{name}, 0) AS {name}" for name in _FACTS)
    return f"""
    SELECT key, topic, node, kind, stored_us, broker, physical_offset, {", ".join(_FACTS)}, due_us,
        CASE WHEN is_copy + is_again > 0 AND has_origin = 0 THEN 1 ELSE 0 END AS lacks_origin
    FROM (
        SELECT {rows_query_name}.key, {rows_query_name}.topic, {rows_query_name}.node, {rows_query_name}.kind,
            {rows_query_name}.stored_us, {rows_query_name}.broker, {rows_query_name}.physical_offset,
            links.due_us, coalesce(links.is_mark, 0) AS is_mark, {facts}
        FROM links RIGHT JOIN {rows_query_name}
            ON {rows_query_name}.physical_offset = links.physical_offset AND {rows_query_name}.broker = links.broker
    ) AS joined
    WHERE is_mark = 0"""
