"""Interface of a log format: everything that differs between the formats of brokers' logs.

Each package in `connectors.formats` exports one `FORMAT`, and its `registry` lists them. Code outside such a package
never checks which format it has; it uses the object. This module, and a format's own `format` module, import the
standard library only. Modules that take long to import (numpy, the compiled loops) are loaded on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.scan import ScanFinding, SegmentScanner, SizeLimits

if TYPE_CHECKING:
    from commitlake.connectors.log_format.deliveries import ConsumeLogPart, StoredRetries
    from commitlake.connectors.log_format.files import Segment, StoreFiles
    from commitlake.connectors.log_format.indexes import FactsReader, KeyIndex
    from commitlake.connectors.log_format.kernel import FormatKernel
    from commitlake.connectors.log_format.queues import NewQueue, NewQueueFiles, QueueLayout, QueueWriter, TopicKinds
    from commitlake.connectors.log_format.small_files import CheckedLog, Claim, Problems, RebuiltLog, SmallFiles

_ANY = "any"


@dataclass(frozen=True)
class RecordRules:
    """Rules for one record of a format, in plain Python.

    A record is one message. A format whose records hold several, like Kafka's batches, would need these changes:

    - `parse` and `row_of` return a list with an entry for each message.
    - `decode` of its kernel (`reading.kernel.layouts`) writes a row for each message; `parts` keeps one column for each
      record, so that hopping, filters, splits and damage stay as they are. `read_batch` then counts rows, and
      `Decoder.take` repeats the columns that a record's messages share.
    - `facts_reader` returns a record's first queue offset and the number of its messages, as it does for RocketMQ's
      inner batches (`Facts.batch_size`).

    Attributes:
        examine: returns the finding at a position, as `schemas.layouts.rocketmq.scan.examine` does.
        scanner: returns a scanner that turns windows of a segment into spans, from a physical offset on.
        parse: returns the message at the start of some bytes, and its size; the checksum is not compared.
        vouches: returns whether the bytes of a store's `checkpoint` prove that a message's record is on the disk; the
            last argument is whether a broker has closed the store since.
        row_of: converts a message and its broker's name to a row of `messages`: timestamps in ms, no body.
        size_of: returns the size of a record or filler from its first bytes.
        is_filler: returns whether these first bytes are those of a filler.
        own_offset: returns the physical offset stored in a record, from its first bytes; None if they are too few.
        head_bytes: number of first bytes that `size_of` and `is_filler` read. They are not all zeros.
        known_bytes: number of first bytes, before the body, that distinguish a record from every other one.
    """

    examine: Callable[[memoryview, int, int, SizeLimits], ScanFinding]
    scanner: Callable[[int, SizeLimits], SegmentScanner]
    parse: Callable[[memoryview], tuple[Any, int] | None]
    vouches: Callable[[bytes, Any, bool], bool]
    row_of: Callable[[Any, str], dict[str, object]]
    size_of: Callable[[memoryview], int]
    is_filler: Callable[[memoryview], bool]
    own_offset: Callable[[memoryview], int | None]
    head_bytes: int
    known_bytes: int

    @classmethod
    def of_layouts(
        cls,
        *,
        head: Layout,
        offset_field: str,
        filler: Layout,
        filler_magics: Collection[int],
        known_bytes: int,
        examine: Callable[[memoryview, int, int, SizeLimits], ScanFinding],
        scanner: Callable[[int, SizeLimits], SegmentScanner],
        parse_message: Callable[..., tuple[Any, int] | None],
        vouches: Callable[[bytes, Any, bool], bool],
        row_of: Callable[[Any, str], dict[str, object]],
    ) -> RecordRules:
        """Return the rules of a format whose records and fillers are declared as layouts.

        Args:
            head: the first fields of a record.
            offset_field: the field of `head` that has the record's own offset.
            filler: the layout of size and magic, with which a record also begins.
            known_bytes: see the class.
            examine: see the class.
            scanner: see the class.
            parse_message: parses a record; `verify_crc` sets whether its checksum is compared.
            vouches: see the class.
            row_of: see the class.
        """
        place = [declared.name for declared in head.fields].index(offset_field)
        return cls(
            examine=examine,
            scanner=scanner,
            parse=lambda data: parse_message(data, verify_crc=False),
            vouches=vouches,
            row_of=row_of,
            size_of=lambda first: int(filler.unpack(first)[0]),
            is_filler=lambda first: filler.unpack(first)[1] in filler_magics,
            own_offset=lambda first: int(head.unpack(first)[place]) if len(first) >= head.size else None,
            head_bytes=filler.size,
            known_bytes=known_bytes,
        )


class Format(ABC):
    """Log format; pickled as the attribute `FORMAT` of the module that declares its class.

    Attributes:
        name: the format's name: `rocketmq`, `jmq`.
        title: the broker's name as people write it.
        folder: the folder of a store that holds its segments; a store is recognised by it. Checkpoints, snapshots and
            control files call the format by this.
        aliases: other names that options accept for it.
        id_pattern: matches the `msg_id` of each row of this format, and of no other.
        store_folders: folders of a store that never hold another store.
        queue_folders: the folders of a store that hold queues, the usual kind first.
        rebuilt_files: files and folders that a rebuild creates, as paths relative to the store's folder.
        has_dialects: whether brokers write the format in several dialects, see `dialects_of`.
        has_consume_log: whether a store may have its own log of deliveries, see `read_consume_log`.
        has_retry_store: whether a store may keep failed messages apart from its log, see `read_retry_store`.
        has_index_files: whether IndexFiles may lie beside the log.
        has_delay_levels: whether a broker delivers delayed messages by levels, from queues of a schedule topic.
        has_topic_configs: whether a store has a `config/topics.json`, which a broker must find.
        has_transaction_flags: whether a record's sys_flag marks inner batches and the state of a transaction.
        has_archived_settings: whether the archive records the broker's settings that a store's files show.
        accepts_zero_texts: whether a starting broker takes zeros in a record's texts for content.
        steps_over_damage: whether a broker continues to read after a bad range; else its log ends there.
        repairs_after_abort: whether a broker that finds the file `abort` rebuilds parts of its indexes.
        counts_entries: whether a checkpoint has the count of the entries of all queues.
        queue_entry_sizes: size of an entry in each folder of queues, bytes. An entry begins with the physical offset of
            a record, in 8 bytes, and its size, in 4 bytes; the size of an entry that is not written is 0.
        unsupported_logs: names of other kinds of logs that its brokers may write, by the prefix of their folders.
        can_be_restored: whether a log can be created from the rows of a lake.
        retention_note: a note on the deletion rules that `guard` uses for the broker; empty for none.
    """

    name: str
    title: str
    folder: str
    aliases: tuple[str, ...] = ()
    id_pattern: str
    store_folders: frozenset[str]
    queue_folders: tuple[str, ...]
    rebuilt_files: tuple[str, ...]
    has_dialects: bool = False
    has_consume_log: bool = False
    has_retry_store: bool = False
    has_index_files: bool = False
    has_delay_levels: bool = False
    has_topic_configs: bool = False
    has_transaction_flags: bool = False
    has_archived_settings: bool = False
    accepts_zero_texts: bool = False
    steps_over_damage: bool = False
    repairs_after_abort: bool = False
    counts_entries: bool = False
    queue_entry_sizes: Mapping[str, int] = MappingProxyType({})
    unsupported_logs: Mapping[str, str] = MappingProxyType({})
    can_be_restored: bool = False
    retention_note: str = ""

    def __reduce__(self) -> str:
        """Pickle only the place of the object, because the other process has it, too."""
        return "FORMAT"

    def __repr__(self) -> str:
        return f"<format {self.name}>"

    # Records

    @property
    @abstractmethod
    def rules(self) -> RecordRules:
        """Rules for one record."""

    @property
    @abstractmethod
    def kernel(self) -> FormatKernel:
        """Compiled loops for code that reads many records."""

    def sample_other_files(self) -> Mapping[str, bytes]:
        """Return small samples of a store's other files that compiled loops read, by their paths in the store."""
        return {}

    @abstractmethod
    def sample_segment(self, size: int) -> bytes:
        """Return a segment of three messages; one is damaged, and one has a property that is not UTF-8.

        Set-up reads it to compile the format's loops.
        """

    # Dialects

    def dialects_of(self, segments: Sequence[Segment]) -> frozenset[Dialect]:  # noqa: ARG002
        """Return the dialects of segments; none if the format has no dialects."""
        return frozenset()

    def dialect_of(self, segments: Sequence[Segment]) -> Dialect:  # noqa: ARG002
        """Return the dialect of a store with these segments, or RocketMQ's if its segments do not determine one."""
        return ROCKETMQ

    # Indexes

    @property
    @abstractmethod
    def queues(self) -> QueueLayout:
        """Queues of the format."""

    @property
    def batch_queues(self) -> QueueLayout | None:
        """Queues of topics with batches; None if the format has no separate queues for them."""
        return None

    @abstractmethod
    def facts_reader(self, start: int, delay_levels_ms: Sequence[int], chunk_rows: int) -> FactsReader:
        """Return a reader of the data that indexes derive from a range of the log.

        Args:
            start: physical offset of the range's first byte.
            delay_levels_ms: the broker's messageDelayLevel, if the format has delay levels.
            chunk_rows: the largest number of records in a chunk.
        """

    def why_no_key_index(self, segments: Sequence[Segment]) -> str | None:  # noqa: ARG002
        """Return why the indexes of a store with these segments cannot be searched for keys, or None if they can."""
        return f"a {self.folder} has no index of keys"

    def open_key_index(
        self, folder: Path, topics: Collection[str], keys: Collection[str], message_at: Callable[[int], Any]
    ) -> KeyIndex:
        """Open a store's indexes for a search for keys, unless `why_no_key_index` gives a reason.

        Args:
            folder: the store's folder.
            topics: the topics that are searched.
            keys: the keys of records that are searched for.
            message_at: a function that reads the record at a physical offset.

        Raises:
            IndexUnusable: if the indexes are missing, cannot be read, or have no answer.
        """
        raise NotImplementedError(f"{self.name} has no index of keys")

    @abstractmethod
    def walk_queues(
        self, files: StoreFiles, topic: str | None, queue_id: int | None, damage: Callable[[str], None]
    ) -> Iterator[dict[str, object]]:
        """Yield the entries of a store's queues as rows, in order of topic, queue and offset.

        Args:
            topic: return only this topic.
            queue_id: return only queues with this id.
            damage: receives a sentence about each invalid entry, if the format's entries can be checked.

        Raises:
            StoreError: if the store has no queues that can be read, or is a copy that was changed.
        """

    @abstractmethod
    def queue_writer(self, files: NewQueueFiles, queue: NewQueue) -> QueueWriter:
        """Return a writer that rebuilds a queue's files."""

    def has_rocksdb_queues(self, root: Path) -> bool:  # noqa: ARG002
        """Return whether the queues of a store are in RocksDB instead of files."""
        return False

    def rocksdb_offsets(self, root: Path) -> Path | None:  # noqa: ARG002
        """Return the folder of a store in which RocksDB has the offsets of groups; None if they are in a file."""
        return None

    def topic_kinds(self, root: Path) -> TopicKinds:  # noqa: ARG002
        """Return the queue types of a store's topics; empty if the format has only one type.

        Raises:
            UnsafeFileError: for a link among the files and folders that are read for this.
        """
        from commitlake.connectors.log_format.queues import TopicKinds  # noqa: PLC0415 (it needs numpy)

        return TopicKinds()

    def other_logs(self, root: Path, log: Path, settings: Mapping[str, str]) -> Iterable[Path]:  # noqa: ARG002
        """Return the folders that may have parts of a store's log, besides the one that is read; they need not exist.

        Args:
            root: the store's folder.
            log: the folder that is read.
            settings: the broker's settings; empty if they are unknown.
        """
        return ()

    def newest_indexed(self, root: Path) -> tuple[str, int] | None:  # noqa: ARG002
        """Return a store's newest index file, and the physical offset of the last record in it; None without one.

        Raises:
            OSError: if it cannot be read.
        """
        return None

    def checkpoint_claims(self, checkpoint: bytes) -> tuple[Claim, ...]:  # noqa: ARG002
        """Return the claims of a checkpoint's bytes; none if it cannot be read."""
        return ()

    def known_topics(self, root: Path) -> frozenset[str] | None:  # noqa: ARG002
        """Return the topics in a store's configuration; None if it does not list them."""
        return None

    # Small files

    def read_consume_log(self, root: str, broker: str, start: int | None) -> Iterator[ConsumeLogPart]:  # noqa: ARG002
        """Yield the content of a store's own log of deliveries at or after an offset; nothing for a format without one.

        Args:
            root: the store's folder, as a path or URI.
            broker: the store's name.
            start: offset in that log; None for its beginning.
        """
        return iter(())

    def read_retry_store(self, root: str, broker: str) -> StoredRetries:  # noqa: ARG002
        """Return the failed messages that a store keeps apart from its log; none for a format without a retry store.

        Args:
            root: the store's folder, as a path or URI.
            broker: the store's name.
        """
        from commitlake.connectors.log_format.deliveries import StoredRetries  # noqa: PLC0415 (it needs pyarrow)

        return StoredRetries()

    @abstractmethod
    def read_small_files(self, root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
        """Read a store's checkpoint and offsets; report unreadable files as problems, and treat them as missing.

        Args:
            root: the store's folder.
            is_live: whether a broker has the store open, which may not have written all of the files yet.
        """

    def check_checkpoint(self, log: CheckedLog, files: SmallFiles, problems: Problems) -> None:  # noqa: B027
        """Compare a checkpoint with records and queues, in addition to its claims about the log."""

    @abstractmethod
    def new_checkpoint(self, root: Path, log: RebuiltLog) -> bytes:
        """Return a checkpoint that confirms everything as flushed, as after a clean shutdown.

        Args:
            root: the store's folder; data that the log lacks may come from its old checkpoint.
        """

    def with_entry_count(self, checkpoint: bytes, entries: int) -> bytes | None:  # noqa: ARG002
        """Return a checkpoint with another count of entries; None if it has no count or cannot be read."""
        return None


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats of the stores that are wanted, among all that a store may have; iteration yields the wanted ones.

    Attributes:
        known: all formats. A store of another format than the wanted ones is recognised, and named in errors.
        wanted: formats that are read.
    """

    known: tuple[Format, ...] = ()
    wanted: tuple[Format, ...] = ()

    def __iter__(self) -> Iterator[Format]:
        return iter(self.wanted)

    @property
    def words(self) -> tuple[str, ...]:
        """Texts that `named` accepts in options, without aliases."""
        return (*(log_format.folder for log_format in self.known), _ANY)

    def only(self, log_format: Format) -> Formats:
        """Return the choice of one format."""
        return Formats(self.known, (log_format,))

    def called(self, text: str) -> Format | None:
        """Return the format for a folder name, a format name or an alias; None for unknown text."""
        names = ((each, (each.folder, each.name, *each.aliases)) for each in self.known)
        return next((each for each, own in names if text in own), None)

    def named(self, text: str) -> Formats:
        """Return the choice in the text of an option: one format, or any.

        Raises:
            ValueError: if the text is neither.
        """
        if text.lower() == _ANY:
            return Formats(self.known, self.known)
        found = self.called(text.lower())
        if found is None:
            raise ValueError(f"expected {', '.join(self.words)}, found {text!r}")
        return self.only(found)

    def __str__(self) -> str:
        return self.wanted[0].folder if len(self.wanted) == 1 else _ANY
