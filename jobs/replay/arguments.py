"""The command line arguments of `replay`, and the checks on their combinations."""

from __future__ import annotations

import argparse
import re

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.layouts import LayoutArgument
from commitlake.jobs.cli.options import add_options
from commitlake.jobs.cli.output_forms import JsonArgument, OutputArguments
from commitlake.jobs.cli.places import LakeArguments
from commitlake.jobs.cli.store_arguments import at_least
from commitlake.jobs.cli.times import TimeRange, parse_time
from commitlake.schemas.layouts.numbers import parse_decimal, parse_int64

SEND, LIST, SHOW, RESUME, STOP, THROTTLE = "send", "list", "show", "resume", "stop", "throttle"
VERIFY, UNDO = "verify", "undo"
ACTIONS = {
    SEND: "send messages again (the default)",
    LIST: "show all replays of the lake",
    SHOW: "show one replay, its events, and the queues in which its messages landed",
    RESUME: "continue a replay that has stopped or was killed",
    STOP: "ask the sending process to stop",
    THROTTLE: "ask the sending process to change its --rate or --speed",
    VERIFY: "read back what a replay sent, and compare it with the lake",
    UNDO: "show which offsets make the target's groups skip what it sent; with --apply, set them",
}
_OF_ONE = (SHOW, RESUME, STOP, THROTTLE, VERIFY, UNDO)
_CHOOSING = (
    "store", "from_broker", "topic", "queue", "key", "keys_file", "tag", "id", "broker", "start", "end", "where",
    "dlq_of", "not_consumed_by", "all_copies", "to_topic", "limit", "transform", "mask", "again",
)  # fmt: skip
_NONE = "none"
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `replay`."""
    actions = "; ".join(f"{name}: {what}" for name, what in ACTIONS.items())
    parser.add_argument("action", nargs="?", choices=tuple(ACTIONS), default=SEND, metavar="ACTION", help=actions)
    parser.add_argument("replay_id", nargs="?", metavar="ID", help="id of the replay: 'replay list' shows all")
    parser.add_argument("--resume", metavar="ID", help="same as 'replay resume ID'")
    add_options(parser, LakeArguments)
    _add_selection(parser)
    add_sending_arguments(parser)
    _add_undo(parser)
    add_options(parser, OutputArguments)
    add_options(parser, JsonArgument)


def add_sending_arguments(parser: argparse.ArgumentParser, mapping: str = "same") -> None:
    """Add the arguments for the target and pace of sent messages; `jobs.replay.send.send_chosen` reads them.

    Args:
        mapping: default of `--queues`.
    """
    _add_target(parser, mapping)
    _add_pace(parser)
    _add_changes(parser)
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="send only the first N (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="show what would be sent, and send nothing; without "
                                                               "--namesrv, nothing is shown of the target")  # fmt: skip
    verify_help = (
        "when everything is sent, read it back from the target and compare it with the lake (the default); "
        "--no-verify leaves this proof to 'replay verify'"
    )
    # None without the option, because jobs with several actions refuse an option that is given.
    parser.add_argument("--verify", action=argparse.BooleanOptionalAction, default=None, help=verify_help)
    yes_help = "do not ask for confirmation; required to send without a terminal"
    parser.add_argument("--yes", action="store_true", help=yes_help)
    confirm_help = "ask before more messages than this are sent (default: 0, always)"
    parser.add_argument("--confirm-over", type=int, default=0, metavar="N", help=confirm_help)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group(
        "where from",
        "default: the lake's messages; messages from another source are copied into the lake's table replay_rows "
        "before they are sent",
    )
    store_help = (
        "messages from the log of a store in this folder, or of several by a glob; nothing needs to be archived"
    )
    source.add_argument("--store", metavar="PATH", help=store_help)
    live_help = "messages from live topics of the brokers that these name servers know; needs --topic or --dlq-of"
    source.add_argument("--from-broker", metavar="HOST:PORT", help=live_help)
    add_options(source, LayoutArgument)
    group = parser.add_argument_group("which messages")
    group.add_argument("--topic", action="append", default=[], help="only of this topic")
    queue_help = "only of the queue with this id"
    group.add_argument("--queue", action="append", default=[], type=at_least(0), help=queue_help)
    group.add_argument("--key", action="append", default=[], help="only with this business key")
    group.add_argument(
        "--keys-file", "--key-file", metavar="FILE", help="only with one of the keys in a file, one per line"
    )
    group.add_argument("--tag", "--tags", action="append", default=[], help="only with this tag")
    group.add_argument("--id", action="append", default=[], help="only with this offset message id or UNIQ_KEY")
    group.add_argument("--broker", action="append", default=[], help="only of this store")
    add_options(parser, TimeRange)
    group.add_argument("--born", action="store_true", help="--from and --to compare the producer's time, not the "
                                                           "broker's")  # fmt: skip
    group.add_argument("--where", metavar="SQL", help="any predicate over the columns of messages")
    dlq_help = "the dead letters of this group, sent back to their original topics"
    group.add_argument("--dlq-of", metavar="GROUP", help=dlq_help)
    not_help = "only messages that this group has not consumed, by its offsets in the lake, the store or the broker"
    group.add_argument("--not-consumed-by", metavar="GROUP", help=not_help)
    at_help = "with --not-consumed-by: use its offsets at this time, by the lake's snapshots (default: the newest)"
    group.add_argument("--offsets-at", type=parse_time, metavar="TIME", help=at_help)
    copies_help = (
        "also copies of messages for retries, and dead letters, each sent to its original topic "
        "(default: one of each message, or what --topic names); with --topic, the copies of its messages"
    )
    group.add_argument("--all-copies", action="store_true", help=copies_help)
    again_help = "also messages that an unfinished replay to the same target contains; without it, they are an error"
    group.add_argument("--again", action="store_true", help=again_help)
    group.add_argument("--include-replayed", action="store_true", help="also messages that an earlier replay has sent; "
                                                                       "without it, they are skipped")  # fmt: skip


def _add_target(parser: argparse.ArgumentParser, mapping: str) -> None:
    group = parser.add_argument_group("where to")
    group.add_argument("--namesrv", metavar="HOST:PORT", help="name server of the target, or several separated by ';'")
    group.add_argument("--to-topic", metavar="TOPIC", help="send into this topic (default: the topic of each message)")
    queues_help = (
        "choose the queue with the same id, or by a hash of the message's first key, or of its sharding key "
        f"(default: {mapping})"
    )
    group.add_argument("--queues", choices=("same", "key", "sharding-key"), default=mapping, help=queues_help)
    ordered_help = "keep the order of each key across queues: same as --queues key"
    group.add_argument("--ordered", dest="queues", action="store_const", const="key", help=ordered_help)
    timeout_help = (
        "how long to wait for an unreachable target before the replay stops; it can be resumed (default: 10m)"
    )
    group.add_argument("--target-timeout", "--patience", type=parse_duration, metavar="TIME", help=timeout_help)


def _add_pace(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how fast")
    group.add_argument("--rate", type=_rate, metavar="N[/s]", help="at most N messages per second (default: as fast as "
                       "the target accepts them); with throttle and resume, none removes the limit")  # fmt: skip
    speed_help = "at the pace at which they were stored, or a multiple of it: 1x, 2x, 0.5x; none as with --rate"
    group.add_argument("--speed", type=_speed, metavar="Nx", help=speed_help)
    pause_help = "pause while this group of the target is more than N messages behind"
    group.add_argument("--pause-if-lag", type=_lag_limit, metavar="'GROUP>N'", help=pause_help)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "changes to the messages", "--dry-run shows the first messages before and after the change"
    )
    transform_help = (
        "a function that takes a Spark DataFrame of the messages and returns the one to send; it may change "
        "body, keys, tags, flag and properties, and drop rows"
    )
    group.add_argument("--transform", metavar="MODULE:FUNCTION", help=transform_help)
    mask_help = (
        "replace a field: body, body.NAME.NAME of JSON, property.NAME, keys or tags, by null, hash (with the key in "
        "COMMITLAKE_MASK_KEY), last:N characters, or text:TEXT"
    )
    group.add_argument("--mask", action="append", default=[], metavar="FIELD=RULE", help=mask_help)


def _add_undo(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("undo")
    group_help = "only this group (default: all that consume the target's topics)"
    group.add_argument("--group", action="append", default=[], help=group_help)
    group.add_argument("--apply", action="store_true", help="set the offsets")
    skip_help = "also skip messages of others that lie between those of the replay: groups lose them"
    group.add_argument("--skip-others", action="store_true", help=skip_help)
    online_help = "also while a group has clients; brokers 5.x tell them the new offsets, older ones cannot"
    group.add_argument("--online", action="store_true", help=online_help)


def _rate(text: str) -> float:
    rate = 0.0 if text == _NONE else _positive(text.removesuffix("/s"))
    if rate is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: expected messages per second, as in 500 or 0.5")
    return rate


def _speed(text: str) -> float:
    speed = 0.0 if text == _NONE else _positive(text.removesuffix("x"))
    if speed is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed: expected 1x, 2x or 0.5x")
    return speed


def _positive(text: str) -> float | None:
    number = parse_decimal(text) if _NUMBER.fullmatch(text) else None
    return number or None


def _lag_limit(text: str) -> tuple[str, int]:
    group, _, number = text.partition(">")
    messages = parse_int64(number.strip())
    if not group.strip() or messages is None or messages < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a limit: expected GROUP>N, as in 'billing>10000'")
    return group.strip(), messages


def take_resume(arguments: argparse.Namespace) -> None:
    """Turn `--resume ID` into the action `resume` with this id.

    Raises:
        JobError: if another action or id is given.
    """
    if arguments.resume is None:
        return
    if arguments.action != SEND or arguments.replay_id is not None:
        raise JobError(f"--resume cannot be used with 'replay {arguments.action}'", "leave one of them out")
    arguments.action, arguments.replay_id = RESUME, arguments.resume


def check(arguments: argparse.Namespace) -> None:
    """Check that the options fit the action and each other.

    Raises:
        JobError: for the first option that does not fit.
    """
    action = arguments.action
    if (action in _OF_ONE) != (arguments.replay_id is not None):
        wanted = "the id of a replay" if action in _OF_ONE else "no id"
        raise JobError(f"replay {action}: expected {wanted}", "'commitlake replay list --lake LAKE' lists all replays")
    if action != UNDO:
        for name in ("group", "apply", "skip_others", "online"):
            if getattr(arguments, name):
                raise JobError(f"--{_option(name)} belongs to 'replay undo'")
    if action == SEND:
        _check_send(arguments)
        return
    given = [name for name in _CHOOSING if getattr(arguments, name) not in (None, [], 0, False)]
    if given:
        raise JobError(
            f"--{_option(given[0])} cannot be used with 'replay {action}'",
            "a replay's messages are fixed when it starts",
        )
    if action == THROTTLE and arguments.rate is None and arguments.speed is None:
        raise JobError("replay throttle: expected --rate or --speed", "as in --rate 500/s, --speed 2x or --rate none")


def _option(name: str) -> str:
    return {"start": "from", "end": "to"}.get(name, name).replace("_", "-")


def check_sending(arguments: argparse.Namespace) -> None:
    """Check the options of `add_sending_arguments` and the time range.

    Raises:
        JobError: for the first option that does not fit.
    """
    if arguments.namesrv is None and not arguments.dry_run:
        raise JobError(
            "expected --namesrv, the target's name server", "--dry-run shows what would be sent, and needs none"
        )
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
            "expected an option that selects messages",
            "as in --topic orders --from 2026-11-20T14:00 --to 2026-11-20T14:20",
        )
    if arguments.offsets_at is not None and arguments.not_consumed_by is None:
        raise JobError("--offsets-at needs --not-consumed-by")
    if arguments.store is not None and arguments.from_broker is not None:
        raise JobError("--store and --from-broker cannot be used together", "leave one of them out")
    if arguments.store is not None or arguments.from_broker is not None:
        name = "store" if arguments.store is not None else "from-broker"
        for option in ("offsets_at", "bodies"):
            if getattr(arguments, option) is not None:
                raise JobError(f"--{_option(option)} needs messages of the lake, and cannot be used with --{name}")
    if arguments.from_broker is not None and arguments.all_copies:
        hint = "name the topics of retries and dead letters, as in --topic %RETRY%billing --topic %DLQ%billing"
        raise JobError("--from-broker and --all-copies cannot be used together", hint)
    if arguments.dlq_of is not None and arguments.all_copies:
        raise JobError("--dlq-of and --all-copies cannot be used together", "--dlq-of selects only dead letters")
    if arguments.dlq_of is not None and arguments.not_consumed_by is not None:
        raise JobError(
            "--dlq-of and --not-consumed-by cannot be used together, as no group consumes dead letters",
            "leave --not-consumed-by out; 'commitlake dlq outcome ID' shows which of a replay's letters were consumed",
        )
    if arguments.dlq_of is not None and arguments.topic:
        raise JobError(
            "--dlq-of and --topic cannot be used together", "the group determines the topic of its dead letters"
        )
