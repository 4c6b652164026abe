"""Options of the sources `commitlog` and `journal`: what to read of which stores."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.partition_sizes import choose_part_size
from commitlake.connectors.source_options import (
    NEEDED,
    DeclaredOptions,
    OptionUse,
    byte_count,
    choice_parser,
    integer_parser,
    option,
    parse_flag,
    parse_name_set,
    parse_names,
    parse_number_set,
    parse_time_ms,
)
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES

DEFAULT_CLOCK_TOLERANCE_MS = 600_000
MISSING_PATH = "load(PATH), a broker's store folder or a glob"
PARTITION_BYTES = "64 to 256 MiB"


class Mode(StrEnum):
    """Way to handle bad ranges: the modes of Spark's own readers, such as FAILFAST."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class BodyForm(StrEnum):
    """Form in which the column `body` contains message bodies."""

    NONE = "none"
    STORED = "stored"
    DECOMPRESSED = "decompressed"


class RowContent(StrEnum):
    """Content of a stream's rows: the messages, or the ranges of the log that contain them."""

    ROWS = "rows"
    RANGES = "ranges"


class StreamStart(StrEnum):
    """Position at which a stream starts if it is given as a word, such as `latest`."""

    EARLIEST = "earliest"
    LATEST = "latest"


def _parse_start(text: str) -> int | StreamStart | dict[str, int]:
    """Parse the start of a read: an offset, `earliest`, `latest`, or JSON with an offset for each broker."""
    if text.lower() in list(StreamStart):
        return StreamStart(text.lower())
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, int) and _is_offset(value):
        return value
    if isinstance(value, dict) and all(_is_offset(offset) for offset in value.values()):
        return value
    raise ValueError(
        f'expected a physical offset, earliest, latest or JSON such as {{"broker-a": 1073741824}}, found {text!r}'
    )


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class ReadOptions(DeclaredOptions):
    """Options of one read of logs, as a batch or as a stream.

    Attributes:
        formats: formats of the stores that are meant, unless the stores are known; `parse` replaces the given ones by
            that of the option `layout`.
    """

    formats: Formats = field(default=Formats(), kw_only=True)

    path: str = option(
        "path",
        str,
        NEEDED,
        "a store (the folder that holds `commitlog/`), a `commitlog` folder, a glob, or several with commas between; "
        "`{broker}` stands for one path component, which names the broker",
        missing=MISSING_PATH,
    )
    broker: str | None = option(
        "broker",
        str,
        None,
        "the store's name; of several stores, JSON of the folder of each log and its name",
        shown="from the path",
    )
    layout: str | None = option(
        "layout",
        str,
        None,
        "commitlog, journal or any: which stores of the path are meant",
        shown="the format's",
    )
    mode: Mode = option(
        "mode",
        choice_parser(Mode, str.upper),
        Mode.FAILFAST,
        "FAILFAST, PERMISSIVE (bad ranges become rows with `_corrupt_record`) or DROPMALFORMED (counted)",
    )
    columns: tuple[str, ...] | None = option(
        "columns",
        parse_names,
        None,
        "comma-separated; other columns are not decoded. `.schema(...)` does the same",
        shown="all but body",
    )
    body: BodyForm = option(
        "body",
        choice_parser(BodyForm),
        BodyForm.NONE,
        "none, stored or decompressed: whether there is a column `body`, and its content; decompressed if only "
        "`columns` or `.schema(...)` names it",
    )
    max_body_bytes: int = option("maxBodyBytes", byte_count, 64 << 20, "a decompressed body's limit")
    max_partition_bytes: int | None = option(
        "maxPartitionBytes",
        byte_count,
        None,
        "log bytes in a partition; not given, two for each of this machine's cores",
        shown=PARTITION_BYTES,
    )
    max_batch_bytes: int = option(
        "maxBatchBytes", byte_count, 4 << 20, "log bytes that a worker holds in memory at a time"
    )
    max_record_bytes: int = option(
        "maxRecordBytes", byte_count, DEFAULT_MAX_RECORD_BYTES, "a larger size field is damage"
    )
    topics: frozenset[str] | None = option("topics", parse_name_set, None, "comma-separated", shown="all")
    queue_ids: frozenset[int] | None = option("queueIds", parse_number_set, None, "comma-separated", shown="all")
    keys: frozenset[str] | None = option(
        "keys",
        parse_name_set,
        None,
        "comma-separated business keys or unique keys: records that have one of them; needs `topics`",
        shown="all",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        parse_time_ms,
        None,
        "store time from which messages are read, ms since 1970 or ISO 8601 (UTC unless it says otherwise). A stream "
        "begins at the first record stored at or after this time, or if there is none, at the log's end",
        shown="all",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        parse_time_ms,
        None,
        "store time before which messages are read",
        shown="all",
        use=OptionUse.BATCH,
    )
    clock_tolerance_ms: int = option(
        "clockTolerance",
        integer_parser(0, unit="ms"),
        DEFAULT_CLOCK_TOLERANCE_MS,
        "ms by which a broker's clock may have been wrong. If it was wrong by more for less than a sixteenth of a "
        "segment's bytes, and correct before and after, a filter by time can miss messages stored then. 31536000000 "
        "skips no such segment",
    )
    start: int | StreamStart | Mapping[str, int] | None = option(
        "startingOffset",
        _parse_start,
        None,
        "physical offset from which every store is read. A stream also takes earliest, latest, or JSON of broker and "
        'offset, `{"broker-a": 1073741824}`; a broker that is not named, or that appears later, begins at its '
        "earliest record",
        shown="earliest",
    )
    ending_offset: int | None = option(
        "endingOffset",
        integer_parser(),
        None,
        "physical offset before which every store is read",
        shown="all",
        use=OptionUse.BATCH,
    )
    use_indexes: bool = option(
        "useIndexes",
        parse_flag,
        True,
        "whether topics, queues and keys may be looked up in the ConsumeQueues and IndexFiles beside the log",
    )
    snapshot: str | None = option(
        "snapshot",
        str,
        None,
        "JSON of each store's range: exactly what to read",
        shown="taken when planned",
        use=OptionUse.BATCH,
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        byte_count,
        None,
        "log bytes of a micro-batch, in fair shares, rounded up to whole records",
        shown="no limit",
        use=OptionUse.STREAM,
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        parse_flag,
        True,
        "fail if segments or a store are gone before they were read; false: warn, and continue after them (in mode "
        "PERMISSIVE the gap is a row with `_corrupt_record`)",
        use=OptionUse.STREAM,
    )
    content: RowContent = option(
        "content",
        choice_parser(RowContent),
        RowContent.ROWS,
        "rows; or ranges: the range of each broker in a micro-batch, for a caller that reads it itself",
        use=OptionUse.STREAM,
    )

    @classmethod
    def parse(cls, given_options: Mapping[str, str], **defaults: object) -> Self:
        """Parse and check the options that Spark passes as strings."""
        options = super().parse(given_options, **defaults)
        if options.layout is None:
            return options
        try:
            return replace(options, formats=options.formats.select_by_name(options.layout))
        except ValueError as error:
            raise UsageError(f"option layout: {error}") from None

    @property
    def starting_offset(self) -> int | None:
        """Value of the option `startingOffset` if it is one number for every store, else None."""
        return self.start if isinstance(self.start, int) else None

    def partition_bytes(self, log_bytes: int) -> int:
        """Return the maximum size of a partition, in bytes of the log.

        Args:
            log_bytes: size of the log that is read.
        """
        return self.max_partition_bytes or choose_part_size(log_bytes, os.cpu_count() or 1)

    def check(self) -> None:
        """Check that keys are given with their topics."""
        if self.keys is not None and self.topics is None:
            raise UsageError("option keys needs the option topics, because a broker's index stores keys by topic")

    def for_batch(self) -> ReadOptions:
        """Return the options after checking that none of them is for streams.

        Raises:
            UsageError: for the first such option.
        """
        super().for_batch()
        if self.start is not None and self.starting_offset is None:
            raise UsageError(
                "option startingOffset: expected a physical offset for spark.read, because earliest, latest and JSON "
                "by broker are only for streams"
            )
        return self

    def for_stream(self) -> ReadOptions:
        """Return the options after checking that none of them is for batches.

        Raises:
            UsageError: for the first such option, or for two options with different starts.
        """
        super().for_stream()
        self.refuse_both("startingTimestamp", "startingOffset")
        return self
