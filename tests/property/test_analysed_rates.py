"""Rates of a lake are those of its messages, counted one by one, for any question."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.schemas.tables.rates import rate_columns
from tests.support.analysed_lakes import LAKES, QUESTIONS, expected_rates, random_lake, rows_of
from tests.support.hypothesis_profiles import load

load()


@given(seed=st.integers(0, LAKES - 1), question=QUESTIONS)
@example(seed=0, question={"by": ["topic", "kind"], "window": "5 minutes", "since": "2023-11-15T00:01:00.001"})
@example(seed=0, question={"by": [], "window": "1m", "since": "2023-11-15T00:01:00.001", "until": "2023-11-15"})
@example(seed=0, question={"by": ["producer_group", "origin_topic"], "window": "1 day"})
def test_rates_are_those_of_the_messages(seed: int, question: dict[str, Any]) -> None:
    lake = commitlake.open(random_lake(seed).lake.root)
    found = lake.tps(**question)
    assert found.schema.equals(arrow_schema(rate_columns(question["by"])))
    assert rows_of(found) == expected_rates(lake.table("messages").to_pylist(), question)
