"""Plans a run that pulls: for each queue, the messages from its last archived offset to one offset in the log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, StoreProgress, read_last_commit
from commitlake.connectors.lake.archive_run_completion import unfinished_commits
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.packs.names import find_broker_name_fault
from commitlake.connectors.lake.store_progress import LastRecord, QueueReport
from commitlake.connectors.reading.snapshots import Snapshot, StoreRange
from commitlake.connectors.reading.store_identity_check import StoreReplacedError, compute_record_digest
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError
from commitlake.connectors.rocketmq.log_extent import LogExtent, log_extent
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import QueueRange, format_queue
from commitlake.connectors.rocketmq.source.ranges import to_partitions
from commitlake.connectors.sources.stream_size_shares import fair_shares
from commitlake.pipelines.archive.from_broker.broker_plan import (
    BrokerPlan,
    BrokerQueues,
    QueueExtent,
    fetch_broker_queues,
)
from commitlake.pipelines.archive.from_broker.pull_task_input import BrokerSource, PulledPart, PulledRange
from commitlake.pipelines.archive.from_broker.tasks_result import build_tasks_result
from commitlake.pipelines.archive.work_planning import ArchiveWork, TasksResult
from commitlake.schemas.remoting.routes import MessageQueue

_QUEUES_TO_CUT = 16
"""Number of queues among which a commit's end is looked for, largest first."""
_SMALL_RANGE = 1000
"""Number of messages that a task pulls rather than look for the end of a commit among them."""


@dataclass(frozen=True, slots=True)
class BrokerWork(ArchiveWork):
    """Work of an archive run that pulls messages from live brokers.

    Attributes:
        source: brokers and limits of the run.
        plans: plans by broker.
    """

    source: BrokerSource = field(kw_only=True)
    plans: Mapping[str, BrokerPlan] = field(kw_only=True)

    @property
    def has_new_data(self) -> bool:
        """True if a broker has messages that are not archived yet."""
        return bool(self.commit.ranges)

    def parts(self, pack_bytes: int, cores: int) -> Sequence[PulledPart]:
        """Divide the ranges of all queues into parts for tasks, which do not divide them further."""
        return self.splits(pack_bytes, cores)

    def splits(self, max_partition_bytes: int, workers: int = 1) -> Sequence[PulledPart]:
        """Divide the ranges of all queues into parts, so that `workers` tasks together keep the rate limit."""
        parts: list[PulledPart] = []
        for plan in self.plans.values():
            parts += _divide_plan(plan, self.source, max_partition_bytes)
        rate = self.source.rate.share_per_reader(max(1, min(workers, len(parts))))
        return [replace(part, source=replace(part.source, rate=rate)) for part in parts]

    def first_commit_work(self, max_bytes: int) -> BrokerWork:
        """Return the first part of this work, with about `max_bytes` bytes of log; all of it if it is smaller."""
        sizes = {name: plan.new_byte_count for name, plan in self.plans.items() if plan.new_byte_count}
        if sum(sizes.values()) <= max_bytes:
            return self
        shares = fair_shares(sizes, max_bytes)
        with self.source.open_puller() as puller:
            found = {name: _truncate_plan(puller, self.source, self.plans[name], shares[name]) for name in sizes}
        plans = {name: plan for name, plan in found.items() if plan is not None}
        if not plans:
            return self
        ranges = {name: StoreRange(plan.archived_end, plan.extent.end) for name, plan in plans.items()}
        commit = replace(
            self.commit,
            stores={**self.commit.stores, **{name: StoreProgress(plan.extent.end) for name, plan in plans.items()}},
            ranges={
                **self.commit.ranges,
                **{name: CommittedRange(one.start, one.end) for name, one in ranges.items()},
            },
        )
        snapshot = Snapshot({**self.snapshot.ranges, **ranges})
        return replace(self, snapshot=snapshot, commit=commit, plans={**self.plans, **plans})

    def build_result(self, manifest: Sequence[ManifestRow], lake: Lake, parser_version: str) -> TasksResult:
        """Return the commit of a run whose tasks have finished, and notes for its summary, from the tasks' reports."""
        return build_tasks_result(self.plans, self.commit, self.source.topics, manifest, lake, parser_version)


