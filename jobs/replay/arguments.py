"""The options of `replay`, and those that it shares with `dlq`."""

from __future__ import annotations

import argparse
import datetime
import re
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.keys_file import keys_file_option
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.selection import (
    WHICH,
    Brokers,
    Ids,
    Keys,
    Predicate,
    Queues,
    SelectionOptions,
    Tags,
    TimeRange,
    Topics,
)
from commitlake.jobs.arguments.store_layout import layout_option
from commitlake.jobs.arguments.stores import make_integer_parser
from commitlake.jobs.arguments.times import parse_time, time_text
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import (
    Rule,
    Section,
    argument,
    cannot_be_used_with,
    conflicts_with,
    flag,
    only_for_actions,
    option,
    options_with_fields,
    repeated,
    requires_one_of,
    rules_for_values,
    shorthand_option,
    switch,
)
from commitlake.jobs.report.output_formats import JsonArgument, OutputArguments
from commitlake.schemas.layouts.integer_parsing import parse_decimal, parse_int64

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
_SELECTING = ("topic", "key", "keys_file", "id", "start", "where", "dlq_of", "not_consumed_by", "broker", "tag")
_OF_SEND = (
    "store", "from_broker", *_SELECTING, "queue", "end", "all_copies", "to_topic", "limit", "transform", "mask",
    "again",
)  # fmt: skip
ALL_IDS = "'commitlake replay list --lake LAKE' lists all replays"
NO_TARGET = "--namesrv names the target's name server; --dry-run shows what would be sent, and needs none"
_NONE = "none"
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")

_FROM = Section(
    "where from",
    "default: the lake's messages; messages from another source are copied into the lake's table replay_rows before "
    "they are sent",
)
_TO = Section("where to")
_PACE = Section("how fast")
_CHANGES = Section("changes to the messages", "--dry-run shows the first messages before and after the change")
_UNDO = Section("undo")


def _parse_rate(text: str) -> float:
    rate = 0.0 if text == _NONE else _parse_positive_number(text.removesuffix("/s"))
    if rate is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: expected messages per second, as in 500 or 0.5")
    return rate


def _parse_speed(text: str) -> float:
    speed = 0.0 if text == _NONE else _parse_positive_number(text.removesuffix("x"))
    if speed is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed: expected 1x, 2x or 0.5x")
    return speed


def _parse_positive_number(text: str) -> float | None:
    number = parse_decimal(text) if _NUMBER.fullmatch(text) else None
    return number or None


def _parse_lag_limit(text: str) -> tuple[str, int]:
    group, _, number = text.partition(">")
    messages = parse_int64(number.strip())
    if not group.strip() or messages is None or messages < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a limit: expected GROUP>N, as in 'billing>10000'")
    return group.strip(), messages


def queues_option(default: str) -> str:
    """Declare `--queues`, which chooses the queue of each message."""
    return option(
        "choose the queue with the same id, or by a hash of the message's first key, or of its sharding key "
        f"(default: {default})",
        choices=("same", "key", "sharding-key"),
        default=default,
        section=_TO,
    )


