"""The options of `dlq`."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.runner import WHERE, SparkArguments
from commitlake.jobs.arguments.selection import WHICH, Brokers, Groups, Keys, Predicate, Tags, TimeRange, Topics
from commitlake.jobs.arguments.stores import make_integer_parser
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import (
    Section,
    argument,
    cannot_be_used_with,
    conflicts_with,
    flag,
    only_for_actions,
    option,
    repeated,
    requires_one_of,
    rules_for_values,
    shorthand_option,
)
from commitlake.jobs.replay.arguments import ALL_IDS, NO_TARGET, SendingArguments, queues_option
from commitlake.jobs.report.output_formats import FORMS, DisplayArguments

SHOW, EXPORT, REDRIVE, OUTCOME = "show", "export", "redrive", "outcome"
ACTIONS = {
    SHOW: "show the causes (the default)",
    EXPORT: "write dead letters to a file",
    REDRIVE: "send dead letters to their topics again",
    OUTCOME: "show what became of the messages that a redrive sent",
}
FORMATS = ("csv", "jsonl", "parquet")
MAX_SAMPLES = 20
_CHOOSING = ("group", "topic", "tag", "cause", "key", "where", "broker", "start", "end")
_SENDING = (
    "to_topic", "target_timeout", "rate", "speed", "pause_if_lag", "transform", "mask", "limit", "dry_run", "verify",
    "yes",
)  # fmt: skip

_EXPORT = Section("export")
_REDRIVE = Section("redrive and outcome")


@dataclass(frozen=True, kw_only=True)
class DlqOptions(
    Command, LakeArguments, Groups, Tags, Keys, Brokers, TimeRange, Predicate, Topics, DisplayArguments,
    SendingArguments, SparkArguments,
    after={
        **dict.fromkeys((LakeArguments, Groups, Tags, Keys, Brokers, TimeRange, Predicate, Topics), "replay_id"),
        DisplayArguments: "format", SendingArguments: "follow_for", SparkArguments: "samples",
    },
):  # fmt: skip
    """The options of `dlq`."""

    action: str = argument(
        "; ".join(f"{name}: {what}" for name, what in ACTIONS.items()),
        choices=tuple(ACTIONS),
        default=SHOW,
        metavar="ACTION",
        rules=(
            *rules_for_values(
                SHOW, EXPORT, OUTCOME, rules=cannot_be_used_with(*_SENDING, hint="it belongs to redrive")
            ),
            *rules_for_values(
                SHOW, EXPORT, rules=cannot_be_used_with("namesrv", hint="it belongs to redrive and outcome")
            ),
            *rules_for_values(EXPORT, rules=requires_one_of("out", hint="as in --out letters.csv")),
            *rules_for_values(REDRIVE, rules=requires_one_of("namesrv", "dry_run", hint=NO_TARGET)),
            *rules_for_values(
                REDRIVE, rules=requires_one_of(*_CHOOSING, hint="as in --group billing, or --where true")
            ),
            *rules_for_values(OUTCOME, rules=requires_one_of("replay_id", hint=ALL_IDS)),
            *rules_for_values(
                OUTCOME, rules=cannot_be_used_with(*_CHOOSING, hint="the id already selects the messages")
            ),
        ),
    )
    replay_id: str = argument(
        "with outcome: the id of the replay, as printed by redrive",
        metavar="ID",
        default="",
        rules=only_for_actions(OUTCOME),
    )
    topic: tuple[str, ...] = repeated("only messages first sent to this topic", section=WHICH)
    cause: str | None = option(
        "only of this cause: its number in the list that the same options give, or the beginning of its name",
        metavar="N|NAME",
        section=WHICH,
    )
    no_shape: bool = flag("do not read bodies; causes then do not depend on the shape of the body")
    samples: int | None = option(
        f"dead letters shown of each cause or outcome, at most {MAX_SAMPLES} (default: 3 if one cause is chosen, "
        "otherwise 0)",
        parse=make_integer_parser(0, MAX_SAMPLES),
        metavar="N",
        rules=only_for_actions(SHOW, OUTCOME),
    )
    spark: bool = flag(
        "read the dead letters in tasks on Spark, for millions of them",
        one_of=WHERE,
        rules=only_for_actions(SHOW),
    )
    format: str | None = option(
        "output format (default: table), or the format of the file of 'export' (default: from its suffix)",
        "--format",
        "--output",
        choices=(*FORMS, "parquet"),
        rules=(*rules_for_values("parquet", rules=only_for_actions(EXPORT)), *only_for_actions(SHOW, EXPORT, OUTCOME)),
    )
    json: ClassVar = shorthand_option("same as --format jsonl", format="jsonl")
    out: str | None = option(
        "the file to write; an existing file is replaced",
        metavar="FILE",
        section=_EXPORT,
        rules=only_for_actions(EXPORT),
    )
    body: bool = flag(
        "include bodies: as text, or in base64 if they are not text; in Parquet as bytes",
        "--body",
        "--with-bodies",
        section=_EXPORT,
        rules=only_for_actions(EXPORT),
    )
    again: bool = flag(
        "also send dead letters that an earlier redrive has sent or started to send; without it, the sent ones are "
        "skipped, and the started ones are an error",
        section=_REDRIVE,
        rules=only_for_actions(REDRIVE),
    )
    include_replayed: bool = flag(
        "also send those that died again after a replay; without it, they are skipped",
        section=_REDRIVE,
        rules=only_for_actions(REDRIVE),
    )
    follow: bool = flag(
        "wait until each message is consumed or dead again",
        section=_REDRIVE,
        rules=(*only_for_actions(REDRIVE, OUTCOME), *conflicts_with("dry_run")),
    )
    follow_for: datetime.timedelta | None = option(
        "with --follow: give up after this time (default: no limit)",
        "--follow-for",
        "--timeout",
        parse=parse_duration,
        metavar="TIME",
        section=_REDRIVE,
        rules=(*only_for_actions(REDRIVE, OUTCOME), *requires_one_of("follow")),
    )
    queues: str = queues_option("key")
    output: str = "table"
    """The format of what a redrive shows before it sends; no option sets it."""

    def export_path_and_format(self) -> tuple[str, str]:
        """Return path and format of the file that 'export' writes.

        Raises:
            JobError: if the format is not known.
        """
        assert self.out is not None
        suffix = Path(self.out).suffix.removeprefix(".").lower()
        chosen = self.format or suffix
        if chosen not in FORMATS:
            raise JobError(
                f"--out {self.out}: expected a name that ends in .csv, .jsonl or .parquet, found {suffix or 'none'!r}",
                "--format sets the format if the name does not",
            )
        return self.out, chosen
