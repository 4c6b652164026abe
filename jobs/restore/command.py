"""Create a store that a broker can start from, from the lake's copy of its log.

    commitlake restore --lake /data/lake --broker broker-a --out /data/restored
    commitlake restore --lake /data/lake --at 2026-11-20T14:00 --offsets consumerOffset.json --out /data/restored

Reads `messages` and the packs of bodies, and writes a folder that a broker can use as its storePathRootDir. It contains
the log, with every record at its own physical offset and byte for byte as it was; fillers, which brokers skip, for
ranges that the lake lacks; ConsumeQueues, IndexFiles, checkpoint and topics.json, derived from the log; and groups'
offsets. It needs no Spark. After an interruption, the next run continues. Exit codes: 0 if the range is complete; 2 for
a wrong lake, folder or option, or a body that is not available; 3 if the lake lacks records or bodies of the range, has
lost some of it, or is damaged.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.arguments.broker_conf import read_store_conf
from commitlake.jobs.arguments.lake_location import LakeArguments, check_packs_location, open_lake_argument
from commitlake.jobs.arguments.runner import SparkArguments, make_runner
from commitlake.jobs.arguments.selection import TimeRange
from commitlake.jobs.arguments.similar_names import print_warning, shorten_name_list
from commitlake.jobs.arguments.stores import (
    StoreName,
    declare_broker_option,
    parse_delay_levels_option,
    parse_file_size,
    parse_folder_path,
    positive,
)
from commitlake.jobs.arguments.times import parse_time
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.damaged_file_errors import raise_for_damaged_file
from commitlake.jobs.cli.options import conflicts_with, must_be_less_than, option
from commitlake.jobs.cli.progress import runner_progress
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.rebuild.arguments import FileSettings
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_int
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import DEFAULT_FILE_ENTRIES
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import ENTRY as BATCH_ENTRY
from commitlake.schemas.layouts.rocketmq.broker_conf import format_delay_levels
from commitlake.schemas.layouts.rocketmq.consumequeue import DEFAULT_FILE_SIZE
from commitlake.schemas.layouts.rocketmq.indexfile import Geometry
from commitlake.schemas.layouts.segment_names import DEFAULT_SEGMENT_SIZE
from commitlake.schemas.safe_store_files import MAX_SMALL_FILE_BYTES

if TYPE_CHECKING:
    from commitlake.pipelines.restore.run import RestoreResult


DESCRIPTION = (
    "Create a store that a broker can start from, from the lake's copy of its log: segment files, ConsumeQueues, "
    "index, topics.json and group offsets, for the whole log or as it was at a given time. Needs no Spark; --spark "
    "uses it."
)
EXAMPLES = (
    ("restore --lake /data/lake --out /data/restored", "the whole log, from a lake with one broker"),
    (("restore --lake /data/lake --broker broker-a --at 2026-11-20T14:00 --out "
     "/data/restored"), "the store as it was at that time"),
    ("restore --lake /data/lake --from -2h --to -1h --out /data/hour", "one hour, to read it with a consumer"),
    (("restore --lake s3://archive/lake --out /data/restored --on-missing "
     "skip"), "with fillers instead of messages whose bodies have expired"),
    ("restore --lake s3://archive/lake --out /mnt/shared/restored --spark", "many segments, on Spark's workers"),
    (("restore --lake /data/lake --offsets config/consumerOffset.json --out "
     "/data/restored"), "with group offsets from a file"),
)  # fmt: skip


def _parse_offset(text: str) -> int:
    offset = parse_int(text, 0, INT64_MAX)
    if offset is None:
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected a physical offset, 0 or more")
    return offset


@dataclass(frozen=True, kw_only=True)
class Restore(
    Command,
    LakeArguments,
    StoreName,
    TimeRange,
    SparkArguments,
    FileSettings,
    after={StoreName: "broker", TimeRange: "broker", SparkArguments: "threads", FileSettings: "threads"},
):
    """The command `restore`, which creates a broker's store from the lake's copy of its log."""

    NAME = "restore"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    out: Path = option(
        "folder for the store: new, empty, or of an interrupted run",
        parse=parse_folder_path,
        required=True,
        metavar="DIR",
    )
    broker: str | None = declare_broker_option("the store's name in the lake (default: the only one)")
    start: datetime.datetime | None = option(
        "begin with the first record stored at or after this time: 2026-11-20T14:00, -2h",
        "--from",
        parse=parse_time,
        metavar="TIME",
    )
    end: datetime.datetime | None = option(
        "end with the last record stored before this time", "--to", parse=parse_time, metavar="TIME"
    )
    at: datetime.datetime | None = option(
        "restore the store as it was at this time: all records stored before",
        parse=parse_time,
        metavar="TIME",
        rules=conflicts_with("start", "end", hint="{this} restores everything before a time"),
    )
    from_offset: int | None = option(
        "begin at this physical offset", parse=_parse_offset, metavar="N", rules=must_be_less_than("to_offset")
    )
    to_offset: int | None = option("end before this physical offset", parse=_parse_offset, metavar="N")
    segment_size: int | None = option(
        "size of a file of the log, as 1073741824 or 1GiB: RocketMQ's mappedFileSizeCommitLog "
        "(default: derived from the records, usually 1GiB)",
        parse=parse_file_size,
        metavar="SIZE",
    )
    offsets: Path | None = option(
        "a consumerOffset.json with the groups' offsets (default: groups start without offsets)",
        parse=Path,
        metavar="FILE",
    )
    on_missing: str = option(
        "if a body is missing: fail, or write a filler in place of the record (default: fail)",
        default="fail",
        choices=("fail", "skip"),
    )
    threads: int = option(
        "number of packs read at a time for a segment (default: 2)", parse=positive, default=2, metavar="N"
    )
    delay_levels: tuple[int, ...] | None = option(
        "the broker's messageDelayLevel, as '1s 5s 30s' (default: that of --broker-conf, or RocketMQ's)",
        parse=parse_delay_levels_option,
        metavar="LEVELS",
    )
    queue_file_size: int | None = option(
        "size of a queue's file: RocketMQ's mappedFileSizeConsumeQueue (default: 6000000)",
        parse=parse_file_size,
        metavar="SIZE",
    )
    index_slots: int | None = option("maxHashSlotNum (default: 5000000)", parse=positive, metavar="N")
    index_entries: int | None = option("maxIndexNum (default: 20000000)", parse=positive, metavar="N")
    index_tags: str | None = option("index tags, as brokers since 5.5 do (default: yes)", choices=("yes", "no"))

    def run(self) -> ExitCode:
        """Create the store from the lake, and print a summary."""
        from commitlake.connectors.lake.reader import QueryError

        _check_options(self)
        _warn_of_masks(self)
        missing = _warn_of_lost_ranges(self)
        try:
            restored = _run_restore(self)
        except QueryError as error:
            raise_for_damaged_file(open_lake_argument(self), ["messages"], str(error))
            raise JobError(f"the table messages of the lake cannot be read: {error}") from None
        if not self.quiet:
            for line in summary_lines(restored):
                print_line(line)
        return ExitCode.DAMAGE if restored.lost or restored.lacking or missing else ExitCode.OK


def _read_offsets_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:  # it may be a pipe
            data = file.read(MAX_SMALL_FILE_BYTES + 1)
    except OSError as error:
        raise JobError(f"--offsets {path}: the file cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_SMALL_FILE_BYTES:
        raise JobError(f"--offsets {path}: expected a file of at most {MAX_SMALL_FILE_BYTES} bytes, found a larger one")
    return data


def _warn_of_lost_ranges(command: Restore) -> bool:
    """Warn of parts of the log that the lake has lost, also before the first restored record and after the last one."""
    from commitlake.connectors.lake.lost_ranges import describe_lost_ranges, lost_ranges

    end = command.end if command.at is None else command.at
    lost = lost_ranges(open_lake_argument(command), [command.broker] if command.broker else [], command.start, end)
    lost = [part for part in lost if part.overlaps(command.from_offset, command.to_offset)]
    for sentence in describe_lost_ranges(lost):
        print_warning("commitlake restore", sentence)
    return bool(lost)


def _warn_of_masks(command: Restore) -> None:
    from commitlake.connectors.lake.archive_commits import read_last_commit
    from commitlake.pipelines.masking.archive_masks import describe_rules

    last = read_last_commit(open_lake_argument(command))
    if last is not None and last.masks is not None:
        print_warning(
            "commitlake restore",
            f"the lake's messages were masked when they were archived ({describe_rules(last.masks)}): the restored "
            "records differ from the broker's, and records whose size has changed cannot be restored",
        )


def _check_options(command: Restore) -> None:
    from commitlake.connectors.lake.owned_folders import refuse_owned_folder

    refuse_owned_folder(str(command.out), "--out")


def _run_restore(command: Restore) -> RestoreResult:
    from commitlake.connectors.runtime.local_runner import HERE
    from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers
    from commitlake.pipelines.restore.config_files import parse_offsets
    from commitlake.pipelines.restore.log_rows import RestoreSelection
    from commitlake.pipelines.restore.run import restore_store

    lake = open_lake_argument(command)
    check_packs_location(lake)
    check_archived_brokers(lake, [command.broker] if command.broker else [])
    conf = read_store_conf(command.broker_conf, command.broker or "")
    offsets = parse_offsets(_read_offsets_file(command.offsets), str(command.offsets)) if command.offsets else None
    end = command.end if command.at is None else command.at
    chosen = RestoreSelection(command.broker or "", command.from_offset, command.to_offset, command.start, end)
    runner = make_runner(command, "restore") if command.spark else None
    with restore_progress(f"restoring into {command.out}", quiet=command.quiet, runner=runner or HERE) as begin:
        return restore_store(
            lake,
            command.out,
            chosen,
            settings=command.requested_settings(conf),
            segment_size=command.segment_size or conf.segment_size_bytes,
            offsets=offsets,
            skips_missing_bodies=command.on_missing == "skip",
            threads=command.threads,
            begin_progress=begin,
            runner=runner,
        )


def summary_lines(restored: RestoreResult) -> list[str]:
    """Return lines on what was restored, and how the result differs from the broker's store."""
    from commitlake.jobs.arguments.sizes import size_text
    from commitlake.pipelines.restore.run import NOTES
    from commitlake.schemas.layouts.rocketmq.topics import BOLTMQ_SCHEDULE_TOPIC

    log, rebuilt = restored.log, restored.rebuilt
    made = (
        f"{restored.broker}: {format_count(restored.records, 'record')} from physical offset {log.start} to {log.end}, "
        f"in {format_count(restored.segments, 'segment')} of {restored.segment_size:,} bytes; "
        f"{format_count(rebuilt.entries, 'entry', 'entries')} of {format_count(rebuilt.queues, 'queue')}, "
        f"{format_count(rebuilt.totals.keys, 'key')}; in {restored.out}"
    )
    lines = [made]
    if restored.lacking:
        lines.append(
            f"{format_count(restored.lacking, 'range')}, {size_text(restored.lacking_bytes)}, have no record in the "
            "lake, and hold fillers"
        )
    if restored.lost:
        lines.append(
            f"{format_count(restored.lost, 'record is', 'records are')} left out, {restored.lost_bodies:,} of them "
            "because their bodies are missing"
        )
    if restored.made_up:
        lines.append(
            f"{format_count(restored.made_up, 'record has', 'records have')} equal content but other bytes: the lake "
            "does not have their properties' text"
        )
    if restored.lacking or restored.lost or restored.made_up:
        lines.append(f"{restored.out / NOTES} lists them")
    if not restored.has_config:
        lines.append("the lake has no settings of this store's topics: topics.json is derived from the log alone")
    if restored.offsets is None:
        lines.append(
            "no group offsets: each group begins as its consumers are configured; --offsets takes a consumerOffset.json"
        )
    elif restored.offsets.set_back or restored.offsets.left_out:
        lines.append(
            f"{restored.offsets.set_back:,} group offsets were beyond the end of the log, and are set to its end; "
            f"{restored.offsets.left_out:,} belong to queues without a message, and are left out"
        )
    if restored.boltmq_delays:
        lines.append(
            f"a log of BoltMQ is restored in RocketMQ's format, whose broker delivers nothing from "
            f"{BOLTMQ_SCHEDULE_TOPIC}: messages still waiting there can only be read"
        )
    if restored.compacted_topics:
        lines.append(
            "a broker serves topics with cleanup.policy=COMPACTION "
            f"({shorten_name_list(restored.compacted_topics)}) from "
            "compaction/, which it rebuilds from the log only after a crash: before its first start, delete checkpoint "
            f"in {restored.out} and create an empty file abort there"
        )
    needed = _needed_broker_settings(restored)
    if needed:
        lines.append(f"the broker needs {', '.join(f'{name}={value}' for name, value in needed.items())}")
    return lines


