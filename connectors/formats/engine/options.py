"""Options of the source, checked at once: an unknown or invalid option is an error, never a default.

| option | default | meaning |
| --- | --- | --- |
| path | (needed) | a store (the folder that holds `commitlog/`), a `commitlog` folder, a glob, or several with commas |
| | | between; `{broker}` stands for one path component, which names the broker |
| broker | from the path | the store's name; of several stores, JSON of the folder of each log and its name |
| layout | the format's | commitlog, journal or any: which stores of the path are meant |
| mode | FAILFAST | FAILFAST, PERMISSIVE (bad ranges become rows with `_corrupt_record`) or DROPMALFORMED (counted) |
| columns | all but body | comma-separated; other columns are not decoded. `.schema(...)` does the same |
| body | none | none, stored or decompressed: whether there is a column `body`, and its content; decompressed if
| | | only `columns` or `.schema(...)` names it |
| maxBodyBytes | 64 MiB | a decompressed body's limit |
| maxPartitionBytes | 64 to 256 MiB | log bytes in a partition; not given, two for each of this machine's cores |
| maxBatchBytes | 4 MiB | log bytes that a worker holds in memory at a time |
| maxRecordBytes | 64 MiB | a larger size field is damage |
| topics | all | comma-separated |
| queueIds | all | comma-separated |
| keys | all | comma-separated business keys or unique keys: records that have one of them; needs `topics` |
| startingTimestamp, endingTimestamp | all | store time, ms since 1970 or ISO 8601 (UTC unless it says otherwise); |
| | | first inclusive, last exclusive |
| clockTolerance | 600000 | ms by which a broker's clock may have been wrong. If it was wrong by more for less than a |
| | | sixteenth of a segment's bytes, and correct before and after, a filter by time can miss messages |
| | | stored then. 31536000000 skips no such segment; see `connectors.formats.engine.time_bounds` |
| startingOffset, endingOffset | all | physical offsets, for every store that is read |
| useIndexes | true | whether topics, queues and keys may be looked up in the ConsumeQueues and IndexFiles beside the |
| | | log; see `connectors.formats.engine.queue_index` and `rocketmq.key_index` |
| snapshot | taken when planned | JSON of `connectors.formats.engine.plan.Snapshot`: exactly what to read |

A stream (`readStream`) takes the same, except for endingTimestamp, endingOffset and snapshot, and with these:

| option | default | meaning |
| --- | --- | --- |
| startingTimestamp | (none) | begin at the first record stored at or after this time, or if none, at the log's end |
| startingOffset | earliest | earliest, latest, or JSON of broker and offset, `{"broker-a": 1073741824}`; a broker |
| | | that is not named, or that appears later, begins at its earliest record |
| maxBytesPerTrigger | no limit | log bytes of a micro-batch, in fair shares, rounded up to whole records |
| failOnDataLoss | true | fail if segments or a store are gone before they were read; false: warn, and continue |
| | | after them (in mode PERMISSIVE the gap is a row with `_corrupt_record`) |
| content | rows | rows; or ranges: the range of each broker in a micro-batch, for a caller that reads it itself |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.engine.option_values import OptionValues, Start
from commitlake.connectors.formats.engine.part_sizes import part_bytes
from commitlake.connectors.formats.registry import DEFAULT_FORMAT, FormatChoice
from commitlake.connectors.option_names import known_options
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES

_KNOWN = (
    "path", "broker", "layout", "mode", "columns", "body", "maxBodyBytes", "maxPartitionBytes", "maxBatchBytes",
    "maxRecordBytes", "topics", "queueIds", "keys", "startingTimestamp", "endingTimestamp", "clockTolerance",
    "startingOffset", "endingOffset", "useIndexes", "snapshot", "maxBytesPerTrigger", "failOnDataLoss", "content",
)  # fmt: skip

_DEFAULT_CHOICE = FormatChoice(DEFAULT_FORMAT)
_FOR_STREAMS = ("maxBytesPerTrigger", "failOnDataLoss", "content")
_FOR_BATCHES = ("endingTimestamp", "endingOffset", "snapshot")

DEFAULT_CLOCK_TOLERANCE_MS = 600_000


class Mode(StrEnum):
    """Mode for bad ranges, as in Spark's own readers."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class BodyForm(StrEnum):
    """Form of the column `body`."""

    NONE = "none"
    STORED = "stored"
    DECOMPRESSED = "decompressed"


