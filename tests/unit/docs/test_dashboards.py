"""The queries of the dashboards' page run on a lake, and the dashboard for Databricks has the same queries."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from databricks.bundles.dashboards import Dashboard
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from tests.support.dashboard_queries import (
    ORDERS,
    PAGE,
    QUERIES,
    at_time,
    shop_lake,
    table_of_query,
    table_uri,
    write_own_tables,
)
from tests.support.snippets import blocks_of
from tests.support.source_tree import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "conf" / "examples" / "commitlake.lvdash.json").read_text())
SQL = {dataset["name"]: "".join(dataset["queryLines"]) for dataset in DASHBOARD["datasets"]}
WIDGETS = [place["widget"] for page in DASHBOARD["pages"] for place in page["layout"]]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, datetime.datetime]:
    """A lake with the messages of the example shop, and the end of its last day."""
    lake, now = shop_lake(tmp_path_factory.mktemp("dashboard"))
    write_own_tables(lake, now)
    return lake, now


@pytest.fixture(scope="module")
def answers(shop: tuple[Lake, datetime.datetime]) -> dict[str, pa.Table]:
    """The answer to each query, by the name of its dataset."""
    lake, now = shop
    tables = {name: table_of_query(sql) for name, sql in SQL.items()}
    opened = {name: DeltaTable(table_uri(lake, table)) for name, table in tables.items()}
    return {name: run_sql(opened[name], tables[name], at_time(SQL[name], now)).read_all() for name in SQL}


def test_the_dashboard_has_the_queries_of_the_page() -> None:
    assert list(SQL.values()) == QUERIES
    assert len(QUERIES) == 9


def test_each_query_finds_rows(answers: dict[str, pa.Table]) -> None:
    assert [name for name, found in answers.items() if not found.num_rows] == []


def test_charts_show_columns_of_their_queries(answers: dict[str, pa.Table]) -> None:
    assert {widget["name"] for widget in WIDGETS} == set(SQL)
    for widget in WIDGETS:
        (query,) = (each["query"] for each in widget["queries"])
        fields = [field["name"] for field in query["fields"]]
        assert set(fields) <= set(answers[query["datasetName"]].column_names)
        assert [field["expression"] for field in query["fields"]] == [f"`{name}`" for name in fields]
        encodings = widget["spec"]["encodings"]
        shown = encodings.get("columns", encodings.values())
        assert [one["fieldName"] for one in shown] == fields


def test_charts_do_not_overlap() -> None:
    taken = Counter[tuple[int, int]]()
    for page in DASHBOARD["pages"]:
        for place in (each["position"] for each in page["layout"]):
            rows, columns = range(place["height"]), range(place["width"])
            taken.update((place["x"] + column, place["y"] + row) for column in columns for row in rows)
    assert set(taken.values()) == {1}
    assert max(column for column, _ in taken) < 6


def test_figures_are_those_of_the_messages(answers: dict[str, pa.Table], shop: tuple[Lake, datetime.datetime]) -> None:
    messages = shop[0].table("messages").to_pyarrow_table(columns=["topic", "kind", "size"])
    counted = answers["messages_per_second"].group_by("topic").aggregate([("messages_per_s", "sum")]).to_pylist()
    found = {row["topic"]: round(float(row["messages_per_s_sum"]) * 3600) for row in counted}
    assert found == Counter(messages["topic"].to_pylist())
    gib = sum(float(size) for size in answers["log_by_day"]["gib"].to_pylist())
    assert gib == pytest.approx(pc.sum(messages["size"]).as_py() / 2**30)
    dead = answers["dead_letters"]
    assert pc.sum(dead["messages"]).as_py() == messages["kind"].to_pylist().count("dlq")
    assert set(dead["consumer_group"].to_pylist()) == {"shipping-service"}
    assert pc.sum(answers["archive_runs"]["messages"]).as_py() == messages.num_rows


def test_journeys_are_those_of_the_orders(answers: dict[str, pa.Table]) -> None:
    assert pc.sum(answers["journeys_by_outcome"]["keys"]).as_py() == ORDERS
    outcomes = set(answers["journeys_by_outcome"]["outcome"].to_pylist())
    assert {"orders: prepared", "payments: dead", "payments: delivered"} <= outcomes
    assert "orders to payments" in answers["hop_times"]["hop"].to_pylist()


def test_lag_is_that_of_the_group_that_stopped(answers: dict[str, pa.Table]) -> None:
    behind = [row for row in answers["messages_behind"].to_pylist() if row["consumer_group"] == "mail-service"]
    assert behind[-1]["messages_behind"] > 0 == min(row["messages_behind"] for row in behind)
    waits = [row["minutes"] for row in answers["longest_wait"].to_pylist() if row["consumer_group"] == "mail-service"]
    assert 60 < waits[-1] < 6 * 60
    needed = answers["attention"].to_pylist()
    assert {row["consumer_group"] for row in needed} == {"mail-service"}
    assert "stalled" in {row["verdict"] for row in needed} <= {"slow", "stalled"}


def test_the_bundle_can_have_the_dashboard() -> None:
    (block,) = (block for block in blocks_of(PAGE) if block.language == "yaml")
    (dashboard,) = yaml.safe_load(block.text)["resources"]["dashboards"].values()
    assert Dashboard.from_dict(dict(dashboard)).as_dict() == dashboard
    assert (ROOT / dashboard["file_path"]).is_file()