@dataclass(frozen=True, kw_only=True)
class SendingArguments(SelectionOptions):
    """Options for where a replay sends messages, and how fast.

    The first fields are options that each command declares with its own help.
    """

    where: str | None
    again: bool
    output: str
    quiet: bool
    start: datetime.datetime | None
    end: datetime.datetime | None

    namesrv: str | None = option(
        "name server of the target, or several separated by ';'", metavar="HOST:PORT", section=_TO
    )
    to_topic: str | None = option(
        "send into this topic (default: the topic of each message)", metavar="TOPIC", section=_TO
    )
    queues: str = queues_option("same")
    ordered: ClassVar = shorthand_option(
        "keep the order of each key across queues: same as --queues key", section=_TO, queues="key"
    )
    target_timeout: datetime.timedelta | None = option(
        "how long to wait for an unreachable target before the replay stops; it can be resumed (default: 10m)",
        "--target-timeout",
        "--patience",
        parse=parse_duration,
        metavar="TIME",
        section=_TO,
    )
    rate: float | None = option(
        "at most N messages per second (default: as fast as the target accepts them); with throttle and resume, none "
        "removes the limit",
        parse=_parse_rate,
        metavar="N[/s]",
        section=_PACE,
    )
    speed: float | None = option(
        "at the pace at which they were stored, or a multiple of it: 1x, 2x, 0.5x; none as with --rate",
        parse=_parse_speed,
        metavar="Nx",
        section=_PACE,
    )
    pause_if_lag: tuple[str, int] | None = option(
        "pause while this group of the target is more than N messages behind",
        parse=_parse_lag_limit,
        metavar="'GROUP>N'",
        section=_PACE,
    )
    transform: str | None = option(
        "a function that takes a Spark DataFrame of the messages and returns the one to send; it may change body, "
        "keys, tags, flag and properties, and drop rows",
        metavar="MODULE:FUNCTION",
        section=_CHANGES,
    )
    mask: tuple[str, ...] = repeated(
        "replace a field: body, body.NAME.NAME of JSON, property.NAME, keys or tags, by null, hash (with the key in "
        "COMMITLAKE_MASK_KEY), last:N characters, or text:TEXT",
        metavar="FIELD=RULE",
        section=_CHANGES,
    )
    limit: int = option("send only the first N (default: all)", parse=make_integer_parser(0), default=0, metavar="N")
    dry_run: bool = flag("show what would be sent, and send nothing; without --namesrv, nothing is shown of the target")
    # None if it is not given: actions that do not send refuse it.
    verify: bool | None = switch(
        "when everything is sent, read it back from the target and compare it with the lake (the default); "
        "--no-verify leaves this proof to 'replay verify'"
    )
    yes: bool = flag("do not ask for confirmation; required to send without a terminal")
    confirm_over: int = option(
        "ask before more messages than this are sent (default: 0, always)",
        parse=make_integer_parser(0),
        default=0,
        metavar="N",
    )


