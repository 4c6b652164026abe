"""What `replay` can be asked on a command line, and what does not go together."""

from __future__ import annotations

import argparse
import re

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.layouts import add_layout_argument
from commitlake.jobs.cli.output_forms import add_format_argument, add_json_argument
from commitlake.jobs.cli.places import add_place_arguments
from commitlake.jobs.cli.times import add_time_arguments, parse_time
from commitlake.schemas.layouts.numbers import parse_decimal, parse_int64

SEND, LIST, SHOW, RESUME, STOP, THROTTLE = "send", "list", "show", "resume", "stop", "throttle"
VERIFY, UNDO = "verify", "undo"
ACTIONS = {
    SEND: "send messages again (the default)",
    LIST: "show all replays of the lake",
    SHOW: "show one replay",
    RESUME: "go on with one that has stopped or was killed",
    STOP: "have the process that sends it stop",
    THROTTLE: "have the process that sends it keep to --rate",
    VERIFY: "read back what one has sent, and compare it with the lake",
    UNDO: "tell which offsets let the target's groups step over what it sent; with --apply, set them",
}
_OF_ONE = (SHOW, RESUME, STOP, THROTTLE, VERIFY, UNDO)
_CHOOSING = (
    "store", "from_broker", "topic", "queue", "key", "keys_file", "tag", "id", "broker", "start", "end", "where",
    "dlq_of", "not_consumed_by", "all_copies", "to_topic", "limit", "transform", "mask", "again",
)  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `replay`."""
    actions = "; ".join(f"{name}: {what}" for name, what in ACTIONS.items())
    parser.add_argument("action", nargs="?", choices=tuple(ACTIONS), default=SEND, metavar="ACTION", help=actions)
    parser.add_argument("replay_id", nargs="?", metavar="ID", help="of the replay: 'replay list' shows all")
    add_place_arguments(parser)
    _add_selection(parser)
    add_sending_arguments(parser)
    _add_undo(parser)
    add_format_argument(parser)
    add_json_argument(parser)


def add_sending_arguments(parser: argparse.ArgumentParser, mapping: str = "same") -> None:
    """Add the arguments that tell where and how messages are sent; `jobs.replay.send.send_condition` reads them.

    Args:
        parser: a job's.
        mapping: the default of `--queues`.
    """
    _add_target(parser, mapping)
    _add_pace(parser)
    _add_changes(parser)
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="send only the first N (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="tell what would be sent, and send nothing; without "
                        "--namesrv, nothing is said of the target")  # fmt: skip
    verify_help = "when all is sent, read it back from the target and compare it with the lake"
    parser.add_argument("--verify", action="store_true", help=verify_help)
    yes_help = "send without asking; without a terminal nothing is sent otherwise"
    parser.add_argument("--yes", action="store_true", help=yes_help)
    confirm_help = "ask before more messages than this are sent (default: 0, always)"
    parser.add_argument("--confirm-over", type=int, default=0, metavar="N", help=confirm_help)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("where from", "the lake's messages, unless one of these is given; what is sent "
                                       "of others is copied into the lake's replay_rows first")  # fmt: skip
    store_help = "the log of a store in this folder, or of several by a glob; nothing has to be archived"
    source.add_argument("--store", metavar="FOLDER", help=store_help)
    live_help = "live topics of the brokers that these name servers know; with --topic or --dlq-of"
    source.add_argument("--from-broker", metavar="HOST:PORT", help=live_help)
    add_layout_argument(source)
    group = parser.add_argument_group("which messages")
    group.add_argument("--topic", action="append", default=[], help="stored in this topic")
    group.add_argument("--queue", type=int, help="in the queue of this number")
    group.add_argument("--key", action="append", default=[], help="with this business key")
    group.add_argument("--keys-file", "--key-file", metavar="FILE", help="with any of the keys in a file, one a line")
    group.add_argument("--tag", "--tags", action="append", default=[], help="with this tag; may be repeated")
    group.add_argument("--id", action="append", default=[], help="with this offset message id or UNIQ_KEY")
    group.add_argument("--broker", action="append", default=[], help="of this store")
    add_time_arguments(parser)
    group.add_argument("--born", action="store_true", help="--from and --to are of the producer's time, not the "
                       "broker's")  # fmt: skip
    group.add_argument("--where", metavar="SQL", help="any predicate over the columns of messages")
    dlq_help = "the dead letters of this group, back to the topics that they were sent to at first"
    group.add_argument("--dlq-of", metavar="GROUP", help=dlq_help)
    not_help = "only what this group has not consumed, by the offsets in the lake"
    group.add_argument("--not-consumed-by", metavar="GROUP", help=not_help)
    at_help = "with --not-consumed-by: its offsets at this time (default: the newest)"
    group.add_argument("--offsets-at", type=parse_time, metavar="TIME", help=at_help)
    copies_help = (
        "also the copies of messages for retries, and dead letters, each to the topic that it was sent to at first "
        "(default: one of each message, or what --topic names)"
    )
    group.add_argument("--all-copies", action="store_true", help=copies_help)
    again_help = "also messages that another replay to the same target has begun to send; else they are refused"
    group.add_argument("--again", action="store_true", help=again_help)
    group.add_argument("--include-replayed", action="store_true", help="also messages that a replay has sent; else "
                       "they are left out")  # fmt: skip


def _add_target(parser: argparse.ArgumentParser, mapping: str) -> None:
    group = parser.add_argument_group("where to")
    group.add_argument("--namesrv", metavar="HOST:PORT", help="name server of the target, or several with ';' between")
    group.add_argument("--to-topic", metavar="TOPIC", help="into this topic (default: the topic of each message)")
    queues_help = (
        "the queue of the same number, or by a hash of the message's first key, or of its sharding key "
        f"(default: {mapping})"
    )
    group.add_argument("--queues", choices=("same", "key", "sharding-key"), default=mapping, help=queues_help)
    ordered_help = "keep the order of each key over all queues: the same as --queues key"
    group.add_argument("--ordered", dest="queues", action="store_const", const="key", help=ordered_help)
    patience_help = "how long the target may be away before the replay ends, to be resumed (default: 10m)"
    group.add_argument("--patience", type=parse_duration, metavar="TIME", help=patience_help)


def _add_pace(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how fast")
    group.add_argument("--rate", type=_rate, metavar="N[/s]", help="at most N messages a second (default: as fast as "
                       "the target takes them)")  # fmt: skip
    speed_help = "at the pace at which they were stored, or so many times as fast: 1x, 2x, 0.5x"
    group.add_argument("--speed", type=_speed, metavar="Nx", help=speed_help)
    pause_help = "pause while this group of the target has more messages than N to consume"
    group.add_argument("--pause-if-lag", type=_lag_limit, metavar="'GROUP>N'", help=pause_help)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is changed on the way", "--dry-run shows the first messages before and "
                                      "after")  # fmt: skip
    transform_help = (
        "a function that gets a Spark DataFrame of the messages, and gives one of those that are sent; it may change "
        "body, keys, tags, flag and properties, and leave rows out"
    )
    group.add_argument("--transform", metavar="MODULE:FUNCTION", help=transform_help)
    mask_help = (
        "replace a field: body, body.NAME.NAME of JSON, property.NAME, keys or tags, by null, hash (with the key in "
        "COMMITLAKE_MASK_KEY), last:N characters, or text:TEXT"
    )
    group.add_argument("--mask", action="append", default=[], metavar="FIELD=RULE", help=mask_help)


def _add_undo(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("undo")
    group_help = "this group only; may be repeated (default: all that consume the target's topics)"
    group.add_argument("--group", action="append", default=[], metavar="NAME", help=group_help)
    group.add_argument("--apply", action="store_true", help="set the offsets")
    skip_help = "step over messages of others, too, where they stand between those of the replay: groups lose them"
    group.add_argument("--skip-others", action="store_true", help=skip_help)
    online_help = "also while a group has clients; brokers 5.x send them to the new offsets, others cannot"
    group.add_argument("--online", action="store_true", help=online_help)


def _rate(text: str) -> float:
    rate = _positive(text.removesuffix("/s"))
    if rate is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: expected messages a second, as in 500 or 0.5")
    return rate


def _speed(text: str) -> float:
    speed = _positive(text.removesuffix("x"))
    if speed is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed: expected 1x, 2x or 0.5x")
    return speed


def _positive(text: str) -> float | None:
    number = parse_decimal(text) if _NUMBER.fullmatch(text) else None
    return number or None


def _lag_limit(text: str) -> tuple[str, int]:
    group, _, number = text.partition(">")
    messages = parse_int64(number.strip())
    if not group.strip() or messages is None or messages < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no limit: expected GROUP>N, as in 'billing>10000'")
    return group.strip(), messages


def check(arguments: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises:
        JobError: naming it.
    """
    action = arguments.action
    if (action in _OF_ONE) != (arguments.replay_id is not None):
        wanted = "the id of a replay" if action in _OF_ONE else "no id"
        raise JobError(f"replay {action}: expected {wanted}", "'commitlake replay list --lake LAKE' shows all")
    if action != UNDO:
        for name in ("group", "apply", "skip_others", "online"):
            if getattr(arguments, name):
                raise JobError(f"--{_option(name)} goes with 'replay undo'")
    if action == SEND:
        _check_send(arguments)
        return
    given = [name for name in _CHOOSING if getattr(arguments, name) not in (None, [], 0, False)]
    if given:
        raise JobError(
            f"--{_option(given[0])} and 'replay {action}' do not go together",
            "what a replay sends is fixed at its start",
        )
    if action == THROTTLE and arguments.rate is None:
        raise JobError("replay throttle: expected --rate", "as in --rate 500/s")


