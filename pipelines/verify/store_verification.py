"""Verification of stores: the tasks, and the checks that need the results of all tasks.

The checkpoint, the abort file and the offsets of groups and delay levels are compared with the log and its queues, once
both were read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from commitlake.connectors.formats.rocketmq.checkpoint_and_config import DELAY_OFFSETS
from commitlake.connectors.log_format.checkpoint_and_config import CHECKPOINT, CheckedLog, SmallFiles
from commitlake.connectors.reading.files.concurrent_reads import REMOTE_THREADS, map_concurrently
from commitlake.connectors.reading.files.store_files import choose_thread_count
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.connectors.reading.snapshots import StoreRange, divide_segment, segment_ranges
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner, SharedValue
from commitlake.pipelines.verify import index_files
from commitlake.pipelines.verify.batch_queues import BatchEnds
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.index_check import check_index_chains
from commitlake.pipelines.verify.index_files import IndexPart
from commitlake.pipelines.verify.log_check import LogReport, check_log_range, time_back_finding
from commitlake.pipelines.verify.queue_check import BadRanges, OffsetRun, check_queue_order, find_topic_restarts
from commitlake.pipelines.verify.queue_ends import QueueBounds, QueueEnds
from commitlake.pipelines.verify.store_precheck import AdmittedStore, VerifyOptions, admit_store, check_is_readable
from commitlake.pipelines.verify.store_view import ABORT, StoreView
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES

MAX_COPIES_AT_ONCE = 50
"""Number of copies that are verified together: the manifests of all of them are in memory."""
_COPIES_ADMITTED_AT_ONCE = 4
_QUEUES_AT_ONCE = 64
Task = tuple[int, SharedValue[StoreView], Split | IndexPart]
Advance = Callable[[int], None]
BoundsByQueue = Mapping[tuple[str, int], QueueBounds]


@dataclass
class StoreReport:
    """Result of verifying one store.

    Attributes:
        broker: the store's name.
        root: the store's folder, as a path or URI.
        findings: the findings.
        segments: number of segments.
        records: number of records that were read.
        bytes: bytes of the log that were read.
        queues: number of queues that have a folder or a record.
        index_files: number of readable IndexFiles.
        groups: number of consumer groups whose offsets were compared.
        is_live: True if a broker has the store open.
        first_time: store time of its first record, ms since 1970; None if it has no record.
        last_time: the latest store time; None if it has no record.
        can_salvage: False if `rebuild --salvage` writes no log of this kind.
    """

    broker: str
    root: str
    findings: Findings
    segments: int = 0
    records: int = 0
    bytes: int = 0
    queues: int = 0
    index_files: int = 0
    groups: int = 0
    is_live: bool = False
    first_time: int | None = None
    last_time: int | None = None
    can_salvage: bool = True


def join_findings(reports: Sequence[StoreReport]) -> Findings:
    """Return the findings of all stores as one."""
    together = Findings(max((report.findings.limit for report in reports), default=1))
    for report in reports:
        together.merge_findings(report.findings)
    return together


@dataclass
class _StoreInProgress:
    """A store that is being verified, with its log ranges and the results of finished tasks."""

    admitted: AdmittedStore
    splits: list[Split]
    reports: dict[int, LogReport] = field(default_factory=dict)
    chains: dict[int, Findings] = field(default_factory=dict)


def verify_stores(
    stores: Sequence[Store],
    options: VerifyOptions,
    *,
    runner: Runner = HERE,
    advance: Advance | None = None,
) -> list[StoreReport]:
    """Verify the logs, queues, indexes and offsets of stores, and return a report on each.

    Args:
        stores: from `find_stores`.
        options: what to compare with, and how large tasks are.
        advance: called with the number of bytes of log that another task has read.

    Raises:
        StoreError: for a store that cannot be read, or is in an object store and no copy by `commitlake ship`.
    """
    are_remote = any(store.is_remote for store in stores)
    step = MAX_COPIES_AT_ONCE if are_remote else max(1, len(stores))
    together = [stores[first : first + step] for first in range(0, len(stores), step)]
    if len(together) > 1:  # a store that is no copy must not cost the reports of those before it
        map_concurrently(check_is_readable, stores, REMOTE_THREADS)
    threads = _COPIES_ADMITTED_AT_ONCE if are_remote else 1
    return [report for group in together for report in _verify_concurrently(group, options, runner, advance, threads)]


def _verify_concurrently(
    stores: Sequence[Store], options: VerifyOptions, runner: Runner, advance: Advance | None, threads: int
) -> list[StoreReport]:
    """Verify a group of stores together, with at most `threads` of them in their first checks at a time."""
    all_admitted = map_concurrently(lambda store: admit_store(store, options), stores, threads)
    started = [_StoreInProgress(admitted, _plan_splits(admitted, options)) for admitted in all_admitted]
    tasks: list[Task] = []
    places: list[int] = []
    for number, store in enumerate(started):
        view = store.admitted.view
        shared = SharedValue(view)
        tasks += [(number, shared, split) for split in store.splits]
        tasks += [(number, shared, part) for part in view.index]
        places += [*range(len(store.splits)), *range(len(view.index))]
    for done, result in runner.run(_run_task, tasks):
        store = started[tasks[done][0]]
        if isinstance(result, LogReport):
            store.reports[places[done]] = result
            if advance is not None:
                advance(result.bytes)
        else:
            store.chains[places[done]] = result
    return [_make_store_report(store) for store in started]


def _run_task(task: Task) -> LogReport | Findings:
    _, view, what = task
    return check_log_range(view.value, what) if isinstance(what, Split) else check_index_chains(view.value, what)


def _plan_splits(admitted: AdmittedStore, options: VerifyOptions) -> list[Split]:
    view = admitted.view
    return [
        split
        for whole in segment_ranges(admitted.store, StoreRange(view.start, view.end))
        for split in divide_segment(whole, options.partition_bytes, DEFAULT_MAX_RECORD_BYTES)
    ]


def _make_store_report(store: _StoreInProgress) -> StoreReport:
    """Run the checks that need the whole log of a store, and return its report."""
    admitted, view, findings = store.admitted, store.admitted.view, store.admitted.findings
    # In log order, whichever task ended first: runs and store times are compared with those before them.
    reports = [store.reports[place] for place in sorted(store.reports)]
    queues = _join_runs(store.splits, reports, findings)
    for place in sorted(store.chains):
        findings.merge_findings(store.chains[place])
    bad = BadRanges.from_bad_ranges(each for report in reports for each in report.bad)
    restarts = find_topic_restarts(queues)
    ends, batch_ends = QueueEnds(view, bad, findings, restarts), BatchEnds(view, bad, findings, restarts)
    batch_topics = view.kinds.batch.union(*(report.batch_topics for report in reports))
    bounds = {}
    in_order = sorted({*queues, *admitted.queues})
    for place, (topic, queue_id) in enumerate(in_order):
        if place % _QUEUES_AT_ONCE == 0:
            _preload_queue_ends(view, in_order[place : place + _QUEUES_AT_ONCE], batch_topics)
        runs = check_queue_order(
            queues.get((topic, queue_id), []), bad, findings, view.log_folder_name, restarts.get(topic, ())
        )
        of_kind = batch_ends if topic in batch_topics else ends
        bounds[topic, queue_id] = of_kind.check_queue(topic, queue_id, runs)
    newest = max((report.newest_time for report in reports), default=0)
    # Known only now: the checks of all queues set it.
    awaits_record = ends.awaits_record or batch_ends.awaits_record
    if awaits_record:
        findings.add(
            Finding(
                "log_not_copied",
                view.log_folder_name,
                None,
                view.end,
                found="entries of a record",
                expected="this record",
            )
        )
    check_checkpoint(view, admitted.small, newest, findings, awaits_record=awaits_record)
    log = CheckedLog(
        records=LogRecords(view.segments, view.format),
        start=view.start,
        end=view.end,
        entries=sum(queue.end for queue in bounds.values()),
        may_lag=view.may_indexes_lag,
    )
    view.format.small_files.check_checkpoint(log, admitted.small, findings)
    check_offsets(admitted.small, bounds, findings, view.dialect.schedule_topic)
    if view.has_key_index:
        _report_keys_without_index(view, reports, findings)
    return StoreReport(
        broker=view.broker,
        root=view.root,
        findings=findings.with_broker(view.broker),
        segments=len(admitted.store.segments),
        records=sum(report.records for report in reports),
        bytes=sum(report.bytes for report in reports),
        queues=len(bounds),
        index_files=len(view.index),
        groups=len({each.group for each in admitted.small.group_offsets}),
        is_live=view.is_live,
        first_time=next((report.first_time for report in reports if report.first_time is not None), None),
        last_time=newest or None,
        can_salvage=view.dialect.is_rocketmq and not view.format.brokers.steps_over_damage,
    )


def _preload_queue_ends(view: StoreView, queues: Sequence[tuple[str, int]], batch_topics: Collection[str]) -> None:
    """Read the ends of a shipped copy's queues in parallel, as later checks would wait for each of them."""

    def read_queue_end(queue: tuple[str, int]) -> None:
        files = view.open_batch_queue_files(*queue) if queue[0] in batch_topics else view.open_queue_files(*queue)
        files.find_written_end()

    if (threads := choose_thread_count(view.files)) > 1:
        map_concurrently(read_queue_end, queues, threads)


