"""A stopped run names the broker and what to do meanwhile; the judgement does not depend on how its profile arrives."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.archive_commits import CommittedRange
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.jobs.archive.run import default_page_writer
from commitlake.pipelines.archive import profile_files, quality_check
from commitlake.pipelines.archive.profile_files import write_staged_profile
from commitlake.pipelines.archive.quality_check import CriticalQualityError, judge_run
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.work_planning import ArchiveWork, find_archive_work
from commitlake.pipelines.quality.expectation_input import RunFacts
from commitlake.pipelines.quality.profile_columns import serialize_profile
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.pipelines.quality.report import Losses
from tests.support.logs import messages as sent
from tests.support.logs import open_segment, write_store
from tests.support.profiles import NOON, many_windows, message, messages, profile_of

LOG = 1 << 20
# Sound windows of many topics, in two tasks each; and what some expectations warn of.
TASKS = [
    *(many_windows(range(first, first + 2), broker=broker) for first in (0, 2) for broker in "xyz"),
    profile_of(messages(range(30))),
    profile_of([*messages(range(30, 60)), message(60, size=5 << 20)]),
    profile_of([message(number, topic="%DLQ%g", kind="dlq", queue_id=1) for number in range(5)]),
]
WINDOWS = sum(map(len, TASKS)) - 1


@pytest.mark.parametrize("brokers", [["a"], ["a", "b"]])
def test_a_run_that_stops_names_the_broker_and_others_can_be_archived(tmp_path: Path, brokers: list[str]) -> None:
    lake = Lake(str(tmp_path / "lake"))
    store = write_store(tmp_path / "store", [(0, open_segment(sent(2), 1 << 16))])
    work = find_archive_work(str(store), "a", lake)
    work = replace(work, commit=replace(work.commit, ranges={name: CommittedRange(0, LOG) for name in brokers}))
    rows = [*messages([0, 1]), message(2, kind="odd")] + [
        row for name in brokers[1:] for row in messages(range(3), broker=name)
    ]
    file = DataFile("x.parquet", None, 1, len(rows), "{}")
    manifest = [ManifestRow.from_data_file(file, "messages"), ManifestRow(profile=serialize_profile(profile_of(rows)))]
    (tmp_path / "lake").mkdir()
    with pytest.raises(CriticalQualityError) as raised:
        judge_run(lake, work, manifest, default_page_writer(lake))
    assert "Stopped: critical expectations are not met" in (tmp_path / "lake" / "quality.html").read_text()
    text = str(raised.value)
    assert "broker 'a', topic 'orders', queue 0" in text
    assert ("Only 'a' failed: a --store that names only the other brokers archives these meanwhile" in text) == (
        len(brokers) > 1
    )
    assert "'--no-quality' archives everything as it is" in text


def judged(
    folder: Path, most_inline: int, tasks: Sequence[pa.Table] = TASKS
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    """Judge a run with these profiles; return its rows for `quality_results` and `profiles`, and its page."""
    lake = Lake(str(folder))
    work = work_of(folder, lake, "abxyz")
    profiles = [
        write_staged_profile(profile, lake, work.commit.run_id, f"part-{number}", most_inline)
        for number, profile in enumerate(tasks)
    ]
    counted = sum(sum(profile.column("messages").to_pylist()) for profile in tasks)
    file = DataFile("x.parquet", None, 1, counted, "{}")
    manifest = [
        ManifestRow.from_data_file(file, "messages"),
        *(ManifestRow.from_task_results({}, {}, "", one) for one in profiles),
    ]
    page = default_page_writer(lake)
    kept = judge_run(lake, work, manifest, page)
    assert not (folder / "quality.html").exists()  # the run may not get as far as its commit
    assert kept.report is not None
    assert page is not None
    verdict = Losses().verdict(kept.report)
    run = Result(Lake("/nowhere"), "", {}, 1, seconds=1.0, verdict=verdict, report=kept.report, figures=kept.figures)
    page.show(run)
    results, windows = (
        pq.read_table(Path(lake.uri(table)) / kept.files[table].path).to_pylist()
        for table in ("quality_results", "profiles")
    )
    assert kept.files["profiles"].rows == len(windows)
    assert json.loads(kept.files["profiles"].statistics)["numRecords"] == len(windows)
    shown = re.sub(r"<footer>.*</footer>", "", (folder / "quality.html").read_text())  # it has the time
    return [row | {"run_id": ""} for row in results], [row | {"run_id": ""} for row in windows], shown


@pytest.fixture
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge all runs at one moment, because some observed values depend on the time."""
    monkeypatch.setattr(quality_check, "RunFacts", partial(RunFacts, now=NOON + datetime.timedelta(hours=8)))


def work_of(folder: Path, lake: Lake, brokers: str) -> ArchiveWork:
    """Return a run's work on some brokers."""
    store = write_store(folder / "store", [(0, open_segment(sent(2), 1 << 16))])
    work = find_archive_work(str(store), "a", Lake(str(folder / "none")))
    folder.mkdir(exist_ok=True)
    return replace(work, commit=replace(work.commit, ranges={name: CommittedRange(0, 1 << 60) for name in brokers}))


@pytest.mark.long("a profile in many pieces is judged each time")
@pytest.mark.usefixtures("fixed_time")
def test_a_profile_in_files_is_judged_like_one_in_manifests(tmp_path: Path) -> None:
    inline, mixed, in_files = (judged(tmp_path / str(most), most) for most in (1 << 30, 16 << 10, 0))
    assert mixed == in_files == inline
    assert len(list((tmp_path / "0").rglob("*.arrow"))) == len(TASKS)
    assert 0 < len(list((tmp_path / str(16 << 10)).rglob("*.arrow"))) < len(TASKS)
    assert len(inline[1]) == WINDOWS
    assert [row for row in inline[0] if not row["success"]]


@pytest.mark.long("pieces of a profile are compared each time in pipelines/quality")
@pytest.mark.usefixtures("fixed_time")
def test_a_profile_in_many_pieces_is_judged_like_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, windows, page = judged(tmp_path / "whole", 16 << 10)
    monkeypatch.setattr(
        quality_check, "merge_task_profiles", partial(profile_files.merge_task_profiles, max_windows=1000)
    )
    again, again_windows, again_page = judged(tmp_path / "pieces", 16 << 10)
    assert again == results  # no expectation has so many examples that some are left out
    assert again_windows != windows
    key = ("broker", "topic", "queue_id", "window_start")
    assert sorted(again_windows, key=lambda row: [row[name] for name in key]) == windows
    assert again_page == page


def test_a_run_that_is_stopped_leaves_no_file_of_profiles(tmp_path: Path) -> None:
    with pytest.raises(CriticalQualityError):
        judged(tmp_path, 0, [merge_profiles([profile_of([message(0, kind="odd")])])])
    assert list((tmp_path / "profiles").rglob("*.parquet")) == []
    assert list((tmp_path / "profiles").rglob("*.tmp")) == []
