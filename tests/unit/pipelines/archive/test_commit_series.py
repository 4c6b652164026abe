"""Concurrent runs over the same store: no message is left out, and a slower run does not fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.lake.archive_commits import CommittedRange, read_commits
from commitlake.connectors.lake.backoff import MAX_TRIES, backoff_seconds
from commitlake.connectors.lake.committer import commit_messages, commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.archive.report import summary_lines
from commitlake.pipelines.archive import commit_series, run
from commitlake.pipelines.archive.commit_series import archive_concurrently
from commitlake.pipelines.archive.result import ArchivePageWriter, Result
from commitlake.pipelines.archive.run import Config, OnBadRange
from commitlake.pipelines.archive.work_planning import ArchiveWork, find_archive_work
from commitlake.schemas.errors import ConcurrentRunError
from tests.support.logs import messages, open_segment, records, write_store

SENT = messages(20)
SIZE = 1 << 16


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A store of twenty messages, and a lake that is not there yet."""
    store = write_store(tmp_path / "store", [(0, open_segment(SENT, SIZE))])
    return Config(str(store), Lake(str(tmp_path / "lake")), "a")


def plan(config: Config) -> ArchiveWork:
    """Return the plan of a run over the new messages."""
    return find_archive_work(config.store, config.broker, config.lake)


def commit(config: Config, work: ArchiveWork, end: int | None = None) -> Result:
    """Commit a plan, or its first bytes, without any rows, and return the result."""
    found = work.commit
    if end is not None:
        found = replace(
            found,
            stores={"a": replace(found.stores["a"], end=end, last_record=None)},
            ranges={"a": CommittedRange(found.ranges["a"].start, end)},
        )
    commit_messages(open_messages_for_append(config.lake), [], found)
    return Result(config.lake, found.run_id, work.snapshot.ranges, found.sequence)


def first_bytes(count: int) -> int:
    """Return the size of the first messages, in bytes."""
    return sum(map(len, records(SENT)[:count]))


def with_rivals(
    config: Config, monkeypatch: pytest.MonkeyPatch, rivals: list[Callable[[ArchiveWork], object]]
) -> tuple[Result, list[int]]:
    """Archive with rival runs that are first; return the result, and the number of bytes of each attempt."""
    tried: list[int] = []

    def run(_spark: object, _config: Config, work: Any, _progress: object) -> Result:
        tried.append(work.snapshot.size)
        if rivals:
            rivals.pop(0)(work)
            raise ConcurrentRunError("another run was first")
        return commit(config, work) if work.snapshot.size else Result(config.lake, "", work.snapshot.ranges)

    monkeypatch.setattr(commit_series, "run_archive", run)
    result = archive_concurrently(HERE, config, plan(config), wait=lambda _: None)
    return result, tried


