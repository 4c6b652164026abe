"""Entry point of a restore: the log segment by segment, then configuration files, then a rebuild of the indexes.

An interrupted run that is started again continues with the segments that are not complete.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from deltalake import DeltaTable

from commitlake.connectors.atomic_files import remove_folder_in_order, write_synced
from commitlake.connectors.formats.registry import all_formats, format_for_restore
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import HERE, ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.message_keys.progress import open_newest_messages
from commitlake.pipelines.rebuild.plan import PLAN as REBUILD_PLAN
from commitlake.pipelines.rebuild.plan import WORK as REBUILD_WORK
from commitlake.pipelines.rebuild.run import RebuildResult, rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings, find_settings
from commitlake.pipelines.restore.config_files import (
    DELIVERY_MS,
    GroupOffsets,
    KnownConfig,
    Table,
    limit_to_queue_ranges,
    make_timer_checkpoint,
    read_known_config,
    read_light_queue_ends,
    serialize_config_files,
    serialize_light_offsets,
)
from commitlake.pipelines.restore.log_rows import (
    LogRange,
    RestoreSelection,
    find_log_range,
    find_segment_size,
    first_undelivered_offsets,
    first_waiting_timer_offset,
    read_brokers,
    read_queue_ends,
)
from commitlake.pipelines.restore.plan import (
    PLAN,
    RestorePlan,
    check_free_space,
    has_run_to_resume,
    read_resumed_plan,
)
from commitlake.pipelines.restore.segment_restore import LakeVersion, SegmentRestored, run_segment_task
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.layouts.rocketmq.commitlog import END_RESERVE
from commitlake.schemas.layouts.rocketmq.timers import CHECKPOINT_PATH as TIMER_CHECKPOINT
from commitlake.schemas.layouts.rocketmq.topics import BOLTMQ_SCHEDULE_TOPIC, LIGHT_PREFIX, TOPICS_FILE
from commitlake.schemas.safe_store_files import remove_tree, sync_folder

NOTES = "restore-notes.jsonl"
_THREADS = 2
_NOTHING = LogRange(0, 0, 0, 0, 0)
_BY_RULE = "properties of batches, repeated as brokers 4.9.4 to 5.3.3 do"
Begin = Callable[[int], Callable[[int], None]]


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Result of restoring a store: what was written, and what was lost.

    Attributes:
        out: the folder of the store.
        broker: name of the store.
        log: the range of the log.
        segment_size: bytes per segment.
        segments: number of segments.
        records: number of records in the log.
        made_up: how many of them have a text of properties that is not, or may not be, the broker's.
        by_rule: how many of them repeat the properties of a batch, as brokers 4.9.4 to 5.3.3 write them.
        lost: rows of the lake that did not become records.
        lost_bodies: how many of them lack only their body.
        lacking: number of ranges without a record in the lake.
        lacking_bytes: total size of these ranges.
        offsets: offsets of the consumer groups; None if no file was given.
        rebuilt: result of the rebuild of queues, index and other files.
        has_config: true if the lake has the configuration of the store: its topics and groups.
        compacted_topics: topics whose messages a broker reads from compaction/, which is not restored.
        boltmq_delays: true if messages are in BoltMQ's topic for delays, from which RocketMQ delivers nothing.
    """

    out: Path
    broker: str
    log: LogRange
    segment_size: int
    segments: int
    records: int
    made_up: int
    by_rule: int
    lost: int
    lost_bodies: int
    lacking: int
    lacking_bytes: int
    offsets: GroupOffsets | None
    rebuilt: RebuildResult
    has_config: bool
    compacted_topics: tuple[str, ...]
    boltmq_delays: bool


