"""The options of `broker`."""

from __future__ import annotations

import argparse
import datetime
from dataclasses import dataclass
from typing import ClassVar

from commitlake.jobs.arguments.broker_conf import BROKER_CONF_HELP
from commitlake.jobs.arguments.durations import make_duration_parser, parse_duration
from commitlake.jobs.arguments.stores import make_integer_parser, parse_file_size, parse_folder_text, positive
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import (
    Section,
    StoreOnceAction,
    conflicts_with,
    deprecated_option,
    flag,
    only_with,
    option,
    repeated,
    requires_one_of,
    rules_for_values,
)
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_decimal, parse_int

NO_NAME_SERVER = "none"
NAME_SERVER = "127.0.0.1:9876"
ROCKETMQ, JMQ, BOLTMQ = "rocketmq", "jmq", "boltmq"
MIB = 1 << 20

_NETWORK = Section("network")
_BROKER = Section("broker")
_COPIES = Section("master and slave")
_STORE = Section("store")
_MASTER = "--register IP:PORT names the master's name server, which knows the master's address"
_NO_COPIES = conflicts_with(
    "layout jmq", "layout boltmq", hint="such a log cannot be copied to slaves: leave {this} out"
)


def _parse_hours(text: str) -> tuple[int, ...]:
    hours = [parse_int(part, 0, 23) for part in text.split(",")]
    known = tuple(hour for hour in hours if hour is not None)
    if len(known) < len(hours):
        raise argparse.ArgumentTypeError(
            f"{text[:100]!r}: expected hours from 0 to 23 with commas between them, as in 4,16"
        )
    return known


def _parse_percents(text: str) -> tuple[int, int, int]:
    parts = [parse_int(part, 1, 100) for part in text.split(",")]
    known = [part for part in parts if part is not None]
    if len(parts) != 3 or len(known) != 3:
        raise argparse.ArgumentTypeError(
            f"{text[:100]!r}: expected three numbers from 1 to 100 with commas between them"
        )
    first, second, third = known
    if not first <= second <= third:
        raise argparse.ArgumentTypeError(f"{text!r}: expected three numbers in ascending order")
    return first, second, third


def _parse_mebibytes(text: str) -> int:
    size = parse_decimal(text)
    if size is None or not 1 <= size * MIB <= INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected a number of MiB above 0")
    return round(size * MIB)