def _option(name: str) -> str:
    return {"start": "from", "end": "to"}.get(name, name).replace("_", "-")


def check_sending(arguments: argparse.Namespace) -> None:
    """Refuse what does not go together in `add_sending_arguments` and in a time range.

    Raises:
        JobError: naming it.
    """
    if arguments.namesrv is None and not arguments.dry_run:
        raise JobError("expected --namesrv, the target's name server", "--dry-run tells what would be sent without one")
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}", "exchange them")
    for name in ("limit", "confirm_over"):
        if getattr(arguments, name) < 0:
            raise JobError(f"--{_option(name)}: expected 0 or more, found {getattr(arguments, name)}")


def _check_send(arguments: argparse.Namespace) -> None:
    check_sending(arguments)
    chosen = ("topic", "key", "keys_file", "id", "start", "where", "dlq_of", "not_consumed_by", "broker", "tag")
    if not any(getattr(arguments, name) for name in chosen):
        raise JobError(
            "expected a choice of messages", "as in --topic orders --from 2026-11-20T14:00 --to 2026-11-20T14:20"
        )
    if arguments.offsets_at is not None and arguments.not_consumed_by is None:
        raise JobError("--offsets-at goes with --not-consumed-by")
    if arguments.store is not None and arguments.from_broker is not None:
        raise JobError("--store reads a broker's files, and --from-broker does without", "leave one of them out")
    if arguments.store is not None or arguments.from_broker is not None:
        name = "store" if arguments.store is not None else "from-broker"
        for option in ("offsets_at", "bodies"):
            if getattr(arguments, option) is not None:
                raise JobError(f"--{_option(option)} goes with messages of the lake, and not with --{name}")
    if arguments.dlq_of is not None and arguments.all_copies:
        raise JobError("--dlq-of and --all-copies do not go together", "it chooses dead letters alone")
    if arguments.dlq_of is not None and arguments.topic:
        raise JobError("--dlq-of and --topic do not go together", "the group names the topic of its dead letters")
