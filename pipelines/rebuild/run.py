"""The entry point of a rebuild: ranges of the log first, then queues and index, then the small files.

If a run is interrupted, the next one continues with the remaining work. Nothing is ever written into the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from commitlake.connectors.atomic_files import remove_folder_in_order, write_synced
from commitlake.connectors.log_format.checkpoint_and_config import CHECKPOINT
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.store_files import open_small_files, open_store_files, store_folder_of_log
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner, SharedValue
from commitlake.pipelines.rebuild.checkpoint_and_topics import build_checkpoint, build_topics_file, find_unlikely_queues
from commitlake.pipelines.rebuild.entry_collection import CollectedRange, CollectTask, collect_range
from commitlake.pipelines.rebuild.index_building import (
    BuiltIndexFile,
    IndexTask,
    build_index,
    plan_index_tasks,
    rename_built_files,
)
from commitlake.pipelines.rebuild.part_files import Queue, Totals
from commitlake.pipelines.rebuild.plan import PARTITION_BYTES, PLAN, RebuildPlan, begin_or_resume_plan
from commitlake.pipelines.rebuild.queue_building import BuiltQueueCounts, QueueTask, build_queues, group_queues
from commitlake.pipelines.rebuild.settings import RequestedSettings, Settings, find_settings
from commitlake.pipelines.verify.store_view import is_locked
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BatchEvidence
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.layouts.rocketmq.topics import TOPICS_FILE
from commitlake.schemas.safe_store_files import make_folders, remove_tree

Advance = Callable[[int], None]
_ENTRIES_OF_A_TASK = 1 << 20
_MAX_QUEUE_TASKS = 1024


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """Result of rebuilding a store's indexes.

    Attributes:
        out: the output folder.
        settings: the broker's settings that were used.
        bytes: bytes of the log.
        totals: totals of the log's records.
        entries: number of queue entries.
        queues: number of queues.
        queue_files: number of queue files that this run wrote.
        index_files: number of IndexFiles.
        skipped: number of entries that brokers skip, as their queue offsets are taken or impossible.
        shifted: number of entries at a smaller queue offset than their own, as the log lacks messages before them.
        shifted_queues: the queues of these entries, as `topic/queue id`.
        lost: number of filler entries for messages that the log lacks.
        unlikely_queues: queues that only damaged headers name and topics.json leaves out, as `topic/queue id`.
        assumed_delays: delay levels whose delay neither the user nor the store gave, each with the number of its
            entries; RocketMQ's defaults were used for their delivery times.
    """

    out: Path
    settings: Settings
    bytes: int
    totals: Totals
    entries: int
    queues: int
    queue_files: int
    index_files: int
    skipped: int
    shifted: int
    shifted_queues: tuple[str, ...]
    lost: int
    unlikely_queues: tuple[str, ...]
    assumed_delays: tuple[tuple[int, int], ...] = ()

    @property
    def has_nondefault_delays(self) -> bool:
        """True if the broker's delay levels are not RocketMQ's defaults."""
        delays = self.settings.delay_levels_ms
        return bool(delays) and delays != DEFAULT_DELAY_LEVELS_MS


def rebuild_store(
    store: Store,
    output_folder: Path,
    requested_settings: RequestedSettings,
    *,
    runner: Runner = HERE,
    advance: Advance | None = None,
    partition_bytes: int = PARTITION_BYTES,
    owns_lock: bool = False,
) -> RebuildResult:
    """Rebuild the queues, IndexFiles, checkpoint and topics.json of a store from its log.

    Args:
        store: from `find_stores`.
        output_folder: the output folder: new, or with an interrupted run of the same store.
        requested_settings: the broker's settings as far as the user gives them.
        runner: runs the tasks; workers on other machines need the same folders.
        advance: called with the number of bytes of log that another task has read.
        partition_bytes: bytes of the log that one task reads.
        owns_lock: True if this process holds the store's lock, so that no broker has it open.

    Raises:
        UsageError: for a store, a folder or options that cannot be used.
        UnsafeFileError: for a link, or anything else that is not a regular file, in the store or in the folder.
    """
    with open_small_files(store.root) as root:
        files = open_store_files(store_folder_of_log(store.root))
        settings = find_settings(
            root,
            requested_settings,
            store.format,
            store.format.dialects.dialect_of(store.segments),
            store.segments,
            files,
        )
        is_live = not owns_lock and is_locked(root)
        plan = begin_or_resume_plan(store, root, output_folder.resolve(), settings, partition_bytes, is_live=is_live)
        return _run_both_passes(store, plan, runner, advance)


def _run_both_passes(store: Store, plan: RebuildPlan, runner: Runner, advance: Advance | None) -> RebuildResult:
    splits = plan.log_splits(store)
    collected, counts = _run_first_pass(plan, splits, runner, advance)
    shown = _find_batch_topics(plan.root, plan.settings.format, collected, counts)
    batch_topics = tuple(sorted({*plan.settings.batch_topics, *shown}))
    plan = replace(plan, settings=replace(plan.settings, batch_topics=batch_topics))
    if any(queue.topic in shown and not queue.is_batch for queue in counts):
        # Only the log shows that these topics have batches: read it again, for entries of the other kind.
        remove_tree(plan.parts_folder)
        make_folders(plan.parts_folder, trusted_root=plan.out)
        collected, counts = _run_first_pass(plan, splits, runner, None)
    return _run_second_pass(plan, collected, counts, _part_file_paths(plan, splits), runner)


def _part_file_paths(plan: RebuildPlan, splits: Sequence[Split]) -> list[str]:
    return [str(plan.parts_folder / f"{number:08d}.part") for number in range(len(splits))]


def _run_first_pass(
    plan: RebuildPlan, splits: Sequence[Split], runner: Runner, advance: Advance | None
) -> tuple[list[CollectedRange], dict[Queue, int]]:
    """Read the log and write a part file for each range; return their summaries, and the number of entries by queue."""
    paths = _part_file_paths(plan, splits)
    tasks = [CollectTask(split, plan.settings, path) for split, path in zip(splits, paths, strict=True)]
    done: dict[int, CollectedRange] = {}
    for number, result in runner.run(collect_range, tasks):
        done[number] = result
        if advance is not None:
            advance(splits[number].size)
    collected = [done[number] for number in range(len(tasks))]
    counts: Counter[Queue] = Counter()
    for each in collected:
        counts.update(each.counts)
    return collected, dict(counts)


def _find_batch_topics(
    root: Path, log_format: Format, collected: Sequence[CollectedRange], counts: Mapping[Queue, int]
) -> set[str]:
    """Return the topics that need BatchConsumeQueues, by their records or by the parts of an interrupted run.

    The latter are from an earlier run, which was interrupted while it read the log for the second time.
    """
    shown = {queue.topic for queue in counts if queue.is_batch}
    evidence: dict[str, BatchEvidence] = {}
    for each in collected:
        for topic, of_range in each.evidence.items():
            evidence[topic] = evidence.get(topic, BatchEvidence()).joined(of_range)
    if not evidence:
        return shown
    kinds = log_format.queues.topic_kinds(root)
    records = Counter[str]()
    for queue, count in counts.items():
        records[queue.topic] += count
    return shown | {
        topic for topic in evidence if kinds.is_unknown(topic) and evidence[topic].shows_batch_queues(records[topic])
    }


def _run_second_pass(
    plan: RebuildPlan,
    collected: list[CollectedRange],
    counts: dict[Queue, int],
    parts: list[str],
    runner: Runner,
) -> RebuildResult:
    """Write the queues and IndexFiles, rename the IndexFiles, and write checkpoint and topics.json."""
    settings, out, work = plan.settings, str(plan.out), str(plan.work_folder)
    entries, unlikely = sum(counts.values()), find_unlikely_queues(counts)
    groups = group_queues(counts, min(_MAX_QUEUE_TASKS, 2 + entries // _ENTRIES_OF_A_TASK))
    all_parts = SharedValue(tuple(parts))
    queue_tasks = [
        QueueTask(number, queues, all_parts, work, out, settings, plan.start)
        for number, queues in enumerate(groups)
        if queues
    ]
    totals = reduce(Totals.join_with_later, (each.totals for each in collected), Totals())
    is_whole = settings.topics is None
    has_index = is_whole and settings.has_key_index
    index_tasks = (
        plan_index_tasks([each.totals for each in collected], parts, plan.work_folder, settings) if has_index else []
    )
    tasks: list[QueueTask | IndexTask] = [*index_tasks, *queue_tasks]
    built = dict(runner.run(_run_build_task, tasks, is_io_bound=True))
    queues = [each for each in built.values() if isinstance(each, BuiltQueueCounts)]
    files = [each for _, each in sorted(built.items()) if isinstance(each, BuiltIndexFile)]
    if is_whole:
        rename_built_files(files, plan.out)
        index_time = max((each.header.end_timestamp for each in files if each.is_full), default=0)
        checkpoint = build_checkpoint(plan, totals, index_time)
        if settings.format.small_files.has_topic_configs:
            topics = build_topics_file(plan.root, counts.keys() - unlikely, totals.last_time, settings.dialect)
            write_synced(plan.out / TOPICS_FILE, topics, trusted_root=plan.out)
        # Last of all, because it vouches for the other files.
        write_synced(plan.out / CHECKPOINT, checkpoint, trusted_root=plan.out)
    remove_folder_in_order(plan.work_folder, PLAN)
    return RebuildResult(
        out=plan.out,
        settings=settings,
        bytes=plan.end - plan.start,
        totals=totals,
        entries=entries,
        queues=len(counts),
        queue_files=sum(each.files for each in queues),
        index_files=len(files),
        skipped=sum(each.skipped for each in queues),
        shifted=sum(each.shifted for each in queues),
        shifted_queues=tuple(name for each in queues for name in each.shifted_queues),
        lost=sum(each.lost for each in queues),
        unlikely_queues=tuple(f"{queue.topic}/{queue.queue_id}" for queue in sorted(unlikely)),
        assumed_delays=_count_assumed_delays(settings, counts),
    )


def _count_assumed_delays(settings: Settings, counts: Mapping[Queue, int]) -> tuple[tuple[int, int], ...]:
    if settings.observed_levels is None:
        return ()
    topic, known = settings.dialect.schedule_topic, set(settings.observed_levels)
    levels = {queue.queue_id + 1: count for queue, count in counts.items() if queue.topic == topic and count}
    return tuple(sorted((level, count) for level, count in levels.items() if level not in known))


def _run_build_task(task: QueueTask | IndexTask) -> BuiltQueueCounts | BuiltIndexFile:
    return build_index(task) if isinstance(task, IndexTask) else build_queues(task)
