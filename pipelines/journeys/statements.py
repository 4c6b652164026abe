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

What a journey sums up over its steps is declared in `TOTALS`; each engine sums while it puts the steps into lists. The
queries after `sent` are for Spark: `arrays` does the same, which DataFusion would do with a window for each key.
Times are microseconds since 1970, so that neither the session's time zone nor the engines' functions of time matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from commitlake.connectors.lake.sql import Engine, in_condition, microseconds_literal
from commitlake.pipelines.journeys.question import KINDS, JourneysQuestion
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
_DIGIT_UNITS = tuple(10**power for power in range(1, 17))
"""Units to which delays of three and more digits are rounded up."""


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
SENT_TEXTS = ("key", "topic", "broker")
"""Text columns of the rows of `sent_sql`."""
SENT_NUMBERS = (
    "stored_us", "last_us", "physical_offset", "records", "has_first", "last_send_us", "visible_us", "is_visible",
    "retries", "dead_letters", "died_us", "dead_us", "waiting", "due_us", "is_prepared", "is_rolled_back",
    "is_cancelled", "replays", "lacks_origin",
)  # fmt: skip
"""Columns of whole numbers of the rows of `sent_sql`."""
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

    def sent_sql(self) -> str:
        """Return SQL for messages, one row for each key and message: `SENT_TEXTS` and `SENT_NUMBERS`."""
        columns = ", ".join((*SENT_TEXTS, *(f"CAST({name} AS BIGINT) AS {name}" for name in SENT_NUMBERS)))
        return f"{_with(self._sent_queries())}SELECT {columns} FROM sent"

    def _sent_queries(self) -> dict[str, str]:
        asked = self.question
        queries = self._linked(asked.begin_us, asked.end_us, near=asked.margin_us > 0)
        return {**queries, "sent": self._sent()}

    def steps_sql(self) -> str:
        """Return SQL for the steps of journeys, one row for each key and step: `STEP_TEXTS` and `STEP_NUMBERS`."""
        queries = {
            **self._sent_queries(),
            "numbered": _NUMBERED,
            "merged": _merged(_DIALECTS[self.engine].first),
            "placed": _PLACED,
        }
        columns = ", ".join((*STEP_TEXTS, *(f"CAST({name} AS BIGINT) AS {name}" for name in STEP_NUMBERS)))
        return f"{_with(queries)}SELECT {columns} FROM placed"

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
            **self._linked(asked.begin_us, asked.until_us, near=False),
            "sent": self._sent(),
            "following": _FOLLOWING,
            "rounded": f"""
    SELECT {window} AS hour_us, source, topic AS target, {_bound("hop_ms")} AS bound_ms
    FROM following
    WHERE sent_us >= {asked.since_us} AND hop_us <= {asked.margin_us}""",
            "counted": _COUNTED,
            "summed": _SUMMED,
            "ranked": _RANKED,
        }
        columns = ", ".join(("source", "target", *(f"CAST({name} AS BIGINT) AS {name}" for name in HOP_NUMBERS)))
        return f"{_with(queries)}SELECT {columns} FROM ranked"

    def _linked(self, begin_us: int, end_us: int, *, near: bool) -> dict[str, str]:
        """Return the queries up to `linked`, for the records from one time to before another.

        Args:
            near: False to keep all keys.
        """
        asked, dialect = self.question, _DIALECTS[self.engine]
        queries = {
            "stored": f"""
    SELECT broker, physical_offset, kind, keys, store_timestamp, coalesce(origin_topic, topic) AS topic,
        coalesce(unique_key, concat(broker, '@', CAST(physical_offset AS STRING))) AS node,
        {dialect.micros % "store_timestamp"} AS stored_us
    FROM {self.sources.messages} AS messages
    WHERE {_is_any("kind", KINDS)} AND cardinality(keys) > 0
        AND substr(coalesce(origin_topic, topic), 1, {len(SYSTEM_PREFIX)}) <> '{SYSTEM_PREFIX}'
        AND {self._time_range("store_timestamp", begin_us, end_us)}""",
            "known": f"""
    SELECT from_broker, from_physical_offset, to_broker, to_physical_offset, kind, outcome, absent_end, absent_reason,
        evidence_physical_offset, {dialect.micros % "from_timestamp"} AS from_us,
        {dialect.micros % "due_timestamp"} AS due_us,
        CASE WHEN {dialect.micros % "coalesce(to_timestamp, event_timestamp)"} < {end_us} THEN 1 ELSE 0 END AS is_done
    FROM {self.sources.edges} AS edges
    WHERE side <> 'to' AND {_is_any("kind", _KINDS)}
        AND (({self._time_range("from_timestamp", begin_us, end_us)})
            OR ({self._time_range("to_timestamp", begin_us, end_us)}))""",
            "links": _links(begin_us),
            "keyed": f"""
    SELECT {dialect.explode % "array_distinct(keys)"} AS key, broker, physical_offset, kind, topic, node, stored_us
    FROM stored""",
        }
        if near:
            queries["wanted"] = f"""
    SELECT {dialect.explode % "keys"} AS key
    FROM stored
    WHERE {self._time_range("store_timestamp", asked.since_us, asked.until_us)}"""
            queries["near"] = """
    SELECT keyed.* FROM keyed WHERE key IN (SELECT key FROM wanted)"""
        queries["linked"] = _linked("near" if near else "keyed", dialect.clustered)
        return queries

    def _time_range(self, column: str, begin_us: int, end_us: int) -> str:
        first, last = (microseconds_literal(count, self.engine) for count in (begin_us, end_us))
        return f"{column} >= {first} AND {column} < {last}"

    def _sent(self) -> str:
        places = ", ".join(f"{_DIALECTS[self.engine].first % name} AS {name}" for name in ("broker", "physical_offset"))
        # A dead letter is open if nothing was sent later under the same id, by its application or by a replay.
        return f"""
    SELECT key, topic, node, min(stored_us) AS stored_us, max(stored_us) AS last_us, {places},
        count(*) AS records,
        max(CASE WHEN is_copy = 0 AND is_again = 0 THEN 1 ELSE 0 END) AS has_first,
        max(CASE WHEN is_copy = 0 THEN stored_us END) AS last_send_us,
        min(CASE WHEN kind = 'normal' THEN stored_us END) AS visible_us,
        max(CASE WHEN kind IN ('normal', 'retry') THEN 1 ELSE 0 END) AS is_visible,
        sum(CASE WHEN kind = 'retry' THEN 1 ELSE 0 END + failures) AS retries,
        sum(CASE WHEN kind = 'dlq' THEN 1 ELSE 0 END + deaths) AS dead_letters,
        max(CASE WHEN kind = 'dlq' OR deaths > 0 THEN stored_us END) AS died_us,
        max(CASE WHEN (kind = 'dlq' AND was_sent_again = 0) OR deaths > 0 THEN stored_us END) AS dead_us,
        sum({_IS_HELD} + kept) AS waiting,
        max(CASE WHEN {_IS_HELD} + kept > 0 THEN due_us END) AS due_us,
        max({_IS_PREPARED}) AS is_prepared,
        max(is_rolled_back) AS is_rolled_back,
        max(is_cancelled) AS is_cancelled,
        sum(is_again) AS replays,
        max(lacks_origin) AS lacks_origin
    FROM linked
    GROUP BY key, topic, node"""