_OF_LAKE = Rule(
    "{other} needs messages of the lake, and cannot be used with {this}", ("offsets_at", "bodies"), is_refused_with=True
)
_ALL_COPIES_HINT = "name the topics of retries and dead letters, as in --topic %RETRY%billing --topic %DLQ%billing"
_NO_CONSUMER = Rule(
    "{this} and {other} cannot be used together, as no group consumes dead letters",
    ("not_consumed_by",),
    is_refused_with=True,
    hint="leave {other} out; 'commitlake dlq outcome ID' shows which of a replay's letters were consumed",
)


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(
    Command, LakeArguments, Topics, Queues, Keys, Tags, Ids, Brokers, TimeRange, Predicate, OutputArguments,
    JsonArgument, SendingArguments,
    after={
        LakeArguments: "resume",
        **dict.fromkeys((Topics, Queues, Keys, Tags, Ids, Brokers, TimeRange, Predicate), "layout"),
        SendingArguments: "include_replayed",
        OutputArguments: "online", JsonArgument: "online",
    },
):  # fmt: skip
    """The options of `replay`."""

    CONDITIONS: ClassVar = {"born": "is_by_birth"}
    action: str = argument(
        "; ".join(f"{name}: {what}" for name, what in ACTIONS.items()),
        choices=tuple(ACTIONS),
        default=SEND,
        metavar="ACTION",
        rules=(
            *rules_for_values(SEND, rules=requires_one_of("namesrv", "dry_run", hint=NO_TARGET)),
            *rules_for_values(
                SEND,
                rules=requires_one_of(
                    *_SELECTING, hint="as in --topic orders --from 2026-11-20T14:00 --to 2026-11-20T14:20"
                ),
            ),
            *rules_for_values(
                LIST,
                *_OF_ONE,
                rules=cannot_be_used_with(*_OF_SEND, hint="a replay's messages are fixed when it starts"),
            ),
            *rules_for_values(*_OF_ONE, rules=requires_one_of("replay_id", hint=ALL_IDS)),
            *rules_for_values(
                THROTTLE, rules=requires_one_of("rate", "speed", hint="as in --rate 500/s, --speed 2x or --rate none")
            ),
        ),
    )
    replay_id: str = argument(
        "id of the replay: 'replay list' shows all", metavar="ID", default="", rules=only_for_actions(*_OF_ONE)
    )
    resume: str | None = option("same as 'replay resume ID'", metavar="ID", rules=only_for_actions(SEND))
    store: str | None = option(
        "messages from the log of a store in this folder, or of several by a glob; nothing needs to be archived",
        metavar="PATH",
        section=_FROM,
        rules=(*conflicts_with("from_broker", hint="leave one of them out"), _OF_LAKE),
    )
    from_broker: str | None = option(
        "messages from live topics of the brokers that these name servers know; needs --topic or --dlq-of",
        metavar="HOST:PORT",
        section=_FROM,
        rules=(
            _OF_LAKE,
            *conflicts_with("all_copies", hint=_ALL_COPIES_HINT),
            *requires_one_of("topic", "dlq_of", hint="{this} reads whole topics"),
        ),
    )
    layout: str | None = layout_option(_FROM)
    keys_file: str | None = keys_file_option(
        "only with one of the keys in a file, one per line", "--key-file", section=WHICH
    )
    born: bool = flag("--from and --to compare the producer's time, not the broker's", section=WHICH)
    dlq_of: str | None = option(
        "the dead letters of this group, sent back to their original topics",
        metavar="GROUP",
        section=WHICH,
        rules=(
            *conflicts_with("all_copies", hint="{this} selects only dead letters"),
            _NO_CONSUMER,
            *conflicts_with("topic", hint="the group determines the topic of its dead letters"),
        ),
    )
    not_consumed_by: str | None = option(
        "only messages that this group has not consumed, by its offsets in the lake, the store or the broker",
        metavar="GROUP",
        section=WHICH,
    )
    offsets_at: datetime.datetime | None = option(
        "with --not-consumed-by: use its offsets at this time, by the lake's snapshots (default: the newest)",
        parse=parse_time,
        metavar="TIME",
        section=WHICH,
        rules=requires_one_of("not_consumed_by"),
    )
    all_copies: bool = flag(
        "also copies of messages for retries, and dead letters, each sent to its original topic (default: one of each "
        "message, or what --topic names); with --topic, the copies of its messages",
        section=WHICH,
    )
    again: bool = flag(
        "also messages that an unfinished replay to the same target contains; without it, they are an error",
        section=WHICH,
    )
    spark: bool = flag(
        "send by tasks on Spark's workers, each to its own queues of the target; they need the same folders, and reach "
        "the target's brokers (default: send in this process)",
        section=_PACE,
        rules=only_for_actions(SEND, RESUME),
    )
    include_replayed: bool = flag(
        "also messages that an earlier replay has sent; without it, they are skipped", section=WHICH
    )
    group: tuple[str, ...] = repeated(
        "only this group (default: all that consume the target's topics)", section=_UNDO, rules=only_for_actions(UNDO)
    )
    apply: bool = flag("set the offsets", section=_UNDO, rules=only_for_actions(UNDO))
    skip_others: bool = flag(
        "also skip messages of others that lie between those of the replay: groups lose them",
        section=_UNDO,
        rules=only_for_actions(UNDO),
    )
    online: bool = flag(
        "also while a group has clients; brokers 5.x tell them the new offsets, older ones cannot",
        section=_UNDO,
        rules=only_for_actions(UNDO),
    )

    def resolve_options(self) -> Self:
        """Return the command `replay resume ID` for `replay --resume ID`."""
        if self.resume is None or self.action != SEND or self.replay_id:
            return self
        return replace(self, action=RESUME, replay_id=self.resume, resume=None)

    def selection_text(self) -> str:
        """Return the given options that say which messages are sent, as on a command line."""
        given: list[str] = []
        for name, declaration in options_with_fields(type(self)):
            value = getattr(self, name)
            if declaration.section not in (_FROM, WHICH, _CHANGES) or value in (None, (), False):
                continue
            (option_name, *_) = declaration.command_line_names(name)
            for one in value if isinstance(value, tuple) else (value,):
                text = time_text(one) if isinstance(one, datetime.datetime) else one
                given.append(option_name if one is True else f"{option_name} {text}")
        return " ".join(given)