class Content(StrEnum):
    """The content of a stream's rows."""

    ROWS = "rows"
    RANGES = "ranges"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of one read; see the module's tables.

    Attributes:
        max_partition_bytes: None to adapt to the size of the read, see `partition_bytes`.
        given: the names of the options that were given.
        start: the value of `startingOffset` if it is not a number.
    """

    path: str
    broker: str | None = None
    layout: FormatChoice = _DEFAULT_CHOICE
    mode: Mode = Mode.FAILFAST
    columns: tuple[str, ...] | None = None
    body: BodyForm = BodyForm.NONE
    max_body_bytes: int = 64 << 20
    max_partition_bytes: int | None = None
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
    start: Start | Mapping[str, int] | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    content: Content = Content.ROWS
    given: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, given: Mapping[str, str], layout: FormatChoice = _DEFAULT_CHOICE) -> ReadOptions:
        """Parse options from Spark: strings, with names in any case.

        Args:
            given: the options.
            layout: the layout of the stores if the options do not set it.

        Raises:
            OptionError: for an unknown name or an invalid value.
        """
        values = known_options(given, _KNOWN, OptionError)
        if not values.get("path"):
            raise OptionError("the option 'path' is missing: load(PATH), a broker's store folder or a glob")
        if "keys" in values and "topics" not in values:
            raise OptionError(
                "option keys: expected the option topics with it, because a broker's index has keys by topic"
            )
        read = OptionValues(values)
        start = read.start("startingOffset")
        return cls(
            path=values["path"],
            broker=values.get("broker"),
            layout=read.format_choice("layout", layout),
            mode=read.choice("mode", Mode, Mode.FAILFAST, upper=True),
            columns=read.names("columns"),
            body=read.choice("body", BodyForm, BodyForm.NONE),
            max_body_bytes=read.size("maxBodyBytes", 64 << 20),
            max_partition_bytes=read.size("maxPartitionBytes", 0) or None,
            max_batch_bytes=read.size("maxBatchBytes", 4 << 20),
            max_record_bytes=read.size("maxRecordBytes", DEFAULT_MAX_RECORD_BYTES),
            topics=_frozen(read.names("topics")),
            queue_ids=read.numbers("queueIds"),
            keys=_frozen(read.names("keys")),
            starting_timestamp=read.time("startingTimestamp"),
            ending_timestamp=read.time("endingTimestamp"),
            clock_tolerance_ms=read.least("clockTolerance", DEFAULT_CLOCK_TOLERANCE_MS, 0, "ms"),
            starting_offset=start if isinstance(start, int) else None,
            ending_offset=read.number("endingOffset"),
            use_indexes=read.flag("useIndexes", default=True),
            snapshot=values.get("snapshot"),
            start=None if isinstance(start, int) else start,
            max_bytes_per_trigger=read.least("maxBytesPerTrigger", 0, 1, "byte") or None,
            fail_on_data_loss=read.flag("failOnDataLoss", default=True),
            content=read.choice("content", Content, Content.ROWS),
            given=frozenset(values),
        )

    def partition_bytes(self, log_bytes: int) -> int:
        """Return the number of log bytes in a partition.

        Args:
            log_bytes: size of the log that is read.
        """
        return self.max_partition_bytes or part_bytes(log_bytes, os.cpu_count() or 1)

    def for_batch(self) -> ReadOptions:
        """Check that no option is only for streams, and return the options.

        Raises:
            OptionError: for the first such option.
        """
        for name in _FOR_STREAMS:
            if name in self.given:
                raise OptionError(f"option {name} is for streams: expected spark.readStream, found spark.read")
        if self.start is not None:
            raise OptionError(
                "option startingOffset: expected a physical offset for spark.read; earliest, latest and JSON by broker "
                "are for streams"
            )
        return self

    def for_stream(self) -> ReadOptions:
        """Check that no option is only for batches, and return the options.

        Raises:
            OptionError: for the first such option, or for two options with different starts.
        """
        for name in _FOR_BATCHES:
            if name in self.given:
                raise OptionError(f"option {name} is for spark.read: a stream has no end of its own")
        if {"startingTimestamp", "startingOffset"} <= self.given:
            raise OptionError("options startingTimestamp and startingOffset: expected one of them, found both")
        return self


def _frozen(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
