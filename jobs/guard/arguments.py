"""Options of `guard` for the rules by which a broker deletes segments."""

from __future__ import annotations

import argparse
import datetime
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.stores import parse_positive_decimal
from commitlake.jobs.cli.options import Options, option


def _parse_time_zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time zone: expected one like UTC or Asia/Shanghai"
        ) from None


def _parse_ratio(text: str) -> float:
    return parse_positive_decimal(text, "ratio: expected more than 0, at most 1, as in 0.85", maximum=1)


@dataclass(frozen=True, kw_only=True)
class RuleArguments(Options):
    """Options for the rules by which a broker deletes segments, and for how early to warn of a deletion."""

    broker_conf: str | None = option(
        "the broker's settings, RocketMQ's broker.conf or BoltMQ's broker.toml ({broker} stands "
        "for the store's name); default: the broker's defaults",
        metavar="FILE",
    )
    within: datetime.timedelta = option(
        "warn of unarchived segments that may be deleted within this time: 90m, 12h, 2d (default: 12h)",
        parse=parse_duration,
        default=parse_duration("12h"),
        metavar="TIME",
    )
    broker_version: int = option(
        "RocketMQ's major version (default: 5)", parse=int, default=5, choices=(4, 5), metavar="4|5"
    )
    broker_time_zone: datetime.tzinfo | None = option(
        "time zone of deleteWhen, as Asia/Shanghai (default: this machine's)", parse=_parse_time_zone, metavar="ZONE"
    )
    clean_forcibly_ratio: float | None = option(
        "the broker's -Drocketmq.broker.diskSpaceCleanForciblyRatio", parse=_parse_ratio, metavar="RATIO"
    )
    warning_level_ratio: float | None = option(
        "the broker's -Drocketmq.broker.diskSpaceWarningLevelRatio", parse=_parse_ratio, metavar="RATIO"
    )
