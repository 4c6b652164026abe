"""The source's options, checked at once: an unknown or wrong one is an error, never a default.

| option | default | meaning |
| --- | --- | --- |
| path | (needed) | a store (the folder that holds `commitlog/`), a `commitlog` folder, a glob, or several with commas |
| | | between; `{broker}` stands for one path component, which names the broker |
| broker | from the path | the store's name; for a path that gives one store |
| mode | FAILFAST | FAILFAST, PERMISSIVE (bad ranges become rows with `_corrupt_record`) or DROPMALFORMED (counted) |
| columns | all but body | comma-separated; what is not named is not decoded. `.schema(...)` does the same |
| body | none | none, stored or decompressed: whether there is a column `body`, and what it holds |
| maxBodyBytes | 64 MiB | a decompressed body's limit |
| maxPartitionBytes | 64 to 256 MiB | log bytes in a partition; not given, two for each of this machine's cores |
| maxBatchBytes | 4 MiB | log bytes that a worker holds at a time |
| maxRecordBytes | 64 MiB | a larger size field is damage |
| topics | all | comma-separated |
| queueIds | all | comma-separated |
| keys | all | comma-separated business keys or unique keys: records that have one of them; needs `topics` |
| startingTimestamp, endingTimestamp | all | store time, ms since 1970; first inclusive, last exclusive |
| clockTolerance | 600000 | ms by which a broker's clock may have stepped back; see `connectors.commitlog.time_bounds` |
| startingOffset, endingOffset | all | physical offsets, for every store that is read |
| useIndexes | true | whether topics, queues and keys may be looked up in the ConsumeQueues and IndexFiles beside the |
| | | log; see `connectors.commitlog.queue_index` and `key_index` |
| snapshot | taken when planned | JSON of `connectors.commitlog.plan.Snapshot`: exactly what to read |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from connectors.commitlog.errors import OptionError
from schemas.layouts.scan import DEFAULT_MAX_RECORD_BYTES

BY_SIZE = 0
"""As `max_partition_bytes`: chosen by the size of what is read, see `read_plan.partition_bytes`."""
_KNOWN = (
    "path", "broker", "mode", "columns", "body", "maxBodyBytes", "maxPartitionBytes", "maxBatchBytes", "maxRecordBytes",
    "topics", "queueIds", "keys", "startingTimestamp", "endingTimestamp", "clockTolerance", "startingOffset",
    "endingOffset", "useIndexes", "snapshot",
)  # fmt: skip

DEFAULT_CLOCK_TOLERANCE_MS = 600_000

_E = TypeVar("_E", bound=StrEnum)


class Mode(StrEnum):
    """What to do with a bad range, as in Spark's own readers."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class BodyForm(StrEnum):
    """What the column `body` holds."""

    NONE = "none"
    STORED = "stored"
    DECOMPRESSED = "decompressed"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read; see the module's table."""

    path: str
    broker: str | None = None
    mode: Mode = Mode.FAILFAST
    columns: tuple[str, ...] | None = None
    body: BodyForm = BodyForm.NONE
    max_body_bytes: int = 64 << 20
    max_partition_bytes: int = BY_SIZE
    max_batch_bytes: int = 4 << 20
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    keys: frozenset[str] | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    clock_tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS
    starting_offset: int | None = None
    ending_offset: int | None = None
    use_indexes: bool = True
    snapshot: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Options as Spark hands them over: strings, names in any case.

        Raises:
            OptionError: for a name that is not known, or a value that does not fit.
        """
        names = {name.lower(): name for name in _KNOWN}
        values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                raise OptionError(f"unknown option {name!r}; known are {', '.join(_KNOWN)}")
            values[names[name.lower()]] = value
        if not values.get("path"):
            raise OptionError("the option 'path' is missing: load(PATH), a broker's store folder or a glob")
        if "keys" in values and "topics" not in values:
            raise OptionError(
                "option keys: expected the option topics with it, as a broker's index knows keys by topic"
            )
        read = _Values(values)
        return cls(
            path=values["path"],
            broker=values.get("broker"),
            mode=read.choice("mode", Mode, Mode.FAILFAST, upper=True),
            columns=read.names("columns"),
            body=read.choice("body", BodyForm, BodyForm.NONE),
            max_body_bytes=read.size("maxBodyBytes", 64 << 20),
            max_partition_bytes=read.size("maxPartitionBytes", BY_SIZE),
            max_batch_bytes=read.size("maxBatchBytes", 4 << 20),
            max_record_bytes=read.size("maxRecordBytes", DEFAULT_MAX_RECORD_BYTES),
            topics=_frozen(read.names("topics")),
            queue_ids=read.numbers("queueIds"),
            keys=_frozen(read.names("keys")),
            starting_timestamp=read.number("startingTimestamp"),
            ending_timestamp=read.number("endingTimestamp"),
            clock_tolerance_ms=read.least("clockTolerance", DEFAULT_CLOCK_TOLERANCE_MS, 0, "ms"),
            starting_offset=read.number("startingOffset"),
            ending_offset=read.number("endingOffset"),
            use_indexes=read.flag("useIndexes", default=True),
            snapshot=values.get("snapshot"),
        )


def _frozen(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


class _Values:
    """Reads typed values out of strings."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def choice(self, name: str, enum: type[_E], default: _E, *, upper: bool = False) -> _E:
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return enum(text.upper() if upper else text.lower())
        except ValueError:
            raise OptionError(f"option {name}: expected {', '.join(enum)}, found {text!r}") from None

    def number(self, name: str) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise OptionError(f"option {name}: expected a whole number, found {text!r}") from None

    def size(self, name: str, default: int) -> int:
        return self.least(name, default, 1, "byte")

    def least(self, name: str, default: int, least: int, unit: str) -> int:
        value = self.number(name)
        if value is None:
            return default
        if value < least:
            raise OptionError(f"option {name}: expected at least {least} {unit}, found {value}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        text = self._values.get(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise OptionError(f"option {name}: expected true or false, found {text!r}")
        return text.lower() == "true"

    def names(self, name: str) -> tuple[str, ...] | None:
        text = self._values.get(name)
        if text is None:
            return None
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if not names:
            raise OptionError(f"option {name}: expected at least one name, found {text!r}")
        return names

    def numbers(self, name: str) -> frozenset[int] | None:
        names = self.names(name)
        try:
            return None if names is None else frozenset(int(text) for text in names)
        except ValueError:
            raise OptionError(f"option {name}: expected whole numbers, found {self._values[name]!r}") from None
