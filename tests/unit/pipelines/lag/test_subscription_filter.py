"""Messages selected by a group's filter, batch by batch."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
from commitlake.schemas.remoting.sql92 import compile_sql92

PROPERTIES = [
    {"price": "5", "city": "Berlin"}, {"price": "50"}, {"city": "Berlin"}, {}, {"price": "x", "city": ""},
    {"price": "50", "city": "Bonn"},
]  # fmt: skip


def batch_of(tags: list[str | None], properties: list[dict[str, str]] | None = None) -> pa.RecordBatch:
    kept = properties or [{} for _ in tags]
    column = pa.array([list(each.items()) for each in kept], pa.map_(pa.string(), pa.string()))
    return pa.record_batch({"tags": pa.array(tags, pa.string()), "properties": column})


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("*", [True, True, True, True]),
        ("", [True, True, True, True]),
        ("a", [True, False, False, False]),
        ("a || b", [True, True, False, False]),
        ("* || a", [True, False, False, False]),  # FilterAPI takes `*` as a tag there
        (" * ", [False, False, False, False]),
        (" ", [False, False, False, False]),
        ("\x1fa\t||\xa0b", [True, False, False, False]),
        # Two tags with one hash: a broker cannot distinguish them, a client can.
        ("Aa", [False, False, False, False]),
    ],
)
def test_tags_are_compared_as_texts(expression: str, wanted: list[bool]) -> None:
    assert SubscriptionFilter.of("TAG", expression).select_rows(batch_of(["a", "b", "BB", None])).tolist() == wanted


@pytest.mark.parametrize(
    "expression", ["price > 10", "price > 10 AND city = 'Bonn'", "city IS NULL", "NOT price > 10", "TRUE"]
)
def test_sql92_selects_the_same_messages_as_the_broker(expression: str) -> None:
    generator = random.Random(expression)
    drawn = [generator.choice(PROPERTIES) for _ in range(500)]
    condition = compile_sql92(expression)
    found = SubscriptionFilter.of("SQL92", expression).select_rows(batch_of([None] * len(drawn), drawn))
    assert found.tolist() == [condition(properties) for properties in drawn]


def test_an_invalid_filter_selects_everything_and_has_a_problem() -> None:
    wanted = SubscriptionFilter.of("SQL92", "price >")
    assert wanted.selects_all
    assert "the filter is not valid SQL92" in wanted.problem
    assert "found CLASS" in SubscriptionFilter.of("CLASS", "x").problem