def _with(queries: Mapping[str, str]) -> str:
    return "WITH " + ",\n".join(f"{name} AS ({sql})" for name, sql in queries.items()) + "\n"


def _is_any(column: str, values: tuple[str, ...]) -> str:
    return in_condition(column, (f"'{value}'" for value in values))


def _flag(name: str, condition: str) -> str:
    return f"max(CASE WHEN {condition} THEN 1 ELSE 0 END) AS {name}"


def _count(condition: str) -> str:
    return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"


_IS_CANCELLED = f"coalesce(outcome, '') = '{StepOutcome.CANCELLED}'"
_IS_STORED = f"coalesce(absent_reason, '') = '{AbsentReason.RETRY_STORE}'"
_OF_CONSUME_LOG = f"kind = '{EdgeKind.CONSUMED}' AND evidence_physical_offset < 0 AND is_done = 1"


def _links(begin_us: int) -> str:
    """Return the query that sums up what steps say about a record: those that begin at it, and those that end there.

    A consumption counts only if the broker's own log has it: for others, the broker stores copies.
    """
    moved = f"{_is_any('kind', (*_WAITS, EdgeKind.COMMITTED, EdgeKind.RECHECKED))} AND NOT {_IS_CANCELLED}"
    is_committed = f"kind = '{EdgeKind.FINISHED}' AND coalesce(outcome, '') = '{StepOutcome.COMMITTED}'"
    is_rolled_back = f"kind = '{EdgeKind.FINISHED}' AND coalesce(outcome, '') = '{StepOutcome.ROLLED_BACK}'"
    is_tracked = f"{_is_any('kind', (*_WAITS, EdgeKind.FINISHED, EdgeKind.COMMITTED, EdgeKind.RECHECKED))}"
    is_clear = f"coalesce(absent_reason, '') <> '{AbsentReason.AMBIGUOUS}'"
    done = "is_from = 1 AND is_there = 1 AND is_done = 1"
    logged = f"is_from = 1 AND {_OF_CONSUME_LOG} AND outcome = '%s'"
    in_store = f"is_from = 1 AND {_IS_STORED} AND is_done = 1 AND kind = '%s'"
    comes = f"is_from = 0 AND {_is_any('kind', (*_COPIES, *_REPLAYS))}"
    facts = ",\n        ".join(
        (
            _flag("is_tracked", f"is_from = 1 AND {is_tracked} AND {is_clear}"),
            _flag("has_moved", f"{done} AND (({moved}) OR ({is_committed}))"),
            _flag("is_rolled_back", f"{done} AND {is_rolled_back}"),
            _flag("is_cancelled", f"{done} AND ({_IS_CANCELLED} OR kind = '{EdgeKind.GIVEN_UP}')"),
            _flag("was_sent_again", f"{done} AND {_is_any('kind', _REPLAYS)}"),
            f"max(CASE WHEN is_from = 1 AND ({_is_any('kind', _WAITS)} OR {_IS_STORED}) THEN due_us END) AS due_us",
            f"{_count(in_store % EdgeKind.RETRIED)} AS kept",
            f"{_count(logged % StepOutcome.FAILED)} AS failures",
            f"greatest({_count(logged % StepOutcome.DEAD)}, {_count(in_store % EdgeKind.DEAD)}) AS deaths",
            _flag("is_copy", f"is_from = 0 AND {_is_any('kind', _COPIES)}"),
            _flag("is_again", f"is_from = 0 AND {_is_any('kind', _REPLAYS)}"),
            _flag("is_mark", f"is_from = 0 AND {_IS_CANCELLED}"),
            _flag("has_origin", f"{comes} AND is_there = 1 AND from_us >= {begin_us}"),
        )
    )
    columns = (
        "kind, outcome, absent_reason, evidence_physical_offset, from_us, due_us, is_done, "
        "CASE WHEN absent_end IS NULL THEN 1 ELSE 0 END AS is_there"
    )
    return f"""
    SELECT broker, physical_offset,
        {facts}
    FROM (
        SELECT from_broker AS broker, from_physical_offset AS physical_offset, 1 AS is_from, {columns} FROM known
        UNION ALL
        SELECT to_broker AS broker, to_physical_offset AS physical_offset, 0 AS is_from, {columns} FROM known
    ) AS ends
    WHERE broker IS NOT NULL AND physical_offset IS NOT NULL
    GROUP BY broker, physical_offset"""


