"""Extents of brokers, and the parts of them that are linked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges.lake_spans import BrokerSpan, BrokerSpans, LinkedExtents
from commitlake.pipelines.maintenance.compaction import compact_table, plan_compaction
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from tests.support.lakes import GrowingLake, archive_store, data_files, shop_messages

SPANS = BrokerSpans(
    {"a": BrokerSpan(0, 900, 0, 100), "b": BrokerSpan(0, 900, 0, 50), "c": BrokerSpan(0, 900, 0, 70)},
    linked_us={"a": 40, "b": 50},
    complete_us={"a": 80},
)


def test_rows_are_complete_before_the_first_row_that_is_not_linked() -> None:
    brokers = pa.array(["a", "a", "b", "b", "x", None])
    assert SPANS.linked_until_time_mask(brokers, np.array([79, 80, 49, 50, 0, 0])).tolist() == [
        True, False, True, False, False, False,
    ]  # fmt: skip


def test_times_are_newly_complete_if_an_increment_of_any_broker_passes_them() -> None:
    # a: from 40 to 80; b: nothing new; c: all of it, up to 70
    assert SPANS.newly_linked_mask(np.array([0, 39, 69, 70, 79, 80, 99])).tolist() == [
        True, True, True, True, True, False, False,
    ]  # fmt: skip
    without_c = BrokerSpans({"a": SPANS.brokers["a"], "b": SPANS.brokers["b"]}, linked_us={"a": 40, "b": 50})
    assert without_c.newly_linked_mask(np.array([39, 40, 99, 100])).tolist() == [False, True, True, False]


def compact(lake: Lake) -> None:
    plan = plan_compaction(lake, "messages", 128 << 20)
    compact_table(lake, "messages", plan, LAKE_TABLES["messages"].sort_columns)


def write_brokers(folder: Path, *names: str) -> Lake:
    """Archive one day of each broker into one lake; the brokers differ in their number of messages."""
    growing = GrowingLake(folder)
    for number, name in enumerate(names, 1):
        growing.write(shop_messages(20 * number, seed=number))
        archive_store(growing.store, growing.lake, name)
    return growing.lake


def test_brokers_have_the_same_spans_after_their_files_were_merged(tmp_path: Path) -> None:
    lake = write_brokers(tmp_path, "a", "b", "c", "d")
    before = LinkedExtents(lake, lake.table("messages"), ()).spans_after(())
    assert list(before.brokers) == ["a", "b", "c", "d"]
    assert len({span.end_offset for span in before.brokers.values()}) == 4
    compact(lake)
    assert len(data_files(lake.uri("messages"))) == 1
    merged = LinkedExtents(lake, lake.table("messages"), ()).spans_after(())
    assert merged == before
    assert merged.linked_until_time_mask(pa.array(["b"]), np.array([merged.brokers["b"].first_us])).all()


def test_a_merged_file_that_is_not_linked_leaves_all_its_brokers_incomplete(tmp_path: Path) -> None:
    lake = write_brokers(tmp_path, "a", "b", "c")
    compact(lake)
    messages = lake.table("messages")
    (name,) = data_files(lake.uri("messages"))
    extents = LinkedExtents(lake, messages, {name})
    first_us = min(span.first_us for span in extents.spans_after(()).brokers.values())
    assert {*extents.spans_after(()).complete_us.values()} == {first_us}
    assert extents.spans_after([name]).complete_us == {}


def test_only_merged_files_that_may_have_the_first_or_last_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged files of four days: all brokers are in each of them, so the first and the last suffice."""
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(200, days=4))
    for name in ("a", "b", "c"):
        archive_store(growing.store, growing.lake, name)
    before = LinkedExtents(growing.lake, growing.lake.table("messages"), ()).spans_after(())
    compact(growing.lake)
    files = sorted(data_files(growing.lake.uri("messages")))
    assert len(files) == 4
    opened: set[str] = set()
    open_parquet = pq.ParquetFile.__init__

    def note(self: pq.ParquetFile, source: pa.NativeFile, **options: object) -> None:
        opened.add(str(source.size()))
        open_parquet(self, source, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", note)
    assert LinkedExtents(growing.lake, growing.lake.table("messages"), ()).spans_after(()) == before
    sizes = [str((Path(growing.lake.uri("messages")) / name).stat().st_size) for name in files]
    assert opened == {sizes[0], sizes[-1]}
