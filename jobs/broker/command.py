"""A message broker for RocketMQ's clients, with a name server: one process, one folder.

It writes the same files as RocketMQ, so its store can be archived while it runs, and RocketMQ can take it over. With
`--layout jmq` it writes JMQ's files, with `--layout boltmq` BoltMQ's. By default it listens on the loopback address.
SIGTERM and Ctrl-C stop it cleanly; after a crash, the next start recovers the store. Exit codes: 0 if it was stopped by
a signal; 2 for a wrong option, a port that is not free, or a store that cannot be opened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.broker.arguments import BrokerArguments
from commitlake.jobs.cli.command import JobError

if TYPE_CHECKING:
    from commitlake.broker_lite.replication.peer_client import PeerClientOptions
    from commitlake.schemas.remoting.tls import ServerTls
    from commitlake.schemas.remoting.tls_properties import TlsProperties


import faulthandler
import ipaddress
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.jobs.broker.arguments import NAME_SERVER, NO_NAME_SERVER
from commitlake.jobs.broker.settings import Settings, resolve_settings
from commitlake.jobs.broker.store import open_store
from commitlake.jobs.cli.terminal import print_line
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.integer_parsing import parse_int

if TYPE_CHECKING:
    from commitlake.broker_lite.broker.accounts import Accounts
    from commitlake.broker_lite.broker.options import BrokerOptions
    from commitlake.broker_lite.replication.options import ReplicationOptions
    from commitlake.broker_lite.server import Address, ServerOptions
    from commitlake.schemas.remoting.tls_properties import TlsProperties


def read_tls_settings(arguments: BrokerArguments) -> TlsProperties | None:
    """Return the TLS settings from the file of `--tls-config`, with `--tls-mode` applied; None without a file."""
    from commitlake.schemas.remoting.tls import read_tls_properties
    from commitlake.schemas.remoting.tls_properties import TlsConfigError, TlsMode

    if arguments.tls_config is None:
        return None
    try:
        found = read_tls_properties(Path(arguments.tls_config))
    except TlsConfigError as error:
        raise JobError(f"--tls-config {error}") from error
    return found if arguments.tls_mode is None else replace(found, server_mode=TlsMode(arguments.tls_mode))


def make_port_tls(arguments: BrokerArguments, settings: TlsProperties | None) -> ServerTls | None:
    """Return the TLS settings of the ports, or None for plain text."""
    from commitlake.schemas.remoting.tls import server_tls
    from commitlake.schemas.remoting.tls_properties import TlsConfigError

    try:
        return None if settings is None else server_tls(settings)
    except TlsConfigError as error:
        raise JobError(f"--tls-config {arguments.tls_config}: {error}") from error


def peer_client_options(arguments: BrokerArguments, settings: TlsProperties | None) -> PeerClientOptions:
    """Return the credentials and TLS context for requests to name servers and the master."""
    from commitlake.broker_lite.replication.peer_client import PeerClientOptions
    from commitlake.connectors.rocketmq.errors import ClientOptionError
    from commitlake.connectors.rocketmq.options import environment_credentials
    from commitlake.schemas.remoting.tls import client_context
    from commitlake.schemas.remoting.tls_properties import TlsConfigError

    if not arguments.register and not arguments.is_slave:
        return PeerClientOptions()
    try:
        context = client_context(settings) if settings is not None and settings.is_client_enabled else None
        return PeerClientOptions(environment_credentials(), context)
    except ClientOptionError as error:
        raise JobError(str(error)) from error
    except TlsConfigError as error:
        raise JobError(f"--tls-config {arguments.tls_config}: {error}") from error


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


@dataclass(frozen=True, kw_only=True)
class Broker(BrokerArguments):
    """The command `broker`, which runs a small message broker for RocketMQ's clients."""

    NAME = "broker"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Open the broker's store, and serve clients until a signal stops the process."""
        return _serve_clients(self)


def _serve_clients(arguments: BrokerArguments) -> ExitCode:
    """Open the broker's store, and serve clients until a signal stops the process."""
    from commitlake.broker_lite.errors import StoreError
    from commitlake.broker_lite.server import ListenError, ServerOptions, run_server
    from commitlake.broker_lite.server.broker_server import FAST_PORT_DISTANCE
    from commitlake.broker_lite.server.limits import PortLimits
    from commitlake.connectors.lake.owned_folders import refuse_owned_folder

    refuse_owned_folder(str(arguments.store), "--store")
    settings = resolve_settings(arguments)
    listen = _parse_address("--listen", arguments.listen)
    if arguments.ha_listen and listen.port <= FAST_PORT_DISTANCE:
        raise JobError(
            f"--listen {listen}: expected a port above {FAST_PORT_DISTANCE}, because with --ha-listen clients are "
            f"also served on the port {FAST_PORT_DISTANCE} below it",
            "choose a larger port",
        )
    namesrv = arguments.namesrv or (NO_NAME_SERVER if arguments.is_slave else NAME_SERVER)
    name_server = None if namesrv == NO_NAME_SERVER else _parse_address("--namesrv", namesrv)
    tls = read_tls_settings(arguments)
    replication = _replication_options(arguments, tls)
    try:
        options = ServerOptions(
            listen=listen,
            name_server=name_server,
            register_at=tuple(_parse_address("--register", text) for text in arguments.register),
            broker=_broker_options(arguments, settings, listen),
            accounts=_read_accounts(arguments.accounts),
            limits=PortLimits(
                connections=arguments.max_connections,
                connections_of_one=min(arguments.max_connections_per_address, arguments.max_connections),
            ),
            replication=replication,
            tls=make_port_tls(arguments, tls),
        )
        store = open_store(arguments, settings, options.broker)
    except StoreError as error:
        raise JobError(str(error)) from error

    _warn_of_open_ports(options)

    def print_ready_line() -> None:
        if not arguments.quiet:
            beside = f", name server on {name_server}" if name_server else ""
            what = "slave of broker" if arguments.is_slave else "broker"
            print_line(f"{what} {settings.broker} on {listen}{beside}, store {arguments.store}")

    if not faulthandler.is_enabled():
        # If the disk is full, writing to a mapped page raises SIGBUS, which by itself prints nothing.
        faulthandler.enable()
    try:
        run_server(store, options, print_ready_line)
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
    """Warn of ports that other machines can reach although neither accounts nor `--ha-allow` restrict access."""
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


