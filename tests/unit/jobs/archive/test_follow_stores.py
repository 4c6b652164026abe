"""Tests of `archive --follow`: errors that end it, and errors and rivals that do not."""

from __future__ import annotations

import datetime
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.committer import commit_messages, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackStoreError
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.snapshots import Snapshot, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.storage.errors import S3Error, S3UnavailableError
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.jobs.archive import command as archive
from commitlake.jobs.archive import follow_stores as archive_follow
from commitlake.jobs.archive.follow_stores import StoreFollower, find_unfinished_work, may_succeed_later
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.archive.work_planning import ArchiveWork, find_archive_work
from commitlake.schemas.errors import ConcurrentRunError
from tests.support.logs import messages, open_segment, write_store

SIZE = 1 << 16
SECOND = datetime.timedelta(seconds=1)


def of_stream(error: Exception) -> StreamingQueryException:
    """Return Spark's error for a stream that an error in its planning process has ended."""
    with pytest.raises(type(error)), forward_worker_errors():
        raise error
    return StreamingQueryException("Job aborted.\n" + "".join(traceback.format_exception(error)))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A store of twenty messages, and a lake that does not exist yet."""
    store = write_store(tmp_path / "store", [(0, open_segment(messages(20), SIZE))])
    return Config(str(store), Lake(str(tmp_path / "lake")), "a")


def follower(config: Config, on_result: Callable[[Result], None] = lambda _: None) -> StoreFollower:
    """Return a follower without Spark, which these tests do not need."""
    return StoreFollower(None, config, on_result)  # type: ignore[arg-type]


def plan(config: Config) -> ArchiveWork:
    """Return the archive work for the whole store."""
    return find_archive_work(config.store, config.broker, config.lake)


def offer(config: Config) -> Snapshot:
    """Return the whole store as a stream offers it."""
    return take_snapshot(find_stores(config.store, config.broker, formats=COMMITLOGS), {})


class Query:
    """A stream that ends immediately, with or without an error."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def awaitTermination(self, _seconds: float) -> bool:  # noqa: N802 (Spark's name)
        """Return whether the stream has ended."""
        if self._error is not None:
            raise self._error
        return True


def waits_of(follower: StoreFollower, monkeypatch: pytest.MonkeyPatch, errors: list[Exception | None]) -> list[float]:
    """Let its streams end with these errors in turn; return the waits between them."""
    waits: list[float] = []
    monkeypatch.setattr(follower, "_start_query", lambda *_: Query(errors.pop(0)))
    monkeypatch.setattr(follower, "_stop", SimpleNamespace(is_set=bool, set=bool, wait=waits.append))
    return waits


# --- other runs ---


def test_messages_that_another_run_archived_are_not_archived_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_messages(open_messages_for_append(config.lake), [], plan(config).commit)
    tried: list[int] = []

    def run(_spark: object, _config: Config, work: ArchiveWork, **_: object) -> Result:
        tried.append(work.snapshot.size)
        return Result(config.lake, "", {})

    monkeypatch.setattr(archive_follow, "archive_concurrently", run)
    follower(config)._archive_new_messages(offer(config))
    assert tried == [0]  # only what the other run left undone after its commit


# --- trouble ---


@pytest.mark.parametrize(
    ("error", "later"),
    [
        (S3UnavailableError("busy", "later"), True),
        (ConcurrentRunError("others were first ten times"), True),
        (PackStoreError("s3://b", "a bucket", "none", "later", is_transient=True), True),
        (S3Error("no bucket", "make it"), False),
        (StoreError("no store"), False),
        (StreamingQueryException("the planning process has ended"), True),
        (of_stream(OSError("broken pipe")), True),
        (of_stream(S3UnavailableError("busy", "later")), True),
        (of_stream(StoreError("no store")), False),
    ],
)
def test_transient_errors_may_succeed_later(error: Exception, later: bool) -> None:
    assert may_succeed_later(error) == later


def test_transient_errors_are_retried_after_growing_waits(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    following = follower(config)
    waits = waits_of(
        following, monkeypatch, [StreamingQueryException("lost"), S3UnavailableError("busy", "later"), None]
    )
    following.follow_store(SECOND, 1 << 20)
    assert waits == [4, 8]
    assert [record.getMessage() for record in caplog.records] == [
        "lost. Next attempt in 4 s",
        "busy. later. Next attempt in 8 s",
    ]


def test_an_error_that_persists_is_raised_after_five_waits(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    following = follower(config)
    waits = waits_of(following, monkeypatch, [StreamingQueryException("lost") for _ in range(9)])
    with pytest.raises(StreamingQueryException, match="lost"):
        following.follow_store(SECOND, 1 << 20)
    assert waits == [4, 8, 16, 32, 64]


def test_a_user_error_is_raised_without_a_retry(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    following = follower(config)
    waits = waits_of(following, monkeypatch, [StoreError("no store")])
    with pytest.raises(StoreError):
        following.follow_store(SECOND, 1 << 20)
    assert waits == []


def test_an_error_that_follow_raises_is_not_also_logged_with_a_trace(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("py4j.clientserver")

    def fails(stream: StoreFollower, *_: object) -> Query:
        stream._failure = StoreError("no store")
        for error in (stream._failure, ValueError("another's")):
            log.error("There was an exception while executing the Python Proxy on the Python Side.", exc_info=error)
        return Query(StreamingQueryException("no store"))

    monkeypatch.setattr(StoreFollower, "_start_query", fails)
    with pytest.raises(StoreError, match="no store"):
        follower(config).follow_store(SECOND, 1 << 20)
    (printed,) = caplog.records
    assert printed.exc_info is not None
    assert str(printed.exc_info[1]) == "another's"
    assert log.filters == []


# --- before the stream ---


def test_a_store_without_a_segment_is_not_an_error(config: Config, tmp_path: Path) -> None:
    (tmp_path / "new" / "commitlog").mkdir(parents=True)
    empty = Config(str(tmp_path / "new"), config.lake, "a")
    assert find_unfinished_work(empty) is None
    assert find_unfinished_work(config) is None
    with pytest.raises(StoreError):
        find_unfinished_work(Config(str(tmp_path / "nowhere"), config.lake, "a"))


def test_a_quality_page_in_a_missing_folder_is_refused(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--store", config.store, "--lake", config.lake.root]
    assert archive.main([*arguments, "--quality-page", str(tmp_path / "no" / "page.html")]) == 2
    assert "expected a file in an existing folder" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--lake", "--bodies"])
@pytest.mark.parametrize("following", [[], ["--follow"]])
def test_an_unsupported_object_store_is_a_usage_error(
    config: Config, option: str, following: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--store", config.store, "--lake", config.lake.root, option, "gs://bucket/x", *following]
    assert archive.main(arguments) == 2
    assert "s3://bucket/prefix" in capsys.readouterr().err
    assert not Path(config.lake.root).exists()
