"""All of a rebuild: the log in ranges, the queues and the index from what these give, the small files at the end.

Run again after it was interrupted, it goes on with what is not done yet. Nothing is ever written into the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.formats.format import Format
from commitlake.connectors.formats.rocketmq.topic_configs import TOPICS
from commitlake.connectors.formats.small_files import CHECKPOINT
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.connectors.whole_files import remove_but_last, write_synced
from commitlake.pipelines.rebuild.checkpoint import new_checkpoint
from commitlake.pipelines.rebuild.collect import Collected, CollectTask, collect
from commitlake.pipelines.rebuild.errors import RebuildError
from commitlake.pipelines.rebuild.index import IndexBuilt, IndexTask, build_index, name_files, plan_index
from commitlake.pipelines.rebuild.parts import Queue, Totals
from commitlake.pipelines.rebuild.plan import PARTITION_BYTES, PLAN, Plan, begin_or_go_on
from commitlake.pipelines.rebuild.queues import QueuesBuilt, QueueTask, build_queues, group_queues
from commitlake.pipelines.rebuild.settings import Settings, Wanted, find_settings
from commitlake.pipelines.rebuild.topics import topics_of, unlikely_queues
from commitlake.pipelines.verify.store_view import is_locked
from commitlake.schemas.layouts.rocketmq.batch_evidence import BatchEvidence
from commitlake.schemas.layouts.rocketmq.delay_levels import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.store_files import make_folders, remove_tree

Advance = Callable[[int], None]
_ENTRIES_OF_A_TASK = 1 << 20
_MOST_QUEUE_TASKS = 1024


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came of a run.

    Attributes:
        out: where it is.
        settings: the broker's, as they were found or given.
        bytes: of the log.
        totals: of its records.
        entries: of all queues.
        queues: how many.
        queue_files: files of queues that this run wrote.
        index_files: how many.
        skipped: entries that brokers pass over, as the queue has their numbers, or cannot have them.
        shifted: entries that stand in front of their numbers, as the log lacks others.
        shifted_queues: the queues that have such entries, as `topic/queue id`.
        lost: entries that stand for messages which the log lacks.
        unlikely_queues: queues with the numbers of damaged headers, which topics.json leaves out; named likewise.
        assumed_delays: delay levels of which neither the user nor the store told the delay, with the number of their
            entries, whose delivery times follow from RocketMQ's defaults.
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
    def has_other_delays(self) -> bool:
        """Return whether the store shows delays that are not RocketMQ's defaults."""
        delays = self.settings.delay_levels_ms
        return bool(delays) and delays != DEFAULT_DELAY_LEVELS_MS


def rebuild_store(
    store: Store,
    out: Path,
    wanted: Wanted,
    *,
    runner: Runner = HERE,
    advance: Advance | None = None,
    partition_bytes: int = PARTITION_BYTES,
    owns_lock: bool = False,
) -> Rebuilt:
    """Make the indexes of a store.

    Args:
        store: from `find_stores`.
        out: the folder that gets them: new, or with an interrupted run of the same.
        wanted: what the user says of the broker's settings.
        runner: what runs the tasks; on other machines they need the same folders.
        advance: is told how many bytes of log more are read.
        partition_bytes: of the log, for one task.
        owns_lock: this process holds the store's lock, so no broker has it open.

    Raises:
        RebuildError: for a store, a folder or options that cannot be used.
        StoreError: for a store that may not be read.
        UnsafeFileError: for a link, or something else that is no file, in the store or in the folder.
    """
    if "://" in store.root:
        raise RebuildError(f"{store.root}: expected a store on a local or mounted disk")
    root = Path(store.root).parent.resolve()  # not the parent of what its log's folder may be a link to
    settings = find_settings(root, wanted, store.format, store.format.dialect_of(store), store.segments)
    is_live = not owns_lock and is_locked(root)
    plan = begin_or_go_on(store, root, out.resolve(), settings, partition_bytes, is_live=is_live)
    splits = plan.splits(store)
    collected, counts = _collect(plan, splits, runner, advance)
    shown = _topics_shown_to_hold_batches(root, settings.format, collected, counts)
    batch_topics = tuple(sorted({*plan.settings.batch_topics, *shown}))
    plan = replace(plan, settings=replace(plan.settings, batch_topics=batch_topics))
    if any(queue.topic in shown and not queue.is_batch for queue in counts):
        # Neither topics.json nor a folder told it before the log was read: these topics need entries of the other kind.
        remove_tree(plan.parts)
        make_folders(plan.parts, below=plan.out)
        collected, counts = _collect(plan, splits, runner, None)
    return _build(plan, collected, counts, _part_paths(plan, splits), runner)


