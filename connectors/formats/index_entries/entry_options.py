"""Options of the sources `consumequeue` and `indexfile`, checked at once: an unknown or invalid one is an error.

Both take:

| option | default | meaning |
| --- | --- | --- |
| path | (needed) | as for `commitlog`: a store, or a copy that `ship` made, a glob, or several with commas between |
| broker | from the path | the store's name; for a path that gives one store |
| mode | FAILFAST | FAILFAST, PERMISSIVE (bad ranges become rows with `_corrupt_record`) or DROPMALFORMED (counted) |
| columns | all | comma-separated; other columns are not created. `.schema(...)` does the same |
| startingOffset, endingOffset | all | physical offsets of the entries' records; the last exclusive |
| maxPartitionBytes | 64 to 256 MiB | bytes of files in a partition; not given, two for each of this machine's cores |

`consumequeue` takes these, too:

| option | default | meaning |
| --- | --- | --- |
| layout | any | commitlog, journal or any: which stores of the path are meant |
| topics | all | comma-separated; folders of other topics are not opened |
| queueIds | all | comma-separated; folders of other queues are not opened |

`indexfile` takes these, too:

| option | default | meaning |
| --- | --- | --- |
| content | entries | entries; slots: the used slots, with their newest entry; headers: a row for each file |
| keys | all | comma-separated: entries whose hash is that of one of these keys; needs `topics` |
| topics | (none) | comma-separated: the topics of `keys`; an index has hashes of topic and key only |
| indexSlots, indexEntries | by the size | the broker's maxHashSlotNum and maxIndexNum, if not in the ratio 1:4 |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.engine.filters import Filters, Narrowing
from commitlake.connectors.formats.engine.option_values import OptionValues
from commitlake.connectors.formats.engine.options import Mode
from commitlake.connectors.formats.format import Format
from commitlake.connectors.formats.registry import ANY_FORMAT, all_formats
from commitlake.connectors.option_names import known_options
from commitlake.schemas.layouts.rocketmq.indexfile import MAX_FILE_BYTES, Geometry, key_hash

_COMMON = ("path", "broker", "mode", "columns", "startingOffset", "endingOffset", "maxPartitionBytes")
_OF_QUEUES = (*_COMMON, "layout", "topics", "queueIds")
_OF_INDEX_FILES = (*_COMMON, "content", "keys", "topics", "indexSlots", "indexEntries")


class IndexContent(StrEnum):
    """Content of the rows of `indexfile`."""

    ENTRIES = "entries"
    SLOTS = "slots"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class EntryOptions:
    """Options that both sources have; see the module's tables.

    Attributes:
        formats: the formats of the stores to read.
        narrowing: the filters by broker, topic, queue and physical offset.
    """

    path: str
    broker: str | None
    formats: tuple[Format, ...]
    mode: Mode
    columns: tuple[str, ...] | None
    max_partition_bytes: int | None
    narrowing: Narrowing


@dataclass(frozen=True, slots=True)
class IndexFileOptions:
    """Options of `indexfile`.

    Attributes:
        read: the options that both sources have.
        content: the kind of the rows.
        key_hashes: hashes of the requested keys; None for all.
        geometry: slots and entries of each file; None if they are derived from the file's size.
    """

    read: EntryOptions
    content: IndexContent
    key_hashes: frozenset[int] | None
    geometry: Geometry | None


def parse_queue_options(given: Mapping[str, str]) -> EntryOptions:
    """Parse the options of `consumequeue` from Spark: strings, with names in any case.

    Raises:
        OptionError: for an unknown name or an invalid value.
    """
    values = known_options(given, _OF_QUEUES, OptionError)
    read = OptionValues(values)
    topics = read.names("topics")
    filters = Filters(
        topics=None if topics is None else frozenset(topics),
        queue_ids=read.numbers("queueIds"),
        min_offset=read.number("startingOffset"),
        end_offset=read.number("endingOffset"),
    )
    return _common(values, read, filters, read.format_choice("layout", ANY_FORMAT).formats)


def parse_index_options(given: Mapping[str, str]) -> IndexFileOptions:
    """Parse the options of `indexfile`; see `parse_queue_options`."""
    values = known_options(given, _OF_INDEX_FILES, OptionError)
    read = OptionValues(values)
    content = read.choice("content", IndexContent, IndexContent.ENTRIES)
    filters = Filters(min_offset=read.number("startingOffset"), end_offset=read.number("endingOffset"))
    for name in ("keys", "startingOffset", "endingOffset"):
        if name in values and content is not IndexContent.ENTRIES:
            raise OptionError(f"option {name} is for entries: expected content entries, found {content}")
    formats = tuple(log_format for log_format in all_formats() if log_format.has_index_files)
    return IndexFileOptions(_common(values, read, filters, formats), content, _key_hashes(read), _geometry(read))


def _common(
    values: Mapping[str, str], read: OptionValues, filters: Filters, formats: tuple[Format, ...]
) -> EntryOptions:
    if not values.get("path"):
        raise OptionError("the option 'path' is missing: load(PATH), a broker's store folder or a glob")
    return EntryOptions(
        path=values["path"],
        broker=values.get("broker"),
        formats=formats,
        mode=read.choice("mode", Mode, Mode.FAILFAST, upper=True),
        columns=read.names("columns"),
        max_partition_bytes=read.size("maxPartitionBytes", 0) or None,
        narrowing=Narrowing(filters),
    )


def _key_hashes(read: OptionValues) -> frozenset[int] | None:
    topics, keys = read.names("topics"), read.names("keys")
    if (topics is None) != (keys is None):
        raise OptionError(
            "options topics and keys: expected both or none, because an index has only hashes of topic and key"
        )
    if topics is None or keys is None:
        return None
    return frozenset(key_hash(topic, key) for topic in topics for key in keys)


def _geometry(read: OptionValues) -> Geometry | None:
    slots, entries = read.number("indexSlots"), read.number("indexEntries")
    if slots is None and entries is None:
        return None
    if slots is None or entries is None or min(slots, entries) < 1:
        raise OptionError("options indexSlots and indexEntries: expected both or none, each at least 1")
    geometry = Geometry(slots, entries)
    if geometry.file_size > MAX_FILE_BYTES:
        raise OptionError(
            f"options indexSlots and indexEntries: expected a file of at most {MAX_FILE_BYTES} bytes, "
            f"found {geometry.file_size}"
        )
    return geometry
