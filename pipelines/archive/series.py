"""The commits of one archive run as one result, with one page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.formats.engine.plan import Snapshot, StoreRange
from commitlake.connectors.lake.archive_log import CommittedRange
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.versions import table_files
from commitlake.pipelines.archive.profiles_file import profiles_file
from commitlake.pipelines.archive.run import Config, Result, losses_of
from commitlake.pipelines.archive.shown import RunPage, ShownRun
from commitlake.pipelines.quality.figures import FIGURE_COLUMNS, PageFigures
from commitlake.pipelines.quality.partitions import PARTITIONS, partition_counts, plan_groups, rows_of
from commitlake.pipelines.quality.report import join_reports, sentences

_BATCH_ROWS = 1 << 16


class CommitSeries:
    """Results of the commits of one run.

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
        self._shown: list[ShownRun] = []
        path = None if config.page is None else config.page.path
        self.config = replace(config, page=RunPage(path, self._shown.append))
        self._results: list[Result] = []
        self._started = time.monotonic()

    def add(self, result: Result) -> None:
        """Add the result of a commit, or of an attempt that found that others had archived its range."""
        self._results.append(result)

    def stop(self) -> Result | None:
        """End the run after an error, and show its last part; return the result so far, or None if there is none."""
        committed = [run for run in self._shown if run.sequence is not None]
        if self._shown and self._page is not None:
            last = self._shown[-1]
            earlier = [(run.sequence or 0, run.run_id) for run in committed if run is not last]
            self._page.show(replace(last, earlier=earlier))
        return self._join(committed) if any(result.sequence for result in self._results) else None

    def end(self) -> Result:
        """Show the run, and return its result."""
        result = self._join(self._shown)
        if self._shown and self._page is not None:
            self._page.show(self._whole(self._shown, result))
        return result

    def _join(self, shown: Sequence[ShownRun]) -> Result:
        made = [result for result in self._results if result.sequence]
        last = self._results[-1]
        verdict, warnings = last.verdict, last.warnings
        problems = list(dict.fromkeys(problem for result in self._results for problem in result.problems))
        if shown:
            reports = [run.report for run in shown if run.report is not None]
            report = join_reports(reports) if reports else None
            losses = losses_of(
                self.config, sum(result.quarantined for result in made), sum(result.gaps for result in made)
            )
            verdict = losses.verdict(report).with_unread(len(problems)).without_newer(self._newer)
            warnings = sentences(report) if report is not None else ()
        return replace(
            last,
            sequence=made[-1].sequence if made else 0,
            earlier=[result.sequence for result in made[:-1]],
            ranges=self._ranges(made),
            messages=sum(result.messages for result in made),
            quarantined=sum(result.quarantined for result in made),
            gaps=sum(result.gaps for result in made),
            metadata_bytes=sum(result.metadata_bytes for result in made),
            pack_bytes=sum(result.pack_bytes for result in made),
            seconds=time.monotonic() - self._started,
            warnings=warnings,
            verdict=verdict,
            hbase=sum(result.hbase for result in self._results),
            hbase_seconds=sum(result.hbase_seconds for result in self._results),
            keys=sum(result.keys for result in self._results),
            keys_seconds=sum(result.keys_seconds for result in self._results),
            consumptions=sum(result.consumptions for result in self._results),
            edges=sum(result.edges for result in self._results),
            edges_seconds=sum(result.edges_seconds for result in self._results),
            recovered=[sequence for result in self._results for sequence in result.recovered],
            bytes_of_others=sum(result.bytes_of_others for result in self._results),
            notes=list(dict.fromkeys(note for result in self._results for note in result.notes)),
            problems=problems,
        )

    @property
    def _newer(self) -> list[str]:
        return [sentence for wanted in self.wanted.ranges.values() for sentence in wanted.newer]

    def _ranges(self, made: Sequence[Result]) -> dict[str, StoreRange]:
        """Return what the run has archived of each store, with the end of the log that it saw when it began."""
        ranges: dict[str, StoreRange] = {}
        for broker, wanted in self.wanted.ranges.items():
            parts = [result.ranges[broker] for result in made if broker in result.ranges and result.ranges[broker].size]
            start = min((part.start for part in parts), default=wanted.end)
            end = max((part.end for part in parts), default=wanted.end)
            ranges[broker] = replace(wanted, start=start) if end == wanted.end else StoreRange(start, end)
        return ranges

    def _whole(self, shown: Sequence[ShownRun], result: Result) -> ShownRun:
        reports = [run.report for run in shown if run.report is not None]
        lake, ids = shown[-1].lake, [run.run_id for run in shown]
        counts = shown[-1].counts
        assert counts is not None  # every commit has them
        counts = replace(counts, messages=result.messages, quarantined=result.quarantined, gaps=result.gaps)
        return replace(
            shown[-1],
            earlier=[(run.sequence or 0, run.run_id) for run in shown[:-1]],
            verdict=result.verdict,
            ranges={
                broker: CommittedRange(part.start, part.end) for broker, part in result.ranges.items() if part.size
            },
            report=join_reports(reports) if reports else None,
            figures=read_figures(lake, ids) if reports else PageFigures(),
            counts=counts,
            metadata_bytes=result.metadata_bytes,
            pack_bytes=result.pack_bytes,
            started_at=shown[0].started_at,
            seconds=result.seconds,
            problems=result.problems,
            newer=self._newer,
        )


def read_figures(lake: Lake, run_ids: Sequence[str]) -> PageFigures:
    """Return the sums of the profiles of several commits. Few topics are in memory at a time."""
    files = table_files(lake.uri("profiles"), lake.storage_options)

    def batches(columns: Sequence[str]) -> Iterator[pa.Table]:
        for run_id in run_ids:
            with pq.ParquetFile(files.open_input_file(profiles_file(run_id)), page_checksum_verification=True) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                    yield pa.Table.from_batches([batch])

    figures = PageFigures()
    counts = sum(map(partition_counts, batches(["broker", "topic"])), np.zeros(PARTITIONS, np.int64))
    for group in plan_groups(counts):
        chosen = [rows_of(batch, group) for batch in batches(FIGURE_COLUMNS)]
        if chosen:
            figures.add(pa.concat_tables(chosen).combine_chunks())
    return figures
