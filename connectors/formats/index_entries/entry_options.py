"""Options of the sources `consumequeue` and `indexfile`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.options import MISSING_PATH, PARTITION_BYTES, Mode
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.source_options import (
    NEEDED,
    DeclaredOptions,
    byte_count,
    choice_parser,
    integer_parser,
    option,
    parse_name_set,
    parse_names,
    parse_number_set,
)
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.indexfile import MAX_FILE_BYTES, Geometry, key_hash


class IndexContent(StrEnum):
    """Kind of rows that `indexfile` returns: entries, slots or headers."""

    ENTRIES = "entries"
    SLOTS = "slots"
    HEADERS = "headers"


@dataclass(frozen=True)
class EntryOptions(DeclaredOptions):
    """Options that the sources `consumequeue` and `indexfile` have in common."""

    path: str = option(
        "path",
        str,
        NEEDED,
        "as for `commitlog`: a store, or a copy that `ship` made, a glob, or several with commas between",
        missing=MISSING_PATH,
    )
    broker: str | None = option(
        "broker", str, None, "the store's name; for a path that gives one store", shown="from the path"
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
        "comma-separated; other columns are not created. `.schema(...)` does the same",
        shown="all",
    )
    starting_offset: int | None = option(
        "startingOffset", integer_parser(), None, "entries of records from this physical offset", shown="all"
    )
    ending_offset: int | None = option(
        "endingOffset", integer_parser(), None, "entries of records before this physical offset", shown="all"
    )
    max_partition_bytes: int | None = option(
        "maxPartitionBytes",
        byte_count,
        None,
        "bytes of files in a partition; not given, two for each of this machine's cores",
        shown=PARTITION_BYTES,
    )

    @property
    def readable_log_formats(self) -> Formats:
        """Formats of the stores that the source accepts."""
        return all_formats()

    @property
    def to_read_filters(self) -> Filters:
        """Filters by physical offset; subclasses add filters by other columns."""
        return Filters(min_offset=self.starting_offset, end_offset=self.ending_offset)


@dataclass(frozen=True)
class QueueOptions(EntryOptions):
    """Options of the source `consumequeue`."""

    layout: Formats = option(
        "layout",
        lambda text: all_formats().select_by_name(text),
        all_formats(),
        "commitlog, journal or any: which stores of the path are meant",
    )
    topics: frozenset[str] | None = option(
        "topics", parse_name_set, None, "comma-separated; folders of other topics are not opened", shown="all"
    )
    queue_ids: frozenset[int] | None = option(
        "queueIds", parse_number_set, None, "comma-separated; folders of other queues are not opened", shown="all"
    )

    @property
    def readable_log_formats(self) -> Formats:
        """Formats of the stores that the source accepts."""
        return self.layout

    @property
    def to_read_filters(self) -> Filters:
        """Filters by topic, queue and physical offset."""
        return Filters(
            topics=self.topics,
            queue_ids=self.queue_ids,
            min_offset=self.starting_offset,
            end_offset=self.ending_offset,
        )


@dataclass(frozen=True)
class IndexFileOptions(EntryOptions):
    """Options of the source `indexfile`."""

    content: IndexContent = option(
        "content",
        choice_parser(IndexContent),
        IndexContent.ENTRIES,
        "entries; slots: the used slots, with their newest entry; headers: a row for each file",
    )
    keys: frozenset[str] | None = option(
        "keys",
        parse_name_set,
        None,
        "comma-separated: entries whose hash is that of one of these keys; needs `topics`",
        shown="all",
    )
    topics: frozenset[str] | None = option(
        "topics",
        parse_name_set,
        None,
        "comma-separated: the topics of `keys`; an index has hashes of topic and key only",
    )
    index_slots: int | None = option(
        "indexSlots",
        integer_parser(),
        None,
        "the broker's maxHashSlotNum, if not in the ratio 1:4",
        shown="by the size",
    )
    index_entries: int | None = option(
        "indexEntries", integer_parser(), None, "the broker's maxIndexNum, if not in the ratio 1:4", shown="by the size"
    )

    @property
    def readable_log_formats(self) -> Formats:
        """Formats that have IndexFiles."""
        known = all_formats().known
        return Formats(known, tuple(log_format for log_format in known if log_format.indexes.has_files))

    @property
    def key_hashes(self) -> frozenset[int] | None:
        """Hashes of the requested keys; None for all."""
        if self.topics is None or self.keys is None:
            return None
        return frozenset(key_hash(topic, key) for topic in self.topics for key in self.keys)

    @property
    def index_file_geometry(self) -> Geometry | None:
        """Number of slots and entries of each file; None to derive it from the file's size."""
        if self.index_slots is None or self.index_entries is None:
            return None
        return Geometry(self.index_slots, self.index_entries)

    def check(self) -> None:
        """Check that the options fit the requested rows (entries, slots or headers), and each other."""
        for name in ("keys", "startingOffset", "endingOffset"):
            if name in self.given and self.content is not IndexContent.ENTRIES:
                raise UsageError(
                    f"option {name} needs content=entries, found content={self.content}: leave the option out, or set "
                    "content"
                )
        if (self.topics is None) != (self.keys is None):
            raise UsageError(
                "options topics and keys: expected both or none, found only one: an index has only hashes of topic and "
                "key together"
            )
        sizes = [size for size in (self.index_slots, self.index_entries) if size is not None]
        if len(sizes) == 1 or any(size < 1 for size in sizes):
            raise UsageError("options indexSlots and indexEntries: expected both or none, each at least 1")
        if self.index_file_geometry is not None and self.index_file_geometry.file_size > MAX_FILE_BYTES:
            raise UsageError(
                "options indexSlots and indexEntries: expected numbers that give an IndexFile of at most "
                f"{MAX_FILE_BYTES} bytes, found {self.index_file_geometry.file_size} bytes"
            )
