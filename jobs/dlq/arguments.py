"""What `dlq` can be asked on a command line, and what does not go together."""

from __future__ import annotations

import argparse
from pathlib import Path

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.output_forms import FORMS
from commitlake.jobs.cli.places import add_place_arguments
from commitlake.jobs.cli.times import add_time_arguments
from commitlake.jobs.replay.arguments import add_sending_arguments, check_sending

SHOW, EXPORT, REDRIVE, OUTCOME = "show", "export", "redrive", "outcome"
ACTIONS = {
    SHOW: "show the causes (the default)",
    EXPORT: "write dead letters to a file",
    REDRIVE: "send dead letters to their topics again",
    OUTCOME: "tell what became of those that a redrive has sent",
}
FORMATS = ("csv", "jsonl", "parquet")
MAX_SAMPLES = 20
_CHOOSING = ("group", "topic", "tag", "cause", "key", "where", "broker", "start", "end")
_OPTIONS_OF = {
    "out": (EXPORT,), "format": (SHOW, EXPORT, OUTCOME), "with_bodies": (EXPORT,),
    "again": (REDRIVE,), "include_replayed": (REDRIVE,), "to_topic": (REDRIVE,), "patience": (REDRIVE,),
    "rate": (REDRIVE,), "speed": (REDRIVE,), "pause_if_lag": (REDRIVE,), "limit": (REDRIVE,), "dry_run": (REDRIVE,),
    "yes": (REDRIVE,), "verify": (REDRIVE,), "namesrv": (REDRIVE, OUTCOME), "follow": (REDRIVE, OUTCOME),
    "transform": (REDRIVE,), "mask": (REDRIVE,), "timeout": (REDRIVE, OUTCOME),
    "samples": (SHOW, OUTCOME),
}  # fmt: skip
"""Of each option that not every action has, the actions that have it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dlq`."""
    actions = "; ".join(f"{name}: {what}" for name, what in ACTIONS.items())
    parser.add_argument("action", nargs="?", choices=tuple(ACTIONS), default=SHOW, metavar="ACTION", help=actions)
    parser.add_argument("replay_id", nargs="?", metavar="ID", help="with outcome: the replay, as redrive has named it")
    add_place_arguments(parser)
    _add_selection(parser)
    parser.add_argument("--no-shape", action="store_true", help="read no bodies: their shape is not part of a cause")
    samples_help = f"dead letters shown of each cause, or of each outcome, at most {MAX_SAMPLES} (default: 3 where one "
    parser.add_argument("--samples", type=int, metavar="N", help=samples_help + "cause is chosen, else 0)")
    form_help = "form of what is printed (default: table), or of the file of 'export' (default: by its suffix)"
    parser.add_argument("--format", "--output", dest="format", choices=(*FORMS, "parquet"), help=form_help)
    json_help = "same as --format json"
    parser.add_argument("--json", dest="format", action="store_const", const="json", help=json_help)
    _add_export(parser)
    _add_redrive(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add_time_arguments(parser)
    group = parser.add_argument_group("which dead letters")
    group.add_argument("--group", action="append", default=[], help="of this consumer group")
    group.add_argument("--topic", action="append", default=[], help="sent to this topic at first")
    group.add_argument("--tag", action="append", default=[], help="with this tag")
    group.add_argument("--key", action="append", default=[], help="with this business key")
    cause_help = "of this cause: its number in the list that the other options give, or the beginning of its name"
    group.add_argument("--cause", metavar="N|NAME", help=cause_help)
    group.add_argument("--broker", action="append", default=[], help="of this store")
    group.add_argument("--where", metavar="SQL", help="any predicate over the columns of messages")


def _add_export(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("export")
    group.add_argument("--out", metavar="FILE", help="the file; one of that name is replaced")
    bodies_help = "with bodies: as text, or in base64 where they are none; in Parquet as bytes"
    group.add_argument("--with-bodies", action="store_true", help=bodies_help)


def _add_redrive(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("redrive and outcome")
    group.add_argument("--again", action="store_true", help="also dead letters that a redrive has sent before, or "
                       "has begun to; else the first are left out, and the others refused")  # fmt: skip
    group.add_argument("--include-replayed", action="store_true", help="also those that have died again after a "
                       "replay; else they are left out")  # fmt: skip
    group.add_argument("--follow", action="store_true", help="wait until each message is consumed or dead again")
    timeout_help = "with --follow: how long at most (default: as long as it takes)"
    group.add_argument("--timeout", type=parse_duration, metavar="TIME", help=timeout_help)
    add_sending_arguments(parser, mapping="key")


def check(arguments: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises:
        JobError: naming it.
    """
    action = arguments.action
    if (action == OUTCOME) != (arguments.replay_id is not None):
        wanted = "the id of a replay" if action == OUTCOME else "no id"
        raise JobError(f"dlq {action}: expected {wanted}", "'commitlake replay list --lake LAKE' shows all")
    for name, actions in _OPTIONS_OF.items():
        if action not in actions and getattr(arguments, name) not in (None, False, 0, []):
            raise JobError(f"--{_option(name)} and 'dlq {action}' do not go together",
                           f"it goes with {' and '.join(actions)}")  # fmt: skip
    given = [name for name in _CHOOSING if getattr(arguments, name) not in (None, [])]
    if action == OUTCOME and given:
        raise JobError(f"--{_option(given[0])} and 'dlq outcome' do not go together", "the id says which messages")
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}", "exchange them")
    if arguments.samples is not None and not 0 <= arguments.samples <= MAX_SAMPLES:
        raise JobError(f"--samples: expected 0 to {MAX_SAMPLES}, found {arguments.samples}")
    if arguments.timeout is not None and not arguments.follow:
        raise JobError("--timeout goes with --follow")
    if action != EXPORT and arguments.format == "parquet":
        raise JobError(f"--format parquet and 'dlq {action}' do not go together", "it goes with export")
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
            "--format says the form where the name does not",
        )


def _check_redrive(arguments: argparse.Namespace, given: list[str]) -> None:
    check_sending(arguments)
    if not given:
        raise JobError("dlq redrive: expected a choice of dead letters", "as in --group billing, or --where true")
    if arguments.follow and arguments.dry_run:
        raise JobError("--follow and --dry-run do not go together")