def _needed_broker_settings(restored: RestoreResult) -> dict[str, object]:
    """Return the settings that broker.conf needs so that a broker starts on the store with the right delays."""
    settings = restored.rebuilt.settings
    found = {
        "mappedFileSizeCommitLog": (restored.segment_size, DEFAULT_SEGMENT_SIZE),
        "mappedFileSizeConsumeQueue": (settings.queue_file_size, DEFAULT_FILE_SIZE),
        "maxHashSlotNum": (settings.index_slots, Geometry().slots),
        "maxIndexNum": (settings.index_entries, Geometry().entries),
    }
    if settings.batch_topics:
        found["mapperFileSizeBatchConsumeQueue"] = settings.batch_file_size, DEFAULT_FILE_ENTRIES * BATCH_ENTRY.size
    needed: dict[str, object] = {name: value for name, (value, default) in found.items() if value != default}
    if restored.rebuilt.has_nondefault_delays:
        needed["messageDelayLevel"] = format_delay_levels(settings.delay_levels_ms)
    return needed


build_parser, main = Restore.parser, Restore.main


@contextmanager
def restore_progress(label: str, *, quiet: bool, runner: Runner) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Yield a function that starts a progress display for a number of bytes, and returns a function to advance it.

    Args:
        label: name of the work, in a few words.
        quiet: whether to show nothing.
    """
    with ExitStack() as stack:
        yield lambda total: stack.enter_context(runner_progress(runner, label, total, quiet=quiet))
