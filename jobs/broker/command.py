"""A message broker for RocketMQ's clients, with a name server: one process, one folder.

It writes the same files as RocketMQ, so its store can be archived while it runs, and RocketMQ can take it over. With
`--layout jmq` it writes JMQ's files, with `--layout boltmq` BoltMQ's. By default it listens on the loopback address.
SIGTERM and Ctrl-C stop it cleanly; after a crash, the next start recovers the store. Exit codes: 0 if it was stopped by
a signal; 2 for a wrong option, a port that is not free, or a store that cannot be opened.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import ipaddress
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.broker.settings import apply_settings
from commitlake.jobs.broker.store import add_store_arguments, open_store
from commitlake.jobs.broker.tls import add_tls_arguments, asking_options, ports_tls, tls_properties
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.store_arguments import at_least, positive
from commitlake.jobs.cli.terminal import print_line
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.numbers import parse_int

if TYPE_CHECKING:
    from commitlake.broker_lite.broker.accounts import Accounts
    from commitlake.broker_lite.broker.options import BrokerOptions
    from commitlake.broker_lite.replication.options import ReplicationOptions
    from commitlake.broker_lite.server import Address, ServerOptions
    from commitlake.schemas.remoting.tls_properties import TlsProperties

DESCRIPTION = (
    "Run a small message broker for RocketMQ's own clients, together with a name server. Its store has the format of "
    "RocketMQ, JMQ or BoltMQ."
)
EXAMPLES = (
    ("broker --store store", "a broker on 127.0.0.1:10911 with a name server on 127.0.0.1:9876"),
    ("broker --store store --flush sync", "every acknowledged message is on disk"),
    ("broker --store store --layout jmq", "the same, with files in JMQ's format"),
    ("broker --store store --tls-config tls.properties --tls-mode enforcing", "clients must use TLS"),
    (
        "broker --store store --namesrv none --register 127.0.0.1:9876",
        "a broker that registers with another name server",
    ),
    (
        "broker --store store --role SYNC_MASTER --ha-listen 127.0.0.1:10912",
        "answers wait until a slave has the message",
    ),
    (
        "broker --store copy --listen 127.0.0.1:10921 --role SLAVE --broker-id 1 --register 127.0.0.1:9876",
        "its slave: keeps a copy of the log, and serves consumers",
    ),
)
_NONE = "none"
_NAME_SERVER = "127.0.0.1:9876"


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("broker", DESCRIPTION, EXAMPLES)
    store_help = "the store's folder; created if it does not exist"
    parser.add_argument("--store", required=True, metavar="PATH", help=store_help)
    network = parser.add_argument_group("network")
    network.add_argument(
        "--listen",
        default="127.0.0.1:10911",
        metavar="IP:PORT",
        help="the address for clients (default: 127.0.0.1:10911)",
    )
    network.add_argument(
        "--namesrv", metavar="IP:PORT",
        help=f"the name server's port, or {_NONE!r} (default: {_NAME_SERVER}; none for a slave)",
    )  # fmt: skip
    network.add_argument(
        "--register", action="append", default=[], metavar="IP:PORT", help="a name server to register the broker with"
    )
    network.add_argument(
        "--advertise", metavar="IP", help="the address that clients are given (default: that of --listen)"
    )
    network.add_argument(
        "--max-connections",
        type=positive,
        default=20_000,
        metavar="N",
        help="largest number of connections on one port, if the system has enough file descriptors (default: 20000)",
    )
    network.add_argument(
        "--max-connections-per-address", type=positive, default=5_000, metavar="N",
        help="largest number of connections from one address, including this machine's (default: 5000)",
    )  # fmt: skip
    network.add_argument(
        "--accounts", metavar="FILE",
        help="TOML file with the accounts that may use the broker and change the name server's routes; without it, "
             "COMMITLAKE_BROKER_ACCESS_KEY and …_SECRET_KEY; without these, everybody may",
    )  # fmt: skip
    add_tls_arguments(network)
    names = parser.add_argument_group("broker")
    names.add_argument("--broker", "--name", action=Once, help="the broker's name (default: broker-a)")
    names.add_argument("--cluster", default="DefaultCluster", help="the name of its cluster (default: DefaultCluster)")
    names.add_argument("--no-auto-create", action="store_true", help="only administrators can create topics and groups")
    names.add_argument(
        "--max-topics", type=positive, default=20_000, metavar="N",
        help="largest number of topics, including those of retries and dead letters (default: 20000)",
    )  # fmt: skip
    names.add_argument(
        "--max-groups",
        type=positive,
        default=10_000,
        metavar="N",
        help="largest number of consumer groups (default: 10000)",
    )
    names.add_argument(
        "--transaction-timeout", type=parse_duration,
        default="6s", metavar="TIME",
        help="time after which a producer is first asked about a transaction (default: 6s)",
    )  # fmt: skip
    names.add_argument(
        "--transaction-check-interval", type=_interval,
        default="30s", metavar="TIME",
        help="time between two questions about a transaction (default: 30s)",
    )  # fmt: skip
    names.add_argument(
        "--transaction-check-max",
        type=at_least(0),
        default=15,
        metavar="N",
        help="largest number of questions about a transaction (default: 15)",
    )
    _add_replication(parser)
    add_store_arguments(parser)
    return parser


def _interval(text: str) -> datetime.timedelta:
    if not (length := parse_duration(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1s or more")
    return length


def _add_replication(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("master and slave")
    group.add_argument(
        "--role", choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"), default="ASYNC_MASTER",
        help="a SYNC_MASTER answers a send when a slave has the message; a SLAVE keeps a copy of its master's log",
    )  # fmt: skip
    group.add_argument(
        "--broker-id", type=int, metavar="N", help="0 for a master, above 0 for a slave (default: 0, or 1 for a slave)"
    )
    group.add_argument(
        "--ha-listen", metavar="IP:PORT",
        help="the address where slaves get a master's log, in plain text; clients are then also served two ports below "
             "--listen, where RocketMQ's slaves connect (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--ha-allow", metavar="IP[/N],…",
        help="addresses or networks of the slaves; without it, anybody who can connect to --ha-listen can read the "
             "log, and can make a SYNC_MASTER believe that a slave has it",
    )  # fmt: skip
    group.add_argument(
        "--ha-master", metavar="IP:PORT",
        help="where a slave gets the log (default: the address that its name server has for the master)",
    )  # fmt: skip
    group.add_argument(
        "--slave-read",
        action="store_true",
        help="send consumers that are far behind to a slave, as their group's settings allow",
    )
    group.add_argument(
        "--slave-timeout", type=parse_duration, default="3s", metavar="TIME",
        help="how long a SYNC_MASTER's answer waits for a slave (default: 3s)",
    )  # fmt: skip


def job(arguments: argparse.Namespace) -> ExitCode:
    """Open the store, and serve clients."""
    from commitlake.broker_lite.errors import StoreError
    from commitlake.broker_lite.server import ListenError, ServerOptions, run_server
    from commitlake.broker_lite.server.limits import Limits
    from commitlake.broker_lite.server.service import FAST_PORT_DISTANCE
    from commitlake.connectors.lake.owned_folders import check_no_owner

    check_no_owner(str(arguments.store), "--store")
    apply_settings(arguments)
    listen = _address("--listen", arguments.listen)
    if arguments.ha_listen and listen.port <= FAST_PORT_DISTANCE:
        raise JobError(
            f"--listen {listen}: with --ha-listen clients are also served {FAST_PORT_DISTANCE} ports below it",
            "choose a larger port",
        )
    is_slave = arguments.role == "SLAVE"
    namesrv = arguments.namesrv or (_NONE if is_slave else _NAME_SERVER)
    name_server = None if namesrv == _NONE else _address("--namesrv", namesrv)
    tls = tls_properties(arguments)
    replication = _replication_options(arguments, tls)
    try:
        options = ServerOptions(
            listen=listen,
            name_server=name_server,
            register_at=tuple(_address("--register", text) for text in arguments.register),
            broker=_broker_options(arguments, listen),
            accounts=_accounts(arguments.accounts),
            limits=Limits(
                connections=arguments.max_connections,
                connections_of_one=min(arguments.max_connections_per_address, arguments.max_connections),
            ),
            replication=replication,
            tls=ports_tls(arguments, tls),
        )
        store = open_store(arguments, options.broker)
    except StoreError as error:
        raise JobError(str(error)) from error

    _warn_of_open_ports(options)

    def ready() -> None:
        if not arguments.quiet:
            beside = f", name server on {name_server}" if name_server else ""
            what = "slave of broker" if is_slave else "broker"
            print_line(f"{what} {arguments.broker} on {listen}{beside}, store {arguments.store}")

    if not faulthandler.is_enabled():
        # If the disk is full, writing to a mapped page raises SIGBUS, which by itself prints nothing.
        faulthandler.enable()
    try:
        run_server(store, options, ready)
    except ListenError as error:
        raise JobError(str(error), "choose another port") from error
    except (StoreError, OSError) as error:
        raise JobError(
            f"{arguments.store}: the store could not be written to disk at shutdown: {error}",
            "the next start recovers it",
            ExitCode.FAILED,
        ) from error
    return ExitCode.OK


def _warn_of_open_ports(options: ServerOptions) -> None:
    """Warn of ports that other machines can reach, if no account is needed there or any machine may act as a slave."""
    log = options.replication.listen
    if log is not None and not options.replication.allowed and not ipaddress.ip_address(log[0]).is_loopback:
        print(
            f"warning: --ha-listen {log[0]}:{log[1]} without --ha-allow: anybody who can connect can read the whole "
            "log",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    if options.accounts is not None:
        return
    for option, address in (("--listen", options.listen), ("--namesrv", options.name_server)):
        if address is not None and not ipaddress.ip_address(address.host).is_loopback:
            print(
                f"warning: {option} {address} without --accounts: anybody who can connect can send and read messages",
                file=sys.stderr, flush=True,
            )  # fmt: skip


def _replication_options(arguments: argparse.Namespace, tls: TlsProperties | None) -> ReplicationOptions:
    from commitlake.broker_lite.replication.options import ReplicationOptions, Role

    role = Role(arguments.role)
    is_slave = role is Role.SLAVE
    if is_slave and arguments.ha_listen:
        raise JobError(
            f"--ha-listen {arguments.ha_listen}: a slave cannot have slaves", "leave it out, or choose another --role"
        )
    if arguments.ha_allow and not arguments.ha_listen:
        raise JobError(f"--ha-allow {arguments.ha_allow}: has no effect without --ha-listen", "add --ha-listen IP:PORT")
    if not is_slave and arguments.ha_master:
        raise JobError(f"--ha-master {arguments.ha_master}: only a slave has a master", "add --role SLAVE")
    if role is Role.SYNC_MASTER and not arguments.ha_listen:
        raise JobError(
            "--role SYNC_MASTER: its slaves need a port to get the log from", "give one with --ha-listen IP:PORT"
        )
    if is_slave and not (arguments.ha_master or arguments.register):
        raise JobError(
            "--role SLAVE: the address of its master is missing", "give --register IP:PORT of the master's name server"
        )
    if (_broker_id(arguments) > 0) is not is_slave:
        raise JobError(
            f"--broker-id: expected {'more than 0' if is_slave else '0'} for {role}, found {arguments.broker_id}"
        )
    return ReplicationOptions(
        role=role,
        listen=_address("--ha-listen", arguments.ha_listen) if arguments.ha_listen else None,
        allowed=_networks("--ha-allow", arguments.ha_allow),
        master=_address("--ha-master", arguments.ha_master) if arguments.ha_master else None,
        slave_timeout_ms=round(arguments.slave_timeout.total_seconds() * 1000),
        asking=asking_options(arguments, tls),
    )


def _broker_id(arguments: argparse.Namespace) -> int:
    default = 1 if arguments.role == "SLAVE" else 0
    return default if arguments.broker_id is None else int(arguments.broker_id)


def _ha_address(arguments: argparse.Namespace, ip: str) -> str:
    """Return the address where slaves get the log, as registered with name servers; empty if there is none."""
    from commitlake.schemas.layouts.rocketmq.hosts import Host

    if not arguments.ha_listen:
        return ""
    listen = _address("--ha-listen", arguments.ha_listen)
    return str(Host.of(ip if ipaddress.ip_address(listen.host).is_unspecified else listen.host, listen.port))


def _accounts(file: str | None) -> Accounts | None:
    from commitlake.broker_lite.broker.accounts import Accounts, AccountsError

    try:
        return Accounts.from_file(Path(file)) if file else Accounts.from_environment(os.environ)
    except AccountsError as error:
        raise JobError(str(error)) from error


def _address(option: str, text: str) -> Address:
    from commitlake.broker_lite.server import Address

    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = parse_int(port, 1, 0xFFFF)
    if number is None:
        raise JobError(f"{option}: expected IP:PORT, found {text[:100]!r}")
    return Address(_ip(option, host), number)


def _networks(option: str, text: str | None) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise JobError(f"{option}: expected addresses or networks, with commas between them, found {error}") from None


def _ip(option: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise JobError(f"{option}: expected an IP address, found {text!r}") from None


def _broker_options(arguments: argparse.Namespace, listen: Address) -> BrokerOptions:
    from commitlake.broker_lite.broker.options import BrokerOptions
    from commitlake.broker_lite.stores.engine.topic_names import is_valid_topic
    from commitlake.schemas.layouts.rocketmq.hosts import Host

    for option, name in (("--broker", arguments.broker), ("--cluster", arguments.cluster)):
        if not is_valid_topic(name):
            raise JobError(f"{option}: expected 1 to 127 characters of %|a-zA-Z0-9_-, found {name[:100]!r}")
    ip = listen.host if arguments.advertise is None else _ip("--advertise", arguments.advertise)
    if ipaddress.ip_address(ip).is_unspecified:
        raise JobError(f"--listen {listen}: clients need an address to connect to", "give it with --advertise IP")
    return BrokerOptions(
        cluster=arguments.cluster,
        name=arguments.broker,
        broker_id=_broker_id(arguments),
        role=arguments.role,
        slave_read=arguments.slave_read,
        address=Host.of(ip, listen.port),
        ha_address=_ha_address(arguments, ip),
        auto_create_topics=not arguments.no_auto_create,
        auto_create_groups=not arguments.no_auto_create,
        max_topics=arguments.max_topics,
        max_groups=arguments.max_groups,
        sync_flush=arguments.flush == "sync",
        transaction_timeout_ms=round(arguments.transaction_timeout.total_seconds() * 1000),
        transaction_check_interval_ms=round(arguments.transaction_check_interval.total_seconds() * 1000),
        transaction_check_max=arguments.transaction_check_max,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake broker`."""
    return run_job(build_parser(), job, argv)
