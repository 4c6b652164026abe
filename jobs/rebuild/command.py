"""Rebuild a store's queues, IndexFiles, checkpoint and topics.json from its log.

    commitlake rebuild /data/rocketmq/store --out /data/rebuilt
    commitlake rebuild /data/rocketmq/store --in-place
    commitlake rebuild /data/rocketmq/store --out /data/clean --salvage

Every file is byte for byte what the broker would write, with two exceptions: the names of IndexFiles, which are times
of creation, and data that the log lacks: entries of expired messages, and the checkpoint's flush times. Without
--in-place nothing is written into the store. After an interruption, the next run continues. With --salvage a clean log
is written first: every intact record of a damaged log at its own offset, with fillers between them, which a broker
skips. For a JMQ store only queue files and checkpoint are created; its broker skips damage by itself, so there is no
salvage. Exit codes: 0 if everything was created; 2 for a wrong store, folder or option; 3 if the log is damaged, even
if a clean one was written; 4 if a broker has the store open that must be changed.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.broker_conf import read_store_conf
from commitlake.jobs.arguments.store_layout import find_formats
from commitlake.jobs.arguments.stores import (
    require_store,
)
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import environment_variable_of
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.rebuild.arguments import RebuildOptions
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.reading.stores import Store
    from commitlake.pipelines.rebuild.run import RebuildResult
    from commitlake.pipelines.salvage.run import SalvageResult

_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
_NAMED = 5
"""Largest number of queues that a line of the summary names."""
DESCRIPTION = (
    "Rebuild queues, IndexFiles, checkpoint and topics.json from the log of a store of RocketMQ, BoltMQ or JMQ, as its "
    "broker would do it, but many times faster and in any folder; or, with --salvage, write a clean log from a damaged "
    "one."
)
EXAMPLES = (
    ("rebuild /data/rocketmq/store --out /data/rebuilt", "into another folder, with all cores"),
    ("rebuild /data/rocketmq/store --in-place", ("replace the files of a stopped broker, after verifying the "
                                                        "new ones")),
    ("rebuild /data/rocketmq/store --out /data/rebuilt --topic orders --spark", "the queues of one topic, on Spark"),
    ("rebuild /data/jmq/store --in-place", "queue files and checkpoint of a JMQ store"),
    ("rebuild s3://logs/broker-a --out /data/rebuilt", "from a copy that 'ship' made in an object store"),
    ("rebuild /data/rocketmq/store --out /data/clean --salvage", "write a clean store from a damaged one"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rebuild(RebuildOptions):
    """The command `rebuild`, which rebuilds queues, indexes and other files of a store from its log."""

    NAME = "rebuild"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Rebuild the files of one store, and print a summary."""
        place = require_store(self.store)
        from commitlake.connectors.reading.stores import find_stores
        from commitlake.pipelines.rebuild.errors import (
            BusyStoreError,
            DisagreementError,
            UnknownDelaysError,
        )

        stores = find_stores(place, None, formats=find_formats(self))
        if len(stores) != 1:
            raise JobError(f"{place}: expected the path of one store, found {len(stores)} stores")
        _check_options(self, stores[0])
        try:
            return _rebuild_or_salvage(self, stores[0])
        except BusyStoreError as error:
            raise JobError(str(error), "stop the broker, or give --out", ExitCode.REFUSED) from None
        except DisagreementError as error:
            hint = "'commitlake verify' lists all damage"
            if not error.is_of_log:
                hint = f"a queue without messages in the log keeps its files: move damaged ones elsewhere; {hint}"
            elif not stores[0].format.brokers.steps_over_damage:
                hint = f"the log is damaged: --salvage with --out writes a clean one; {hint}"
            raise JobError(str(error), hint, ExitCode.DAMAGE) from None
        except UnknownDelaysError as error:
            raise JobError(str(error), "give the broker's settings with --broker-conf, or --delay-levels") from None
        except OSError as error:
            if error.errno not in _OF_THE_DISK:
                raise
            failed = error.filename or self.out or stores[0].root
            hint = "the store has lost nothing; fix the problem and run again: the job continues where it stopped"
            raise JobError(f"{failed}: {error.strerror}", hint, ExitCode.FAILED) from None


