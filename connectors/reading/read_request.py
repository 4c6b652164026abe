"""Requested rows and columns of a read, after its options are checked.

Filters are applied by the reader itself: topic, queue, key, store time, physical offset. Commands compile them from a
selection (`Filters.of`). Spark's sources take them from the options of the read (`Filters.of_batch`) and, if wanted,
from Spark's predicates: see `connectors.sources.predicates`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from commitlake.connectors.reading.options import BodyForm, Mode, ReadOptions
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.selection import Selection, replace_invalid_utf8
from commitlake.schemas.times import epoch_ms_rounded_up


@dataclass(frozen=True)
class Filters:
    """Filters for the records of a read; a filter that is None excludes nothing.

    Ends are exclusive, and times are store times in milliseconds, as in a log. A key is a business key or the unique
    key, because a broker's index does not distinguish them.
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    keys: frozenset[str] | None = None
    min_store_timestamp: int | None = None
    end_store_timestamp: int | None = None
    min_offset: int | None = None
    end_offset: int | None = None
    brokers: frozenset[str] | None = None

    @classmethod
    def of(cls, selection: Selection) -> Filters:
        """Convert conditions on messages to filters, and refuse a condition that the reader of logs cannot check.

        Raises:
            UsageError: for a condition that the reader cannot check.
        """
        selection.refuse_conditions("the reader of logs", "kinds", "tags", "ids", "groups", "is_by_birth", "where")
        return cls(
            topics=frozenset(map(replace_invalid_utf8, selection.topics)) or None,
            queue_ids=frozenset(selection.queue_ids) or None,
            keys=frozenset(map(replace_invalid_utf8, selection.keys)) or None,
            min_store_timestamp=None if selection.start is None else epoch_ms_rounded_up(selection.start),
            end_store_timestamp=None if selection.end is None else epoch_ms_rounded_up(selection.end),
            brokers=frozenset(selection.brokers) or None,
        )

    @classmethod
    def of_batch(cls, options: ReadOptions) -> Filters:
        """Return the filters that are set by the options of a batch read."""
        return cls(
            topics=options.topics,
            queue_ids=options.queue_ids,
            keys=options.keys,
            min_store_timestamp=options.starting_timestamp,
            end_store_timestamp=options.ending_timestamp,
            min_offset=options.starting_offset,
            end_offset=options.ending_offset,
        )

    @classmethod
    def of_stream(cls, options: ReadOptions) -> Filters:
        """Return the filters that are set by the options of a stream, without the option for its start."""
        return cls.of_batch(replace(options, starting_timestamp=None, start=None))

    @property
    def compares_topics_as_text(self) -> bool:
        """True if topics are compared as displayed, with U+FFFD in place of bytes that are not UTF-8."""
        return any("\ufffd" in str(topic) for topic in self.topics or ())

    @property
    def needs_content(self) -> bool:
        """True if a filter needs data that a damaged range does not have, such as a topic."""
        return not (
            self.topics is None
            and self.queue_ids is None
            and self.keys is None
            and self.min_store_timestamp is None
            and self.end_store_timestamp is None
        )

    def may_match(self, split: Split) -> bool:
        """Return whether a split can contain a record that passes the filters."""
        low, high = self.min_offset, self.end_offset
        return (
            (self.brokers is None or split.broker in self.brokers)
            and (low is None or split.end > low)
            and (high is None or split.start < high)
        )


@dataclass(frozen=True)
class Request:
    """The rows and columns that a read returns.

    Attributes:
        schema: the columns, in order, as Spark's Arrow types.
        mode: the handling of bad ranges.
        filters: the filters for records.
        body: the content of the column `body`, if it is requested.
        max_body_bytes: limit of a decompressed body.
        max_batch_bytes: log bytes that are read at a time if a segment cannot be mapped.
        max_record_bytes: larger sizes are faults.
        encoded: return repeated strings as dictionary arrays, whatever the schema says. Spark does not accept them.
        keeps_bad_ranges: return bad ranges as rows in mode PERMISSIVE even if the filters use data that these lack,
            because any of them may have contained wanted records.
    """

    schema: pa.Schema
    mode: Mode = Mode.FAILFAST
    filters: Filters = field(default_factory=Filters)
    body: BodyForm = BodyForm.STORED
    max_body_bytes: int = 64 << 20
    max_batch_bytes: int = 4 << 20
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    encoded: bool = False
    keeps_bad_ranges: bool = False

    @property
    def returns_bad_ranges(self) -> bool:
        """True if bad ranges are returned as rows."""
        return self.mode is Mode.PERMISSIVE and (self.keeps_bad_ranges or not self.filters.needs_content)

    @classmethod
    def of(cls, options: ReadOptions, filters: Filters, schema: pa.Schema) -> Request:
        """Return the request that the options and the wanted columns describe."""
        return cls(
            schema=schema,
            mode=options.mode,
            filters=filters,
            body=BodyForm.DECOMPRESSED if options.body is BodyForm.NONE else options.body,
            max_body_bytes=options.max_body_bytes,
            max_batch_bytes=options.max_batch_bytes,
            max_record_bytes=options.max_record_bytes,
        )