def find_broker_work(
    source: BrokerSource,
    lake: Lake,
    end_snapshot: Snapshot | None = None,
    on_new_data: Callable[[], object] | None = None,
) -> BrokerWork:
    """Find the messages that the brokers have and the lake lacks, as ranges of queue offsets to pull.

    Args:
        source: brokers and topics to pull.
        end_snapshot: ends of the logs to pull to; None for their current ends.
        on_new_data: called as soon as something new is found, to start slow preparations early.

    Raises:
        StoreReplacedError: if a broker is not the one that was archived under its name.
        LakeError: if the folder is no lake, or its tables are damaged.
    """
    if end_snapshot is None:
        lake.check_writable()
    last = read_last_commit(lake) or ArchiveCommit(0, "")
    with source.open_admin() as admin, source.open_puller() as puller:
        names = _broker_names(admin, source)
        plans = {name: _plan_broker(admin, puller, source, name, last.stores.get(name), end_snapshot) for name in names}
    _check_topics(source, [*plans.values()])
    new = {name: plan for name, plan in plans.items() if plan.has_new_data}
    if new and on_new_data is not None:
        on_new_data()
    snapshot = Snapshot(
        {name: StoreRange(plan.archived_end, max(plan.archived_end, plan.extent.end)) for name, plan in plans.items()}
    )
    ranges = {name: CommittedRange(plan.archived_end, plan.extent.end) for name, plan in new.items()}
    stores = {**last.stores, **{name: StoreProgress(plan.extent.end) for name, plan in new.items()}}
    commit = ArchiveCommit(last.sequence + 1, uuid.uuid4().hex, stores, ranges)
    unfinished = unfinished_commits(lake, last.sequence)
    return BrokerWork((), snapshot, commit, last, unfinished, source=source, plans=new)


def _broker_names(admin: Admin, source: BrokerSource) -> list[str]:
    known = sorted(admin.clusters().broker_addr_table)
    for name in source.brokers:
        if name not in known:
            raise NoRouteError(
                f"the name server knows no broker {name!r}: expected one of {', '.join(known) or 'none'}"
            )
    if not known:
        raise NoRouteError(
            "the name server knows no broker, so nothing can be archived: check its address, and whether the brokers "
            "are running"
        )
    names = list(source.brokers) or known
    for name in names:
        if fault := find_broker_name_fault(name):
            raise ProtocolError(f"the name server lists a broker whose name a store in a lake cannot have: {fault}")
    return names


def _check_topics(source: BrokerSource, plans: Sequence[BrokerPlan]) -> None:
    known = frozenset[str]().union(*(plan.held.topics for plan in plans))
    for topic in source.topics:
        if topic not in known:
            raise NoRouteError(f"topic {topic!r}: none of the brokers has this topic")


def _plan_broker(
    admin: Admin,
    puller: Puller,
    source: BrokerSource,
    broker_name: str,
    previous_progress: StoreProgress | None,
    end_snapshot: Snapshot | None,
) -> BrokerPlan:
    extent = log_extent(admin, broker_name, source.retry_seconds)
    # Before any queue is read: the offsets of another log mean nothing here.
    if previous_progress is not None:
        _check_same_log(admin, broker_name, previous_progress, extent)
    if end_snapshot is not None:
        end = end_snapshot.ranges[broker_name].end if broker_name in end_snapshot.ranges else 0
        extent = LogExtent(extent.begin, min(extent.end, end))
    held = fetch_broker_queues(admin, broker_name, source.topics)
    plan = BrokerPlan(broker_name, previous_progress, extent, held)
    if previous_progress is not None and extent.end < previous_progress.end:  # another run has archived more
        return BrokerPlan(
            broker_name,
            previous_progress,
            LogExtent(extent.begin, previous_progress.end),
            BrokerQueues((), (), held.topics),
        )
    found = [_plan_queue(puller, source, plan, queue) for queue in held.readable]
    return replace(
        plan,
        ranges=[planned for planned, _ in found if planned is not None],
        reports=[report for _, report in found if report is not None],
    )


def _plan_queue(
    puller: Puller, source: BrokerSource, plan: BrokerPlan, extent: QueueExtent
) -> tuple[PulledRange | None, QueueReport | None]:
    """Return the range to pull from a queue, and a report on lost messages or a recreated queue; None for neither."""
    queue, pulled = extent.queue, plan.previous_progress
    known = pulled.next_offset(queue.topic, queue.queue_id)
    lost, is_new = 0, False
    if known is None:
        begin = extent.first
        # All topics were pulled by the last run, so this queue is newer, and its messages before `first` were deleted
        # since.
        if plan.before is not None and plan.before.pulled is not None and pulled.topics is None:
            lost = extent.first  # the queue was created since the last run
        elif pulled.files_end and extent.first < extent.end:
            begin = _first_offset_after(puller, source, queue, extent.first, extent.end, pulled.files_end)
    # The topic was deleted and created again, so its queue begins at 0 once more.
    elif known > extent.end:
        begin, is_new = extent.first, True
    else:
        begin = max(known, extent.first)
        lost = begin - known
    planned = PulledRange(QueueRange(queue, begin, extent.end), known == begin) if begin < extent.end else None
    report = None
    if lost or is_new or (planned is None and known != extent.end and extent.end):
        where = (
            f"{format_queue(queue)}, offsets {extent.first - lost} to {extent.first}: deleted before they were archived"
        )
        report = QueueReport(
            queue.broker_name, queue.topic, queue.queue_id, begin, begin, begin, 0, lost, where if lost else "", is_new
        )
    return planned, report