def test_messages_archived_by_another_run_are_left_out(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    part, whole = first_bytes(8), first_bytes(20)
    result, tried = with_rivals(config, monkeypatch, [lambda work: commit(config, work, part)])
    assert tried == [whole, whole - part]
    assert (result.sequence, result.bytes_of_others) == (2, part)


def test_a_run_succeeds_when_other_runs_have_archived_everything(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, tried = with_rivals(config, monkeypatch, [lambda work: commit(config, work)])
    assert tried == [first_bytes(20), 0]
    assert (result.sequence, result.bytes_of_others) == (0, first_bytes(20))


def test_messages_that_arrive_meanwhile_are_left_to_the_next_run(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, whole = first_bytes(8), first_bytes(20)

    def commit_and_write(work: ArchiveWork) -> None:
        commit(config, work, part)
        write_store(Path(config.store), [(0, open_segment([*SENT, *messages(5, seed=9)], SIZE))])

    assert with_rivals(config, monkeypatch, [commit_and_write])[1] == [whole, whole - part]


def ends_of_commits(config: Config) -> list[int]:
    """Return the end of the store in each commit, oldest first, which begins at the end of the one before."""
    ranges = [found.ranges["a"] for found in read_commits(config.lake)][::-1]
    assert [part.start for part in ranges] == [0, *(part.end for part in ranges[:-1])]
    return [part.end for part in ranges]


def archived(config: Config) -> list[int]:
    """Return the offsets of all rows."""
    table = DeltaTable(config.lake.uri("messages")).to_pyarrow_table(columns=["physical_offset"])
    return sorted(table.column(0).to_pylist())


COMMIT_BYTES = 1250  # somewhat less than the first eight messages
OFFSETS = [first_bytes(count) for count in range(20)]


def test_a_large_run_makes_several_commits_and_has_one_result_and_page(config: Config) -> None:
    shown: list[Result] = []
    page = ArchivePageWriter(None, shown.append)
    config = replace(config, quality=False, page=page, commit_bytes=COMMIT_BYTES)
    advanced: list[int] = []
    result = archive_concurrently(HERE, config, plan(config), lambda *_: nullcontext(advanced.append))
    assert ends_of_commits(config) == [first_bytes(count) for count in (8, 16, 20)]
    assert archived(config) == OFFSETS
    assert [sequence for sequence, _ in result.commits] == [1, 2, 3]
    assert (result.messages, result.bytes) == (20, first_bytes(20))
    assert sum(advanced) == first_bytes(20)
    assert shown == [result]
    assert summary_lines(result)[0].startswith("runs 1 to 3: 20 messages from ")


def test_a_run_that_fails_after_a_commit_tells_what_is_archived_and_is_continued(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, quality=False, commit_bytes=COMMIT_BYTES)
    told: list[Result] = []
    with monkeypatch.context() as patch:
        patch.setattr(run, "commit_run", failing_at(2, commit_run))
        with pytest.raises(OSError, match="disk"):
            archive_concurrently(HERE, config, plan(config), on_committed=told.append)
    assert [(result.sequence, result.messages, result.ranges["a"].end) for result in told] == [(1, 8, first_bytes(8))]
    assert archive_concurrently(HERE, config, plan(config)).messages == 12
    assert archived(config) == OFFSETS
    assert ends_of_commits(config) == [first_bytes(count) for count in (8, 16, 20)]


def test_a_commit_that_hbase_does_not_get_is_in_the_result_so_far(config: Config) -> None:
    told: list[Result] = []
    hbase = HBaseOptions.of_address("127.0.0.1:1", connectSeconds="0")
    config = replace(config, quality=False, commit_bytes=COMMIT_BYTES, hbase=hbase)
    with pytest.raises(HBaseError):
        archive_concurrently(HERE, config, plan(config), on_committed=told.append)
    assert [(result.sequence, result.messages, result.ranges["a"].end) for result in told] == [(1, 8, first_bytes(8))]


def failing_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fails at one of its calls."""
    calls = iter(range(1, call))

    def called(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise OSError("the disk is full")
        return function(*arguments)

    return called


def test_parts_that_other_runs_commit_between_are_left_out(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(config, commit_bytes=COMMIT_BYTES)
    result, tried = with_rivals(config, monkeypatch, [lambda work: commit(config, work, first_bytes(3))])
    assert tried == [first_bytes(end) - first_bytes(start) for start, end in ((0, 8), (3, 8), (8, 16), (16, 20))]
    assert result.bytes_of_others == first_bytes(3)
    assert archived(config) == []


def test_a_run_that_must_archive_nothing_at_damage_commits_once(config: Config) -> None:
    config = replace(config, quality=False, commit_bytes=100, on_corrupt=OnBadRange.FAIL)
    assert archive_concurrently(HERE, config, plan(config)).earlier == ()
    assert ends_of_commits(config) == [first_bytes(20)]


def test_a_run_that_is_always_overtaken_ends_with_an_error(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConcurrentRunError):
        with_rivals(config, monkeypatch, [lambda _: None] * MAX_TRIES)


def test_waits_grow_and_have_a_limit() -> None:
    assert all(0.125 <= backoff_seconds(0) <= 0.25 for _ in range(20))
    assert all(4 <= backoff_seconds(attempt) <= 8 for attempt in (5, 20, 60))