def _report_keys_without_index(view: StoreView, reports: Sequence[LogReport], findings: Findings) -> None:
    """Report records whose keys are in no IndexFile, because there is none or a copy lacks the newest one."""
    count = sum(report.not_copied if view.index else report.with_keys for report in reports)
    if count and view.lacks_newest_index:
        offsets = (each.first_not_copied for each in reports if each.first_not_copied is not None)
        found = f"no file with the keys of {format_count(count, 'record')}"
        expected = "one, which 'commitlake ship' does not copy"
        findings.add(
            Finding("index_not_copied", index_files.FOLDER, None, next(offsets, None), found=found, expected=expected)
        )
    elif count and not view.index:
        findings.add(Finding("index_absent", index_files.FOLDER, found="no file with entries", expected="one or more"))


def _join_runs(
    splits: Sequence[Split], reports: Sequence[LogReport], findings: Findings
) -> Mapping[tuple[str, int], list[OffsetRun]]:
    """Collect the findings of all ranges of a log, and return the runs of queue offsets by queue."""
    queues: Mapping[tuple[str, int], list[OffsetRun]] = defaultdict(list)
    last_time = None
    for split, report in zip(splits, reports, strict=True):
        findings.merge_findings(report.findings)
        for run in report.runs:
            queues[run.topic, run.queue_id].append(run)
        if last_time is not None and report.first_time is not None and report.first_time < last_time:
            findings.add(time_back_finding(split, split.start, report.first_time, last_time))
        last_time = report.last_time if report.last_time is not None else last_time
    return queues


