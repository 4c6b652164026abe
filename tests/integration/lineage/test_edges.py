"""The steps of a real broker's store: all that its clients did and its log shows, and no others.

Expected steps follow from the output of the Java clients, and from the records as RocketMQ's own decoder reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges.table_update import follow_edges
from tests.servers.recording import FAILING_GROUP, MAX_RECONSUME_TIMES, RecordedStore
from tests.support.lakes import archive_store
from tests.support.logs import write_store

Row = dict[str, Any]
Step = tuple[Any, ...]
COMMIT, TRANSACTION = 0x8, 0xC
TRACED = {"traced", "transaction_check", "transaction_given_up", "transaction_immune", "transaction_commit",
          "transaction_rollback", "transaction_pending"}  # fmt: skip
"""The kinds of messages of producers with trace on."""
RUNS = 7


def steps_of(lake: Lake) -> list[Row]:
    """Return the rows of `edges`, each step once."""
    rows: list[Row] = DeltaTable(lake.uri("edges")).to_pyarrow_table().to_pylist()
    return [row for row in rows if row["side"] != "to"]


@pytest.fixture(scope="module")
def lake(recorded_store: RecordedStore, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of the recorded store, made in one run."""
    lake = Lake(str(tmp_path_factory.mktemp("edges") / "lake"))
    archive_store(recorded_store.store, lake, "b")
    follow_edges(lake)
    return lake


def ends(lake: Lake, *kinds: str) -> set[Step]:
    """Return the steps of some kinds: kind and both offsets."""
    found = [row for row in steps_of(lake) if row["kind"] in kinds]
    places = {(row["kind"], row["from_physical_offset"], row["to_physical_offset"]) for row in found}
    assert len(places) == len(found)
    return places


def by_key(store: RecordedStore) -> dict[str, list[Row]]:
    """Return the records of each message, in the order of the log."""
    found = defaultdict(list)
    for row in store.decoded:
        if row["unique_key"]:
            found[row["unique_key"]].append(row)
    return found


def test_a_record_that_waited_has_a_step_to_its_copy(lake: Lake, recorded_store: RecordedStore) -> None:
    expected: set[Step] = set()
    kinds = {"SCHEDULE_TOPIC_XXXX": "delayed", "rmq_sys_wheel_timer": "timer"}
    for rows in by_key(recorded_store).values():
        for waiting in rows:
            if waiting["topic"] in kinds:
                place, properties = waiting["physical_offset"], waiting["properties"]
                copies = [
                    row["physical_offset"]
                    for row in rows
                    if row["topic"] == properties["REAL_TOPIC"]
                    and row["reconsume_times"] == waiting["reconsume_times"]
                    and row["physical_offset"] > place
                ]
                assert len(copies) < 2
                expected |= {(kinds[waiting["topic"]], place, copy) for copy in copies or [None]}
    assert len(expected) > 5
    assert ends(lake, "delayed", "timer") == expected
    assert {row["absent_reason"] for row in steps_of(lake) if row["to_timestamp"] is None and row["due_timestamp"]} == {
        "not_yet"
    }


def test_each_failed_delivery_has_a_step_to_its_copy(lake: Lake, recorded_store: RecordedStore) -> None:
    expected: set[Step] = set()
    families = by_key(recorded_store)
    for told in recorded_store.failed:
        failed = int(told["offset_msg_id"][-16:], 16)
        attempt = told["reconsume_times"] + 1
        topic = "SCHEDULE_TOPIC_XXXX" if attempt <= MAX_RECONSUME_TIMES else f"%DLQ%{FAILING_GROUP}"
        (copy,) = (
            row["physical_offset"]
            for row in families[told["unique_key"]]
            if row["topic"] == topic and row["reconsume_times"] == attempt
        )
        expected.add(("retried" if attempt <= MAX_RECONSUME_TIMES else "dead", failed, copy))
    found = {
        (row["kind"], row["from_physical_offset"], row["to_physical_offset"])
        for row in steps_of(lake)
        if row["consumer_group"] == FAILING_GROUP and row["kind"] in {"retried", "dead"}
    }
    assert found == expected


def test_copies_of_pop_consumers_have_steps_from_their_messages(lake: Lake, recorded_store: RecordedStore) -> None:
    families = by_key(recorded_store)
    expected = {
        ("retried", families[row["unique_key"]][0]["physical_offset"], row["physical_offset"])
        for row in recorded_store.decoded
        if row["topic"].startswith("%RETRY%") and not row["topic"].startswith(f"%RETRY%{FAILING_GROUP}")
    }
    found = {
        (row["kind"], row["from_physical_offset"], row["to_physical_offset"])
        for row in steps_of(lake)
        if row["kind"] == "retried" and row["consumer_group"] != FAILING_GROUP
    }
    assert found == expected


