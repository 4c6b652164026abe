"""The options of `rebuild`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.broker_conf import BrokerConfArgument
from commitlake.jobs.arguments.runner import ThreadArguments
from commitlake.jobs.arguments.selection import Topics
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument
from commitlake.jobs.arguments.stores import (
    declare_store_argument,
    parse_delay_levels_option,
    parse_file_size,
    parse_folder_path,
    positive,
)
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import OneOf, conflicts_with, flag, option, repeated

if TYPE_CHECKING:
    from commitlake.pipelines.rebuild.settings import RequestedSettings
    from commitlake.schemas.layouts.rocketmq.store_conf import StoreConf


@dataclass(frozen=True, kw_only=True)
class FileSettings(BrokerConfArgument):
    """Options that describe the settings of the broker for which files are rebuilt."""

    delay_levels: tuple[int, ...] | None = option(
        "the broker's messageDelayLevel, as '1s 5s 30s' (default: that of --broker-conf, or the "
        "levels that the store's schedule queues show)",
        parse=parse_delay_levels_option,
        metavar="LEVELS",
    )
    queue_file_size: int | None = option(
        "size of a queue's file: RocketMQ's mappedFileSizeConsumeQueue (default: that of the "
        "store's files, or 6000000; JMQ's: 6600000)",
        parse=parse_file_size,
        metavar="SIZE",
    )
    index_slots: int | None = option(
        "maxHashSlotNum (default: from the size of the store's IndexFiles, or 5000000)", parse=positive, metavar="N"
    )
    index_entries: int | None = option("maxIndexNum (default: likewise, or 20000000)", parse=positive, metavar="N")
    index_tags: str | None = option(
        "index tags, as brokers since 5.5 do (default: from the checkpoint)", choices=("yes", "no")
    )

    def requested_settings(self, conf: StoreConf, topics: Sequence[str] = ()) -> RequestedSettings:
        """Return the broker's settings: from the options, otherwise from the broker's settings file."""
        from commitlake.pipelines.rebuild.settings import RequestedSettings

        return RequestedSettings(
            topics=tuple(sorted(set(topics))) if topics else None,
            queue_file_size=self.queue_file_size or conf.queue_file_size_bytes,
            index_slots=self.index_slots or conf.index_slots,
            index_entries=self.index_entries or conf.index_entries,
            index_tags=None if self.index_tags is None else self.index_tags == "yes",
            delay_levels_ms=self.delay_levels or conf.delay_levels_ms,
            batch_file_size=conf.batch_queue_file_size_bytes,
        )


_WHERE = OneOf(required=True)


@dataclass(frozen=True, kw_only=True)
class RebuildOptions(
    Command,
    LayoutArgument,
    Topics,
    ThreadArguments,
    FileSettings,
    after={LayoutArgument: "store", **dict.fromkeys((Topics, ThreadArguments, FileSettings), "salvage")},
):
    """Command line options of `rebuild`."""

    store: str | None = declare_store_argument(
        f"store folder, the one that holds {FOLDERS}; with --out also the URI of a copy"
    )
    out: Path | None = option(
        "folder for the result: new, or of an interrupted run", parse=parse_folder_path, metavar="DIR", one_of=_WHERE
    )
    in_place: bool = flag(
        "replace the store's own files; the old files are kept beside them as NAME.old-TIME", one_of=_WHERE
    )
    salvage: bool = flag(
        "first write a clean log into DIR, then rebuild from it",
        rules=(
            *conflicts_with("in_place", hint="{this} changes no store, and writes a new one: give --out"),
            *conflicts_with("topic", hint="{this} always salvages the whole log: leave {other} out"),
        ),
    )
    topic: tuple[str, ...] = repeated("only the queues of this topic")
