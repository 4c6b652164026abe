"""Archives stores in one or several commits, while other runs may archive them, too.

A run over much log commits after every `Config.commit_bytes` of it. Each commit is complete: it is judged, and the
other tables follow it, before the next one begins. So a run that is killed loses only its last part, and the next run
continues after the others.

If two runs read the same range, only one of them can commit it. The other plans again, from the lake's new end to the
end of the log at its own start, until nothing is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.backoff import MAX_TRIES, TableUpdate, backoff_seconds
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.snapshots import Snapshot, StoreRange
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.archive.profile_files import profiles_file_name
from commitlake.pipelines.archive.result import NOTHING_NEW, ArchivePageWriter, Result
from commitlake.pipelines.archive.run import Config, OnBadRange, Progress, make_losses, plan_work, run_archive
from commitlake.pipelines.archive.work_planning import ArchiveWork
from commitlake.pipelines.quality.page_figures import FIGURE_COLUMNS, RunPageSummary
from commitlake.pipelines.quality.profile_partitions import (
    PARTITIONS,
    group_partitions,
    partition_row_counts,
    select_group_rows,
)
from commitlake.pipelines.quality.report import join_reports
from commitlake.schemas.errors import ConcurrentRunError

_LOG = logging.getLogger(__name__)
_BATCH_ROWS = 1 << 16


def archive_concurrently(
    runner: Runner,
    config: Config,
    work: ArchiveWork,
    progress: Progress | None = None,
    wait: Callable[[float], object] = time.sleep,
    on_committed: Callable[[Result], object] = lambda _: None,
) -> Result:
    """Archive the ranges of a plan in one or several commits, without ranges that another run commits first.

    Args:
        runner: as for `run_archive`.
        work: from `find_work`. Its end offsets limit the run.
        progress: as for `run_archive`.
        wait: waits for a number of seconds.
        on_committed: called with the result of the run so far if an error ends it after a commit.

    Returns:
        The result of all commits of the run. Its sequence is 0 if other runs have archived everything.

    Raises:
        ConcurrentRunError: if other runs committed first `MAX_TRIES` times, and something is left.
        Exception: what `run_archive` raises.
    """
    most = _max_commit_bytes(config, work)
    step = work.first_commit_work(most)
    if step is work:
        return _archive_in_one_commit(runner, config, work, work.snapshot, progress, wait)
    series = CommitSeries(config, work.snapshot)
    with _shared_progress(progress, runner, work.snapshot.size) as shared:
        try:
            while step is not work:
                series.add_result(_archive_in_one_commit(runner, series.config, step, step.snapshot, shared, wait))
                # Planned anew, because other runs may have committed meanwhile; but only up to the end that the log had
                # at the start, so that a busy broker does not make the run endless.
                work = plan_work(config, end_snapshot=series.wanted)
                step = work.first_commit_work(most)
            series.add_result(_archive_in_one_commit(runner, series.config, work, work.snapshot, shared, wait))
        # Also after Ctrl-C: the commits made so far are complete, and the caller reports them.
        except BaseException:
            if (so_far := series.finish_after_error()) is not None:
                on_committed(so_far)
            raise
    return series.finish_series()


def _max_commit_bytes(config: Config, work: ArchiveWork) -> int:
    """Return how many bytes of log one commit archives.

    If damage or a gap makes the run fail, one commit archives all new data.
    """
    is_all_or_nothing = OnBadRange.FAIL in (config.on_corrupt, config.on_gap)
    return work.snapshot.size if is_all_or_nothing or config.commit_bytes is None else config.commit_bytes


@contextmanager
def _shared_progress(progress: Progress | None, runner: Runner, size: int) -> Iterator[Progress | None]:
    """Show one progress bar for all commits, and yield the `progress` to use in each commit."""
    if progress is None:
        yield None
        return
    with progress(runner, size) as advance:

        def use_shared_progress(_runner: Runner, _size: int) -> AbstractContextManager[Callable[[int], None]]:
            return nullcontext(advance)

        yield use_shared_progress


def _archive_in_one_commit(
    runner: Runner,
    config: Config,
    work: ArchiveWork,
    ranges: Snapshot,
    progress: Progress | None,
    wait: Callable[[float], object],
) -> Result:
    """Archive the wanted ranges in one commit, except those that another run commits first."""
    own = work
    for attempt in range(MAX_TRIES):
        try:
            result = run_archive(runner, config, own, progress)
        except ConcurrentRunError as error:
            if attempt == MAX_TRIES - 1:
                raise
            _LOG.info("%s", error)
        else:
            return replace(result, bytes_of_others=ranges.size - own.snapshot.size)
        if attempt:  # after the first try, usually little or nothing is left
            wait(backoff_seconds(attempt))
        # The other run has archived a part of this range. What is left begins at the lake's new end.
        own = plan_work(config, end_snapshot=ranges)
    raise AssertionError  # the last try has returned or raised


class CommitSeries:
    """Collects the results of a run's commits, and writes the HTML page about the run.

    Args:
        config: settings of the run.
        wanted: ranges that the run is to archive.

    Attributes:
        wanted: these ranges.
        config: settings for each commit, which does not write the page by itself.
    """

    def __init__(self, config: Config, wanted: Snapshot) -> None:
        self.wanted = wanted
        self._page = config.page
        self._shown: list[Result] = []
        path = None if config.page is None else config.page.path
        self.config = replace(config, page=ArchivePageWriter(path, self._shown.append))
        self._results: list[Result] = []
        self._started = time.monotonic()

    def add_result(self, result: Result) -> None:
        """Add the result of one commit, which is empty if other runs have archived the range."""
        self._results.append(result)

    def finish_after_error(self) -> Result | None:
        """Write the run's HTML page after an error, and return the result so far; None without a commit."""
        returned = {result.run_id for result in self._results}
        # If HBase fails, a commit is shown on the page, but its result is not returned.
        self._results += [run for run in self._shown if run.sequence and run.run_id not in returned]
        committed = [result for result in self._results if result.sequence]
        if self._shown and self._page is not None:
            last = self._shown[-1]
            earlier = [commit for run in committed if run.run_id != last.run_id for commit in run.commits]
            self._page.show(replace(last, earlier=earlier))
        return self._join_results() if committed else None

    def finish_series(self) -> Result:
        """Write the run's HTML page, and return the joined result of all commits."""
        result = self._join_results()
        if result.sequence and self._page is not None:
            if result.report is not None:
                run_ids = [run_id for _, run_id in result.commits]
                result = replace(result, figures=read_page_figures(result.lake, run_ids))
            self._page.show(result)
        return result

    def _join_results(self) -> Result:
        results = self._results
        commits = [commit for result in results for commit in result.commits]
        reports = [result.report for result in results if result.report is not None]
        report = join_reports(reports) if reports else None
        quarantined, gaps = sum(result.quarantined for result in results), sum(result.gaps for result in results)
        problems = list(dict.fromkeys(problem for result in results for problem in result.problems))
        ranges = self._archived_ranges()
        verdict = make_losses(self.config, quarantined, gaps).verdict(report) if commits else NOTHING_NEW
        newer = [sentence for part in ranges.values() for sentence in part.newer]
        sequence, run_id = commits[-1] if commits else (0, results[-1].run_id)
        return Result(
            results[-1].lake,
            run_id,
            ranges,
            sequence=sequence,
            earlier=commits[:-1],
            messages=sum(result.messages for result in results),
            quarantined=quarantined,
            gaps=gaps,
            metadata_bytes=sum(result.metadata_bytes for result in results),
            pack_bytes=sum(result.pack_bytes for result in results),
            started_at=next((result.started_at for result in results if result.started_at is not None), None),
            seconds=time.monotonic() - self._started,
            verdict=verdict.with_unread_files(len(problems)).with_unread_messages(newer),
            report=report,
            updates=_join_table_updates([update for result in results for update in result.updates]),
            recovered=[sequence for result in results for sequence in result.recovered],
            bytes_of_others=sum(result.bytes_of_others for result in results),
            notes=list(dict.fromkeys(note for result in results for note in result.notes)),
            problems=problems,
        )

    def _archived_ranges(self) -> dict[str, StoreRange]:
        """Return the range of each store's log that the run has archived."""
        ranges: dict[str, StoreRange] = {}
        for broker, wanted in self.wanted.ranges.items():
            found = (result.ranges.get(broker) for result in self._results if result.sequence)
            parts = [part for part in found if part is not None and part.size]
            start = min((part.start for part in parts), default=wanted.end)
            end = max((part.end for part in parts), default=wanted.end)
            is_whole = end == wanted.end
            ranges[broker] = replace(wanted, start=start) if is_whole else StoreRange(start, end, newer=wanted.newer)
        return ranges


