"""Tests of the source `commitlog` that need no Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, Filter, Not

from commitlake.connectors.sources import commitlog
from tests.support.local_archives import write_messages


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store."""
    folder = tmp_path_factory.mktemp("sources") / "store"
    write_messages(folder, 20)
    return folder


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({}, True),
        ({"topics": "topic-0"}, False),
        ({"startingTimestamp": "2020-01-01T00:00:00Z"}, False),
        ({"mode": "PERMISSIVE"}, False),  # rows of damage can be anywhere
    ],
)
@pytest.mark.parametrize("receives", [False, True])
def test_a_long_read_without_filters_warns_that_conditions_do_not_reach_the_reader(
    receives: bool,
    options: dict[str, str],
    warns: bool,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(commitlog, "_LARGE_BYTES", 1)
    kind = commitlog.PushdownCommitLogDataSource if receives else commitlog.CommitLogDataSource
    source = kind({"path": str(store), **options})
    assert source.reader(source.schema()).partitions()
    assert ("reads the whole log (0.0 GiB)" in caplog.text) == warns
    assert ("Spark does not pass the conditions" in caplog.text) == (warns and not receives)


@pytest.mark.parametrize(
    ("predicate", "warns"),
    [(EqualTo(("topic",), "orders"), False), (EqualTo(("tags",), "paid"), True), (Not(EqualTo(("topic",), "a")), True)],
)
def test_a_long_read_warns_if_the_reader_cannot_use_its_conditions(
    predicate: Filter, warns: bool, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commitlog, "_LARGE_BYTES", 1)
    source = commitlog.PushdownCommitLogDataSource({"path": str(store)})
    reader = source.reader(source.schema())
    list(reader.pushFilters([predicate]))
    reader.partitions()
    assert ("it has no condition that the reader can use" in caplog.text) == warns


def test_a_short_read_warns_of_nothing(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = commitlog.CommitLogDataSource({"path": str(store)})
    source.reader(source.schema()).partitions()
    assert caplog.text == ""
