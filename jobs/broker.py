"""A message broker that RocketMQ's clients use, with a name server beside it: one process, one folder.

It writes the files that RocketMQ writes, so its store can be archived while it runs, and be taken over by RocketMQ. It
listens on the loopback address unless it is told otherwise. SIGTERM and Ctrl-C end it in order; whatever else ends it,
the next start recovers the store. Exit codes: 0 it was asked to end, 2 a wrong option, a port that is not free or a
store that cannot be opened.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.command import ExitCode, JobError, job_parser, run_job
from jobs.durations import parse_duration

if TYPE_CHECKING:
    from broker_lite.broker.accounts import Accounts
    from broker_lite.broker.options import BrokerOptions
    from broker_lite.server import Address
    from broker_lite.store import StoreOptions

DESCRIPTION = (
    "Run a small broker that RocketMQ's own clients can use, and a name server with it. Its store is the same as "
    "RocketMQ's."
)
EXAMPLES = (
    ("broker --store store", "a broker on 127.0.0.1:10911 with a name server on 127.0.0.1:9876"),
    ("broker --store store --flush sync", "every acknowledged message is on the disk"),
    ("broker --store store --namesrv none --register 127.0.0.1:9876", "a broker for another name server"),
)
_NONE = "none"
_MIB = 1 << 20


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("broker", DESCRIPTION, EXAMPLES)
    parser.add_argument("--store", required=True, metavar="DIR", help="the store's folder; made where it is not there")
    network = parser.add_argument_group("network")
    network.add_argument("--listen", default="127.0.0.1:10911", metavar="IP:PORT", help="for clients")
    network.add_argument(
        "--namesrv", default="127.0.0.1:9876", metavar="IP:PORT", help=f"the name server's port, or {_NONE!r}"
    )
    network.add_argument(
        "--register", action="append", default=[], metavar="IP:PORT", help="a name server to tell of the broker"
    )
    network.add_argument(
        "--advertise", metavar="IP", help="the address that clients are given (default: that of --listen)"
    )
    network.add_argument(
        "--max-connections", type=int, default=20_000, metavar="N", help="connections on one port (default: 20000)"
    )
    network.add_argument(
        "--accounts", metavar="FILE",
        help="TOML file with the accounts that may use the broker; else COMMITLAKE_BROKER_ACCESS_KEY and …_SECRET_KEY; "
        "else everybody may",
    )  # fmt: skip
    names = parser.add_argument_group("broker")
    names.add_argument("--name", default="broker-a", help="the broker's name (default: broker-a)")
    names.add_argument("--cluster", default="DefaultCluster", help="its cluster's (default: DefaultCluster)")
    names.add_argument(
        "--no-auto-create", action="store_true", help="topics and groups are made by administrators only"
    )
    names.add_argument(
        "--transaction-timeout", type=parse_duration,
        default="6s", metavar="TIME",
        help="when a producer is first asked about a transaction (default: 6s)",
    )  # fmt: skip
    names.add_argument(
        "--transaction-check-interval", type=parse_duration,
        default="30s", metavar="TIME",
        help="time between two such questions (default: 30s)",
    )  # fmt: skip
    names.add_argument("--transaction-check-max", type=int, default=15, metavar="N", help="how many (default: 15)")
    files = parser.add_argument_group("store")
    files.add_argument(
        "--flush", choices=("async", "sync"), default="async", help="answer a send at once, or when it is on the disk"
    )
    files.add_argument(
        "--segment-mib", type=float, default=1024, metavar="MIB", help="size of a CommitLog file (default: 1024)"
    )
    files.add_argument("--queue-entries", type=int, default=300_000, metavar="N", help="entries of a ConsumeQueue file")
    files.add_argument("--index-slots", type=int, default=5_000_000, metavar="N", help="hash slots of an index file")
    files.add_argument("--index-entries", type=int, default=20_000_000, metavar="N", help="entries of an index file")
    files.add_argument("--max-message-kib", type=int, default=4096, metavar="KIB", help="largest body (default: 4096)")
    files.add_argument(
        "--reserved-hours", type=int, default=72, metavar="HOURS", help="age at which segments go (default: 72)"
    )
    files.add_argument(
        "--delete-hours", type=_hours, default="4", metavar="H,H", help="hours of the day in which they do (default: 4)"
    )
    files.add_argument(
        "--disk-percent", type=_percents, default="75,85,90", metavar="P,P,P",
        help="how full a disk lets segments go at any hour, at any age, and stops new messages (default: 75,85,90)",
    )  # fmt: skip
    files.add_argument("--delay-levels", metavar="LEVELS", help="delays of the levels from 1 on, as '1s 5s 10s'")
    return parser


def _hours(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) < 24 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected hours from 0 to 23 with commas between")
    return tuple(map(int, parts))


def _percents(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and 0 < int(part) <= 100 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected three numbers from 1 to 100 with commas between")
    return int(parts[0]), int(parts[1]), int(parts[2])


def job(arguments: argparse.Namespace) -> ExitCode:
    """Open the store, and serve."""
    from broker_lite.server import ServerOptions, run_server
    from broker_lite.server.limits import Limits
    from broker_lite.store import MessageStore, StoreError

    listen = _address("--listen", arguments.listen)
    name_server = None if arguments.namesrv == _NONE else _address("--namesrv", arguments.namesrv)
    try:
        options = ServerOptions(
            listen=listen,
            name_server=name_server,
            register_at=tuple(_address("--register", text) for text in arguments.register),
            broker=_broker_options(arguments, listen),
            accounts=_accounts(arguments.accounts),
            limits=Limits(connections=arguments.max_connections, connections_of_one=arguments.max_connections),
        )
        store = MessageStore.open(arguments.store, _store_options(arguments, options.broker))
    except StoreError as error:
        raise JobError(str(error)) from error

    def ready() -> None:
        if not arguments.quiet:
            beside = f", name server on {name_server}" if name_server else ""
            print(f"broker {arguments.name} on {listen}{beside}, store {arguments.store}", file=sys.stderr, flush=True)

    try:
        run_server(store, options, ready)
    except OSError as error:
        raise JobError(f"cannot listen: {error.strerror or error}", "choose other ports") from error
    return ExitCode.OK


def _accounts(file: str | None) -> Accounts | None:
    from broker_lite.broker.accounts import Accounts, AccountsError

    try:
        return Accounts.of_file(Path(file)) if file else Accounts.of_environment(os.environ)
    except AccountsError as error:
        raise JobError(str(error)) from error


def _address(option: str, text: str) -> Address:
    from broker_lite.server import Address

    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise JobError(f"{option}: expected IP:PORT, found {text!r}")
    return Address(_ip(option, host), int(port))


def _ip(option: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise JobError(f"{option}: expected an IP address, found {text!r}") from None


def _broker_options(arguments: argparse.Namespace, listen: Address) -> BrokerOptions:
    from broker_lite.broker.options import BrokerOptions
    from broker_lite.store.topic_names import is_valid_topic
    from schemas.layouts.hosts import Host

    for option, name in (("--name", arguments.name), ("--cluster", arguments.cluster)):
        if not is_valid_topic(name):
            raise JobError(f"{option}: expected 1 to 127 characters of %|a-zA-Z0-9_-, found {name[:100]!r}")
    ip = listen.host if arguments.advertise is None else _ip("--advertise", arguments.advertise)
    if ipaddress.ip_address(ip).is_unspecified:
        raise JobError(f"--listen {listen}: clients need an address to connect to", "give it with --advertise IP")
    return BrokerOptions(
        cluster=arguments.cluster,
        name=arguments.name,
        address=Host.of(ip, listen.port),
        auto_create_topics=not arguments.no_auto_create,
        auto_create_groups=not arguments.no_auto_create,
        sync_flush=arguments.flush == "sync",
        transaction_timeout_ms=round(arguments.transaction_timeout.total_seconds() * 1000),
        transaction_check_interval_ms=round(arguments.transaction_check_interval.total_seconds() * 1000),
        transaction_check_max=arguments.transaction_check_max,
    )


def _store_options(arguments: argparse.Namespace, broker: BrokerOptions) -> StoreOptions:
    from broker_lite.store import StoreOptions
    from broker_lite.store.options import DEFAULT_DELAY_LEVELS, RetentionOptions
    from schemas.layouts.consumequeue import ENTRY

    return StoreOptions(
        segment_size_bytes=round(arguments.segment_mib * _MIB),
        consume_queue_file_size_bytes=arguments.queue_entries * ENTRY.size,
        index_slots=arguments.index_slots,
        index_entries=arguments.index_entries,
        max_message_size_bytes=arguments.max_message_kib << 10,
        message_delay_level=arguments.delay_levels or DEFAULT_DELAY_LEVELS,
        store_host=broker.address,
        retention=RetentionOptions(arguments.reserved_hours, arguments.delete_hours, *arguments.disk_percent),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake broker`."""
    return run_job(build_parser(), job, argv)