def restore_store(
    lake: Lake,
    output_folder: Path,
    selection: RestoreSelection,
    *,
    settings: RequestedSettings | None = None,
    segment_size: int | None = None,
    offsets: Table | None = None,
    skips_missing_bodies: bool = False,
    threads: int = _THREADS,
    begin_progress: Begin | None = None,
    runner: Runner | None = None,
) -> RestoreResult:
    """Restore a broker's store from its messages in a lake.

    Args:
        output_folder: the folder for the store: new, or with an interrupted run with the same options.
        selection: the log and the part of it; an empty broker name stands for the only broker of the lake.
        settings: settings of the broker for queues and index; its defaults for those not given.
        segment_size: bytes per segment; detected if not given.
        offsets: offsets of consumer groups, from `parse_offsets`.
        skips_missing_bodies: leave out the records whose bodies cannot be read; otherwise the first one is an error.
        threads: how many packs are read at the same time.
        begin_progress: called once with the total bytes of records; returns the function that is called with each
            number of bytes read.
        runner: runs the restore of segments and the rebuild; on other machines it needs the same folder. By default,
            this process restores one segment after the other.

    Raises:
        UsageError: if no broker accepts the settings.
    """
    log_format = format_for_restore()
    is_begun = has_run_to_resume(output_folder, log_format)
    open_pack_store(lake.packs)  # an invalid place is reported first
    table = open_newest_messages(lake)
    if not selection.broker:
        selection = replace(selection, broker=_find_only_broker(table))
    plan = RestorePlan(
        output_folder, lake.root, selection, _NOTHING, segment_size or 0, skips_missing_bodies, log_format
    )
    known = read_known_config(lake, selection.broker, selection.end)
    settings = known.complete_settings(settings or RequestedSettings())
    find_settings(output_folder, settings, log_format)  # refuses settings that no broker accepts
    segment_size = segment_size or known.segment_size
    if is_begun:
        plan = read_resumed_plan(plan)
    else:
        log = find_log_range(table, selection)
        plan = replace(plan, log=log, segment_size=segment_size or _find_segment_size(table, selection.broker))
    check_free_space(plan)
    if not is_begun:
        plan.save_plan()
    source = LakeVersion(lake, table.version(), skips_missing_bodies, threads, uuid.uuid4().hex)
    done = _restore_log(plan, source, begin_progress, runner or HERE)
    ends = read_queue_ends(table, selection.broker, plan.log)
    rebuilt = _rebuild(plan, settings, runner or ThreadRunner(threads), known)
    ends_of_offsets = ends | read_light_queue_ends(plan.out, offsets or {})  # the rebuild has made the light queues
    fitting = _write_config(plan, table, settings, offsets, ends_of_offsets, known)
    if any((plan.out / "consumequeue").glob(f"{LIGHT_PREFIX}*")):
        data = serialize_light_offsets(fitting or GroupOffsets({}), plan.log.last_time)
        write_synced(plan.out / "config" / "lmqConsumerOffset.json", data, trusted_root=plan.out)
    lacking = _write_difference_notes(plan, done)
    # The plan goes last: as long as it exists, an interrupted run is resumed.
    remove_folder_in_order(plan.work_folder, PLAN)
    sync_folder(output_folder)
    return RestoreResult(
        out=output_folder,
        broker=selection.broker,
        log=plan.log,
        segment_size=plan.segment_size,
        segments=len(done),
        records=sum(each.records for each in done),
        made_up=sum(len(each.made_up) for each in done),
        by_rule=sum(each.by_rule for each in done),
        lost=sum(len(each.lost) for each in done),
        lost_bodies=sum(one.is_body for each in done for one in each.lost),
        lacking=len(lacking),
        lacking_bytes=sum(end - start for start, end in lacking),
        offsets=fitting,
        rebuilt=rebuilt,
        has_config=bool(known.topics),
        compacted_topics=tuple(sorted(known.compacted_topics & {topic for topic, _ in ends})),
        boltmq_delays=any(topic == BOLTMQ_SCHEDULE_TOPIC for topic, _ in ends),
    )


def _find_segment_size(table: DeltaTable, broker: str) -> int:
    """Return the size of the broker's segments, from its whole log, as a short range may not show it."""
    return find_segment_size(table, broker, find_log_range(table, RestoreSelection(broker)))


def _find_only_broker(table: DeltaTable) -> str:
    found = read_brokers(table)
    if len(found) != 1:
        some = ", ".join(found[:5]) + (" and more" if len(found) > 5 else "")
        raise UsageError(f"the lake has {format_count(len(found), 'broker')}: name one of them with --broker: {some}")
    return found[0]


def _restore_log(
    plan: RestorePlan, lake_version: LakeVersion, begin_progress: Begin | None, runner: Runner
) -> list[SegmentRestored]:
    """Restore the segments that do not exist yet, and return the results of all segments."""
    advance = begin_progress(plan.log.bytes) if begin_progress is not None else None
    known = {base: restored for base in plan.base_offsets if (restored := plan.read_segment_result(base)) is not None}
    if advance is not None:
        for restored in known.values():
            advance(restored.bytes)
    tasks = [plan.make_segment_task(base) for base in plan.base_offsets if base not in known]
    for number, restored in runner.run(partial(run_segment_task, lake_version), tasks):
        base = tasks[number].base
        known[base] = restored
        if restored.records:  # otherwise it is written a second time below
            # The segment's name must be on disk before the note that says that it is complete.
            sync_folder(plan.commitlog_folder)
            plan.write_segment_result(base, restored)
        if advance is not None:
            advance(restored.bytes)
    done = _rewrite_empty_segments(plan, lake_version, known, {task.base for task in tasks})
    if not any(each.records for each in done):
        raise UsageError(
            f"none of {format_count(plan.log.records, 'record')} could be restored, and a log without records is not "
            "written"
        )
    # The log gets its name once all segments are there, so that no broker starts from a part of it. An interrupted run
    # may have done this already.
    if plan.commitlog_folder.exists():
        plan.commitlog_folder.rename(plan.out / plan.format.folder)
        sync_folder(plan.out)
    return done


