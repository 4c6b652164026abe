"""Filters that a reader applies itself: topic, queue, key, store time, physical offset.

They come from two sources, the options of the read and, if wanted, Spark's predicates: see
`connectors.sources.predicates`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from commitlake.connectors.formats.engine.options import ReadOptions
from commitlake.connectors.formats.engine.splits import Split


@dataclass(frozen=True)
class Filters:
    """Filters for records; None is no limit. Ends are exclusive. A key is a business key or the unique key."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    keys: frozenset[str] | None = None
    min_store_timestamp: int | None = None
    end_store_timestamp: int | None = None
    min_offset: int | None = None
    end_offset: int | None = None

    @property
    def topics_by_text(self) -> bool:
        """True if topics are compared in displayed form, in which U+FFFD stands for bytes that are not UTF-8."""
        return any("\ufffd" in str(topic) for topic in self.topics or ())

    @property
    def by_content(self) -> bool:
        """True if a filter uses data that a bad range does not have."""
        return not (
            self.topics is None
            and self.queue_ids is None
            and self.keys is None
            and self.min_store_timestamp is None
            and self.end_store_timestamp is None
        )


@dataclass(frozen=True)
class Narrowing:
    """Filters of a read, with its brokers."""

    filters: Filters
    brokers: frozenset[str] | None = None

    def may_hold(self, split: Split) -> bool:
        """Return whether a split can contain a matching record."""
        low, high = self.filters.min_offset, self.filters.end_offset
        return (
            (self.brokers is None or split.broker in self.brokers)
            and (low is None or split.end > low)
            and (high is None or split.start < high)
        )


def narrow(options: ReadOptions) -> Narrowing:
    """Return the filters in the options of a batch."""
    return Narrowing(
        Filters(
            topics=options.topics,
            queue_ids=options.queue_ids,
            keys=options.keys,
            min_store_timestamp=options.starting_timestamp,
            end_store_timestamp=options.ending_timestamp,
            min_offset=options.starting_offset,
            end_offset=options.ending_offset,
        )
    )


def narrow_stream(options: ReadOptions) -> Narrowing:
    """Return the filters in the options of a stream; its start is not one of them."""
    return narrow(replace(options, starting_timestamp=None, start=None))