def _find_physical_offset(puller: Puller, source: BrokerSource, queue: MessageQueue, queue_offset: int) -> int | None:
    """Return the physical offset of the record at a queue offset; None if the broker does not have the record."""
    from commitlake.connectors.rocketmq.log_reading import record_at  # noqa: PLC0415 (loads the compiled reader)

    found = record_at(puller, queue, queue_offset, source.retry_seconds)
    return None if found is None else found.physical_offset


def _first_offset_after(
    puller: Puller, source: BrokerSource, queue: MessageQueue, low: int, high: int, physical_offset: int
) -> int:
    """Find by bisection the first queue offset whose record is at or after `physical_offset`.

    The result may be too low if the broker lacks a record.
    """
    while low < high:
        middle = (low + high) // 2
        found = _find_physical_offset(puller, source, queue, middle)
        if found is None:
            # Without the record, its place is unknown. Pulling from here takes too many messages rather than too few.
            return low
        if found < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low


def _truncate_plan(puller: Puller, source: BrokerSource, plan: BrokerPlan, share_bytes: int) -> BrokerPlan | None:
    """Return a plan for about the first `share_bytes` bytes of a broker's new log.

    It is None if the log cannot be divided near that point.

    It ends where a record begins, because a later run may continue with the broker's files.
    """
    at = max(plan.archived_end, plan.extent.begin) + share_bytes
    if at >= plan.extent.end:
        return None
    # The largest queues most probably have a record close to the wanted place.
    for one in sorted(plan.ranges, key=lambda one: one.wanted.size, reverse=True)[:_QUEUES_TO_CUT]:
        offset = _first_offset_after(puller, source, one.wanted.queue, one.wanted.begin, one.wanted.end, at)
        record = _find_physical_offset(puller, source, one.wanted.queue, offset) if offset < one.wanted.end else None
        if record is not None and at <= record < plan.extent.end:
            break
    else:
        return None
    ranges = [replace(one, wanted=_truncate_range(puller, source, one.wanted, record)) for one in plan.ranges]
    return replace(plan, extent=LogExtent(plan.extent.begin, record), ranges=ranges)


def _truncate_range(puller: Puller, source: BrokerSource, queue_range: QueueRange, end_byte: int) -> QueueRange:
    """Return the part of a queue range before `end_byte` in the log; a small range is returned whole."""
    if queue_range.size <= _SMALL_RANGE:
        return queue_range
    end = _first_offset_after(puller, source, queue_range.queue, queue_range.begin, queue_range.end, end_byte)
    # At least one message, because an empty range would have no report, and so no progress.
    return replace(queue_range, end=max(end, queue_range.begin + 1))


def _check_same_log(admin: Admin, broker_name: str, progress: StoreProgress, extent: LogExtent) -> None:
    """Raise an error if a broker's log is not the one that was archived under its name."""
    last = progress.last_record
    if extent.end < progress.end:
        expected, found = f"a log up to {progress.end} or more", f"one that ends at {extent.end}"
    elif last is None or last.physical_offset < extent.begin or _has_same_record(admin, broker_name, last):
        return
    else:
        expected = f"the last archived record, of {last.size} bytes at physical offset {last.physical_offset}"
        found = "another record, or none"
    raise StoreReplacedError(
        f"broker {broker_name!r} is not the one that was archived under this name, or has lost messages in a crash: "
        f"expected {expected}, found {found}. If it is a new broker, give it another name, or archive it into another "
        "lake"
    )


def _has_same_record(admin: Admin, broker_name: str, last_record: LastRecord) -> bool:
    record = admin.record_at(broker_name, last_record.physical_offset)
    return record is not None and (len(record), compute_record_digest(record)) == (last_record.size, last_record.digest)


def _divide_plan(plan: BrokerPlan, source: BrokerSource, max_partition_bytes: int) -> list[PulledPart]:
    if not plan.ranges:
        return []
    offsets = sum(one.wanted.size for one in plan.ranges)
    log_bytes = max(1, plan.new_byte_count)
    resuming = {(one.wanted.queue, one.wanted.begin) for one in plan.ranges if one.resumes}
    count = min(offsets, -(-log_bytes // max_partition_bytes))
    log = plan.log_part
    return [
        PulledPart(
            source,
            [PulledRange(piece, (piece.queue, piece.begin) in resuming) for piece in partition],
            log,
            plan.archived_end,
            max(1, log_bytes * sum(piece.size for piece in partition) // offsets),
        )
        for partition in to_partitions([one.wanted for one in plan.ranges], count)
    ]
