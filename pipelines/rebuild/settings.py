"""Settings of the broker that wrote a store, read from the remaining index files, as the log does not have them.

The size of queue files is the most frequent one, or 6,000,000 bytes (JMQ: 6,600,000) without a file. The numbers of
slots and entries follow from an IndexFile's size, or are 5,000,000 and 20,000,000. Brokers since 5.5 enter tags into
the index: the newest IndexFile shows it, otherwise the checkpoint's `logics_physical_offset`, which only they write;
without both, a new broker is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from commitlake.connectors.formats.rocketmq.checkpoint_and_config import read_checkpoint
from commitlake.connectors.formats.rocketmq.topic_kinds import may_have_light_queues
from commitlake.connectors.log_format.files import Segment, StoreFiles
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.log_format.queues import QueueLayout
from commitlake.connectors.reading.files.index_files import LocalStoreFiles, read_range
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.pipelines.verify.observed_delays import complete_delay_levels, observe_delays
from commitlake.pipelines.verify.store_view import list_queues, queue_file_size
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.boltmq.dialect import DIALECTS, ROCKETMQ, Dialect
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    Geometry,
    IndexFileEntry,
    geometry_of,
    key_hash,
    parse_entry,
    parse_header,
    tags_index_key,
)

INDEX = "index"
_INDEX_NAME_LENGTH = 17
_LOOKED_AT = 512


@dataclass(frozen=True, slots=True)
class RequestedSettings:
    """Settings that the user requests for a rebuild; None means to use those of the store.

    Attributes:
        topics: rebuild only the queues of these topics; None for all, and index, checkpoint and topics.json.
        queue_file_size: size of a ConsumeQueue file, bytes.
        index_slots: number of slots of an IndexFile.
        index_entries: number of entries of an IndexFile.
        index_tags: True if records are entered under their tags.
        delay_levels_ms: the broker's messageDelayLevel; None to use what the store's schedule queues show.
        close_heads: see `Settings`.
        observed_levels: see `Settings`; used only with `delay_levels_ms`.
        batch_file_size: size of a BatchConsumeQueue file, bytes.
    """

    topics: tuple[str, ...] | None = None
    queue_file_size: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    index_tags: bool | None = None
    delay_levels_ms: tuple[int, ...] | None = None
    close_heads: bool = False
    observed_levels: tuple[int, ...] | None = None
    batch_file_size: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a store and its broker that determine the rebuilt files; 0 or empty if the format lacks them.

    Attributes:
        format: the store's format.
        queue_file_size: size of a ConsumeQueue file, bytes.
        batch_file_size: size of a BatchConsumeQueue file, bytes.
        index_slots: number of slots of an IndexFile.
        index_entries: number of entries of an IndexFile, of which one is not used.
        index_tags: True if records are entered under their tags.
        delay_levels_ms: messageDelayLevel.
        observed_levels: the levels whose delays were read from the store's schedule queues, the others being
            RocketMQ's defaults; None if the user gave all of them.
        topics: topics whose queues are rebuilt, None for all.
        close_heads: True if queues whose first messages the log lacks begin at 0. A broker fills such a queue with
            entries that point to physical offset 0. Where the log begins there, consumers skip the queue's messages in
            the first segment.
        batch_topics: topics with BatchConsumeQueues.
        dialect_name: name of the CommitLog's dialect.
        may_have_light_queues: True if records may have entries in light queues.
    """

    format: Format
    queue_file_size: int
    batch_file_size: int
    index_slots: int
    index_entries: int
    index_tags: bool
    delay_levels_ms: tuple[int, ...]
    topics: tuple[str, ...] | None
    close_heads: bool
    batch_topics: tuple[str, ...] = ()
    dialect_name: str = ROCKETMQ.name
    observed_levels: tuple[int, ...] | None = None
    may_have_light_queues: bool = True

    @property
    def dialect(self) -> Dialect:
        """Dialect of the CommitLog: RocketMQ's or BoltMQ's."""
        return next(dialect for dialect in DIALECTS if dialect.name == self.dialect_name)

    @property
    def has_key_index(self) -> bool:
        """True if the store has IndexFiles that answer look-ups by key."""
        return self.format.indexes.has_files and self.dialect.has_key_index

    @property
    def queue_layout(self) -> QueueLayout:
        """The layout of the store's queue files."""
        return self.format.queues.layout

    def queues_of_kind(self, *, is_batch: bool) -> QueueLayout:
        """Return the file layout of ConsumeQueues, or of BatchConsumeQueues if `is_batch`."""
        layout = self.format.queues.batch_layout if is_batch else self.queue_layout
        assert layout is not None  # no topic of the store has batches otherwise
        return layout

    @property
    def index_geometry(self) -> Geometry:
        """Positions of slots and entries in an IndexFile."""
        return Geometry(self.index_slots, self.index_entries)