def read_page_figures(lake: Lake, run_ids: Sequence[str]) -> RunPageSummary:
    """Sum up the message counts that several commits of a run wrote to `profiles`, for the run's HTML page.

    Only a few topics are in memory at a time.
    """
    files = lake.open_folder("profiles")

    def read_profile_batches(columns: Sequence[str]) -> Iterator[pa.Table]:
        for run_id in run_ids:
            # If the source is still open when the process ends, a thread of Arrow may close it then, and abort.
            with (
                files.open_input_file(profiles_file_name(run_id)) as source,
                pq.ParquetFile(source, page_checksum_verification=True) as file,
            ):
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                    yield pa.Table.from_batches([batch])

    figures = RunPageSummary()
    counts = sum(map(partition_row_counts, read_profile_batches(["broker", "topic"])), np.zeros(PARTITIONS, np.int64))
    for group in group_partitions(counts):
        chosen = [select_group_rows(batch, group) for batch in read_profile_batches(FIGURE_COLUMNS)]
        if chosen:
            figures.add_windows(pa.concat_tables(chosen).combine_chunks())
    return figures


def _join_table_updates(updates: Sequence[TableUpdate]) -> list[TableUpdate]:
    """Return one update for each table, with the rows and seconds of all its updates."""
    joined: dict[str, TableUpdate] = {}
    for update in updates:
        earlier = joined.get(update.table, TableUpdate(update.table))
        rows, seconds = update.rows + earlier.rows, update.seconds + earlier.seconds
        joined[update.table] = replace(update, rows=rows, seconds=seconds)
    return list(joined.values())
