"""The deletion rules that guard applies to a store, and the settings from which they are derived."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from commitlake.connectors.reading.settings_files import BROKER_PLACEHOLDER
from commitlake.connectors.reading.stores import Store
from commitlake.jobs.arguments.broker_conf import read_broker_conf
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.guard.arguments import RuleArguments
from commitlake.pipelines.retention.deletion_rules import Rules
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.boltmq.deletion_settings import BoltmqConf, is_boltmq_conf, parse_boltmq_conf
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf, BrokerConfError, parse_broker_conf
from commitlake.schemas.times import from_seconds

_ABORT = "abort"
_BOLTMQ_IS_AS_ROCKETMQ = 4


def make_rule_reader(arguments: RuleArguments, now: datetime.datetime) -> Callable[[Store], Rules]:
    """Return a function that takes a store and returns its deletion rules.

    Args:
        now: Time at which the stores are read.

    Returns:
        A function that raises JobError if the settings cannot be read, are invalid, or belong to another kind of
        broker.
    """
    common = Rules(
        BrokerConf(),
        arguments.broker_time_zone,
        arguments.broker_version,
        arguments.clean_forcibly_ratio,
        arguments.warning_level_ratio,
    )
    known: dict[str, str] = {}

    def read_store_rules(store: Store) -> Rules:
        path = (arguments.broker_conf or "").replace(BROKER_PLACEHOLDER, store.broker)
        if path not in known:
            known[path] = read_broker_conf(path, store.broker)
        return _apply_settings_file(store, common, path, known[path], now)

    return read_store_rules


def _apply_settings_file(
    store: Store, common_rules: Rules, path: str, settings_text: str, now: datetime.datetime
) -> Rules:
    if _is_boltmq(store, settings_text):
        try:
            return _apply_boltmq_settings(common_rules, store, parse_boltmq_conf(settings_text), path, now)
        except BrokerConfError as error:
            raise JobError(f"{path}: {error}", f"{store.broker} is a store of BoltMQ: name its broker.toml") from None
    if is_boltmq_conf(settings_text):
        raise JobError(
            f"--broker-conf: {path} has the settings of a BoltMQ broker, but {store.root} is not the store of one",
            f"name the settings of this store's broker; {BROKER_PLACEHOLDER} in the path stands for its name",
        )
    try:
        conf = parse_broker_conf(settings_text)
    except BrokerConfError as error:
        hint = "the broker ignores a value that it cannot read, and uses its default: correct the file"
        raise JobError(f"{path}: {error}", hint) from None
    return replace(common_rules, conf=conf, source_note=store.format.brokers.retention_note)


def _is_boltmq(store: Store, settings_text: str) -> bool:
    """Return True for a store of BoltMQ; the settings decide for a store without records."""
    if not store.format.dialects.exist:
        return False
    dialects = store.format.dialects.detect_dialects(store.segments)
    return dialects == {BOLTMQ} if dialects else is_boltmq_conf(settings_text)


def _apply_boltmq_settings(
    common_rules: Rules, store: Store, conf: BoltmqConf, path: str, now: datetime.datetime
) -> Rules:
    started = None if conf.is_slave else _broker_start_time(store)
    hours = " and ".join(f"{hour:02}" for hour in conf.deletion.delete_hours)
    since = f"its start at {started:%Y-%m-%dT%H:%M:%SZ}" if started else "its next start"
    forgotten = (
        "as a slave it does not know the age of its segments"
        if conf.is_slave
        else f"it does not know ages before {since}"
    )
    return replace(
        common_rules,
        conf=conf.deletion,
        version=_BOLTMQ_IS_AS_ROCKETMQ,
        keeps_order=False,
        known_since=started or now,
        source_note=(
            f"BoltMQ's rules, settings from {path or 'its defaults'}: "
            f"{format_count(conf.deletion.file_reserved_hours, 'hour')}, at {hours}; {forgotten}"
        ),
    )


def _broker_start_time(store: Store) -> datetime.datetime | None:
    """Return the broker's start time from the store's file `abort`; None if the broker is not running."""
    if store.is_remote:
        return None
    try:
        return from_seconds((Path(store.root).parent / _ABORT).lstat().st_mtime)
    except OSError:
        return None
