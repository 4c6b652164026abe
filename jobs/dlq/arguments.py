"""The command line arguments of `dlq`, and the checks on their combinations."""

from __future__ import annotations

import argparse
from pathlib import Path

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.options import add_options
from commitlake.jobs.cli.output_forms import FORMS, DisplayArguments
from commitlake.jobs.cli.places import LakeArguments
from commitlake.jobs.cli.times import TimeRange
from commitlake.jobs.replay.arguments import add_sending_arguments, check_sending

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dlq`."""
    actions = "; ".join(f"{name}: {what}" for name, what in ACTIONS.items())
    parser.add_argument("action", nargs="?", choices=tuple(ACTIONS), default=SHOW, metavar="ACTION", help=actions)
    parser.add_argument(
        "replay_id", nargs="?", metavar="ID", help="with outcome: the id of the replay, as printed by redrive"
    )
    add_options(parser, LakeArguments)
    _add_selection(parser)
    parser.add_argument(
        "--no-shape", action="store_true", help="do not read bodies; causes then do not depend on the shape of the body"
    )
    samples_help = f"dead letters shown of each cause or outcome, at most {MAX_SAMPLES} (default: 3 if one "
    parser.add_argument("--samples", type=int, metavar="N", help=samples_help + "cause is chosen, otherwise 0)")
    form_help = "output format (default: table), or the format of the file of 'export' (default: from its suffix)"
    parser.add_argument("--format", "--output", dest="format", choices=(*FORMS, "parquet"), help=form_help)
    add_options(parser, DisplayArguments)
    json_help = "same as --format jsonl"
    parser.add_argument("--json", dest="format", action="store_const", const="jsonl", help=json_help)
    _add_export(parser)
    _add_redrive(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add_options(parser, TimeRange)
    group = parser.add_argument_group("which dead letters")
    group.add_argument("--group", action="append", default=[], help="only of this consumer group")
    group.add_argument("--topic", action="append", default=[], help="only messages first sent to this topic")
    group.add_argument("--tag", action="append", default=[], help="only with this tag")
    group.add_argument("--key", action="append", default=[], help="only with this business key")
    cause_help = "only of this cause: its number in the list that the same options give, or the beginning of its name"
    group.add_argument("--cause", metavar="N|NAME", help=cause_help)
    group.add_argument("--broker", action="append", default=[], help="only of this store")
    group.add_argument("--where", metavar="SQL", help="any predicate over the columns of messages")


def _add_export(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("export")
    group.add_argument("--out", metavar="FILE", help="the file to write; an existing file is replaced")
    bodies_help = "include bodies: as text, or in base64 if they are not text; in Parquet as bytes"
    group.add_argument("--body", "--with-bodies", action="store_true", help=bodies_help)


def _add_redrive(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("redrive and outcome")
    group.add_argument(
        "--again",
        action="store_true",
        help="also send dead letters that an earlier redrive has sent "
        "or started to send; without it, the sent ones are skipped, and the started ones are an error",
    )
    group.add_argument(
        "--include-replayed",
        action="store_true",
        help="also send those that died again after a replay; without it, they are skipped",
    )
    group.add_argument("--follow", action="store_true", help="wait until each message is consumed or dead again")
    follow_help = "with --follow: give up after this time (default: no limit)"
    group.add_argument("--follow-for", "--timeout", type=parse_duration, metavar="TIME", help=follow_help)
    add_sending_arguments(parser, mapping="key")


def check(arguments: argparse.Namespace) -> None:
    """Check that the options fit the action and each other.

    Raises:
        JobError: for the first option that does not fit.
    """
    action = arguments.action
    if (action == OUTCOME) != (arguments.replay_id is not None):
        wanted = "the id of a replay" if action == OUTCOME else "no id"
        raise JobError(f"dlq {action}: expected {wanted}", "'commitlake replay list --lake LAKE' lists all replays")
    for name, actions in _OPTIONS_OF.items():
        if action not in actions and getattr(arguments, name) not in (None, False, 0, []):
            raise JobError(f"--{_option(name)} cannot be used with 'dlq {action}'",
                           f"it belongs to {' and '.join(actions)}")  # fmt: skip
    given = [name for name in _CHOOSING if getattr(arguments, name) not in (None, [])]
    if action == OUTCOME and given:
        raise JobError(
            f"--{_option(given[0])} cannot be used with 'dlq outcome'", "the id already selects the messages"
        )
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}", "exchange them")
    if arguments.samples is not None and not 0 <= arguments.samples <= MAX_SAMPLES:
        raise JobError(f"--samples: expected 0 to {MAX_SAMPLES}, found {arguments.samples}")
    if arguments.follow_for is not None and not arguments.follow:
        raise JobError("--follow-for needs --follow")
    if action != EXPORT and arguments.format == "parquet":
        raise JobError(f"--format parquet cannot be used with 'dlq {action}'", "it belongs to export")
    if action == EXPORT:
        _check_export(arguments)
    elif action == REDRIVE:
        _check_redrive(arguments, given)


def _option(name: str) -> str:
    return {"start": "from", "end": "to"}.get(name, name).replace("_", "-")


def _check_export(arguments: argparse.Namespace) -> None:
    if arguments.out is None:
        raise JobError("dlq export: expected --out, the file to write", "as in --out letters.csv")
    suffix = Path(arguments.out).suffix.removeprefix(".").lower()
    arguments.format = arguments.format or suffix
    if arguments.format not in FORMATS:
        raise JobError(
            f"--out {arguments.out}: expected a name that ends in .csv, .jsonl or .parquet, found {suffix or 'none'!r}",
            "--format sets the format if the name does not",
        )


def _check_redrive(arguments: argparse.Namespace, given: list[str]) -> None:
    check_sending(arguments)
    if not given:
        raise JobError(
            "dlq redrive: expected an option that selects dead letters", "as in --group billing, or --where true"
        )
    if arguments.follow and arguments.dry_run:
        raise JobError("--follow and --dry-run cannot be used together")