_FACTS = (
    "is_tracked", "has_moved", "is_rolled_back", "is_cancelled", "was_sent_again", "kept", "failures", "deaths",
    "is_copy", "is_again", "has_origin",
)  # fmt: skip
_ENDED = "has_moved = 0 AND is_rolled_back = 0 AND is_cancelled = 0"
_IS_HELD = f"CASE WHEN kind IN ('delay', 'timer') AND is_tracked = 1 AND {_ENDED} THEN 1 ELSE 0 END"
_IS_PREPARED = f"CASE WHEN kind = 'half' AND is_tracked = 1 AND {_ENDED} THEN 1 ELSE 0 END"


def _linked(rows: str, clustered: str) -> str:
    """Return the query that adds what is known of each record, without marks that only cancel a timer."""
    facts = ", ".join(f"coalesce(links.{name}, 0) AS {name}" for name in _FACTS)
    return f"""
    SELECT key, topic, node, kind, stored_us, broker, physical_offset, {", ".join(_FACTS)}, due_us,
        CASE WHEN is_copy + is_again > 0 AND has_origin = 0 THEN 1 ELSE 0 END AS lacks_origin
    FROM (
        SELECT {rows}.key, {rows}.topic, {rows}.node, {rows}.kind, {rows}.stored_us, {rows}.broker,
            {rows}.physical_offset, links.due_us, coalesce(links.is_mark, 0) AS is_mark, {facts}
        FROM {rows} LEFT JOIN links
            ON {rows}.broker = links.broker AND {rows}.physical_offset = links.physical_offset
    ) AS joined
    WHERE is_mark = 0{clustered}"""


# Messages whose first record is not there come to the step before of their topic; those before any are one step.
_NUMBERED = f"""
    SELECT sent.*, sum(has_first) OVER (
        PARTITION BY key, topic ORDER BY {_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS step
    FROM sent"""


def _merged(first: str) -> str:
    """Return the query that makes one step of the messages that belong to it.

    Args:
        first: function that returns the value of the first row of a group.
    """
    places = ", ".join(f"{first % name} AS {name}" for name in ("broker", "physical_offset"))
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
        for percent in (50, 95, 99)
    )
    + "\n    FROM summed"
)


def _bound(delay: str) -> str:
    """Return SQL that rounds a delay up to two digits: 1,234 ms to 1,300 ms."""
    units = " ".join(f"WHEN {delay} < {100 * unit} THEN {unit}" for unit in (1, *_DIGIT_UNITS[:-1]))
    unit = f"(CASE {units} ELSE {_DIGIT_UNITS[-1]} END)"
    return f"{delay} + ({unit} - {delay} % {unit}) % {unit}"
