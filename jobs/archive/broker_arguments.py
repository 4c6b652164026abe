"""The options of `archive` that pull messages from live brokers instead of reading their files."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from commitlake.jobs.cli.combinations import check_has_effect, prefer_given
from commitlake.jobs.cli.command import JobError
from commitlake.schemas.layouts.numbers import parse_decimal

if TYPE_CHECKING:
    from commitlake.connectors.rocketmq.throttle import Rate
    from commitlake.pipelines.archive.from_broker.pulled_part import BrokerSource

_RATE = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,3})?) ?(?P<unit>KiB|MiB|GiB)?(/s)?")
_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_REQUEST_SECONDS = 10.0
_WHAT_IS_PULLED = (
    "Pulls every message in a queue, including system topics: waiting delayed messages, and transaction messages. It "
    "does not get messages of deleted topics, of queues without read permission, or, from brokers 4.9, the op records "
    "of transactions; the summary counts the latter two."
)
_ONLY_PULLED = ("topic", "max-rate")
_OF_FILES = ("broker_conf", "available_now")


def add_broker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --from-broker, --topic and --max-rate."""
    group = parser.add_argument_group("from brokers, without their files", _WHAT_IS_PULLED)
    from_help = (
        "instead of --store: pull from all brokers that these name servers know (several with semicolons between), or "
        "only from the one that --broker names; keys and TLS come from the environment, as for replay"
    )
    group.add_argument("--from-broker", metavar="HOST:PORT", help=from_help)
    topic_help = "only this topic (default: all topics, including the system's)"
    group.add_argument("--topic", action="append", default=[], help=topic_help)
    rate_help = (
        "read at most this much per second from all brokers together: messages as in 2000/s, bytes as in 20MiB/s"
    )
    group.add_argument("--max-rate", type=_rate, metavar="RATE", help=rate_help)


def check_broker_arguments(arguments: argparse.Namespace) -> None:
    """Check that the broker options do not conflict with each other or with the other options.

    Raises:
        JobError: for the first conflict.
    """
    check_has_effect(arguments, _ONLY_PULLED, "from-broker")
    if arguments.from_broker is None:
        return
    for option in ("store", "broker-conf"):
        prefer_given(arguments, "from-broker", option)
    if arguments.store is not None:
        raise JobError("--store and --from-broker cannot be used together", "leave one of them out")
    for option in _OF_FILES:
        if getattr(arguments, option):
            name = option.replace("_", "-")
            raise JobError(f"--{name} has no effect with --from-broker", "leave it out")


def source_of(arguments: argparse.Namespace) -> BrokerSource:
    """Return the brokers that the arguments name.

    Raises:
        OptionError: for an invalid address.
    """
    from commitlake.connectors.rocketmq.options import ClientOptions
    from commitlake.connectors.rocketmq.throttle import Rate
    from commitlake.pipelines.archive.from_broker.pulled_part import BrokerSource

    return BrokerSource(
        ClientOptions(arguments.from_broker, request_seconds=_REQUEST_SECONDS),
        brokers=() if arguments.broker is None else (arguments.broker,),
        topics=tuple(dict.fromkeys(arguments.topic)),
        rate=arguments.max_rate or Rate(),
    )


def _rate(text: str) -> Rate:
    from commitlake.connectors.rocketmq.throttle import Rate

    found = _RATE.fullmatch(text.strip())
    number = parse_decimal(found["number"]) if found else None
    if found is None or not number:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a rate: expected one like 2000/s or 20MiB/s")
    unit = found["unit"]
    return Rate(messages=number) if unit is None else Rate(bytes=number * _BYTES[unit])