def test_traces_give_a_step_for_each_failed_delivery_only(lake: Lake, recorded_store: RecordedStore) -> None:
    expected = {
        (told["unique_key"], int(told["offset_msg_id"][-16:], 16), told["reconsume_times"], FAILING_GROUP, "failed")
        for told in recorded_store.failed
    }
    consumed = [row for row in steps_of(lake) if row["kind"] == "consumed"]
    assert len(consumed) == len(expected)
    assert {
        (row["unique_key"], row["from_physical_offset"], row["attempt"], row["consumer_group"], row["outcome"])
        for row in consumed
    } == expected
    assert all(row["cost_ms"] is not None and row["client_host"] for row in consumed)


def test_traces_name_the_producer_where_trace_is_on(lake: Lake, recorded_store: RecordedStore) -> None:
    expected = {row["unique_key"] for row in recorded_store.sent if row["kind"] in TRACED}
    produced = [row for row in steps_of(lake) if row["kind"] == "produced"]
    assert sorted(row["unique_key"] for row in produced) == sorted(expected)
    assert all(row["absent_end"] is None and row["outcome"] == "success" for row in produced)
    first = {key: rows[0]["physical_offset"] for key, rows in by_key(recorded_store).items()}
    assert all(row["to_physical_offset"] == first[row["unique_key"]] for row in produced)


def test_transactions_end_as_their_producers_decided(lake: Lake, recorded_store: RecordedStore) -> None:
    families = by_key(recorded_store)
    outcomes = {row["unique_key"]: row["kind"].removeprefix("transaction_") for row in recorded_store.sent
                if row["kind"].startswith("transaction_")}  # fmt: skip
    places: set[Step] = set()
    for key in outcomes:
        halves = [row for row in families[key] if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"]
        offsets = [row["physical_offset"] for row in halves]
        places |= {("rechecked", *pair) for pair in pairwise(offsets)}
        for row in families[key]:
            if row["topic"] == "TRANS_CHECK_MAX_TIME_TOPIC":
                places.add(("given_up", offsets[-1], row["physical_offset"]))
            if row["sys_flag"] & TRANSACTION == COMMIT:
                places.add(("committed", row["prepared_transaction_offset"], row["physical_offset"]))
    assert ends(lake, "rechecked", "given_up", "committed") == places
    finished = [row for row in steps_of(lake) if row["kind"] == "finished"]
    told = {(outcomes[row["unique_key"]], row["outcome"]) for row in finished if row["absent_end"] is None}
    assert told == {("commit", "committed"), ("check", "committed"), ("rollback", "rolled_back")}
    assert {row["outcome"] for row in steps_of(lake) if row["kind"] == "ended"} <= {
        "committed",
        "rolled_back",
        "unknown",
    }


def test_messages_sent_without_a_trace_have_no_step(lake: Lake, recorded_store: RecordedStore) -> None:
    plain = {row["unique_key"] for row in recorded_store.sent if row["kind"] in {"volume", "plain", "ordered", "keys"}}
    assert len(plain) > 1000
    assert not plain & {row["unique_key"] for row in steps_of(lake)}


def parts(store: RecordedStore) -> Iterator[Sequence[tuple[int, bytes]]]:
    """Yield the store's segments as they were at several moments: cut after a record, and filled with zeros."""
    segments = {int(path.name): path.read_bytes() for path in sorted((store.store / "commitlog").iterdir())}
    rows = store.decoded
    for run in range(1, RUNS):
        last = rows[len(rows) * run // RUNS]
        end = last["physical_offset"] + last["size"]
        yield [(start, data[: end - start].ljust(len(data), b"\0")) for start, data in segments.items() if start < end]
    yield list(segments.items())


def test_several_runs_give_the_same_steps_as_one(lake: Lake, recorded_store: RecordedStore, tmp_path: Path) -> None:
    grown = Lake(str(tmp_path / "lake"))
    for segments in parts(recorded_store):
        archive_store(write_store(tmp_path / "b", segments), grown, "b")
        follow_edges(grown)

    def rows(lake: Lake) -> list[Row]:
        # Due times follow from the broker's own delay levels, found from queues, which one of the stores lacks.
        table = DeltaTable(lake.uri("edges")).to_pyarrow_table().drop_columns(["due_timestamp"]).to_pylist()
        return sorted(table, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))

    assert rows(grown) == rows(lake)