def _replication_options(arguments: BrokerArguments, tls: TlsProperties | None) -> ReplicationOptions:
    from commitlake.broker_lite.replication.options import ReplicationOptions, Role

    role = Role(arguments.role)
    is_slave = role is Role.SLAVE
    if (_default_broker_id(arguments) > 0) is not is_slave:
        raise JobError(
            f"--broker-id: expected {'a number above 0' if is_slave else '0'} for a broker with --role {role}, found "
            f"{arguments.broker_id}"
        )
    return ReplicationOptions(
        role=role,
        listen=_parse_address("--ha-listen", arguments.ha_listen) if arguments.ha_listen else None,
        allowed=_parse_networks("--ha-allow", arguments.ha_allow),
        master=_parse_address("--ha-master", arguments.ha_master) if arguments.ha_master else None,
        slave_timeout_ms=round(arguments.slave_timeout.total_seconds() * 1000),
        asking=peer_client_options(arguments, tls),
    )


def _default_broker_id(arguments: BrokerArguments) -> int:
    default = 1 if arguments.is_slave else 0
    return default if arguments.broker_id is None else arguments.broker_id


def _ha_address(arguments: BrokerArguments, ip: str) -> str:
    """Return the address where slaves get the log, as registered with name servers; empty if there is none."""
    from commitlake.schemas.layouts.rocketmq.hosts import Host

    if not arguments.ha_listen:
        return ""
    listen = _parse_address("--ha-listen", arguments.ha_listen)
    return str(Host.of(ip if ipaddress.ip_address(listen.host).is_unspecified else listen.host, listen.port))


def _read_accounts(file: str | None) -> Accounts | None:
    from commitlake.broker_lite.broker.accounts import Accounts, AccountsError

    try:
        return Accounts.from_file(Path(file)) if file else Accounts.from_environment(os.environ)
    except AccountsError as error:
        raise JobError(str(error)) from error


def _parse_address(option: str, text: str) -> Address:
    from commitlake.broker_lite.server import Address

    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = parse_int(port, 1, 0xFFFF)
    if number is None:
        raise JobError(f"{option}: expected IP:PORT, found {text[:100]!r}")
    return Address(_parse_ip(option, host), number)


def _parse_networks(option: str, text: str | None) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise JobError(
            f"{option}: expected IP addresses or networks with commas between them, found an invalid one: {error}"
        ) from None


def _parse_ip(option: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise JobError(f"{option}: expected an IP address, found {text!r}") from None


def _broker_options(arguments: BrokerArguments, settings: Settings, listen_address: Address) -> BrokerOptions:
    from commitlake.broker_lite.broker.options import BrokerOptions
    from commitlake.broker_lite.stores.engine.topic_names import is_valid_topic
    from commitlake.schemas.layouts.rocketmq.hosts import Host

    for option, name in (("--broker", settings.broker), ("--cluster", arguments.cluster)):
        if not is_valid_topic(name):
            raise JobError(f"{option}: expected a name of 1 to 127 letters, digits or %|_-, found {name[:100]!r}")
    ip = listen_address.host if arguments.advertise is None else _parse_ip("--advertise", arguments.advertise)
    if ipaddress.ip_address(ip).is_unspecified:
        raise JobError(
            f"--listen {listen_address} stands for all addresses of this machine: expected one address that clients "
            "can connect to",
            "give it with --advertise IP",
        )
    return BrokerOptions(
        cluster=arguments.cluster,
        name=settings.broker,
        broker_id=_default_broker_id(arguments),
        role=arguments.role,
        slave_read=arguments.slave_read,
        address=Host.of(ip, listen_address.port),
        ha_address=_ha_address(arguments, ip),
        auto_create_topics=not arguments.no_auto_create,
        auto_create_groups=not arguments.no_auto_create,
        max_topics=arguments.max_topics,
        max_groups=arguments.max_groups,
        sync_flush=settings.flush == "sync",
        transaction_timeout_ms=round(arguments.transaction_timeout.total_seconds() * 1000),
        transaction_check_interval_ms=round(arguments.transaction_check_interval.total_seconds() * 1000),
        transaction_check_max=arguments.transaction_check_max,
    )


build_parser, main = Broker.parser, Broker.main