def check_checkpoint(
    view: StoreView, files: SmallFiles, newest_time: int, findings: Findings, *, awaits_record: bool
) -> None:
    """Check the files `checkpoint` and `abort` against the log.

    Args:
        newest_time: the latest store time in the log, ms; 0 without a record.
        findings: receives the findings.
        awaits_record: whether the store is a copy without the newest record, which the checkpoint may confirm.
    """
    if view.was_aborted and not view.is_live:
        findings.add(Finding("abort_present", ABORT, found="the file, and nobody who holds the lock", expected="none"))
    for name, value, is_time in files.claims:
        most, what = (newest_time, "newest store time") if is_time else (view.end, "end")
        may_be_awaited = awaits_record and (is_time or value <= view.end + DEFAULT_MAX_RECORD_BYTES)
        if value > most and not may_be_awaited:
            unit = " ms" if is_time else ""
            found, expected = f"{name} {value}{unit}", f"at most {most}{unit}, the log's {what}"
            findings.add(
                Finding(view.finding_code_after_log_end("checkpoint_ahead"), CHECKPOINT, found=found, expected=expected)
            )


def check_offsets(files: SmallFiles, bounds: BoundsByQueue, findings: Findings, schedule_topic: str) -> None:
    """Compare the offset of every consumer group and delay level with the range of its queue."""
    for topic, group, queue_id, offset in sorted(files.group_offsets):
        for code, expected in _offset_problems(offset, bounds.get((topic, queue_id))):
            findings.add(
                Finding(code, files.offsets_file, queue=f"{topic}/{queue_id}", number=offset,
                        found=f"group {group} at {offset}", expected=expected)
            )  # fmt: skip
    for level, offset in sorted(files.delay_offsets.items()):
        queue = bounds.get((schedule_topic, level - 1))
        end = 0 if queue is None else queue.end
        if offset > end:
            place = f"{schedule_topic}/{level - 1}"
            found, expected = f"level {level} at {offset}", f"at most {end}"
            findings.add(
                Finding("delay_offset_beyond_queue", DELAY_OFFSETS, queue=place, number=offset, found=found,
                        expected=expected)
            )  # fmt: skip


def _offset_problems(offset: int, queue_bounds: QueueBounds | None) -> Iterator[tuple[str, str]]:
    if offset < 0:
        yield "offset_invalid", "0 or more"
    elif queue_bounds is None:
        if offset > 0:
            yield "offset_without_queue", "a queue"
    elif offset > queue_bounds.end:
        yield "offset_beyond_queue", f"at most {queue_bounds.end}"
    elif offset < queue_bounds.first and queue_bounds.end > queue_bounds.first:
        yield "offset_below_queue", f"{queue_bounds.first} or more"
