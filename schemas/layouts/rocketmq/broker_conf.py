r"""Settings of a broker in broker.conf, a Java properties file: deletion of segments, and delays of levels.

Source: MixAll.properties2Object and MessageStoreConfig of RocketMQ 4.9.7 and 5.x; the syntax is that of
java.util.Properties.load: ISO 8859-1, `\uXXXX`, `key=value`, `key: value` or `key value`, comments with # or !, a
backslash at the end of a line continues it. White space before a value is removed, but not after it.

A broker ignores a number that it cannot parse, and uses its default. `parse_broker_conf` refuses such a number instead,
because the broker does not do what its operator intended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, INT32_MIN, parse_int

T = TypeVar("T")

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.)|$)", re.DOTALL)
_WORDS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_HOURS_A_DAY = 24
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DELAY_UNIT_MS = 1_000
"""Every delay is a multiple of this, because its smallest unit is a second."""
_MS_OF_UNIT = {"s": DELAY_UNIT_MS, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"([0-9]{1,9})([smhd])")


class BrokerConfError(CommitLakeError, ValueError):
    """Error for a setting that the broker does not accept; the message is for a user."""


@dataclass(frozen=True, slots=True)
class BrokerConf:
    """Settings that control the deletion of segments; the defaults are the broker's.

    Attributes:
        file_reserved_hours: `fileReservedTime`, age at which a segment expires.
        delete_hours: `deleteWhen`, hours of the day (broker's time zone) in which expired segments are deleted.
        disk_max_used_percent: `diskMaxUsedSpaceRatio`; on a fuller disk they are deleted at any time.
        clean_forcibly_percent: `diskSpaceCleanForciblyRatio`; on a fuller disk segments of any age are deleted.
        warning_percent: `diskSpaceWarningLevelRatio`; on a fuller disk the broker also refuses messages.
        cleans_forcibly: `cleanFileForciblyEnable`.
        delete_batch: `deleteFileBatchMax`, maximum number of segments deleted at a time.
        store_path: `storePathRootDir`, None if it is not set.
    """

    file_reserved_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    disk_max_used_percent: int = 75
    clean_forcibly_percent: int = 85
    warning_percent: int = 90
    cleans_forcibly: bool = True
    delete_batch: int = 10
    store_path: str | None = None


def parse_broker_conf(text: str) -> BrokerConf:
    """Parse the settings of a broker.conf; keys that do not control deletion are ignored.

    Args:
        text: content of the file, decoded as ISO 8859-1.

    Raises:
        BrokerConfError: if the broker would not accept a value, or the store is not one log in one folder.
    """
    settings = parse_properties(text)
    _refuse_unsupported_stores(settings)
    default = BrokerConf()
    return BrokerConf(
        file_reserved_hours=_get_setting(settings, "fileReservedTime", _integer_parser(0), default.file_reserved_hours),
        delete_hours=_get_setting(settings, "deleteWhen", _parse_hours, default.delete_hours),
        # The broker raises smaller values to 10, and lowers larger ones to 95.
        disk_max_used_percent=min(
            max(_get_setting(settings, "diskMaxUsedSpaceRatio", _integer_parser(), default.disk_max_used_percent), 10),
            95,
        ),
        clean_forcibly_percent=_get_setting(
            settings, "diskSpaceCleanForciblyRatio", _integer_parser(), default.clean_forcibly_percent
        ),
        warning_percent=_get_setting(
            settings, "diskSpaceWarningLevelRatio", _integer_parser(), default.warning_percent
        ),
        cleans_forcibly=_get_setting(settings, "cleanFileForciblyEnable", _parse_boolean, default.cleans_forcibly),
        delete_batch=_get_setting(settings, "deleteFileBatchMax", _integer_parser(1), default.delete_batch),
        store_path=settings.get("storePathRootDir"),
    )


def parse_properties(text: str) -> dict[str, str]:
    """Parse a Java properties file; if a key is repeated, its last value is used."""
    found = {}
    for line in _join_continued_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None  # every part may be empty
        found[_unescape(match[1])] = _unescape(match[2])
    return found


def _join_continued_lines(text: str) -> Iterator[str]:
    whole = ""
    for line in re.split(r"\r\n|\r|\n", text):
        part = line.lstrip(" \t\f")
        if not whole and (not part or part[0] in "#!"):
            continue
        if (len(part) - len(part.rstrip("\\"))) % 2:
            whole += part[:-1]
            continue
        yield whole + part
        whole = ""
    if whole:
        yield whole


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _WORDS.get(found[2], found[2] or ""), text)


def _refuse_unsupported_stores(settings: Mapping[str, str]) -> None:
    folders = settings.get("storePathCommitLog", "").split(",")
    if len(folders) > 1:
        raise BrokerConfError(
            f"storePathCommitLog: expected one folder, found {len(folders)}: {', '.join(folders)}: a log in several "
            "folders is not supported"
        )
    if _get_setting(settings, "enableDLegerCommitLog", _parse_boolean, False):
        raise BrokerConfError(
            "enableDLegerCommitLog: expected false, found true: DLedger deletes segments by rules that are not known"
        )
    replicas = _get_setting(settings, "replicasPerDiskPartition", _integer_parser(), 1)
    if replicas > 1:
        raise BrokerConfError(
            f"replicasPerDiskPartition: expected 1, found {replicas}: a disk that several brokers share is not "
            "supported"
        )


def _get_setting(settings: Mapping[str, str], key: str, parse: Callable[[str], T], default: T) -> T:
    if key not in settings:
        return default
    try:
        return parse(settings[key])
    except ValueError as error:
        raise BrokerConfError(f"{key}: {error}, found {settings[key][:100]!r}") from None


def _integer_parser(minimum: int = INT32_MIN) -> Callable[[str], int]:
    expected = "expected a number" if minimum < 0 else f"expected a number of at least {minimum}"

    def parse(text: str) -> int:
        number = parse_int(text, minimum, INT32_MAX)
        if number is None:
            raise ValueError(expected)
        return number

    return parse


def _parse_boolean(text: str) -> bool:
    """Parse a boolean like Java's parseBoolean, but raise an error for anything other than true or false."""
    if text.lower() not in {"true", "false"}:
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _parse_hours(text: str) -> tuple[int, ...]:
    """Parse a list of hours; raise an error for parts that are not hours, except empty ones at the end."""
    hours = {parse_int(part, 0, _HOURS_A_DAY - 1) for part in text.rstrip(";").split(";")}
    known = {hour for hour in hours if hour is not None}
    if len(known) < len(hours):
        raise ValueError("expected hours from 00 to 23 separated by semicolons, such as 04 or 04;16")
    return tuple(sorted(known))


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Parse the delays of levels 1, 2, 3, ... (`messageDelayLevel`) into milliseconds.

    A delayed message is stored in the schedule topic, in the queue `level - 1`. The third field of its queue entry is
    its delivery time: store time plus the delay of its level. Source: ScheduleMessageService.parseDelayLevel and
    computeDeliverTimestamp (RocketMQ 4.9.7, 5.5.0).

    Args:
        text: numbers with a unit (s, m, h, d), separated by one space each.

    Raises:
        ValueError: if the text has another form.
    """
    levels = []
    for part in text.split(" "):
        match = _DELAY.fullmatch(part)
        if not match:
            raise ValueError(f"expected delays such as '1s 5m 2h', separated by blanks, found {part[:40]!r}")
        levels.append(int(match[1]) * _MS_OF_UNIT[match[2]])
    return tuple(levels)


def format_delay_levels(levels_ms: Iterable[int]) -> str:
    """Format delays as in a broker.conf, each in the largest unit that fits.

    >>> format_delay_levels((1_000, 90_000, 7_200_000))
    '1s 90s 2h'
    """
    return " ".join(_format_delay(level) for level in levels_ms)


def _format_delay(delay_ms: int) -> str:
    unit = next(unit for unit in reversed(_MS_OF_UNIT) if delay_ms % _MS_OF_UNIT[unit] == 0)
    return f"{delay_ms // _MS_OF_UNIT[unit]}{unit}"


DEFAULT_DELAY_LEVELS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS)