def _check_options(command: RebuildOptions, store: Store) -> None:
    _check_index_options(command, store)
    if command.salvage:
        _check_can_salvage(store)
    if command.out is not None:
        _check_output_folder(command.out, store)


def _check_index_options(command: RebuildOptions, store: Store) -> None:
    if store.format.indexes.has_files:
        return
    for name in ("index-slots", "index-entries", "index-tags"):
        if getattr(command, name.replace("-", "_")) is not None and environment_variable_of(name) not in os.environ:
            raise JobError(f"--{name} has no effect: a {store.format.title} store has no IndexFiles", "leave it out")


def _check_can_salvage(store: Store) -> None:
    if store.format.brokers.steps_over_damage:
        title, folder = store.format.title, store.format.folder
        raise JobError(
            f"--salvage is only for RocketMQ stores: a {title} broker skips damaged parts of its {folder} itself; "
            "leave the option out",
            "without it, queue files are made for all intact records",
        )
    if not (dialect := store.format.dialects.dialect_of(store.segments)).is_rocketmq:
        raise JobError(
            f"--salvage is only for RocketMQ stores, but {store.root} is a store of {dialect.name}; leave the option "
            "out",
            "without it, queues are made for all intact records",
        )


def _check_output_folder(out: Path, store: Store) -> None:
    from commitlake.connectors.lake.owned_folders import broker_folder_names, refuse_owned_folder

    if store.is_remote:
        refuse_owned_folder(str(out), "--out")
        return
    log, root, chosen = Path(store.root).resolve(), Path(store.root).parent.resolve(), out.resolve()
    folders = {log, *(log.parent / name for name in broker_folder_names(store.format))}
    if chosen in {root, log.parent} or any(chosen.is_relative_to(folder) for folder in folders):
        raise JobError(
            f"--out {out} is the folder of the store or inside it, and a broker may have it open: nothing was written",
            "--in-place takes the store's lock, and keeps the old files; or give another folder",
        )
    refuse_owned_folder(str(out), "--out")


def _rebuild_or_salvage(command: RebuildOptions, store: Store) -> ExitCode:
    from commitlake.jobs.rebuild.in_place import rebuild_in_place
    from commitlake.jobs.rebuild.run import run_rebuild, run_salvage

    wanted = command.requested_settings(read_store_conf(command.broker_conf, store.broker), command.topic)
    salvaged = None
    if command.out is None:
        rebuilt = rebuild_in_place(command, store, wanted)
    elif command.salvage:
        salvaged, rebuilt = run_salvage(command, store, command.out, wanted)
        _print_line(command, salvage_summary(salvaged))
    else:
        rebuilt = run_rebuild(command, store, command.out, wanted)
    if rebuilt is not None:
        for line in rebuild_summary(rebuilt):
            _print_line(command, line)
    return rebuild_exit_code(rebuilt, salvaged)


def _print_line(command: RebuildOptions, line: str) -> None:
    if not command.quiet:
        print_line(line)


