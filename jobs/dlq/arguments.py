"""The options of `dlq`, and the checks on their combinations."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.places import LakeArguments
from commitlake.jobs.arguments.selection import WHICH, Brokers, Groups, Keys, Predicate, Tags, TimeRange, Topics
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import Section, argument, flag, given_options, needs, option, repeated, shorthand
from commitlake.jobs.replay.arguments import SendingArguments, queues_option
from commitlake.jobs.report.output_forms import FORMS, DisplayArguments

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
_OPTIONS_OF = {
    "out": (EXPORT,), "format": (SHOW, EXPORT, OUTCOME), "body": (EXPORT,),
    "again": (REDRIVE,), "include_replayed": (REDRIVE,), "to_topic": (REDRIVE,), "target_timeout": (REDRIVE,),
    "rate": (REDRIVE,), "speed": (REDRIVE,), "pause_if_lag": (REDRIVE,), "limit": (REDRIVE,), "dry_run": (REDRIVE,),
    "yes": (REDRIVE,), "verify": (REDRIVE,), "namesrv": (REDRIVE, OUTCOME), "follow": (REDRIVE, OUTCOME),
    "transform": (REDRIVE,), "mask": (REDRIVE,), "follow_for": (REDRIVE, OUTCOME),
    "samples": (SHOW, OUTCOME),
}  # fmt: skip
"""The actions that accept an option, for each option that not every action accepts."""

_EXPORT = Section("export")
_REDRIVE = Section("redrive and outcome")


@dataclass(frozen=True, kw_only=True)
class DlqOptions(
    Command, LakeArguments, Groups, Tags, Keys, Brokers, TimeRange, Predicate, Topics, DisplayArguments,
    SendingArguments,
    after={
        **dict.fromkeys((LakeArguments, Groups, Tags, Keys, Brokers, TimeRange, Predicate, Topics), "replay_id"),
        DisplayArguments: "format", SendingArguments: "follow_for",
    },
):  # fmt: skip
    """The options of `dlq`."""

    action: str = argument(
        "; ".join(f"{name}: {what}" for name, what in ACTIONS.items()),
        choices=tuple(ACTIONS),
        default=SHOW,
        metavar="ACTION",
    )
    replay_id: str = argument("with outcome: the id of the replay, as printed by redrive", metavar="ID", default="")
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
        parse=int,
        metavar="N",
    )
    format: str | None = option(
        "output format (default: table), or the format of the file of 'export' (default: from its suffix)",
        "--format",
        "--output",
        choices=(*FORMS, "parquet"),
    )
    json: ClassVar = shorthand("same as --format jsonl", format="jsonl")
    out: str | None = option("the file to write; an existing file is replaced", metavar="FILE", section=_EXPORT)
    body: bool = flag(
        "include bodies: as text, or in base64 if they are not text; in Parquet as bytes",
        "--body",
        "--with-bodies",
        section=_EXPORT,
    )
    again: bool = flag(
        "also send dead letters that an earlier redrive has sent or started to send; without it, the sent ones are "
        "skipped, and the started ones are an error",
        section=_REDRIVE,
    )
    include_replayed: bool = flag(
        "also send those that died again after a replay; without it, they are skipped", section=_REDRIVE
    )
    follow: bool = flag("wait until each message is consumed or dead again", section=_REDRIVE)
    follow_for: datetime.timedelta | None = option(
        "with --follow: give up after this time (default: no limit)",
        "--follow-for",
        "--timeout",
        parse=parse_duration,
        metavar="TIME",
        section=_REDRIVE,
        rules=needs("follow"),
    )
    queues: str = queues_option("key")
    output: str = "table"
    """The format of what a redrive shows before it sends; no option sets it."""

    def check(self) -> None:
        """Check that the options fit the action and each other.

        Raises:
            JobError: for the first option that does not fit.
        """
        action = self.action
        if (action == OUTCOME) != bool(self.replay_id):
            wanted = "the id of a replay" if action == OUTCOME else "no id"
            raise JobError(f"dlq {action}: expected {wanted}", "'commitlake replay list --lake LAKE' lists all replays")
        for field, actions in _OPTIONS_OF.items():
            for name in given_options(self, [field] if action not in actions else []):
                raise JobError(f"{name} cannot be used with 'dlq {action}'", f"it belongs to {' and '.join(actions)}")
        given = given_options(self, _CHOOSING)
        if action == OUTCOME and given:
            raise JobError(f"{given[0]} cannot be used with 'dlq outcome'", "the id already selects the messages")
        self.check_times()
        if self.samples is not None and not 0 <= self.samples <= MAX_SAMPLES:
            raise JobError(f"--samples: expected 0 to {MAX_SAMPLES}, found {self.samples}")
        if action != EXPORT and self.format == "parquet":
            raise JobError(f"--format parquet cannot be used with 'dlq {action}'", "it belongs to export")
        if action == EXPORT:
            self.exported_file()
        elif action == REDRIVE:
            self._check_redrive(given)

    def exported_file(self) -> tuple[str, str]:
        """Return path and format of the file that 'export' writes.

        Raises:
            JobError: if no file is given, or its format is not known.
        """
        if self.out is None:
            raise JobError("dlq export: expected --out, the file to write", "as in --out letters.csv")
        suffix = Path(self.out).suffix.removeprefix(".").lower()
        chosen = self.format or suffix
        if chosen not in FORMATS:
            raise JobError(
                f"--out {self.out}: expected a name that ends in .csv, .jsonl or .parquet, found {suffix or 'none'!r}",
                "--format sets the format if the name does not",
            )
        return self.out, chosen

    def _check_redrive(self, given: list[str]) -> None:
        self.check_sending()
        if not given:
            raise JobError(
                "dlq redrive: expected an option that selects dead letters", "as in --group billing, or --where true"
            )
        if self.follow and self.dry_run:
            raise JobError("--follow and --dry-run cannot be used together")
