"""The jobs that a fuzzed store goes through, in this process, and the folder that they may write to."""

from __future__ import annotations

import contextlib
import datetime
import io
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.committer import open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.query import command as query
from commitlake.pipelines.archive.profile_files import clean_up_staged_profiles
from commitlake.pipelines.archive.quality_check import judge_run
from commitlake.pipelines.archive.run import Config, _commit_run
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import StoreReport, verify_stores

_FIRST_BATCH, _LARGEST_BATCH = 250, 250_000


def batches(small: int) -> Iterator[int]:
    """Yield sizes of stores: each twice the last, then the largest and a small one in turn."""
    size = _FIRST_BATCH
    while size < _LARGEST_BATCH:
        yield size
        size *= 2
    while True:
        yield _LARGEST_BATCH
        yield small


class WorkFolder:
    """A folder for a store and the results of jobs, with a canary around them."""

    def __init__(self) -> None:
        self._outside = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.folder = self._outside / "a" / "b" / "c" / "d" / "work"

    def begin(self) -> Path:
        """Return an empty folder for the next store."""
        shutil.rmtree(self._outside, ignore_errors=True)
        (self.folder / "store").mkdir(parents=True)
        return self.folder / "store"

    def check_nothing_outside(self) -> None:
        """Check that nothing was written outside the folder."""
        inside = self.folder.relative_to(self._outside).parts
        at = self._outside
        for name in inside:
            assert [path.name for path in at.iterdir()] == [name], f"written outside: {sorted(at.iterdir())}"
            at /= name

    def remove(self) -> None:
        """Delete the folder and its canary."""
        shutil.rmtree(self._outside, ignore_errors=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Add the name of the job to an error; a warning of an overflow is an error, too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            yield
    except Exception as error:
        error.add_note(f"in {name}")
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error


def archive(root: Path, lake: Lake, split_bytes: int) -> None:
    """Archive as the job does, in this process."""
    work = find_archive_work(str(root), "a", lake)
    open_messages_for_append(lake)
    config = Config(str(root), lake, broker="a")
    splits = work.splits(split_bytes)
    tasks = ArchiveTasks(splits, lake, work.commit.run_id, "1")
    with clean_up_staged_profiles(lake, work.commit.run_id) as manifest:
        manifest.extend(tasks.run_task(0, splits))
        judged = judge_run(lake, work, manifest, None)
    commit = _commit_run(config, work, manifest, judged, {}, datetime.datetime.now(datetime.UTC))
    finish_runs(lake, commit.run_id, "1")
    follow_keys(lake)


def ask(lake: Lake, *arguments: str) -> list[str]:
    """Return the lines that `query` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = query.main(["--lake", lake.root, "--output", "jsonl", "--quiet", *arguments])
    assert code == 0, f"query {arguments} ended with {code}"
    return out.getvalue().splitlines()


def verify(root: Path) -> StoreReport:
    """Verify a store."""
    (store,) = find_stores(str(root), "a", formats=all_formats())
    (report,) = verify_stores([store], VerifyOptions())
    return report
