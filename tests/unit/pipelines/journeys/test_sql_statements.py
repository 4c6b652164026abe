"""SQL for journeys: what both engines run."""

from __future__ import annotations

import datetime
import re

import pytest

from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.sql_statements import Sources, Statements
from commitlake.schemas.times import EPOCH

QUESTION = JourneysQuestion(EPOCH, EPOCH + datetime.timedelta(days=1))


@pytest.mark.parametrize("engine", list(Engine))
def test_each_table_is_read_once_and_joined_to_no_copy_of_itself(engine: Engine) -> None:
    made = Statements(QUESTION, engine, Sources("{messages}", "{edges}"))
    for sql in (made.steps_sql(), made.hops_sql(), made.hops_sql(None)):
        assert (sql.count("{messages}"), sql.count("{edges}")) == (1, 1)
        assert re.findall(r"(\w+) RIGHT JOIN", sql) == re.findall(r"(\w+) \w+ JOIN", sql) == ["links"]
        assert "'" not in re.sub(r"'[^']*'", "", sql)


def test_names_of_functions_are_all_that_differs_between_engines() -> None:
    both = (Statements(QUESTION, each, Sources("m", "e")).steps_sql() for each in (Engine.SPARK, Engine.DELTALAKE))
    spark, other = (re.sub(r"timestamp_micros\(-?\d+\)|arrow_cast\(-?\d+, '[^']*'\)", "TIME", sql) for sql in both)
    spark = re.sub(r"unix_micros\(((?:[^()]|\([^()]*\))*)\)", r"US(\1)", spark).replace("explode(", "unnest(")
    spark = re.sub(r"min_by\((\w+), struct\(([^)]*)\)\)", r"first_value(\1 ORDER BY \2)", spark)
    other = re.sub(r"arrow_cast\(((?:[^()]|\([^()]*\))*), 'Int64'\)", r"US(\1)", other)
    assert spark.replace(" DISTRIBUTE BY key", "") == other