def _rewrite_empty_segments(
    plan: RestorePlan,
    lake_version: LakeVersion,
    results: Mapping[int, SegmentRestored],
    new_base_offsets: AbstractSet[int],
) -> list[SegmentRestored]:
    """Write new segments without records again, so that their fillers get the previous record's store time."""
    done: list[SegmentRestored] = []
    time = 0
    for base in plan.base_offsets:
        restored = results[base]
        if base in new_base_offsets and not restored.records:
            restored = run_segment_task(lake_version, plan.make_segment_task(base, time))
            sync_folder(plan.commitlog_folder)
            plan.write_segment_result(base, restored)
        time = restored.last_time
        done.append(restored)
    return done


def _write_config(
    plan: RestorePlan,
    table: DeltaTable,
    settings: RequestedSettings,
    offsets: Table | None,
    queue_ends: Mapping[tuple[str, int], int],
    known_config: KnownConfig,
) -> GroupOffsets | None:
    broker, log = plan.chosen.broker, plan.log
    fitting = None if offsets is None else limit_to_queue_ranges(offsets, queue_ends)
    levels = settings.delay_levels_ms or DEFAULT_DELAY_LEVELS_MS
    delays = first_undelivered_offsets(table, broker, log, levels, log.last_time - DELIVERY_MS)
    topics = {topic for topic, _ in queue_ends if not topic.startswith(LIGHT_PREFIX)}
    files = serialize_config_files(fitting or GroupOffsets({}), topics, delays, log.last_time, known_config.groups)
    for name, data in files.items():
        write_synced(plan.out / "config" / name, data, trusted_root=plan.out)
    timer = first_waiting_timer_offset(table, broker, log, log.last_time - DELIVERY_MS)
    if timer is not None:
        write_synced(plan.out / TIMER_CHECKPOINT, make_timer_checkpoint(timer, log.last_time), trusted_root=plan.out)
    return fitting


def _rebuild(
    plan: RestorePlan, settings: RequestedSettings, runner: Runner, known_config: KnownConfig
) -> RebuildResult:
    """Rebuild the restored store's queues, indexes, checkpoint and topics.json from its log."""
    if not (plan.out / REBUILD_WORK / REBUILD_PLAN).exists():
        for name in plan.format.folders.rebuilt:  # from a run that was interrupted after its rebuild
            remove_tree(plan.out / name)
        if known_config.topics:  # the rebuild adds topics that are only in the log
            write_synced(
                plan.out / TOPICS_FILE, known_config.serialize_topics_file(plan.log.last_time), trusted_root=plan.out
            )
    (store,) = find_stores(str(plan.out), plan.chosen.broker, formats=all_formats().select_only(plan.format))
    wanted = replace(settings, close_heads=store.segments[0].base_offset == 0)
    return rebuild_store(store, plan.out, wanted, runner=runner)


def _write_difference_notes(plan: RestorePlan, results: Sequence[SegmentRestored]) -> list[tuple[int, int]]:
    """Write a line on each difference from the original log to a file; return the ranges without a record."""
    lacking = [
        (max(start, plan.log.start), end) for each in results for start, end in each.filled if end > plan.log.start
    ]  # fmt: skip
    lacking = sorted([*lacking, *_find_short_ends(plan, results)])
    lost = [one for each in results for one in each.lost]
    lines = [
        *({"what": "no record", "start": start, "end": end} for start, end in lacking),
        *(
            {"what": "no body" if one.is_body else "refused", "start": one.start, "end": one.start + one.size,
             "reason": one.reason}
            for one in lost
        ),
        *({"what": "properties made up", "start": offset} for each in results for offset in each.made_up),
        *(
            {"what": _BY_RULE, "start": base, "records": each.by_rule}
            for base, each in zip(plan.base_offsets, results, strict=True) if each.by_rule
        ),
    ]  # fmt: skip
    if lines:
        write_synced(plan.out / NOTES, "".join(json.dumps(line) + "\n" for line in lines).encode())
    return lacking


def _find_short_ends(plan: RestorePlan, results: Sequence[SegmentRestored]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of fillers at segment ends that have room for the record that begins the next segment."""
    for (before, after), base in zip(pairwise(results), plan.base_offsets[1:], strict=True):
        if before.blank is None or after.first is None or after.first[0] != base:
            continue
        if base - before.blank >= after.first[1] + END_RESERVE:
            yield before.blank, base
