"""Outcomes of transactions, from the table `edges`: how many were committed, rolled back, given up, or are open.

`topic_minutes` counts half messages and committed messages only. A half message that the broker stored again belongs to
the same transaction, as it has the same unique key.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.lake.sql import Engine, in_condition, timestamp_literal, value_literal
from commitlake.pipelines.query.engines import run_select
from commitlake.pipelines.tps.rates_query import RatesQuestion
from commitlake.pipelines.tps.result_rows import to_row_dicts
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, Kind
from commitlake.schemas.tables.edges import EdgeKind, StepOutcome

MAX_TRANSACTIONS = 5_000_000
"""Largest number of transactions whose outcomes are counted; each is a group of the engine."""
_CHECKED_FOR = datetime.timedelta(days=1)
"""Time within which a broker stores a half message again; by default it does so for 15 minutes."""
_OPEN, _GIVEN_UP, _ROLLED_BACK, _COMMITTED = range(4)
"""Outcomes; of several steps of a transaction, the one with the largest number counts."""


@dataclass(frozen=True, slots=True)
class TransactionOutcomes:
    """Outcomes of the transactions whose first half message was stored in a time range.

    Attributes:
        committed: number of committed transactions.
        rolled_back: number of transactions that were rolled back.
        given_up: number of transactions that the broker gave up, because their producer did not finish them.
        open: number of transactions without an outcome so far.
    """

    committed: int = 0
    rolled_back: int = 0
    given_up: int = 0
    open: int = 0

    @property
    def total_count(self) -> int:
        """Number of transactions."""
        return self.committed + self.rolled_back + self.given_up + self.open


class ReadOutcomes(NamedTuple):
    """Outcomes of transactions, or an error text if the table `edges` is damaged.

    Attributes:
        found: See `read_outcomes`.
        damage: The error if `edges` is damaged; empty if it is not.
    """

    found: TransactionOutcomes | None = None
    damage: str = ""


def read_outcomes_if_intact(
    lake: Lake, question: RatesQuestion, transaction_count: int, engine: Engine = Engine.DELTALAKE
) -> ReadOutcomes:
    """Count transactions by outcome, or return the error text if the table `edges` is damaged."""
    try:
        return ReadOutcomes(read_outcomes(lake, question, transaction_count, engine))
    except (QueryError, LogDamagedError) as error:
        return ReadOutcomes(damage=str(error))


def read_outcomes(
    lake: Lake, question: RatesQuestion, transaction_count: int, engine: Engine = Engine.DELTALAKE
) -> TransactionOutcomes | None:
    """Count the transactions of a query's time range by outcome: committed, rolled back, given up or open.

    Args:
        lake: the lake.
        question: the question; its groups and windows do not matter.
        transaction_count: number of transactions that the question counts.

    Returns:
        The outcomes; None if they are not known: the lake has no `edges`, there are more than `MAX_TRANSACTIONS`, or
        the question selects messages by columns that `edges` does not have.

    Raises:
        LogDamagedError: if the table's log is damaged.
    """
    if not transaction_count:
        return TransactionOutcomes()
    if transaction_count > MAX_TRANSACTIONS or not _selects_half_messages(question):
        return None
    try:
        lake.table("edges")
    except NoTableError:
        return None
    found = {
        row["outcome"]: row["count"]
        for row in to_row_dicts(run_select(lake, "edges", _outcomes_sql(question, engine), engine))
    }
    outcomes = TransactionOutcomes(
        committed=found.get(_COMMITTED, 0),
        rolled_back=found.get(_ROLLED_BACK, 0),
        given_up=found.get(_GIVEN_UP, 0),
        open=found.get(_OPEN, 0),
    )
    return outcomes if outcomes.total_count else None


def _selects_half_messages(question: RatesQuestion) -> bool:
    asked = question.selection
    return not asked.tags and set(asked.topics) <= {HALF_TOPIC} and set(asked.kinds) <= {Kind.HALF}


def _outcomes_sql(question: RatesQuestion, engine: Engine) -> str:
    kinds = ", ".join(f"'{kind}'" for kind in (EdgeKind.FINISHED, EdgeKind.RECHECKED, EdgeKind.GIVEN_UP))
    start, end = question.start - _CHECKED_FOR, question.end + _CHECKED_FOR
    conditions = [
        f"kind IN ({kinds})",
        "side <> 'to'",
        f"from_timestamp >= {timestamp_literal(start, engine)}",
        f"from_timestamp < {timestamp_literal(end, engine)}",
    ]
    for column, values in question.selection.column_values:
        if column in ("broker", "queue_id"):
            conditions.append(in_condition(f"from_{column}", (value_literal(value, engine) for value in values)))
    outcome = (
        f"max(CASE WHEN outcome = '{StepOutcome.COMMITTED}' THEN {_COMMITTED} "
        f"WHEN outcome = '{StepOutcome.ROLLED_BACK}' THEN {_ROLLED_BACK} "
        f"WHEN kind = '{EdgeKind.GIVEN_UP}' THEN {_GIVEN_UP} ELSE {_OPEN} END) AS outcome"
    )
    transactions = (
        f"SELECT from_broker, node, min(from_timestamp) AS first_timestamp, {outcome} FROM edges "
        f"WHERE {' AND '.join(conditions)} GROUP BY from_broker, node"
    )
    start_text, end_text = (timestamp_literal(moment, engine) for moment in (question.start, question.end))
    return (
        f"SELECT outcome, count(*) AS count FROM ({transactions}) "
        f"WHERE first_timestamp >= {start_text} AND first_timestamp < {end_text} GROUP BY outcome"
    )