def _part_paths(plan: Plan, splits: Sequence[Split]) -> list[str]:
    return [str(plan.parts / f"{number:08d}.part") for number in range(len(splits))]


def _collect(
    plan: Plan, splits: Sequence[Split], runner: Runner, advance: Advance | None
) -> tuple[list[Collected], dict[Queue, int]]:
    """The first pass: what each part has, and how many entries each queue has in all of them."""
    paths = _part_paths(plan, splits)
    tasks = [CollectTask(split, plan.settings, path) for split, path in zip(splits, paths, strict=True)]
    done: dict[int, Collected] = {}
    for number, result in runner.run(collect, tasks):
        done[number] = result
        if advance is not None:
            advance(splits[number].size)
    collected = [done[number] for number in range(len(tasks))]
    counts: Counter[Queue] = Counter()
    for each in collected:
        counts.update(each.counts)
    return collected, dict(counts)


def _topics_shown_to_hold_batches(
    root: Path, log_format: Format, collected: Sequence[Collected], counts: Mapping[Queue, int]
) -> set[str]:
    """Return the topics of BatchConsumeQueues that only the log tells of, or that have entries of that kind already.

    Entries of the other kind may be from an earlier run, which was interrupted in its second reading of the log.
    """
    shown = {queue.topic for queue in counts if queue.is_batch}
    evidence: dict[str, BatchEvidence] = {}
    for each in collected:
        for topic, of_range in each.evidence.items():
            evidence[topic] = evidence.get(topic, BatchEvidence()).joined(of_range)
    if not evidence:
        return shown
    kinds = log_format.topic_kinds(root)
    records = Counter[str]()
    for queue, count in counts.items():
        records[queue.topic] += count
    return shown | {
        topic for topic in evidence if kinds.is_unknown(topic) and evidence[topic].shows_batches(records[topic])
    }


def _build(
    plan: Plan,
    collected: list[Collected],
    counts: dict[Queue, int],
    parts: list[str],
    runner: Runner,
) -> Rebuilt:
    """The second pass, and what comes after it."""
    settings, out, work = plan.settings, str(plan.out), str(plan.work)
    entries, unlikely = sum(counts.values()), unlikely_queues(counts)
    groups = group_queues(counts, min(_MOST_QUEUE_TASKS, 2 + entries // _ENTRIES_OF_A_TASK))
    queue_tasks = [
        QueueTask(number, queues, tuple(parts), work, out, settings, plan.start)
        for number, queues in enumerate(groups)
        if queues
    ]
    totals = reduce(Totals.joined, (each.totals for each in collected), Totals())
    is_whole = settings.topics is None
    has_index = is_whole and settings.has_key_index
    index_tasks = plan_index([each.totals for each in collected], parts, plan.work, settings) if has_index else []
    tasks: list[QueueTask | IndexTask] = [*index_tasks, *queue_tasks]
    built = dict(runner.run(_build_one, tasks, is_waiting=True))
    queues = [each for each in built.values() if isinstance(each, QueuesBuilt)]
    files = [each for _, each in sorted(built.items()) if isinstance(each, IndexBuilt)]
    if is_whole:
        name_files(files, plan.out)
        index_time = max((each.header.end_timestamp for each in files if each.is_full), default=0)
        checkpoint = new_checkpoint(plan, totals, index_time)
        if settings.format.has_topic_configs:
            topics = topics_of(plan.root, counts.keys() - unlikely, totals.last_time, settings.dialect)
            write_synced(plan.out / TOPICS, topics, below=plan.out)
        write_synced(plan.out / CHECKPOINT, checkpoint, below=plan.out)
    remove_but_last(plan.work, PLAN)
    return Rebuilt(
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
        assumed_delays=_assumed_delays(settings, counts),
    )


def _assumed_delays(settings: Settings, counts: Mapping[Queue, int]) -> tuple[tuple[int, int], ...]:
    if settings.observed_levels is None:
        return ()
    topic, known = settings.dialect.schedule_topic, set(settings.observed_levels)
    levels = {queue.queue_id + 1: count for queue, count in counts.items() if queue.topic == topic and count}
    return tuple(sorted((level, count) for level, count in levels.items() if level not in known))


def _build_one(task: QueueTask | IndexTask) -> QueuesBuilt | IndexBuilt:
    return build_index(task) if isinstance(task, IndexTask) else build_queues(task)