def find_settings(
    root: Path,
    requested: RequestedSettings,
    log_format: Format,
    dialect: Dialect = ROCKETMQ,
    segments: Sequence[Segment] = (),
    files: StoreFiles | None = None,
) -> Settings:
    """Find the settings of the broker that wrote a store, from the user's options and the store's files.

    Args:
        root: The store's folder, or that of its small files, from `open_small_files_folder`.
        requested: The settings that the user gives.
        dialect: The dialect of its CommitLog.
        segments: The segments of its log, which show the delays of schedule queues, and the entries of an index.
        files: Its queues and indexes; by default, those in its folder.

    Raises:
        UsageError: for sizes that no broker accepts, options that the format does not have, and a store whose queues
            are in RocksDB.
    """
    _check_requested_options(root, requested, log_format)
    if log_format.queues.has_queues_in_rocksdb(root):
        raise UsageError(
            f"{root}: expected queues in files, found queues in RocksDB, which are not rebuilt here: the broker "
            "rebuilds them itself"
        )
    files = LocalStoreFiles(root) if files is None else files
    records = LogRecords(segments, log_format)
    batch_queues = log_format.queues.batch_layout
    size = _queue_file_size(files, requested.queue_file_size, log_format.queues.layout)
    batch_size = 0 if batch_queues is None else _queue_file_size(files, requested.batch_file_size, batch_queues)
    index = _IndexSettings(0, 0, has_tags=False)
    if log_format.indexes.has_files:
        index = _find_index_settings(root, files, requested, records)
    delays: dict[int, int] = {}
    has_levels = log_format.brokers.has_delay_levels
    if has_levels and not requested.delay_levels_ms:
        found = list_queues(files, log_format.queues.layout)
        delays = observe_delays(files, found, dialect.schedule_topic, size, log_format.queues.layout, records)
    observed = requested.observed_levels if requested.delay_levels_ms else tuple(sorted(delays))
    return Settings(
        format=log_format,
        queue_file_size=size,
        batch_file_size=batch_size,
        index_slots=index.slots,
        index_entries=index.entries,
        index_tags=index.has_tags,
        delay_levels_ms=(requested.delay_levels_ms or complete_delay_levels(delays)) if has_levels else (),
        observed_levels=observed if has_levels else None,
        topics=requested.topics,
        close_heads=requested.close_heads,
        batch_topics=tuple(sorted(log_format.queues.topic_kinds(root).batch)),
        dialect_name=dialect.name,
        may_have_light_queues=may_have_light_queues(root),
    )


def _check_requested_options(root: Path, requested: RequestedSettings, log_format: Format) -> None:
    index = (requested.index_slots, requested.index_entries, requested.index_tags)
    has_index_options = any(each is not None for each in index) and not log_format.indexes.has_files
    if has_index_options or (requested.delay_levels_ms and not log_format.brokers.has_delay_levels):
        title = log_format.title
        raise UsageError(f"{root}: a {title} store has no index and no delay levels: leave out the options for them")


@dataclass(frozen=True, slots=True)
class _IndexSettings:
    slots: int
    entries: int
    has_tags: bool


def _find_index_settings(
    root: Path, files: StoreFiles, requested: RequestedSettings, records: LogRecords
) -> _IndexSettings:
    names = files.files_in(INDEX, lambda name: len(name) == _INDEX_NAME_LENGTH and name.isdecimal())
    index_files = [f"{INDEX}/{name}" for name in names]
    found = _find_index_geometry(files, index_files)
    slots, entries = requested.index_slots or found.slots, requested.index_entries or found.entries
    if slots < 1 or entries < 2:  # entry 0 is never used
        raise UsageError(
            f"IndexFile: expected at least 1 slot and 2 entries, found {slots} slots and {entries} entries"
        )
    has_tags = requested.index_tags
    if has_tags is None:
        has_tags = index_has_tags(files, index_files, found, records)
    if has_tags is None:
        checkpoint = read_checkpoint(root)
        has_tags = checkpoint is None or checkpoint.logics_physical_offset > 0
    return _IndexSettings(slots, entries, has_tags)


def _queue_file_size(files: StoreFiles, requested_size: int | None, layout: QueueLayout) -> int:
    """Return the size of queue files: that which the user gave, or else that of the store's files."""
    size = queue_file_size(files, list_queues(files, layout), layout) if requested_size is None else requested_size
    if size <= 0 or size % layout.entry_size:
        raise UsageError(
            f"size of files in {layout.folder}: expected a multiple of {layout.entry_size} bytes, the size of an "
            f"entry, found {size}"
        )
    return size


def _find_index_geometry(files: StoreFiles, index_files: Sequence[str]) -> Geometry:
    """Return the numbers of slots and entries of the IndexFiles; the defaults where no file has a valid size."""
    for path in index_files:
        with suppress(LayoutError, FileNotFoundError):
            return geometry_of(files.size_of(path))
    return Geometry()


def index_has_tags(
    files: StoreFiles, index_files: Sequence[str], geometry: Geometry, records: LogRecords
) -> bool | None:
    """Return whether the IndexFiles have entries for tags; None if the newest entries do not show it.

    Args:
        index_files: paths of its IndexFiles, oldest first.
        geometry: their numbers of slots and entries.
    """
    for path in reversed(index_files):
        groups = list(_hashes_by_record(_read_newest_entries(files, path, geometry)))
        # Some keys of the first and the last record may be in another file, or were not read.
        for offset, hashes in reversed(groups[1:-1]):
            message = records.get_record(offset)
            if message is not None and (tags := dict(message.properties).get("TAGS")):
                return key_hash(message.topic, tags_index_key(tags)) in hashes
    return None


def _hashes_by_record(entries: list[IndexFileEntry]) -> Iterator[tuple[int, set[int]]]:
    for offset, group in groupby(entries, key=lambda entry: entry.physical_offset):
        yield offset, {entry.key_hash for entry in group}


def _read_newest_entries(files: StoreFiles, path: str, geometry: Geometry) -> list[IndexFileEntry]:
    """Return the newest entries of an IndexFile in file order; none if the file cannot be read."""
    try:
        with closing(files.open(path)) as file:
            count = min(parse_header(read_range(file, 0, HEADER.size).tobytes()).index_count, geometry.entries)
            first = max(1, count - _LOOKED_AT)
            start = geometry.entry_position(first)
            data = read_range(file, start, start + ENTRY.size * max(0, count - first)).tobytes()
    except (OSError, LayoutError):
        return []
    whole = len(data) - len(data) % ENTRY.size
    return [parse_entry(data, at) for at in range(0, whole, ENTRY.size)]
