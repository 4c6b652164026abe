"""Look-ups in a real HBase give the rows of a scan of the Delta table, in the same order."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.lookups import find_messages, join_batches
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.table_update import follow_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.schemas.selection import Selection
from tests.servers.hbase import HBase
from tests.support.hbase_tables import SCHEMA, START, append, delta_rows, message_rows, rare_rows

Rows = list[dict[str, Any]]
MINUTE = datetime.timedelta(minutes=1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    append(lake.uri("messages"), message_rows(6000))
    append(lake.uri("messages"), rare_rows())
    return lake


@pytest.fixture(scope="module")
def rows(lake: Lake) -> Rows:
    """All rows in the order of answers: by time, nulls last, then by place."""
    order = delta_rows(lake.uri("messages"))
    latest = datetime.datetime.max.replace(tzinfo=datetime.UTC)
    return sorted(order, key=lambda row: (row["store_timestamp"] is None, row["store_timestamp"] or latest))


@pytest.fixture(scope="module")
def client(hbase: HBase, lake: Lake) -> Iterator[Client]:
    options = HBaseOptions(host="127.0.0.1", port=hbase.thrift_port, table="lookups", salts=8)
    follow_messages(None, lake, options)
    with Client(options) as client:
        yield client


def _ask(client: Client, wanted: Selection, limit: int = 0) -> Rows:
    table = join_batches(find_messages(client, wanted, limit))
    assert table.schema == SCHEMA
    return [{name: _plain(name, row[name]) for name in sorted(row)} for row in table.to_pylist()]


def _plain(name: str, value: Any) -> Any:
    return dict(value) if name == "properties" and value is not None else value


def test_an_offset_message_id_gives_its_message(client: Client, rows: Rows) -> None:
    for row in rows[::500]:
        if row["msg_id"] is not None:
            assert _ask(client, Selection(ids=[row["msg_id"]])) == [row]
            assert _ask(client, Selection(ids=[row["msg_id"].lower()])) == [row]


def test_records_at_one_offset_are_distinguished_by_their_brokers(client: Client, rows: Rows) -> None:
    first, second = (row for row in rows if row["physical_offset"] == 2000)
    assert first["broker"] != second["broker"]
    assert _ask(client, Selection(ids=[second["msg_id"]])) == [second]


def test_an_id_without_an_offset_is_looked_up_as_a_unique_key(client: Client, rows: Rows) -> None:
    wanted = next(row["unique_key"] for row in rows[50:] if row["unique_key"])
    expected = [row for row in rows if row["unique_key"] == wanted]
    assert _ask(client, Selection(ids=[wanted])) == expected
    assert len(_ask(client, Selection(ids=["ü" * 300]))) == 1
    assert _ask(client, Selection(ids=["nobody's"])) == []


@pytest.mark.parametrize("keys", [["order-0"], ["order-1", "order-2", "order-1"], ["a"], [""], ["k" * 40_000], ["no"]])
def test_business_keys_give_each_of_their_messages_once(client: Client, rows: Rows, keys: list[str]) -> None:
    expected = [row for row in rows if row["keys"] and set(keys) & set(row["keys"])]
    assert _ask(client, Selection(keys=keys)) == expected


@pytest.mark.parametrize("limit", [0, 1, 7, 100, 10_000])
def test_a_topics_messages_are_in_time_order_up_to_the_limit(client: Client, rows: Rows, limit: int) -> None:
    expected = [row for row in rows if row["topic"] == "orders"]
    assert _ask(client, Selection(topics=["orders"]), limit) == expected[: limit or None]


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, START + MINUTE / 2), (START + MINUTE / 2, None), (START + MINUTE / 2, START + MINUTE), (START, START)],
)
def test_time_ranges_include_their_start_and_exclude_their_end(
    client: Client, rows: Rows, start: datetime.datetime | None, end: datetime.datetime | None
) -> None:
    def holds(row: dict[str, Any]) -> bool:
        time = row["store_timestamp"]
        return time is not None and (start is None or time >= start) and (end is None or time < end)

    for wanted, like in _ways():
        expected = [row for row in rows if like(row) and holds(row)]
        assert _ask(client, replace(wanted, start=start, end=end)) == expected


def _ways() -> list[tuple[Selection, Callable[[dict[str, Any]], bool]]]:
    topics = ("orders", "Bestellungen-ä", "nobody's")
    return [
        (Selection(topics=topics), lambda row: row["topic"] in topics),
        (Selection(keys=["order-3"]), lambda row: "order-3" in (row["keys"] or ())),
    ]


def test_other_conditions_filter_the_messages_that_the_keys_find(client: Client, rows: Rows) -> None:
    wanted = Selection(topics=["orders"], queue_ids=[1], kinds=["normal"], brokers=["broker-b"])
    expected = [row for row in rows if (row["topic"], row["queue_id"], row["broker"]) == ("orders", 1, "broker-b")]
    assert expected
    assert _ask(client, wanted) == expected
    assert _ask(client, wanted, 5) == expected[:5]
    assert _ask(client, replace(wanted, kinds=["dlq"])) == []


def test_answers_are_in_the_order_of_a_sql_query_on_delta(client: Client, lake: Lake) -> None:
    sql = (
        "SELECT broker, physical_offset FROM messages WHERE topic = 'orders' "
        "ORDER BY store_timestamp ASC NULLS LAST, broker, physical_offset LIMIT 500"
    )
    expected = run_sql(lake.table("messages"), "messages", sql).read_all().to_pylist()
    found = _ask(client, Selection(topics=["orders"]), 500)
    assert [{name: row[name] for name in ("broker", "physical_offset")} for row in found] == expected


def test_a_lookup_that_no_key_supports_is_refused(client: Client) -> None:
    with pytest.raises(HBaseError, match="only by message id, key or topic"):
        _ask(client, Selection(brokers=["broker-a"]))
