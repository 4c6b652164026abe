"""Progress, gaps and notes for the commit of a run that pulls, from the reports of its tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import ArchiveCommit, StoreProgress
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow, RefusalCounts
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.store_progress import LastRecord, PulledProgress, QueueReport
from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.queue_reading import format_queue
from commitlake.pipelines.archive.from_broker.broker_plan import BrokerPlan
from commitlake.pipelines.archive.work_planning import TasksResult
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.tables.archive_runs import GAPS

_SHOWN = 5
_IN_FOUND = 100


def build_tasks_result(
    plans: Mapping[str, BrokerPlan],
    commit: ArchiveCommit,
    topics: tuple[str, ...],
    manifest: Sequence[ManifestRow],
    lake: Lake,
    parser_version: str,
) -> TasksResult:
    """Combine the reports of all tasks into the run's commit, rows of `gaps`, and notes for its summary.

    Args:
        plans: plans by broker.
        commit: commit of the run; the progress of its stores is replaced.
        topics: topics that the run is limited to; empty for all.
        manifest: rows of all tasks.
        parser_version: written to rows of `gaps`.

    Raises:
        ProtocolError: if a queue's messages are not in the order of the log, so that an end in the log is no end of the
            queue.
    """
    reports: dict[str, list[QueueReport]] = defaultdict(list)
    for row in manifest:
        if (report := row.queue_report) is not None:
            reports[report.broker].append(report)
    stores: dict[str, StoreProgress] = dict(commit.stores)
    gaps: list[dict[str, object]] = []
    notes: list[str] = []
    for name, plan in plans.items():
        all_reports = [*plan.reports, *reports[name]]
        stores[name] = _progress_after_run(topics, plan, all_reports)
        notes += _run_notes(plan, all_reports)
        lost = [report for report in all_reports if report.lost]
        if lost:
            gaps.append(_to_gap_row(plan, lost) | {"run_id": commit.run_id, "parser_version": parser_version})
    return TasksResult(replace(commit, stores=stores), list(_write_gaps(gaps, commit, lake)), notes)


def _progress_after_run(topics: tuple[str, ...], plan: BrokerPlan, reports: Sequence[QueueReport]) -> StoreProgress:
    before = plan.previous_progress
    offsets = {topic: dict(queues) for topic, queues in before.offsets.items()}
    for topic, queue_id, following in _next_offsets(reports):
        offsets.setdefault(topic, {})[str(queue_id)] = following
    records = [report.last_record for report in reports if report.last_record is not None]
    if plan.before is not None and plan.before.last_record is not None:
        records.append(plan.before.last_record)
    pulled = PulledProgress(offsets, topics or None, before.files_end)
    return StoreProgress(plan.extent.end, max(records, key=_offset_of_record, default=None), pulled)


def _offset_of_record(record: LastRecord) -> int:
    return record.physical_offset


def _next_offsets(reports: Sequence[QueueReport]) -> Iterator[tuple[str, int, int]]:
    """Yield, for each reported queue, its topic, its id, and the offset from which the next run pulls."""
    place = attrgetter("topic", "queue_id", "planned")
    for (topic, queue_id), parts in groupby(sorted(reports, key=place), attrgetter("topic", "queue_id")):
        end: int | None = None
        last = 0
        # The records of a queue are in the order of the log. So after the part that reached the log's end, no later
        # part can have any.
        for part in parts:
            if end is not None and part.rows:
                raise ProtocolError(
                    f"{format_queue(MessageQueue(topic, part.broker, queue_id))}: expected that the broker's log has "
                    f"messages in the order of their queue offsets, but messages after queue offset {end} are earlier "
                    "in it. Nothing of this commit was archived; leave the topic out with --topic, or archive the "
                    "broker's files"
                )
            # The next run pulls from the first message that this one did not take, even if a later part ended as
            # planned.
            if end is None and part.end < part.planned:
                end = part.end
            last = part.planned
        yield topic, queue_id, last if end is None else end


def _run_notes(plan: BrokerPlan, reports: Sequence[QueueReport]) -> Iterator[str]:
    pulled = {(report.topic, report.queue_id) for report in reports if report.planned > report.begin}
    yield (
        f"{plan.broker}: {format_count(sum(report.rows for report in reports), 'message')} pulled from "
        f"{format_count(len(pulled), 'queue')}"
    )
    lost = [report for report in reports if report.lost]
    if lost:
        count = sum(report.lost for report in lost)
        yield (
            f"{plan.broker}: {format_count(count, 'message was', 'messages were')} lost before they were archived: "
            f"{_join_first_names(_lost_range_texts(lost))}"
        )
    restarted = [format_queue(_message_queue(report)) for report in reports if report.is_new_queue]
    if restarted:
        yield (
            f"{plan.broker}: {format_count(len(restarted), 'queue starts', 'queues start')} at 0 again, as the topic "
            f"was deleted and created again. They were read from their first message: {_join_first_names(restarted)}"
        )
    if plan.held.closed:
        count = sum(one.end - one.first for one in plan.held.closed)
        queues = [format_queue(one.queue) for one in plan.held.closed]
        yield (
            f"{plan.broker}: {format_count(count, 'message is', 'messages are')} in queues that cannot be pulled: "
            f"{_join_first_names(queues)}"
        )


def _message_queue(report: QueueReport) -> MessageQueue:
    return MessageQueue(report.topic, report.broker, report.queue_id)


def _lost_range_texts(lost_reports: Sequence[QueueReport]) -> list[str]:
    return [report.lost_where for report in lost_reports]


def _join_first_names(names: Sequence[str], max_names: int = _SHOWN) -> str:
    shown = "; ".join(names[:max_names])
    return shown if len(names) <= max_names else f"{shown}; and {len(names) - max_names} more"


def _to_gap_row(plan: BrokerPlan, lost_reports: Sequence[QueueReport]) -> dict[str, object]:
    """Return the row of `gaps` for messages that a broker deleted before they were archived."""
    start = plan.archived_end
    lost_places = _join_first_names(_lost_range_texts(lost_reports), _IN_FOUND)
    return {
        "broker": plan.broker,
        "segment": f"broker {plan.broker}",
        "start_offset": start,
        "end_offset": max(start, min(plan.extent.begin, plan.extent.end)),
        "found": f"{format_count(sum(report.lost for report in lost_reports), 'message')} gone: {lost_places}",
    }


def _write_gaps(gaps: Sequence[Mapping[str, object]], commit: ArchiveCommit, lake: Lake) -> Iterator[ManifestRow]:
    if not gaps:
        return
    rows = pa.Table.from_pylist(gaps, arrow_schema(GAPS))
    file = write_plain_file(rows, lake, "gaps", f"part-pulled-{commit.run_id}.zstd.parquet")
    yield ManifestRow.from_data_file(file, "gaps")
    counts = {str(gap["broker"]): RefusalCounts(missing_ranges=1) for gap in gaps}
    yield ManifestRow.from_task_results({}, counts, f"{gaps[0]['broker']}: {gaps[0]['found']}", None)