def rebuild_summary(rebuilt: RebuildResult) -> list[str]:
    """Return lines that describe the rebuilt files, and problems found in the log."""
    from commitlake.jobs.arguments.sizes import size_text

    totals, log_format = rebuilt.totals, rebuilt.settings.format
    keys = (
        ""
        if not log_format.indexes.has_files
        else f", {format_count(totals.keys, 'key')} in {format_count(rebuilt.index_files, 'index file')}"
    )
    first = (
        f"{format_count(totals.records, 'record')} in {size_text(rebuilt.bytes)}: "
        f"{format_count(rebuilt.entries, 'entry', 'entries')} of {format_count(rebuilt.queues, 'queue')}{keys}; in "
        f"{rebuilt.out}"
    )
    lines = [first]
    if totals.bad_ranges:
        what = "stops reading its log at the first of them"
        if rebuilt.settings.dialect.is_rocketmq:
            what += "; --salvage writes one that it reads to the end"
        lines.append(
            f"{format_count(totals.bad_ranges, 'range of the log is', 'ranges of the log are')} damaged, "
            f"{size_text(totals.bad_bytes)}: a broker {'skips them' if log_format.brokers.steps_over_damage else what}"
        )
    if rebuilt.lost:
        lines.append(
            f"{format_count(rebuilt.lost, 'message is', 'messages are')} missing in the journal: entries of size 0 "
            "keep their queue offsets"
        )
    if rebuilt.shifted:
        lines.append(
            f"{format_count(rebuilt.shifted, 'entry is', 'entries are')} stored below their messages' queue offsets, "
            f"in {format_count(len(rebuilt.shifted_queues), 'queue')}, as a broker would do it: the log lacks messages "
            "before them"
        )
    if rebuilt.skipped:
        why = "their queue offsets are already used, or out of range"
        lines.append(f"{format_count(rebuilt.skipped, 'entry is', 'entries are')} skipped, as brokers do: {why}")
    if rebuilt.unlikely_queues:
        named = ", ".join(rebuilt.unlikely_queues[:_NAMED]) + (", ..." if len(rebuilt.unlikely_queues) > _NAMED else "")
        lines.append(
            f"{format_count(len(rebuilt.unlikely_queues), 'queue has', 'queues have')} ids far from those of their "
            f"topics' other queues, which suggests damaged records; topics.json leaves them out: {named}"
        )
    if rebuilt.assumed_delays:
        levels = ", ".join(str(level) for level, _ in rebuilt.assumed_delays)
        count = sum(count for _, count in rebuilt.assumed_delays)
        why = (
            "although this broker has levels of its own"
            if rebuilt.has_nondefault_delays
            else "because the store shows no other levels"
        )
        lines.append(
            f"{count:,} delayed messages of levels {levels} have delivery times by the default messageDelayLevel, "
            f"{why}; --broker-conf gives the broker's"
        )
    if totals.refused:
        why = "no folder can have their topics' names, or their queue ids are negative"
        lines.append(f"{format_count(totals.refused, 'entry is', 'entries are')} left out: {why}")
    return lines


def salvage_summary(salvaged: SalvageResult) -> str:
    """Return a line that describes the salvaged log."""
    from commitlake.jobs.arguments.sizes import size_text
    from commitlake.pipelines.salvage.run import DAMAGES, MAX_COUNTED, MOVED

    text = (
        f"{format_count(salvaged.records, 'intact record')} of {size_text(salvaged.bytes)} in "
        f"{format_count(salvaged.segments, 'segment')}; {format_count(salvaged.damages, 'damaged range')}, "
        f"{size_text(salvaged.damaged_bytes)}, listed in {salvaged.out / DAMAGES}"
    )
    if salvaged.dropped:
        text += (
            f"; {format_count(salvaged.dropped, 'record')} left out at the log's end, because no checksum "
            "covers their last bytes"
        )
    if salvaged.lost:
        least = "at least " if salvaged.lost == MAX_COUNTED else ""
        lost = format_count(salvaged.lost, "record that queues point to is", "records that queues point to are")
        text += f"; {least}{lost} missing: the log lost its end in a crash, or it was overwritten with zeros"
    return text + (
        f"; {format_count(salvaged.moved, 'record')} moved, see {salvaged.out / MOVED}" if salvaged.moved else ""
    )


def rebuild_exit_code(rebuilt: RebuildResult | None, salvaged: SalvageResult | None = None) -> ExitCode:
    """Return the exit code of a rebuild or salvage, which shows whether the log was damaged."""
    is_damaged = rebuilt is not None and (rebuilt.totals.bad_ranges or rebuilt.totals.refused)
    is_damaged = is_damaged or (salvaged is not None and (salvaged.damages or salvaged.lost))
    return ExitCode.DAMAGE if is_damaged else ExitCode.OK


build_parser, main = Rebuild.parser, Rebuild.main
