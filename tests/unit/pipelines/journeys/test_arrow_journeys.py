"""Journeys and hops of small lakes, from rows of `messages` and `edges`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import NoTableError
from commitlake.connectors.lake.reader import QueryError
from commitlake.pipelines.analysis.lake import AnalysisLake
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS
from tests.support.journeyed_lakes import SHAPES, JourneyedLake, Sent, by_key, time_of
from tests.support.lineage_lakes import START, Row, at, edge, make_lake, record

HOUR = datetime.timedelta(hours=1)
WINDOW: dict[str, Any] = {"since": START - HOUR, "until": START + HOUR}


def sent(offset: int, seconds: float, topic: str, key: str = "o1", **changes: Any) -> Row:
    """Return a row of a message that was sent to a topic."""
    values: Row = {"origin_topic": topic, "unique_key": f"U{offset}", "keys": [key], **changes}
    return record(offset, seconds, topic, **values)


def opened(folder: Path, records: Sequence[Row], edges: Iterable[Sequence[Row]] = ()) -> AnalysisLake[pa.Table]:
    """Write a lake, and open it as an analyst."""
    return commitlake.open(make_lake(folder, records, [row for rows in edges for row in rows]).root)


def journey(lake: AnalysisLake[pa.Table], key: str = "o1", **question: Any) -> dict[str, Any]:
    """Return the journey of a key."""
    return by_key(lake.journeys(**{**WINDOW, **question}))[key]


def test_columns_are_those_declared(tmp_path: Path) -> None:
    lake = opened(tmp_path, [sent(0, 0, "orders"), sent(1000, 1, "payments")])
    assert lake.journeys(**WINDOW).schema.equals(arrow_schema(JOURNEYS))
    assert lake.topic_flow(**WINDOW).schema.equals(arrow_schema(HOPS))


def test_a_window_without_records_has_no_rows(tmp_path: Path) -> None:
    lake = opened(tmp_path, [sent(0, 0, "orders", keys=None), sent(1000, 1, "orders", keys=[])])
    for found in (lake.journeys(**WINDOW), lake.journeys(since="1969-01-01", until="1970-01-02")):
        assert (found.num_rows, found.schema) == (0, arrow_schema(JOURNEYS))
    assert lake.topic_flow(**WINDOW).num_rows == 0


def test_all_shapes_have_their_state(tmp_path: Path) -> None:
    plan = [Sent(shape.replace(" ", "-"), "orders", shape, 10 * number) for number, shape in enumerate(SHAPES)]
    made = JourneyedLake(tmp_path, plan)
    found = by_key(commitlake.open(made.root).journeys(since=time_of(0), until=time_of(600)))
    assert {key: row["outcome"] for key, row in found.items()} == {
        "plain": "delivered", "sent-twice": "delivered", "delayed": "delivered", "waiting": "waiting",
        "timed": "delivered", "recalled": "cancelled", "retrying": "waiting", "retried": "delivered", "dead": "dead",
        "redriven": "delivered", "sent-again": "delivered", "committed": "delivered", "rolled-back": "rolled_back",
        "pending": "prepared", "given-up": "cancelled",
    }  # fmt: skip
    assert {tuple(row["path"]) for row in found.values()} == {("orders",)}


def test_a_message_of_several_keys_belongs_to_each(tmp_path: Path) -> None:
    lake = opened(tmp_path, [sent(0, 0, "orders", keys=["o1", "o2", "o1"]), sent(1000, 5, "payments", "o2")])
    found = by_key(lake.journeys(**WINDOW))
    assert {key: (row["path"], row["records"]) for key, row in found.items()} == {
        "o1": (["orders"], 1),
        "o2": (["orders", "payments"], 2),
    }


def test_one_client_message_id_in_two_topics_is_two_messages(tmp_path: Path) -> None:
    records = [sent(0, 0, "orders", unique_key="U"), sent(1000, 5, "audit", unique_key="U")]
    again = sent(2000, 7, "orders", unique_key="U")  # a producer that got no answer sent it again
    assert journey(opened(tmp_path, [*records, again]))["path"] == ["orders", "audit"]


def test_copies_without_client_message_ids_are_folded_by_topic(tmp_path: Path) -> None:
    first, retry = sent(0, 0, "orders", unique_key=None), record(
        1000, 30, "%RETRY%shop", keys=["o1"], unique_key=None, reconsume_times=1
    )  # fmt: skip
    found = journey(opened(tmp_path, [first, retry], [edge("retried", first, retry, consumer_group="shop")]))
    assert (found["path"], found["retries"], found["began_before"]) == (["orders"], 1, False)


def test_a_key_that_began_before_is_told_apart(tmp_path: Path) -> None:
    records = [sent(0, 0, "orders"), sent(1000, 100, "payments"), sent(2000, 300, "shipments")]
    lake = opened(tmp_path, records)
    window: dict[str, Any] = {"since": at(50), "until": at(200)}
    found = journey(lake, **window)
    assert (found["path"], found["began_before"], found["went_on_after"]) == (
        ["orders", "payments", "shipments"], True, True,
    )  # fmt: skip
    found = journey(lake, **window, margin=datetime.timedelta())
    assert (found["path"], found["began_before"], found["went_on_after"]) == (["payments"], False, False)
    assert by_key(lake.journeys(since=at(101), until=at(299))) == {}


def test_a_retry_whose_message_is_not_in_the_lake_began_before(tmp_path: Path) -> None:
    retry = record(1000, 30, "%RETRY%shop", keys=["o1"], reconsume_times=1)
    absent = edge("retried", None, retry, absent_end="from", absent_reason="before_archive")
    found = journey(opened(tmp_path, [retry], [absent]))
    assert (found["path"], found["began_before"], found["outcome"]) == (["orders"], True, "delivered")


def test_what_became_of_a_delayed_message_may_be_unknown(tmp_path: Path) -> None:
    delayed = record(0, 0, "SCHEDULE_TOPIC_XXXX", keys=["o1"])
    late = journey(opened(tmp_path / "late", [delayed]))
    assert (late["outcome"], late["waiting"]) == ("unknown", 0)
    ambiguous = edge("delayed", delayed, absent_end="to", absent_reason="ambiguous", due_timestamp=at(10))
    found = journey(opened(tmp_path / "ambiguous", [delayed], [ambiguous]))
    assert (found["outcome"], found["waiting"], found["due_at"]) == ("unknown", 0, None)
    waits = edge("delayed", delayed, absent_end="to", absent_reason="overdue", due_timestamp=at(10))
    found = journey(opened(tmp_path / "overdue", [delayed], [waits]))
    assert (found["outcome"], found["waiting"], found["due_at"]) == ("waiting", 1, at(10))


def test_deliveries_of_a_journal_are_counted_from_its_own_log(tmp_path: Path) -> None:
    first, second, third = (sent(offset, offset / 100, f"t{offset}") for offset in (0, 1000, 2000))
    log: dict[str, Any] = {"evidence_broker": "broker-a", "evidence_physical_offset": -1, "consumer_group": "app"}
    absent: dict[str, Any] = {"absent_end": "to", "absent_reason": "retry_store", "consumer_group": "app"}
    edges = [
        edge("consumed", first, outcome="failed", event_timestamp=at(1), **log),
        edge("consumed", first, outcome="success", event_timestamp=at(2), **log),
        edge("consumed", first, outcome="failed", event_timestamp=at(3), evidence_physical_offset=5),  # a trace
        edge("consumed", second, outcome="dead", event_timestamp=at(20), **log),
        edge("dead", second, event_timestamp=at(20), **absent),
        edge("retried", third, event_timestamp=at(30), due_timestamp=at(90), **absent),
    ]
    found = journey(opened(tmp_path, [first, second, third], edges))
    assert [(step["state"], step["retries"], step["dead_letters"]) for step in found["steps"]] == [
        ("delivered", 1, 0),
        ("dead", 0, 1),
        ("waiting", 0, 0),
    ]
    assert (found["outcome"], found["waiting"], found["due_at"]) == ("dead", 1, at(90))


def test_a_key_of_ten_thousand_messages_is_cut_and_counted(tmp_path: Path) -> None:
    records = [sent(1000 * number, number / 10, "events") for number in range(10_000)]
    lake = opened(tmp_path, records)
    found = journey(lake)
    assert (len(found["path"]), found["messages"], found["is_cut"]) == (1000, 10_000, True)
    assert (found["last_sent_at"], found["steps"][-1]["number"]) == (at(999.9), 1000)
    assert len(journey(lake, max_steps=3)["steps"]) == 3
    (hops,) = lake.topic_flow(**WINDOW).to_pylist()
    assert (hops["hops"], hops["delays"]) == (9_999, [(100, 9_999)])


def test_a_clock_that_was_set_back_makes_the_order_uncertain(tmp_path: Path) -> None:
    records = [sent(0, 60, "orders"), sent(1000, 0, "payments"), sent(2000, 90, "orders", "o2")]
    found = by_key(opened(tmp_path, records).journeys(**WINDOW))
    assert (found["o1"]["path"], found["o1"]["order_uncertain"]) == (["payments", "orders"], True)
    assert not found["o2"]["order_uncertain"]


def test_a_decision_after_the_end_counts_as_open(tmp_path: Path) -> None:
    half = record(0, 0, "RMQ_SYS_TRANS_HALF_TOPIC", keys=["o1"])
    copy, op = record(1000, 100, "orders", keys=["o1"]), record(2000, 101, "RMQ_SYS_TRANS_OP_HALF_TOPIC", keys=None)
    edges = [edge("committed", half, copy, outcome="committed"), edge("finished", half, op, outcome="committed")]
    lake = opened(tmp_path, [half, copy, op], edges)
    early = journey(lake, until=at(50), margin="10s")
    assert (early["outcome"], early["open_transactions"], early["records"]) == ("prepared", 1, 1)
    assert journey(lake, until=at(50))["outcome"] == "delivered"


def test_conditions_choose_records(tmp_path: Path) -> None:
    records = [
        sent(0, 0, "orders", tags="new"),
        sent(1000, 1, "payments", broker="broker-b"),
        sent(2000, 2, "it's \\", "o2"),
    ]
    lake = opened(tmp_path, records)
    chosen: list[tuple[dict[str, Any], set[str]]] = [
        ({"topic": ["orders", "it's \\"]}, {"orders", "it's \\"}),
        ({"broker": "broker-b"}, {"payments"}),
        ({"key": "o2"}, {"it's \\"}),
        ({"tag": "new"}, {"orders"}),
        ({"where": "physical_offset > 0"}, {"payments", "it's \\"}),
    ]
    for question, topics in chosen:
        found = lake.journeys(**WINDOW, **question)
        assert {topic for path in found.column("path").to_pylist() for topic in path} == topics
    with pytest.raises(QueryError):
        lake.journeys(**WINDOW, where="nothing = 1")


def test_hops_are_summed_by_hour_and_rounded_up(tmp_path: Path) -> None:
    records = []
    for number, (start, delay) in enumerate([(0, 0.007), (1, 0.1), (2, 1.2341), (3590, 20), (3600, 86_400)]):
        records += [
            sent(2000 * number, start, "orders", f"o{number}"),
            sent(2000 * number + 1000, start + delay, "payments", f"o{number}"),
        ]
    lake = opened(tmp_path, records)
    question: dict[str, Any] = {"since": START, "until": START + datetime.timedelta(days=2)}
    rows = lake.topic_flow(**question).to_pylist()
    assert [(row["hour"], row["hops"], dict(row["delays"])) for row in rows] == [
        (at(0), 3, {7: 1, 100: 1, 1300: 1}),
        (at(3600), 1, {20_000: 1}),
        (at(3600 + 86_400), 1, {87_000_000: 1}),
    ]
    assert (rows[0]["p50_ms"], rows[0]["p95_ms"], rows[0]["p99_ms"]) == (100, 1300, 1300)
    (row,) = lake.topic_flow(**question, window=None, margin="1 hour").to_pylist()
    assert (row["hour"], row["hops"], row["p50_ms"], row["p99_ms"]) == (at(0), 4, 100, 20_000)
    (row,) = lake.topic_flow(since=at(3600), until=at(7200)).to_pylist()
    assert row["delays"] == [(20_000, 1)]  # the first of both messages was sent in the hour before


def test_an_older_lake_lacks_columns(tmp_path: Path) -> None:
    root = make_lake(tmp_path, [sent(0, 0, "orders"), sent(1000, 1, "payments")], []).root
    rows = DeltaTable(f"{root}/messages").to_pyarrow_table().drop_columns("origin_topic")
    write_deltalake(f"{root}/messages", rows, mode="overwrite", schema_mode="overwrite")
    assert journey(commitlake.open(root), topic=["orders", "payments"])["path"] == ["orders", "payments"]


def test_a_lake_without_edges_has_no_journeys(tmp_path: Path) -> None:
    lake = commitlake.open(make_lake(tmp_path, [sent(0, 0, "orders")], None).root)
    with pytest.raises(NoTableError, match="has no table 'edges', which journeys need; 'commitlake archive"):
        lake.journeys(**WINDOW)
    with pytest.raises(NoTableError, match="'edges'"):
        lake.topic_flow(**WINDOW)
