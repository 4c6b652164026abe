"""SQL for journeys: what both engines run."""

from __future__ import annotations

import datetime
import re

import pytest

from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.sql_statements import JourneyStatements, SourceTables
from commitlake.schemas.times import EPOCH

QUESTION = JourneysQuestion(EPOCH, EPOCH + datetime.timedelta(days=1))


@pytest.mark.parametrize("engine", list(Engine))
def test_each_table_is_read_once_and_joined_to_no_copy_of_itself(engine: Engine) -> None:
    made = JourneyStatements(QUESTION, engine, SourceTables("{messages}", "{edges}"))
    sql = made.records_sql(QUESTION.begin_us, QUESTION.end_us, only_window_keys=False)
    assert (sql.count("{messages}"), sql.count("{edges}")) == (1, 1)
    assert re.findall(r"(\w+) RIGHT JOIN", sql) == re.findall(r"(\w+) \w+ JOIN", sql) == ["links"]
    assert "'" not in re.sub(r"'[^']*'", "", sql)


@pytest.mark.parametrize("only_window_keys", [False, True])
def test_names_of_functions_are_all_that_differs_between_engines(only_window_keys: bool) -> None:
    both = (
        JourneyStatements(QUESTION, each, SourceTables("m", "e")).records_sql(0, 10, only_window_keys=only_window_keys)
        for each in (Engine.SPARK, Engine.DELTALAKE)
    )
    spark, other = (re.sub(r"timestamp_micros\(-?\d+\)|arrow_cast\(-?\d+, '[^']*'\)", "TIME", sql) for sql in both)
    spark = re.sub(r"unix_micros\(((?:[^()]|\([^()]*\))*)\)", r"US(\1)", spark).replace("explode(", "unnest(")
    other = re.sub(r"arrow_cast\(((?:[^()]|\([^()]*\))*), 'Int64'\)", r"US(\1)", other)
    assert spark == other