@dataclass(frozen=True, kw_only=True)
class BrokerArguments(Command):
    """Command line options of `broker`; defaults of those that a broker.conf may set are in `jobs.broker.settings`."""

    store: str = option(
        "the store's folder; created if it does not exist", parse=parse_folder_text, required=True, metavar="PATH"
    )
    listen: str = option(
        "the address for clients (default: 127.0.0.1:10911)",
        default="127.0.0.1:10911",
        metavar="IP:PORT",
        section=_NETWORK,
    )
    namesrv: str | None = option(
        f"the name server's port, or {NO_NAME_SERVER!r} (default: {NAME_SERVER}; none for a slave)",
        metavar="IP:PORT",
        section=_NETWORK,
    )
    register: tuple[str, ...] = repeated(
        "a name server to register the broker with", metavar="IP:PORT", section=_NETWORK
    )
    advertise: str | None = option(
        "the address that clients are given (default: that of --listen)", metavar="IP", section=_NETWORK
    )
    max_connections: int = option(
        "largest number of connections on one port, if the system has enough file descriptors (default: 20000)",
        parse=positive,
        default=20_000,
        metavar="N",
        section=_NETWORK,
    )
    max_connections_per_address: int = option(
        "largest number of connections from one address, including this machine's (default: 5000)",
        parse=positive,
        default=5_000,
        metavar="N",
        section=_NETWORK,
    )
    accounts: str | None = option(
        "TOML file with the accounts that may use the broker and change the name server's routes; without it, "
        "COMMITLAKE_BROKER_ACCESS_KEY and …_SECRET_KEY; without these, everybody may",
        metavar="FILE",
        section=_NETWORK,
    )
    tls_config: str | None = option(
        "TLS settings in the format of RocketMQ's tls.properties: TLS on the ports of --listen and --namesrv, and to "
        "other servers if it has tls.enable=true; the variables COMMITLAKE_TLS_SERVER_KEY_PASSWORD and "
        "…_CLIENT_KEY_PASSWORD take precedence over passwords in the file",
        metavar="FILE",
        section=_NETWORK,
    )
    tls_mode: str | None = option(
        "permissive also accepts plain text (default: tls.server.mode in the file, otherwise permissive)",
        choices=("disabled", "permissive", "enforcing"),
        rules=rules_for_values(
            "permissive", "enforcing", rules=requires_one_of("tls_config", hint="{other} FILE names the certificates")
        ),
        section=_NETWORK,
    )
    broker: str | None = option(
        "the broker's name (default: broker-a)", "--broker", "--name", action=StoreOnceAction, section=_BROKER
    )
    cluster: str = option(
        "the name of its cluster (default: DefaultCluster)", default="DefaultCluster", section=_BROKER
    )
    no_auto_create: bool = flag("only administrators can create topics and groups", section=_BROKER)
    max_topics: int = option(
        "largest number of topics, including those of retries and dead letters (default: 20000)",
        parse=positive,
        default=20_000,
        metavar="N",
        section=_BROKER,
    )
    max_groups: int = option(
        "largest number of consumer groups (default: 10000)",
        parse=positive,
        default=10_000,
        metavar="N",
        section=_BROKER,
    )
    transaction_timeout: datetime.timedelta = option(
        "time after which a producer is first asked about a transaction (default: 6s)",
        parse=parse_duration,
        default=parse_duration("6s"),
        metavar="TIME",
        section=_BROKER,
    )
    transaction_check_interval: datetime.timedelta = option(
        "time between two questions about a transaction (default: 30s)",
        parse=make_duration_parser("1s"),
        default=parse_duration("30s"),
        metavar="TIME",
        section=_BROKER,
    )
    transaction_check_max: int = option(
        "largest number of questions about a transaction (default: 15)",
        parse=make_integer_parser(0),
        default=15,
        metavar="N",
        section=_BROKER,
    )
    role: str = option(
        "a SYNC_MASTER answers a send when a slave has the message; a SLAVE keeps a copy of its master's log",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        default="ASYNC_MASTER",
        rules=(
            *rules_for_values(
                "SYNC_MASTER", rules=requires_one_of("ha_listen", hint="its slaves get the log from {other} IP:PORT")
            ),
            *rules_for_values("SLAVE", rules=requires_one_of("register", "ha_master", hint=_MASTER)),
            *_NO_COPIES,
        ),
        section=_COPIES,
    )
    broker_id: int | None = option(
        "0 for a master, above 0 for a slave (default: 0, or 1 for a slave)", parse=int, metavar="N", section=_COPIES
    )
    ha_listen: str | None = option(
        "the address where slaves get a master's log, in plain text; clients are then also served two ports below "
        "--listen, where RocketMQ's slaves connect (default: none)",
        metavar="IP:PORT",
        rules=(
            *conflicts_with(
                "role SLAVE", hint="a slave cannot have slaves: leave {this} out, or choose another --role"
            ),
            *_NO_COPIES,
        ),
        section=_COPIES,
    )
    ha_allow: str | None = option(
        "addresses or networks of the slaves; without it, anybody who can connect to --ha-listen can read the log, and "
        "can make a SYNC_MASTER believe that a slave has it",
        metavar="IP[/N],…",
        rules=only_with("ha_listen"),
        section=_COPIES,
    )
    ha_master: str | None = option(
        "where a slave gets the log (default: the address that its name server has for the master)",
        metavar="IP:PORT",
        rules=requires_one_of("role SLAVE", hint="only a slave has a master: add {other}"),
        section=_COPIES,
    )
    slave_read: bool = flag(
        "send consumers that are far behind to a slave, as their group's settings allow", section=_COPIES
    )
    slave_timeout: datetime.timedelta = option(
        "how long a SYNC_MASTER's answer waits for a slave (default: 3s)",
        parse=parse_duration,
        default=parse_duration("3s"),
        metavar="TIME",
        section=_COPIES,
    )
    layout: str = option(
        "format of the store's files (default: rocketmq); jmq has no delays, transactions, keys or slaves; boltmq no "
        "transactions, timers, keys or slaves",
        choices=(ROCKETMQ, JMQ, BOLTMQ),
        default=ROCKETMQ,
        section=_STORE,
    )
    flush: str | None = option(
        "answer a send at once, or after the message is on disk (default: async)",
        choices=("async", "sync"),
        section=_STORE,
    )
    segment_size: int | None = option(
        "size of a file of the log, as 1073741824 or 1GiB: RocketMQ's mappedFileSizeCommitLog (default: 1GiB; 128MiB "
        "for a journal)",
        parse=parse_file_size,
        metavar="SIZE",
        section=_STORE,
    )
    queue_file_size: int | None = option(
        "size of a queue's file: RocketMQ's mappedFileSizeConsumeQueue (default: 6000000; JMQ's: 6600000)",
        parse=parse_file_size,
        metavar="SIZE",
        section=_STORE,
    )
    batch_queue_file_size: int | None = option(
        "size of a queue's file of a topic with queue.type=BatchCQ: RocketMQ's mapperFileSizeBatchConsumeQueue "
        "(default: 13800000)",
        parse=parse_file_size,
        metavar="SIZE",
        section=_STORE,
    )
    # Older options of the same sizes.
    segment_mib: ClassVar = deprecated_option("segment_size", _parse_mebibytes, _STORE)
    queue_entries: int | None = option(argparse.SUPPRESS, parse=positive, section=_STORE)
    batch_queue_entries: int | None = option(argparse.SUPPRESS, parse=positive, section=_STORE)
    index_slots: int | None = option(
        "hash slots of an index file (default: 5000000)", parse=int, metavar="N", section=_STORE
    )
    index_entries: int | None = option(
        "entries of an index file (default: 20000000)", parse=int, metavar="N", section=_STORE
    )
    max_message_kib: int | None = option(
        "largest size of a body (default: 4096)", parse=positive, metavar="KIB", section=_STORE
    )
    reserved_hours: int | None = option(
        "age at which segments are deleted (default: 72)", parse=int, metavar="HOURS", section=_STORE
    )
    delete_hours: tuple[int, ...] | None = option(
        "hours of the day in which segments are deleted (default: 4)", parse=_parse_hours, metavar="H,H", section=_STORE
    )
    disk_percent: tuple[int, int, int] | None = option(
        "disk usage in percent at which segments are deleted at any hour, at which they are deleted at any age, and at "
        "which new messages are refused (default: 75,85,90)",
        parse=_parse_percents,
        metavar="P,P,P",
        section=_STORE,
    )
    delay_levels: str | None = option(
        "delays of the levels from 1 on, as '1s 5s 10s' (default: RocketMQ's 18 levels)",
        metavar="LEVELS",
        rules=conflicts_with("layout jmq", hint="JMQ has no delayed messages: leave {this} out"),
        section=_STORE,
    )
    broker_conf: str | None = option(BROKER_CONF_HELP, metavar="FILE", section=_STORE)

    @property
    def is_slave(self) -> bool:
        """True for a broker that copies the log of another one."""
        return self.role == "SLAVE"
