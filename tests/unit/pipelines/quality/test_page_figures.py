"""The page shows the same for a profile in stretches as for the whole."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.archive import commit_series
from commitlake.pipelines.archive.commit_series import read_page_figures
from commitlake.pipelines.archive.profile_files import open_profiles_file
from commitlake.pipelines.quality.expectation_input import split_by_topics
from commitlake.pipelines.quality.page_figures import RunPageSummary
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.pipelines.quality.report import join_reports
from commitlake.schemas.quality.expectation import Severity
from commitlake.schemas.quality.suites import SUITES
from tests.support.profiles import message, profile_of
from tests.support.reports import figures_of, report_of
from tests.support.shown_runs import page_of_run

# Topics of one to forty messages in several queues and windows; of two brokers, without a name, without a time.
ROWS = [
    message(601 * number, topic=f"t{topic:02d}", broker=broker, queue_id=number % 3, queue_offset=2 * number)
    for topic in range(40)
    for broker in "ab"
    for number in range(topic * 7 % 40 + 1)
] + [message(5, topic=None), message(6, broker=None), message(7, store_timestamp=None)]
PROFILE = profile_of(ROWS)
WHOLE = page_of_run(report_of(), figures_of(PROFILE))


def in_stretches(profile: pa.Table, rows: int, seed: int) -> RunPageSummary:
    """Return the figures of stretches that come in any order."""
    stretches = list(split_by_topics(profile, rows))
    random.Random(seed).shuffle(stretches)
    return figures_of(*stretches)


@pytest.mark.parametrize("rows", [20, 300])
def test_the_page_of_stretches_equals_that_of_the_whole(rows: int) -> None:
    assert len(list(split_by_topics(PROFILE, rows))) > 3
    for seed in range(2):
        assert page_of_run(report_of(), in_stretches(PROFILE, rows, seed)) == WHOLE


def test_sums_equal_those_of_the_rows() -> None:
    figures = in_stretches(PROFILE, 50, 0)
    assert (figures.messages, figures.bytes) == (len(ROWS), 200 * len(ROWS))
    assert figures.topics == len({(row["broker"], row["topic"]) for row in ROWS})
    times = [row["store_timestamp"] for row in ROWS if row["store_timestamp"] is not None]
    assert (figures.first_time, figures.last_time) == (min(times), max(times))
    assert figures.queues == len({(row["broker"], row["topic"], row["queue_id"]) for row in ROWS})
    assert sum(figures.counts_by_window.values()) == len(ROWS) - 1
    assert figures.others["messages"] + sum(row["messages_sum"] for row in figures.topic_rows) == len(ROWS)
    largest = figures.topic_rows[0]
    assert sum(figures.counts_of_topic((largest["broker"], largest["topic"])).values()) == largest["messages_sum"] == 40


def test_only_the_topics_that_are_shown_are_kept() -> None:
    figures = in_stretches(PROFILE, 50, 1)
    assert len(figures.topic_rows) == len(figures._by_topic) == 30
    assert figures.counts_of_topic(("a", "t00")) == {}


def test_an_empty_profile_has_figures() -> None:
    figures = figures_of(merge_profiles([]))
    assert (figures.messages, figures.topics, figures.time_span, figures.counts_by_window,
    list(figures.topic_rows)) == (
        0, 0, None, {}, [],
    )  # fmt: skip
    assert RunPageSummary().time_span is None


def test_the_figures_of_several_commits_are_those_of_one(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    middle = len(ROWS) // 2
    for run_id, rows in (("one", ROWS[:middle:2] + ROWS[middle:]), ("two", ROWS[1:middle:2])):
        with open_profiles_file(lake, run_id) as file:
            for stretch in split_by_topics(profile_of(rows), 100):
                file.add_windows(stretch)
    figures = read_page_figures(lake, ["one", "two"])
    assert (figures.messages, figures.topics, figures.queues) == tuple(
        getattr(figures_of(PROFILE), name) for name in ("messages", "topics", "queues")
    )
    assert figures.counts_by_window == figures_of(PROFILE).counts_by_window
    assert [row["messages_sum"] for row in figures.topic_rows] == [
        row["messages_sum"] for row in figures_of(PROFILE).topic_rows
    ]


def test_the_files_of_profiles_are_closed_after_they_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path))
    with open_profiles_file(lake, "one") as file:
        file.add_windows(PROFILE)
    sources: list[pa.NativeFile] = []

    def open_parquet(source: pa.NativeFile, **options: bool) -> pq.ParquetFile:
        sources.append(source)
        return pq.ParquetFile(source, **options)

    monkeypatch.setattr(commit_series, "pq", SimpleNamespace(ParquetFile=open_parquet))
    read_page_figures(lake, ["one"])
    assert sources
    assert all(source.closed for source in sources)


def test_an_expectation_is_met_by_a_run_if_it_is_met_by_each_commit() -> None:
    name = "no_dead_letters"
    joined = join_reports([report_of(), report_of((name, {"topic": "a"})), report_of((name, {"topic": "b"}))])
    (unmet,) = [found for found in joined.judgements if not found.success]
    assert (unmet.expectation.name, unmet.judged, unmet.unexpected) == (name, 30, 2)
    assert unmet.examples == [{"topic": "a"}, {"topic": "b"}]
    damage = next(each.name for suite in SUITES for each in suite.expectations if each.severity is Severity.DAMAGE)
    queue = {"broker": "a", "topic": "a", "queue_id": 0}
    (unmet,) = join_reports([report_of((damage, queue)), report_of((damage, queue | {"missing": 2}))]).damage_judgements
    assert unmet.examples == [queue]  # the queues are counted
    assert len(joined.judgements) == len(report_of().judgements)
    observed = {found.expectation.type: found.observed for found in joined.judgements}
    assert (observed["ExpectColumnSumToBeBetween"], observed["ExpectColumnMaxToBeBetween"]) == (9, 3)
